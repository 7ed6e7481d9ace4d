"""Java of our own: compiled once from its source, found again, never half, and not at all where a wheel brings it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace import config
from millrace.errors import CacheUnusable, CompilerFailed, CompilerMissing
from millrace.local import compile as compiling
from millrace.local import java
from millrace.local.compile import STAMP, UNITS, Unit, jar_of, stamp_of

HELLO = (
    'package one;\npublic final class Hello { public static void main(String[] a) { System.out.print("hello"); } }\n'
)


@pytest.fixture
def unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unit:
    """A unit of its own, with an empty cache."""
    monkeypatch.setenv("MILLRACE_CACHE", str(tmp_path / "cache"))
    source = tmp_path / "a package" / "java"
    (source / "one").mkdir(parents=True)
    (source / "one" / "Hello.java").write_text(HELLO)
    (source / "META-INF" / "services").mkdir(parents=True)
    (source / "META-INF" / "services" / "one.Service").write_text("one.Hello\n")
    return Unit("hello", source, ())


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine with a Java runtime only."""
    runtime = tmp_path / "runtime" / "bin"
    runtime.mkdir(parents=True)
    (runtime / "java").write_text(f'#!/bin/sh\nexec {java.find()} "$@"\n')
    (runtime / "java").chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(runtime.parent))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return runtime / "java"


def test_a_unit_becomes_a_jar_that_runs_and_is_made_once(unit: Unit) -> None:
    jar = jar_of(unit)
    assert jar.is_relative_to(config.cache_folder())
    assert subprocess.check_output([java.find(), "-cp", jar, "one.Hello"], text=True) == "hello"
    with zipfile.ZipFile(jar) as archive:
        assert archive.namelist() == [
            "META-INF/MANIFEST.MF",
            STAMP,
            "META-INF/services/one.Service",
            "one/Hello.class",
        ]
    made = jar.stat()
    assert jar_of(unit) == jar
    assert (jar.stat().st_ino, jar.stat().st_mtime_ns) == (made.st_ino, made.st_mtime_ns)
    assert [path.name for path in jar.parent.parent.iterdir()] == [jar.parent.name], "nothing else is left"


def test_a_broken_jar_is_made_anew_with_the_same_bytes(unit: Unit) -> None:
    jar = jar_of(unit)
    whole = jar.read_bytes()
    jar.write_bytes(whole[:100])
    assert stamp_of(jar) is None
    # Left behind by a build that was killed long ago; another one is under way.
    dead, living = compiling.folder() / "build-dead", compiling.folder() / "build-living"
    dead.mkdir()
    living.mkdir()
    os.utime(dead, (0, 0))
    assert jar_of(unit).read_bytes() == whole
    assert (dead.exists(), living.exists()) == (False, True)


def test_another_source_resource_or_name_is_another_jar(unit: Unit) -> None:
    stamps = {unit.stamp()}
    (unit.source / "one" / "Hello.java").write_text(HELLO.replace("hello", "again"))
    stamps.add(unit.stamp())
    (unit.source / "META-INF" / "services" / "one.Service").write_text("")
    stamps.add(unit.stamp())
    (unit.source / "one" / "Hello.java").rename(unit.source / "Hello.java")
    stamps.add(unit.stamp())
    assert len(stamps) == 4


def test_what_it_is_compiled_against_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    before = UNITS["kernel"].stamp()
    monkeypatch.setattr(compiling.importlib.metadata, "version", lambda _: "9.9.9")
    assert UNITS["kernel"].stamp() != before


def test_several_at_once_all_get_a_whole_jar(unit: Unit) -> None:
    with ThreadPoolExecutor(3) as several:
        found = list(several.map(lambda _: stamp_of(jar_of(unit)), range(3)))
    assert found == [unit.stamp()] * 3


def test_the_jar_of_a_wheel_needs_no_compiler(unit: Unit, request: pytest.FixtureRequest) -> None:
    jar_of(unit).replace(unit.packaged)
    request.getfixturevalue("without_compiler")
    assert jar_of(unit) == unit.packaged
    (unit.source / "one" / "Hello.java").write_text(HELLO + "\n")
    with pytest.raises(CompilerMissing, match="JDK of Java 17"):
        jar_of(unit)


def test_no_compiler_and_no_jar(unit: Unit, without_compiler: Path) -> None:
    with pytest.raises(CompilerMissing) as raised:
        jar_of(unit)
    assert str(without_compiler) in str(raised.value)
    assert "openjdk-17-jdk-headless" in str(raised.value)


def test_source_that_is_wrong_is_told_by_its_line(unit: Unit) -> None:
    (unit.source / "one" / "Hello.java").write_text("package one;\nclass Hello { int n = missing; }\n")
    with pytest.raises(CompilerFailed, match=r"Hello\.java:2: error: cannot find symbol"):
        jar_of(unit)
    assert not list(compiling.folder().glob("*/*.jar"))


def test_a_cache_that_cannot_be_written(unit: Unit, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(CacheUnusable, match=str(tmp_path)):
        jar_of(unit)


def test_the_projects_own_units_are_found_without_importing_spark() -> None:
    code = """if True:
        import sys
        from millrace.local.compile import compiled
        print(compiled("kernel"), "pyspark" in sys.modules)
    """
    path, imported = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert stamp_of(Path(path)) == UNITS["kernel"].stamp()
    assert imported == "False"
