"""Lake tables in a bucket of S3: the suite for both formats, random epochs, and what others are told of it."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from millrace import config, local
from millrace.config import Settings
from millrace.errors import ConfigInvalid, LakeKeysMissing, LakeQueryInvalid, LakeStoreUnreachable
from millrace.lakehouse import Catalog
from millrace.lakehouse.asking import asked, connected
from millrace.sinks import Sink
from millrace.sinks.lake import lake
from millrace.testing.sinks import SinkSuite
from tests.lakehouse.fuzz import Fuzz
from tests.rotation import today, todays

pytestmark = [pytest.mark.spark, pytest.mark.server]

_numbers = itertools.count(1)


class BucketSuite(SinkSuite):
    format: ClassVar[Any]

    @pytest.fixture(autouse=True)
    def _server(self, bucket: Settings, postgres: str) -> None:
        self.project, self.url = bucket, postgres

    def settings(self) -> Settings:
        return self.project

    def sink(self, *, keyed: bool) -> Sink:
        return lake(f"stored{next(_numbers)}", format=self.format, key="id" if keyed else None)

    def held(self, sink: Sink) -> Iterable[Mapping[str, Any]]:
        with asked(self.project, f"SELECT * FROM {sink.table}") as found:  # type: ignore[attr-defined]
            rows: list[Mapping[str, Any]] = found.to_arrow_table().to_pylist()
        return rows

    def away(self) -> AbstractContextManager[None]:
        @contextlib.contextmanager
        def stopped() -> Iterator[None]:
            local.down(self.project, ("s3proxy",))
            try:
                yield
            finally:
                local.up(self.project, ("s3proxy",))

        return stopped()


@pytest.mark.turn(0, 4)
class TestDelta(BucketSuite):
    format = "delta"


@pytest.mark.turn(2, 4)
class TestIceberg(BucketSuite):
    format = "iceberg"


@pytest.mark.parametrize("kind", todays(("iceberg", "delta"), 1))
def test_every_version_is_what_the_table_was(
    kind: str, spark: SparkSession, bucket: Settings, postgres: str, tmp_path: Path
) -> None:
    assert postgres
    fuzz = Fuzz(spark, bucket, tmp_path, kind, 10_000 + today() % 10_000)
    assert fuzz.run(4) == []
    told = Catalog(bucket)
    assert fuzz.sink.table in told.names()
    with told.opened(fuzz.sink.table) as table, connected(place=table.place) as connection:
        assert table.place.url.startswith("s3://mill/lake/fuzz_")
        files = [f"{table.place.url}/{each.path}" for each in table.files()]
        assert connection.sql(f"SELECT * FROM read_parquet({files})").to_arrow_table().num_rows == len(fuzz.state)


def test_a_query_with_a_limit_reads_the_lake_alone_and_is_shown_no_keys(bucket: Settings) -> None:
    for query in (
        "SELECT * FROM read_text('s3://mill/other.csv')",
        f"SELECT * FROM read_text('{bucket.lake.endpoint}/mill/lake/x')",
        "SELECT * FROM duckdb_secrets(redact = false)",
    ):
        with pytest.raises(LakeQueryInvalid), asked(bucket, query, limit_s=10) as found:
            found.fetchall()
    with asked(bucket, "SELECT secret_string FROM duckdb_secrets()", limit_s=10) as found:
        assert "millrace" not in str(found.fetchall()).replace("key_id=millrace", "")


def test_signatures_are_those_of_amazons_example(spark: SparkSession) -> None:
    """From "Authenticating Requests: Using the Authorization Header", its first example."""
    jvm: Any = spark._jvm
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    signature = jvm.millrace.bucket.Signature("AKIAIOSFODNN7EXAMPLE", secret, None, "us-east-1")
    more = jvm.java.util.HashMap()
    more.put("range", "bytes=0-9")
    url = jvm.java.net.URI.create("https://examplebucket.s3.amazonaws.com/test.txt")
    now = jvm.java.time.Instant.parse("2013-05-24T00:00:00Z")
    headers = signature.headers("GET", url, jvm.millrace.bucket.Signature.EMPTY, more, now)
    wanted = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert headers.get("authorization").endswith(
        f"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, Signature={wanted}"
    )
    assert secret not in str(headers)
    assert signature.toString() == "Signature(***)"


def test_what_is_said_of_a_bucket(bucket: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "millrace.toml").write_text('[lake]\nfolder = "s3://shop/lake/"\nendpoint = "http://127.0.0.1:9"\n')
    told = config.load(tmp_path, {}).lake
    assert (told.bucket, told.endpoint, told.region) == ("s3://shop/lake", "http://127.0.0.1:9", "us-east-1")
    told = config.load(tmp_path, {"MILLRACE_LAKE_ENDPOINT": "https://s3.example/", "AWS_REGION": "eu-central-1"}).lake
    assert (told.endpoint, told.region) == ("https://s3.example", "eu-central-1")
    with pytest.raises(ConfigInvalid, match="no address"):
        config.load(tmp_path, {"MILLRACE_LAKE_ENDPOINT": "s3.example"})
    with pytest.raises(LakeStoreUnreachable, match="s3://nowhere"):
        Catalog(replace(bucket, lake=replace(bucket.lake, bucket="s3://nowhere"))).names()
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(LakeKeysMissing, match="AWS_SECRET_ACCESS_KEY"):
        Catalog(bucket)
