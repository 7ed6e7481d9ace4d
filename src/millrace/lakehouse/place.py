"""Where a lake's tables are: a folder of a disk, or a part of an S3 bucket. Paths are taken from it, with `/` between
their parts."""

from __future__ import annotations

import contextlib
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from millrace.disk import sync_alone

# Files that are waited for at a time; the disk does the work.
_AT_ONCE = 8


@dataclass(frozen=True)
class Seen:
    """A file as it is there."""

    path: str
    size_bytes: int
    modified_s: float


class Place(ABC):
    """`url` is how libraries call it, `spark` how Spark does; `filesystem` is Arrow's, for its readers and writers."""

    url: str
    spark: str
    filesystem: Any = None

    @abstractmethod
    def below(self, path: str) -> Place: ...

    @abstractmethod
    def arrow(self, path: str) -> str:
        """How `filesystem` calls a path."""

    @abstractmethod
    def files(self, under: str = "", ending: str = ".parquet") -> list[Seen]:
        """All that end so, however deep."""

    @abstractmethod
    def names(self, under: str = "") -> list[str]:
        """What is directly there, folders and files."""

    @abstractmethod
    def seen(self, path: str) -> Seen | None:
        """None if there is no such file."""

    @abstractmethod
    def has_all(self, paths: Iterable[str]) -> bool: ...

    @abstractmethod
    def changed_s(self, under: str) -> dict[str, float]:
        """What is directly there, and when it last changed."""

    @abstractmethod
    def has_folder(self, path: str) -> bool: ...

    @abstractmethod
    def make(self, path: str) -> None:
        """A folder, where folders have to be made."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """A file, which need not be there."""

    @abstractmethod
    def remove_folder(self, path: str) -> None:
        """With all that is in it."""

    @abstractmethod
    def rename_folder(self, path: str, to: str) -> None: ...

    @abstractmethod
    def tidy(self, folders: Iterable[str]) -> None:
        """Removes those that are empty."""

    def abandon(self, under: str, before: datetime | None = None) -> int:  # noqa: ARG002 -- a disk has none
        """Lets go of what was being sent there in parts and never came to its end: all, or what was begun before then.
        Gives how many."""
        return 0

    def begin_settling(self, paths: Iterable[str]) -> None:  # noqa: B027 -- a bucket does so by itself
        """Begins with what `settling` waits for; these files are whole."""

    @contextlib.contextmanager
    def settling(self, paths: Iterable[str]) -> Iterator[None]:  # noqa: ARG002 -- a bucket does so by itself
        """At the end of the block these files are there for good, also after the power failed: what a commit names has
        to be there before it."""
        yield

    @abstractmethod
    def relative(self, location: str) -> str:
        """A path of ours, from a location as libraries or Spark tell it."""

    def location(self, path: str) -> str:
        """As Iceberg and Spark tell it."""
        return f"{self.spark}/{path}"

    @property
    def options(self) -> Mapping[str, str]:
        """For Spark's readers and writers."""
        return {}


class Disk(Place):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url, self.spark = str(folder), f"file://{folder}"
        self._begun: dict[Path, Future[None]] = {}

    def below(self, path: str) -> Disk:
        return Disk(self.folder / path)

    def arrow(self, path: str) -> str:
        return str(self.folder / path)

    def files(self, under: str = "", ending: str = ".parquet") -> list[Seen]:
        found = []
        for path in (self.folder / under).rglob(f"*{ending}"):
            with contextlib.suppress(FileNotFoundError):  # somebody else lets files go
                status = path.stat()
                found.append(Seen(str(path.relative_to(self.folder)), status.st_size, status.st_mtime))
        return found

    def names(self, under: str = "") -> list[str]:
        folder = self.folder / under
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def seen(self, path: str) -> Seen | None:
        try:
            status = (self.folder / path).stat()
        except FileNotFoundError:
            return None
        return Seen(path, status.st_size, status.st_mtime)

    def has_all(self, paths: Iterable[str]) -> bool:
        return all((self.folder / path).exists() for path in paths)

    def changed_s(self, under: str) -> dict[str, float]:
        folder = self.folder / under
        return {path.name: path.stat().st_mtime for path in folder.iterdir()} if folder.is_dir() else {}

    def has_folder(self, path: str) -> bool:
        return (self.folder / path).is_dir()

    def make(self, path: str) -> None:
        (self.folder / path).mkdir(parents=True)

    def remove(self, path: str) -> None:
        (self.folder / path).unlink(missing_ok=True)

    def remove_folder(self, path: str) -> None:
        shutil.rmtree(self.folder / path, ignore_errors=True)

    def rename_folder(self, path: str, to: str) -> None:
        (self.folder / path).rename(self.folder / to)

    def tidy(self, folders: Iterable[str]) -> None:
        for each in sorted(folders, key=len, reverse=True):
            with contextlib.suppress(OSError):  # it is not
                (self.folder / each).rmdir()

    def begin_settling(self, paths: Iterable[str]) -> None:
        pool = ThreadPoolExecutor(_AT_ONCE)
        for path in paths:
            self._begun[self.folder / path] = pool.submit(sync_alone, self.folder / path)
        pool.shutdown(wait=False)

    @contextlib.contextmanager
    def settling(self, paths: Iterable[str]) -> Iterator[None]:
        files = [self.folder / path for path in paths]
        folders = {above for path in files for above in path.parents if above.is_relative_to(self.folder)}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            waiting = [self._begun.get(path) or pool.submit(sync_alone, path) for path in files]
            self._begun.clear()  # also what attempts had begun that came to nothing
            waiting += [pool.submit(sync_alone, folder) for folder in folders]
            yield
            for each in waiting:
                each.result()

    def relative(self, location: str) -> str:
        return location.removeprefix("file://").removeprefix("file:").removeprefix(f"{self.folder}/")
