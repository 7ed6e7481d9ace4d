"""Copies of the source with one protection taken out each: the matrix must see it. A cell kills where it matters."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import millrace

SOURCE = Path(millrace.__file__).parent


@dataclass(frozen=True)
class Mutant:
    """In `file` the text `old`, which is there once, is `new`. `cell` is what brings it to light, `says` a word of the
    fault; by the cell's `seed` some epochs pass before."""

    name: str
    file: str
    old: str
    new: str
    cell: str
    seed: int
    says: str

    def made(self, folder: Path) -> Path:
        """A copy of the source with the fault, to be put first on PYTHONPATH."""
        shutil.copytree(SOURCE, folder / "millrace", ignore=shutil.ignore_patterns("__pycache__", "*.jar"))
        path = folder / "millrace" / self.file
        text = path.read_text()
        assert text.count(self.old) == 1, f"{self.file} has changed: the mutant {self.name!r} no longer fits"
        path.write_text(text.replace(self.old, self.new))
        return folder


MUTANTS = (
    Mutant(
        "ledger check dropped",
        "sinks/postgres_ledger.py",
        "return due(self._sink, epoch, self.held(flow), self._where)",
        "return True",
        "sink SINK_AFTER pg_rows",
        0,
        "pg_rows",
    ),
    Mutant(
        "ledger check of the lake dropped",
        "sinks/lake_writer.py",
        "if not self._ledger.due(epoch):\n                return",
        "self._ledger.due(epoch)",
        "sink SINK_AFTER delta_rows",
        1,
        "delta_rows",
    ),
    Mutant(
        "what a dead attempt left stays",
        "sinks/lake_writer.py",
        'place.remove_folder(f"{DATA}/{name}")',
        "pass",
        "sink SINK_BEFORE_LEDGER iceberg_rows",
        0,
        "is in no version of",
    ),
    Mutant(
        "ack before store",
        "sinks/webhook_writer.py",
        "        task = Posting(",
        "        self._ledger.write(epoch)\n        task = Posting(",
        "sink SINK_IN_BULK hook",
        3,
        "webhook",
    ),
    Mutant(
        "transaction log skipped",
        "kernel/java/millrace/sink/Delivery.java",
        "if (!ledger.prepare(epoch)) throw Refused.takenOver();",
        "",
        "jvm AFTER_SOME_COMMITS copied",
        4,
        "topic copied",
    ),
    Mutant(
        "late rows dropped uncounted",
        "engine/sides.py",
        "return rows.where(_refused()).select(",
        "return rows.where(_refused() & F.lit(False)).select(",
        "jvm OFFSETS_AFTER windowed",
        5,
        "windowed",
    ),
)
