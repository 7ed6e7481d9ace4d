"""The lock is what the tool writes from tools/jars.toml, and the tool says so when it is not."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from millrace.local import jars
from millrace.local.ivy import Coordinates
from tools import refresh_jars

WANTED = tomllib.loads(refresh_jars.ROOTS.read_text())


def test_the_lock_is_written_one_way_only() -> None:
    backwards = {group: found[::-1] for group, found in reversed(jars.read().items())}
    assert refresh_jars.written(backwards) == jars.LOCK.read_text()


def test_every_root_is_locked() -> None:
    assert set(jars.read()) == set(WANTED)
    for group, wanted in WANTED.items():
        locked = {jar.coordinates for jar in jars.read()[group]}
        roots = {Coordinates.parse(root) for root in wanted["roots"]}
        assert roots == locked if not wanted.get("transitive") else roots < locked


def test_a_released_jar_that_changed_is_found() -> None:
    before = jars.read()
    first = before["spark"][0]
    after = {**before, "spark": (jars.Jar(first.coordinates, "0" * 64, 1), *before["spark"][1:])}
    assert refresh_jars.contradictions(before, after) == {str(first.coordinates)}
    assert refresh_jars.contradictions(before, before) == set()


@pytest.mark.server
def test_check_compares_with_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refresh_jars.main(["--check", "spark"]) == 0
    shorter = tmp_path / "jars.toml"
    text = refresh_jars.ROOTS.read_text()
    shorter.write_text(text.replace('  "org.apache.kafka:kafka-clients:3.9.2",\n', "", 1))
    monkeypatch.setattr(refresh_jars, "ROOTS", shorter)
    assert refresh_jars.main(["--check", "spark"]) == 1
    assert "jars.lock is not what tools/jars.toml asks for" in capsys.readouterr().out
