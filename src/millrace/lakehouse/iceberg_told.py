"""What `pyiceberg` and the catalogs of Iceberg tables say, in our words."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from millrace.errors import (
    LakeCatalogFailed,
    LakeCatalogRefused,
    LakeCatalogUnreachable,
    LakeConflict,
    MillraceError,
)

_LOST = re.compile(r"NotFoundException.*?((?:\w+:/)?/[^'\"]*/metadata/[^/'\"]*\.metadata\.json)")


@contextlib.contextmanager
def told(table: str, token: str | None = None) -> Iterator[None]:
    """Who was second, or found no catalog, is told so in our words: SQLAlchemy's have the statement and more, and those
    of a REST catalog may repeat the `token`."""
    from pyiceberg.exceptions import (
        AuthorizationExpiredError,
        CommitFailedException,
        ForbiddenError,
        OAuthError,
        RESTError,
        UnauthorizedError,
    )
    from requests import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except MillraceError:
        raise
    except CommitFailedException:
        raise LakeConflict(table=table, reason="somebody else committed first") from None
    except SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or type(error).__name__).strip().splitlines()
        raise LakeCatalogUnreachable(reason=said[0][:300] if said else type(error).__name__) from None
    except ForbiddenError:
        raise LakeCatalogRefused(reason="it may not be done with this token") from None
    except (UnauthorizedError, AuthorizationExpiredError, OAuthError):
        reason = "the token is wrong or has expired" if token else "it wants a token, and none is given"
        raise LakeCatalogRefused(reason=reason) from None
    except (RESTError, RequestException) as error:  # of a catalog by REST; whether it committed, the next look tells
        raise LakeCatalogUnreachable(reason=_masked(error, token)) from None
    except Exception as error:
        # What else it has names for: a namespace that is gone, what it cannot do. These are its own words too.
        if not isinstance(error, NotImplementedError) and type(error).__module__ != CommitFailedException.__module__:
            raise
        raise LakeCatalogFailed(table=table, reason=_masked(error, token)) from None


def _masked(error: Exception, token: str | None) -> str:
    said = str(error).replace(token or "\0", "***").strip().splitlines()
    return said[0][:300] if said else type(error).__name__


def lost_at(error: Exception) -> str | None:
    """Where a REST catalog, which reads the metadata itself, says that they are not."""
    found = _LOST.search(str(error))
    return None if found is None else found.group(1)
