"""Large objects of a bucket go there in parts, and what a kill left of them is let go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from millrace import config
from millrace.config import Settings
from millrace.errors import ConfigInvalid
from millrace.lakehouse import Catalog
from millrace.lakehouse.bucket import Bucket
from millrace.lakehouse.uploads import Uploads, signed
from millrace.sinks import Feed
from millrace.sinks.lake import lake

pytestmark = [pytest.mark.spark, pytest.mark.server]

PART_MB = 5  # the least of S3
MB = 1024 * 1024
# Writes a large object as the driver does, says so, and waits for its end.
_CUT_OFF = """\
import sys
from pyarrow.fs import S3FileSystem
out = S3FileSystem(endpoint_override=sys.argv[1], background_writes=False).open_output_stream(sys.argv[2])
out.write(b"x" * (24 << 20))
print("written", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(bucket: Settings) -> Bucket:
    """A part of the bucket for one test alone."""
    lake = replace(bucket.lake, bucket=f"{bucket.lake.bucket}/parts_{uuid.uuid4().hex[:8]}", part_mb=PART_MB)
    found = Catalog(replace(bucket, lake=lake)).place
    assert isinstance(found, Bucket)
    return found


@pytest.fixture
def files(spark: SparkSession, place: Bucket) -> Iterator[Any]:
    """The place as Spark has it, which copies 6 MB at once."""
    jvm: Any = spark._jvm
    conf = jvm.org.apache.hadoop.conf.Configuration(False)
    for name, value in {**place.options, "millrace.s3.copy.bytes": str(6 * MB)}.items():
        conf.set(name, value)
    found = jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI.create(place.url), conf)
    yield found
    found.close()


def path(spark: SparkSession, place: Bucket, name: str) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(f"{place.url}/{name}")


def test_a_large_object_comes_in_parts_and_as_a_whole(spark: SparkSession, place: Bucket, files: Any) -> None:
    uploads, told = Uploads(place), os.urandom(MB)
    out = files.create(path(spark, place, "large"))
    for _ in range(2 * PART_MB + 1):
        out.write(told)
    assert [each.path for each in uploads.begun()] == ["large"]
    assert place.seen("large") is None
    out.write(b"end")
    out.close()
    assert uploads.begun() == []
    assert files.rename(path(spark, place, "large"), path(spark, place, "ä large"))
    assert place.seen("large") is None
    with place.filesystem.open_input_stream(place.arrow("ä large")) as found:
        assert found.read() == told * (2 * PART_MB + 1) + b"end"
    assert uploads.begun() == []
    # One that ends where a part does, and one that is no larger than a part.
    for name, length in (("even", 2 * PART_MB), ("small", PART_MB)):
        out = files.create(path(spark, place, name))
        for _ in range(length):
            out.write(told)
        assert len(uploads.begun()) == length // PART_MB - 1
        out.close()
        seen = place.seen(name)
        assert seen is not None
        assert seen.size_bytes == length * MB


def test_an_object_whose_parts_are_gone_is_not_there(spark: SparkSession, place: Bucket, files: Any) -> None:
    out = files.create(path(spark, place, "lost"))
    for _ in range(PART_MB + 1):
        out.write(bytes(MB))
    assert place.abandon("") == 1
    with pytest.raises(Exception, match="lost"):
        out.close()
    assert place.seen("lost") is None


def test_what_fails_between_two_parts_leaves_none_and_makes_no_object(
    spark: SparkSession, place: Bucket, files: Any
) -> None:
    jvm: Any = spark._jvm

    def begun(name: str) -> Any:
        out = files.create(path(spark, place, name))
        for _ in range(PART_MB + 1):
            out.write(bytes(MB))
        assert [each.path for each in Uploads(place).begun()] == [name]
        return out

    # The executor's disk is full, and later it is not.
    out = begun("full")
    stream = out.getWrappedStream()
    collecting = stream.getClass().getDeclaredField("out")
    collecting.setAccessible(True)
    collecting.set(stream, jvm.java.io.PipedOutputStream())
    with pytest.raises(Exception, match="Pipe not connected"):
        out.write(bytes(MB))
    assert Uploads(place).begun() == []
    with pytest.raises(Exception, match="nothing more can be written"):
        out.write(bytes(MB))
    out.close()
    assert place.seen("full") is None

    # The task is killed: whatever is asked of S3 with the flag up fails, and so would the end of the upload.
    out = begun("killed")
    handles = jvm.java.lang.invoke
    nothing = handles.MethodType.methodType(jvm.Void.TYPE)
    close = handles.MethodHandles.publicLookup().findVirtual(
        jvm.Class.forName("java.io.OutputStream"), "close", nothing
    )
    closing = handles.MethodHandleProxies.asInterfaceInstance(
        jvm.Class.forName("java.lang.Runnable"), close.bindTo(out)
    )
    task = jvm.Thread(closing)
    task.interrupt()
    task.start()
    task.join()
    assert Uploads(place).begun() == []
    assert place.seen("killed") is None


def test_an_s3_that_says_200_and_an_error_is_not_believed(spark: SparkSession, bucket: Settings) -> None:
    """It begins its answer before it knows: a rename that went on would delete what was not copied."""
    assert bucket  # whose keys the session has
    jvm: Any = spark._jvm
    with failing_s3() as s3:
        conf = jvm.org.apache.hadoop.conf.Configuration(False)
        for name, value in (("fs.s3.impl", "millrace.bucket.BucketFileSystem"), ("millrace.s3.endpoint", s3.url)):
            conf.set(name, value)
        for most, asked in ((1 << 30, "PUT"), (100, "POST")):  # as one, and part by part
            conf.set("millrace.s3.copy.bytes", str(most))
            found = jvm.org.apache.hadoop.fs.FileSystem.newInstance(jvm.java.net.URI.create("s3://shop"), conf)
            names = [jvm.org.apache.hadoop.fs.Path(f"s3://shop/{name}") for name in ("from", "to")]
            s3.errors, s3.seen = -1, []
            with pytest.raises(Exception, match="s3 answered 200 InternalError for to") as told:
                found.rename(*names)
            assert "AKIA" not in str(told.value)
            assert "DELETE /shop/from" not in s3.seen
            # Parts are let go once, however S3 answers: a task that is being killed does not wait for it.
            assert [each for each in s3.seen if "DELETE" in each] == ["DELETE /shop/to?uploadId=1"] * (asked == "POST")
            s3.errors, s3.seen = 1, []
            assert found.rename(*names), "it was asked again"
            assert s3.seen[-1] == "DELETE /shop/from"
            found.close()


class FailingS3(ThreadingHTTPServer):
    """Holds one object of 150 bytes, and answers so many copies and ends of uploads with 200 and an error; -1 is all.
    It lets go of nothing while it does."""

    errors = 0

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.seen: list[str] = []

    def answer(self, method: str, path: str) -> tuple[int, str]:
        if method == "POST" and "uploads" in path:
            return 200, "<R><UploadId>1</UploadId></R>"
        if method == "DELETE" and self.errors < 0:
            return 503, ""
        if ((method == "PUT" and "partNumber" not in path) or method == "POST") and self.errors:
            self.errors -= 1
            return 200, "<Error><Code>InternalError</Code><AWSAccessKeyId>AKIA1</AWSAccessKeyId></Error>"
        return 200, "<R><ETag>&quot;tag&quot;</ETag></R>" if method != "GET" else "<ListBucketResult/>"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FailingS3

    def _any(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.seen.append(f"{self.command} {self.path}")
        status, text = self.server.answer(self.command, self.path)
        self.send_response(status)
        self.send_header("content-length", str(150 if self.command == "HEAD" else len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text.encode())

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _any  # noqa: N815 -- the library's names

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def failing_s3() -> Iterator[FailingS3]:
    with FailingS3() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_what_a_kill_left_in_parts_goes_when_the_flow_starts_again(bucket: Settings, tmp_path: Path) -> None:
    sink, feed = lake(f"parts_{uuid.uuid4().hex[:8]}"), Feed(StructType([StructField("id", LongType())]))
    sink.open(bucket, "flow", feed, tmp_path).close()
    place = Catalog(bucket).place.below(sink.table)
    assert isinstance(place, Bucket)
    for under in ("data/flow/1-a", "data/flow.compacted/1-b", "data/compacted/1-c"):
        cut_off(bucket, f"{place.arrow(under)}/part.parquet")
    assert len(Uploads(place).begun()) == 3
    sink.open(bucket, "flow", feed, tmp_path).close()
    # Of a compaction by hand nobody knows whether it still goes on, for a day.
    assert [each.path for each in Uploads(place).begun()] == ["data/compacted/1-c/part.parquet"]
    assert place.abandon("", datetime.now(UTC) + timedelta(days=1)) == 1
    assert Uploads(place).begun() == []


def cut_off(settings: Settings, path: str) -> None:
    given = [sys.executable, "-c", _CUT_OFF, str(settings.lake.endpoint), path]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        with contextlib.ExitStack() as ending:
            ending.callback(os.kill, writer.pid, signal.SIGKILL)
            assert writer.stdout.readline() == b"written\n"


def test_signatures_are_those_of_amazons_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """From "Authenticating Requests: Using the Authorization Header", its first example."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    url, now = "https://examplebucket.s3.amazonaws.com/test.txt", datetime(2013, 5, 24, tzinfo=UTC)
    headers = signed("GET", url, "us-east-1", now, {"range": "bytes=0-9"})
    wanted = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert headers["authorization"].endswith(f"x-amz-date, Signature={wanted}")


def test_parts_are_as_large_as_s3_takes_them(tmp_path: Path) -> None:
    (tmp_path / "millrace.toml").write_text('[lake]\nfolder = "s3://shop/lake"\npart_mb = 16\n')
    assert config.load(tmp_path, {}).lake.part_mb == 16
    assert config.load(tmp_path, {"MILLRACE_LAKE_PART_MB": "5000"}).lake.part_mb == 5000
    for wrong in ("4", "5001"):
        with pytest.raises(ConfigInvalid, match="not a whole number from 5 to 5000"):
            config.load(tmp_path, {"MILLRACE_LAKE_PART_MB": wrong})
