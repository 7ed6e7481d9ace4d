"""A part of an S3 bucket as a place of the lake, by PyArrow's file system; and what the others who read and write there
are to be told. The keys are taken from the environment of each process, and are never written down."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from millrace.errors import LakeKeysMissing, LakeStoreUnreachable
from millrace.lakehouse.place import Place, Seen

SCHEME = "s3://"
KEYS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
SESSION = "AWS_SESSION_TOKEN"
_CONNECT_S, _ANSWER_S = 5, 60


@dataclass(frozen=True)
class Store:
    """An S3: Amazon's own, or the one at `endpoint`. Objects larger than `part_mb` go there in parts of that size."""

    endpoint: str | None
    region: str
    part_mb: int = 32

    def checked(self, url: str) -> Store:
        if not all(os.environ.get(name) for name in KEYS):
            raise LakeKeysMissing(url=url, names=" and ".join(KEYS))
        return self

    def filesystem(self) -> Any:
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            region=self.region,
            endpoint_override=self.endpoint,
            connect_timeout=_CONNECT_S,
            request_timeout=_ANSWER_S,
            background_writes=False,
        )

    @property
    def delta(self) -> dict[str, str]:
        """For `deltalake`. A commit is created only if it is not there: otherwise two could both be first."""
        found = {"AWS_REGION": self.region, "aws_conditional_put": "etag"}
        if self.endpoint is not None:
            found |= {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": str(self._plain).lower()}
        return found

    @property
    def iceberg(self) -> dict[str, str]:
        """For `pyiceberg`."""
        found = {"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO", "s3.region": self.region}
        return found if self.endpoint is None else {**found, "s3.endpoint": self.endpoint}

    @property
    def spark(self) -> dict[str, str]:
        """For Spark (`BucketFileSystem.java`). A file system that is kept would keep its endpoint. A task renames what
        it wrote itself: a rename is a copy, so there is one and not two."""
        found = {
            "fs.s3.impl": "millrace.bucket.BucketFileSystem",
            "fs.s3.impl.disable.cache": "true",
            "mapreduce.fileoutputcommitter.algorithm.version": "2",
            "millrace.s3.region": self.region,
            "millrace.s3.part.bytes": str(self.part_mb * 1024 * 1024),
        }
        return found if self.endpoint is None else {**found, "millrace.s3.endpoint": self.endpoint}

    def duckdb(self) -> str:
        """The statement by which DuckDB has the keys, which no query is shown."""
        words = {"KEY_ID": os.environ[KEYS[0]], "SECRET": os.environ[KEYS[1]], "REGION": self.region}
        if os.environ.get(SESSION):
            words["SESSION_TOKEN"] = os.environ[SESSION]
        if self.endpoint is not None:
            words |= {"ENDPOINT": self.endpoint.partition("://")[2].rstrip("/"), "URL_STYLE": "path"}
        told = ", ".join(f"{name} '" + value.replace("'", "''") + "'" for name, value in words.items())
        return f"CREATE SECRET (TYPE s3, {told}, USE_SSL {str(not self._plain).lower()})"

    @property
    def _plain(self) -> bool:
        return self.endpoint is not None and self.endpoint.startswith("http://")


class Bucket(Place):
    """`url` has no `/` at its end."""

    def __init__(self, url: str, store: Store, filesystem: Any = None) -> None:
        self.url = self.spark = url
        self.store = store.checked(url)
        if filesystem is not None:
            self.filesystem = filesystem

    @cached_property
    def filesystem(self) -> Any:
        return self.store.filesystem()

    @property
    def options(self) -> Mapping[str, str]:
        return self.store.spark

    def below(self, path: str) -> Bucket:
        return Bucket(f"{self.url}/{path}", self.store, self.filesystem)

    def arrow(self, path: str) -> str:
        return f"{self.url.removeprefix(SCHEME)}/{path}".rstrip("/")

    def files(self, under: str = "", ending: str = ".parquet") -> list[Seen]:
        found = (each for each in self._listed(under, recursive=True) if each.is_file and each.path.endswith(ending))
        return [self._seen(each) for each in found]

    def names(self, under: str = "") -> list[str]:
        return sorted(each.base_name for each in self._listed(under, recursive=False))

    def seen(self, path: str) -> Seen | None:
        with told(self.url):
            found = self.filesystem.get_file_info(self.arrow(path))
        return self._seen(found) if found.is_file else None

    def has_all(self, paths: Iterable[str]) -> bool:
        return set(paths) <= {each.path for each in self.files(ending="")}

    def changed_s(self, under: str) -> dict[str, float]:
        found: dict[str, float] = {}
        for each in self.files(under, ""):
            name = each.path.removeprefix(f"{under}/").partition("/")[0]
            found[name] = max(each.modified_s, found.get(name, 0.0))
        return found

    def has_folder(self, path: str) -> bool:
        return bool(self._listed(path, recursive=False))

    def make(self, path: str) -> None:
        """Folders are the beginnings of names."""

    def remove(self, path: str) -> None:
        from millrace.lakehouse.uploads import Uploads

        Uploads(self).remove(path)

    def remove_folder(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError), told(self.url):
            self.filesystem.delete_dir(self.arrow(path))

    def rename_folder(self, path: str, to: str) -> None:
        for each in self.files(path, ""):
            with told(self.url):
                self.filesystem.copy_file(self.arrow(each.path), self.arrow(to + each.path.removeprefix(path)))
            self.remove(each.path)

    def tidy(self, folders: Iterable[str]) -> None:
        """A folder goes with the last that is in it."""

    def abandon(self, under: str, before: datetime | None = None) -> int:
        from millrace.lakehouse.uploads import Uploads

        uploads = Uploads(self)
        left = [each for each in uploads.begun(under) if before is None or each.at < before]
        for each in left:
            uploads.abort(each)
        return len(left)

    def relative(self, location: str) -> str:
        return location.removeprefix(f"{self.url}/")

    def _listed(self, under: str, *, recursive: bool) -> list[Any]:
        from pyarrow.fs import FileSelector, FileType

        with told(self.url):
            chosen = FileSelector(self.arrow(under), allow_not_found=True, recursive=recursive)
            found = list(self.filesystem.get_file_info(chosen))
            # Of a bucket that is not there Arrow says the same as of an empty one.
            name = self.arrow("").partition("/")[0]
            if not found and self.filesystem.get_file_info(name).type == FileType.NotFound:
                raise OSError(f"there is no bucket {name}")
            return found

    def _seen(self, found: Any) -> Seen:
        path = found.path.removeprefix(f"{self.arrow('')}/")
        return Seen(path, found.size, 0.0 if found.mtime is None else found.mtime.timestamp())


@contextlib.contextmanager
def told(url: str) -> Iterator[None]:
    """What Arrow says of an S3 that does not answer, or refuses, in our words."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise LakeStoreUnreachable(url=url, reason=lines[0][:300]) from None
