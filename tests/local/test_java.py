"""The right `java` is found, and a missing or old one is named in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import JavaMissing, JavaTooOld
from millrace.local import java


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java, onto which `install` puts one."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    return tmp_path


def install(place: Path, answer: str, exit_code: int = 0) -> Path:
    """A `java` that counts how often it is asked."""
    place.mkdir(parents=True)
    program = place / "java"
    program.write_text(f"#!/bin/sh\necho asked >> {place}/asked\necho '{answer}' >&2\nexit {exit_code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("answer", "stated"),
    [
        ('openjdk version "17.0.15" 2025-04-15', "17.0.15"),
        ('openjdk version "25" 2025-09-16', "25"),
        ('openjdk version "24-ea" 2025-03-18', "24-ea"),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\njava version "21.0.2" 2024-01-16 LTS', "21.0.2"),
    ],
)
def test_the_version_is_what_java_states(machine: Path, answer: str, stated: str) -> None:
    program = install(machine / "path", answer)
    assert java.find() == program
    assert java.version() == stated


def test_java_home_stands_above_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(machine / "path", 'openjdk version "17.0.1"')
    chosen = install(machine / "home" / "bin", 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(machine / "home"))
    assert java.find() == chosen


def test_java_is_asked_once_a_process(machine: Path) -> None:
    install(machine / "path", 'openjdk version "17.0.1"')
    for _ in range(3):
        java.find()
        java.version()
    assert (machine / "path" / "asked").read_text().splitlines() == ["asked"]


def test_no_java_anywhere(machine: Path) -> None:
    with pytest.raises(JavaMissing, match="no `java` on PATH") as caught:
        java.find()
    assert caught.value.exit_code == 2
    assert "install it" in caught.value.sentence()


def test_a_java_home_without_java_is_not_passed_over(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark's launcher would not pass it over either.
    install(machine / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(machine / "nowhere"))
    with pytest.raises(JavaMissing, match="nowhere, which has no bin/java"):
        java.find()


@pytest.mark.parametrize(
    ("answer", "found"),
    [('java version "1.8.0_402"', "1.8.0_402"), ('openjdk version "11.0.22" 2024-01-16', "11.0.22")],
)
def test_an_old_java_is_named(machine: Path, answer: str, found: str) -> None:
    program = install(machine / "path", answer)
    with pytest.raises(JavaTooOld) as caught:
        java.find()
    assert f"{program} is Java {found}; Kafka and Spark need Java 17 or later" in caught.value.sentence()


def test_a_stub_that_only_says_where_to_get_java(machine: Path) -> None:
    install(machine / "path", "The operation couldn't be completed".replace("'", ""), exit_code=1)
    with pytest.raises(JavaMissing, match="does not tell its version"):
        java.find()


def test_a_java_that_cannot_be_started(machine: Path) -> None:
    program = install(machine / "path", "")
    program.write_text("#!/nowhere/at/all\n")
    with pytest.raises(JavaMissing, match="cannot be started"):
        java.find()
