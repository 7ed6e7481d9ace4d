"""The files of checkpoints: whole or not there, never one over another, and those that Hadoop wrote are read on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import DataFrame, SparkSession

from tests.kernel.epochs import put

pytestmark = pytest.mark.spark

HADOOPS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
FILES = "spark.sql.streaming.checkpointFileManagerClass"


class Files:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.java: Any = spark._jvm
        self.folder = folder
        self.options: Any = spark.sparkContext._jsc.hadoopConfiguration()  # type: ignore[attr-defined]
        self.own = self.java.millrace.kernel.CheckpointFiles(self.path(), self.options)

    def path(self, name: str = "") -> Any:
        return self.java.org.apache.hadoop.fs.Path((self.folder / name).as_uri())

    def writing(self, name: str, text: str, *, over: bool = False) -> Any:
        stream = self.own.createAtomic(self.path(name), over)
        stream.write(text.encode())
        return stream

    def names(self) -> list[str]:
        return sorted(each.getPath().getName() for each in self.own.list(self.path()))


def test_a_file_is_there_as_a_whole_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path / "new" / "folder")
    stream = files.writing("a", "half")
    assert not files.own.exists(files.path("a"))
    stream.write(b" and half")
    stream.close()
    stream.close()
    assert (files.folder / "a").read_text() == "half and half"
    assert files.own.open(files.path("a")).readAllBytes() == b"half and half"
    cancelled = files.writing("b", "never")
    cancelled.cancel()
    cancelled.close()
    assert files.names() == ["a"]
    (found,) = files.own.list(files.path())
    assert (found.getLen(), found.isDirectory(), found.getPath().toUri().getScheme()) == (13, False, "file")


def test_nobody_writes_over_a_file_that_may_not_be_replaced(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path)
    first, second = files.writing("1", "mine"), files.writing("1", "theirs")
    first.close()
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        second.close()
    assert (tmp_path / "1").read_text() == "mine"
    files.writing("1", "new", over=True).close()
    assert (tmp_path / "1").read_text() == "new"
    assert files.names() == ["1"]


def test_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark, tmp_path)
    files.own.delete(files.path("nothing"))
    for look in (files.own.list, files.own.open):
        with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
            look(files.path("nothing"))
    files.own.mkdirs(files.path("a/b"))
    files.writing("a/b/c", "").close()
    files.own.delete(files.path("a"))
    assert files.names() == []
    elsewhere = files.java.org.apache.hadoop.fs.Path("hdfs://host/x")
    with pytest.raises(IllegalArgumentException, match="Wrong FS"):
        files.java.millrace.kernel.CheckpointFiles(elsewhere, files.options)


def test_a_checkpoint_goes_from_hadoops_files_to_these_and_back(spark: SparkSession, tmp_path: Path) -> None:
    own = spark.newSession()
    seen: list[tuple[int, int]] = []

    def keep(batch: DataFrame, _: int) -> None:
        seen.extend(sorted((row.k, row["count"]) for row in batch.collect()))

    for number, manager in enumerate((HADOOPS, "millrace.kernel.CheckpointFiles", HADOOPS)):
        own.conf.set(FILES, manager)
        put(tmp_path / "in", number, [{"k": number % 2, "at": "2026-01-01T00:00:00Z", "partition": 0}])
        rows = own.readStream.schema("k int").json(str(tmp_path / "in")).groupBy("k").count()
        query = rows.writeStream.outputMode("update").foreachBatch(keep).trigger(availableNow=True)
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert seen == [(0, 1), (1, 1), (0, 2)]
