"""Which generation of a view counts. `millrace deploy` makes another one beside it: a flow with a folder, a checkpoint
and topics of its own, which are never moved. A small file says which one the view is.

checkpoints/<app>/
    <view>/                                 the first generation; and for all of them:
        generation.json                     which one counts, written in one step
        handover.json                       locked by who wants the view's flow to be let go (`handing`)
    _millrace.generation.<view>.<number>/   a later one
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from millrace.disk import sync_alone, write_whole

FILE = "generation.json"
FIRST = 1


@dataclass(frozen=True)
class Generation:
    """Its epochs count from 0 again, while those of the view go on: `shift` is what is added to them. `joined` is the
    last of them that was made beside the view. `renews` is the identity of the changelog topic that cannot go on with
    this one's rows, because their columns or key are others."""

    number: int = FIRST
    shift: int = 0
    joined: int = -1
    renews: str = ""

    @classmethod
    def read(cls, folder: Path) -> Generation:
        """`folder` is that of the view, whichever generation counts."""
        try:
            return cls(**json.loads((folder / FILE).read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()

    def write(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / FILE, json.dumps(asdict(self)))
        sync_alone(folder)

    def folder(self, folder: Path) -> Path:
        return folder if self.number == FIRST else folder.with_name(beside(folder.name, self.number))


def beside(view: str, number: int) -> str:
    """What a later generation's folder, flow and topic are called while it is not the view yet."""
    return f"_millrace.generation.{view}.{number}"


def current(folder: Path) -> Path:
    """The folder of the generation that counts."""
    return Generation.read(folder).folder(folder)


def begin_anew(folder: Path) -> None:
    """A view that forgets its checkpoint counts its epochs from the first again."""
    found = Generation.read(folder)
    if (found.shift, found.joined, found.renews) != (0, -1, ""):
        Generation(found.number).write(folder)
