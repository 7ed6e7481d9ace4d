"""A jar is what the lock says or it is not there: wrong, interrupted and failed downloads leave nothing behind."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from millrace.errors import CacheUnusable, DiskFull, JarRefused, JarsUnreachable, JarUnknown
from millrace.local import jars
from millrace.local.ivy import Coordinates
from millrace.local.jars import Jar
from tests.command import environ, until

SMALL = "org.apache.commons:commons-pool2:2.13.1"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def locked(tmp_path: Path, *lines: str) -> Path:
    lock = tmp_path / "test.lock"
    lock.write_text("\n".join(["[test]", *lines]) + "\n")
    return lock


def small() -> Jar:
    return next(jar for jar in jars.read()["spark"] if str(jar.coordinates) == SMALL)


def kept(cache: Path) -> list[Path]:
    """Every file under the cache but its lock and the log that an error names."""
    beside = (cache / "jars" / "lock", cache / "logs")
    return [path for path in cache.rglob("*") if path.is_file() and path not in beside and path.parent not in beside]


def trusted(cache: Path) -> list[Path]:
    return [path for path in kept(cache) if not path.relative_to(cache / "jars").parts[0].startswith("fetch-")]


def fetching_spark(cache: Path, words: Path | None = None) -> subprocess.Popen[bytes]:
    program = "from millrace.local import jars; jars.paths('spark')"
    with (words or Path(os.devnull)).open("w") as stderr:
        return subprocess.Popen(
            [sys.executable, "-c", program], env=environ({"MILLRACE_CACHE": str(cache)}), stderr=stderr
        )


def is_right(path: Path) -> bool:
    return jars.sha256(path)[:16] == path.parent.name


# --- the lock ----------------------------------------------------------------------------------------------------


def test_the_lock_has_every_group() -> None:
    platforms = {f"postgres-{name}" for name in ("linux-amd64", "linux-arm64v8", "darwin-amd64", "darwin-arm64v8")}
    servers = {"kafka", "debezium", "opensearch", "elasticsearch", "apicurio", "s3proxy", "iceberg-rest"}
    assert set(jars.read()) == {"spark"} | servers | platforms
    assert len(jars.read()["spark"]) == 5


def test_no_group_has_a_module_twice() -> None:
    for group, found in jars.read().items():
        named = Counter(
            (jar.coordinates.organisation, jar.coordinates.name, jar.coordinates.classifier) for jar in found
        )
        assert max(named.values()) == 1, group


def test_one_artifact_is_one_content() -> None:
    contents: dict[Coordinates, set[tuple[str, int]]] = {}
    for jar in (jar for group in jars.read().values() for jar in group):
        assert jar.size_bytes > 0
        contents.setdefault(jar.coordinates, set()).add((jar.sha256, jar.size_bytes))
    assert {len(found) for found in contents.values()} == {1}


def test_the_lock_names_no_address() -> None:
    text = jars.LOCK.read_text()  # names of jars may well hold `http`: jetty-http, httpclient
    assert "//" not in text
    assert not re.search(r"\b(repo\w*|www|maven\w*|central)\.\w+\.(org|com|io)\b", text)


@pytest.mark.parametrize(
    "line",
    [
        "a:b:1",
        "a:b:1 beef 12",
        f"a:b:1 {'0' * 64} twelve",
        f"a:b:1 {'0' * 64} 12 more",
        f"a:b {'0' * 64} 12",
        f"a:../b:1 {'0' * 64} 12",
    ],
)
def test_a_malformed_line_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        jars.read(locked(tmp_path, line))


@pytest.mark.parametrize(
    ("text", "file_name"),
    [
        ("org.gaul:s3proxy:4.1.0", "s3proxy-4.1.0.jar"),
        ("org.gaul:s3proxy:4.1.0:jar-with-dependencies", "s3proxy-4.1.0-jar-with-dependencies.jar"),
        ("io.apicurio:apicurio-registry-app:3.0.9:all@tar.gz", "apicurio-registry-app-3.0.9-all.tar.gz"),
    ],
)
def test_coordinates_are_read_and_written_alike(text: str, file_name: str) -> None:
    assert str(Coordinates.parse(text)) == text
    assert Coordinates.parse(text).file_name == file_name


def test_an_unknown_group_is_a_fault_of_the_program(cache: Path) -> None:
    with pytest.raises(KeyError):
        jars.paths("nonesuch")


def test_the_version_of_kafka() -> None:
    assert jars.version("kafka_2.13") == "4.3.1"


# --- without a network -------------------------------------------------------------------------------------------


def test_a_present_jar_is_taken_as_it_is(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = locked(tmp_path, f"a:b:1  {'0' * 64}  5")
    present = cache / "jars" / ("0" * 16) / "b-1.jar"
    present.parent.mkdir(parents=True)
    present.write_bytes(b"12345")
    monkeypatch.setenv("PATH", "")  # no Java, so no Ivy either
    assert jars.paths("test", lock=lock) == [present]


def test_no_network(cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort=1")
    with pytest.raises(JarsUnreachable) as caught:
        jars.paths("spark")
    assert "5 of the jars of spark" in caught.value.sentence()
    assert "Connection refused" in caught.value.sentence()
    log = cache / "logs" / "jars-spark.log"
    assert str(log) in caught.value.sentence()
    assert "UNRESOLVED" in log.read_text()
    assert kept(cache) == []
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["fetching 5 jars of spark, 11.1 MB: about 3 s at 50 Mbit/s"]


def test_a_disk_too_small_is_told_before_the_download(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=12_000_000))
    with pytest.raises(DiskFull, match=r"44\.6 MB needed, 12\.0 MB free.*MILLRACE_CACHE"):
        jars.paths("spark")
    assert kept(cache) == []
    assert capfd.readouterr().err == ""


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "file"))
    with pytest.raises(CacheUnusable, match=r"Not a directory.*MILLRACE_CACHE"):
        jars.paths("spark")


# --- with a network ----------------------------------------------------------------------------------------------


@pytest.mark.server
def test_jars_are_fetched_once(cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = jars.paths("spark")
    assert [path.name for path in found] == [jar.coordinates.file_name for jar in jars.read()["spark"]]
    assert all(is_right(path) for path in found)
    assert sorted(kept(cache)) == sorted(found)
    start, end = capfd.readouterr().err.splitlines()
    assert start.startswith("fetching 5 jars of spark, 11.1 MB")
    assert end.startswith("fetched the jars of spark")
    assert jars.paths("spark") == found
    assert capfd.readouterr().err == ""


@pytest.mark.server
def test_a_truncated_jar_is_fetched_again(tmp_path: Path, cache: Path) -> None:
    lock = locked(tmp_path, f"{SMALL}  {small().sha256}  {small().size_bytes}")
    small().path.parent.mkdir(parents=True)
    small().path.write_bytes(b"half of it")
    assert [is_right(path) for path in jars.paths("test", lock=lock)] == [True]


@pytest.mark.server
@pytest.mark.parametrize("fact", ["SHA-256", "size in bytes"])
def test_a_wrong_jar_is_refused_and_deleted(tmp_path: Path, cache: Path, fact: str) -> None:
    digest, size_bytes = small().sha256, small().size_bytes
    line = f"{'0' * 64}  {size_bytes}" if fact == "SHA-256" else f"{digest}  {size_bytes + 1}"
    with pytest.raises(JarRefused, match=f"{SMALL} .* its {fact} is") as caught:
        jars.paths("test", lock=locked(tmp_path, f"{SMALL}  {line}"))
    assert kept(cache) == []
    assert "run the command again" in caught.value.sentence()


@pytest.mark.server
def test_one_wrong_jar_does_not_cost_the_right_ones(tmp_path: Path, cache: Path) -> None:
    wrong, *right = jars.read()["spark"]
    lines = [f"{jar.coordinates}  {jar.sha256}  {jar.size_bytes}" for jar in right]
    lines.append(f"{wrong.coordinates}  {'0' * 64}  {wrong.size_bytes}")
    with pytest.raises(JarRefused, match=str(wrong.coordinates)):
        jars.paths("test", lock=locked(tmp_path, *lines))
    assert sorted(kept(cache)) == sorted(jar.path for jar in right)


@pytest.mark.server
def test_a_jar_that_the_registry_lacks(tmp_path: Path, cache: Path) -> None:
    line = f"org.apache.commons:commons-pool2:2.13.999  {'0' * 64}  1"
    with pytest.raises(JarUnknown, match=r"does not have org\.apache\.commons:commons-pool2:2\.13\.999") as caught:
        jars.paths("test", lock=locked(tmp_path, line))
    assert str(cache / "logs" / "jars-test.log") in caught.value.sentence()
    assert kept(cache) == []


@pytest.mark.server
@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("jars/fetch-*/ivy-*/arrived/*/*", id="while jars arrive"),
        pytest.param("jars/????????????????/*.jar", id="while jars are put in place"),
    ],
)
def test_a_killed_fetch_leaves_nothing_that_is_trusted(cache: Path, moment: str) -> None:
    fetching = fetching_spark(cache)
    try:
        until(lambda: any(cache.glob(moment)), "the moment comes")
    finally:
        fetching.send_signal(signal.SIGKILL)
        fetching.wait()
    assert all(is_right(path) for path in trusted(cache))
    small().path.unlink(missing_ok=True)  # so that there is something to fetch, however late the kill came
    found = jars.paths("spark")
    assert all(is_right(path) for path in found)
    assert sorted(kept(cache)) == sorted(found), "what the killed one left behind is gone"


@pytest.mark.server
def test_two_that_wait_fetch_once(tmp_path: Path, cache: Path) -> None:
    (cache / "jars").mkdir(parents=True)
    said = [tmp_path / "first", tmp_path / "second"]
    waiting = "another Millrace is fetching jars; waiting for it to finish"
    with (cache / "jars" / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        both = [fetching_spark(cache, words) for words in said]
        until(lambda: all(waiting in words.read_text() for words in said), "both wait")
        assert kept(cache) == []
    # The lock is free now: one fetches, the other finds what it came for.
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    lines = sorted(line.split()[0] for words in said for line in words.read_text().splitlines())
    assert lines == ["another", "another", "fetched", "fetching"]
    assert all(is_right(path) for path in kept(cache))


@pytest.mark.server
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system takes root")
def test_a_disk_that_fills_during_the_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", cache], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    try:
        monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=10**9))
        with pytest.raises(DiskFull, match="no room left in"):
            jars.paths("spark")
        assert all(is_right(path) for path in kept(cache))
        assert not list(cache.glob("jars/fetch-*"))
    finally:
        subprocess.run(["umount", cache], check=True)
