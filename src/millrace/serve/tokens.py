"""Tokens: who may read which views, send to which topics, look at the console. The file holds hashes alone; a token is
seen once.

A token is 256 random bits, so that one round of SHA-256 is all that its hash needs.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from millrace.disk import write_whole
from millrace.errors import (
    ScopeInvalid,
    ScopeMissing,
    TokenExists,
    TokenExpired,
    TokenInvalid,
    TokensUnreadable,
    TokenUnknown,
    nearest,
)

PREFIX = "mrt_"
_SCOPE = re.compile(r"(view|send|tail):(\*|[A-Za-z][A-Za-z0-9._-]{0,179})|query|status|console")


@dataclass(frozen=True)
class Token:
    """What is known of a token: all but itself."""

    name: str
    hash: str
    scopes: tuple[str, ...]
    created: str
    expires: str | None = None

    @property
    def expired(self) -> bool:
        return self.expires is not None and datetime.fromisoformat(self.expires) <= datetime.now(UTC)

    def allows(self, scope: str) -> bool:
        """`view:*` allows `view:revenue`."""
        kind, _, name = scope.partition(":")
        return scope in self.scopes or (bool(name) and f"{kind}:*" in self.scopes)

    def require(self, scope: str) -> None:
        if not self.allows(scope):
            raise ScopeMissing(scope=scope)


# Whoever asks where there are no tokens: somebody on this machine.
ANYBODY = Token("anybody", "", ("view:*", "send:*", "tail:*", "query", "status"), "")


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


class Tokens:
    """Those of a file. It is read again whenever it has changed, so that a token revoked by a command is so at once."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._seen: tuple[int, int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def all(self) -> list[Token]:
        self._refresh()
        return sorted(self._tokens.values(), key=lambda token: token.name)

    def found(self, secret: str) -> Token:
        self._refresh()
        token = self._tokens.get(hashed(secret))
        if token is None:
            raise TokenInvalid()
        if token.expired:
            raise TokenExpired(at=token.expires)
        return token

    def holds(self, token: Token) -> bool:
        """Whether it still is one, as it was when it was shown."""
        self._refresh()
        return self._tokens.get(token.hash) == token and not token.expired

    def create(self, name: str, scopes: Iterable[str], expires: datetime | None = None) -> str:
        """The token itself, which nobody will be told again."""
        found = tuple(dict.fromkeys(scopes))
        for scope in found or ("",):
            if not _SCOPE.fullmatch(scope):
                raise ScopeInvalid(scope=scope)
        secret = PREFIX + secrets.token_urlsafe(32)
        with self._changing() as tokens:
            if any(each.name == name for each in tokens):
                raise TokenExists(name=name)
            until = None if expires is None else expires.astimezone(UTC).isoformat(timespec="seconds")
            created = datetime.now(UTC).isoformat(timespec="seconds")
            tokens.append(Token(name, hashed(secret), found, created, until))
        return secret

    def revoke(self, name: str) -> None:
        with self._changing() as tokens:
            kept = [each for each in tokens if each.name != name]
            if len(kept) == len(tokens):
                raise TokenUnknown(name=name, hint=nearest(name, [each.name for each in tokens]))
            tokens[:] = kept

    @contextlib.contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        """One command at a time."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        with (self.file.parent / f"{self.file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            tokens = self.all()
            yield tokens
            self.file.touch(mode=0o600)
            write_whole(self.file, json.dumps([asdict(each) for each in tokens], indent=2) + "\n")
            self.file.chmod(0o600)

    def _refresh(self) -> None:
        try:
            state = self.file.stat()
            seen = (state.st_mtime_ns, state.st_size, state.st_ino)
            if seen == self._seen:
                return
            raw = json.loads(self.file.read_text(encoding="utf-8"))
            found = [Token(**{**each, "scopes": tuple(each["scopes"])}) for each in raw]
        except FileNotFoundError:
            seen, found = None, []
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise TokensUnreadable(file=self.file, reason=error) from None
        self._seen, self._tokens = seen, {each.hash: each for each in found}
