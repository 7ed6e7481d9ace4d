"""Makes the golden checkpoints of this version: python -m tests.golden.make

In `tests/golden/<version>/` are the events and records that all of them read (`in` and `records`: the checkpoints have
read the first BEFORE files, the others are for the test) and for each operator its folder as an archive: Spark's
checkpoint, the clock's, and the rows that were told. Those that are there are never made anew: there are such in the
world. An operator that keeps another form than they have gets one more archive (FORMS).
"""

from __future__ import annotations

import io
import random
import shutil
import tempfile
import zipfile
from pathlib import Path

from pyspark.sql import SparkSession

import millrace
from tests.kernel.parts import made, read, write
from tests.kernel.specimens import SPECIMENS, Specimen

BEFORE, AFTER = 4, 2
HERE = Path(__file__).parent

# Archives of an operator's later forms, and whose they are. Keys of `join` once had a timer each, and share them now.
FORMS = {"join_shared": "join"}
ARCHIVES = {**{name: name for name in SPECIMENS}, **FORMS}

# In place of the folder in which a checkpoint was made: Spark writes down where files were.
NEUTRAL = "/golden"
# An archive is the same whenever it is made of the same; this is the earliest time that one can state.
_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)


def pack(folder: Path, archive: Path) -> None:
    """Without the inputs, which all share, and without the checksums of files that are changed here."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            if not path.is_file() or path.suffix == ".crc" or name.parts[0] in ("in", "records"):
                continue
            content = path.read_bytes().replace(str(folder).encode(), NEUTRAL.encode())
            _check(content, name)
            packed.writestr(zipfile.ZipInfo(name.as_posix(), _ENTRY_TIME), content, zipfile.ZIP_DEFLATED)


def _check(content: bytes, name: Path) -> None:
    """That it says nothing of this machine's folders. (RocksDB writes the host's name into its tables.)"""
    inner = io.BytesIO(content)
    if zipfile.is_zipfile(inner):
        with zipfile.ZipFile(inner) as snapshot:
            content = b"".join(snapshot.read(each) for each in snapshot.namelist())
    for machine in (tempfile.gettempdir(), str(Path.home()), str(HERE.parents[1])):
        assert machine.encode() not in content, f"{name} has {machine}"


def unpack(archive: Path, folder: Path) -> None:
    """As if it had been made in this folder."""
    with zipfile.ZipFile(archive) as packed:
        for name in packed.namelist():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(packed.read(name).replace(f"{NEUTRAL}/".encode(), f"{folder}/".encode()))


def make(spark: SparkSession, target: Path) -> None:
    parts = made(random.Random("golden"), BEFORE + AFTER)
    if not (target / "in").is_dir():
        for number, part in enumerate(parts):
            write(target, number, part)
    assert read(target) == parts
    for name, of in ARCHIVES.items():
        specimen = SPECIMENS[of]
        if (target / f"{name}.zip").exists():
            continue
        folder = Path(tempfile.mkdtemp(prefix="millrace-golden-"))
        for number, part in enumerate(parts[:BEFORE]):
            write(folder, number, part)
        _run(spark, specimen, folder)
        assert specimen.faults(folder, parts[:BEFORE]) == []
        pack(folder, target / f"{name}.zip")
        shutil.rmtree(folder)


def _run(spark: SparkSession, specimen: Specimen, folder: Path) -> None:
    specimen.start(spark, folder).awaitTermination()


def main() -> None:
    from dataclasses import replace

    from millrace import config
    from millrace.engine.session import close, session

    target = HERE / millrace.__version__
    target.mkdir(exist_ok=True)
    settings = config.load(Path(tempfile.mkdtemp(prefix="millrace-golden-")))
    options = {"spark.sql.shuffle.partitions": "2"}
    spark = session(replace(settings, spark=replace(settings.spark, options=options)), "local[2]", "golden")
    try:
        make(spark, target)
    finally:
        close(spark)
        shutil.rmtree(settings.folder)


if __name__ == "__main__":
    main()
