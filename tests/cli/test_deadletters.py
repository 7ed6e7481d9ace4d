"""`millrace deadletter …`, as a person and as a program uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.log import Log
from tests.cli.shell import Shell, shell_at

pytestmark = pytest.mark.server

PREFIX = "cli-dead"


@pytest.fixture
def shell(
    bootstrap: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Shell:
    return shell_at(bootstrap, PREFIX, folder, monkeypatch, capfdbinary)


def test_dead_letters_are_listed_shown_and_replayed(shell: Shell, settings: Settings) -> None:
    assert shell.fine("deadletter", "list").text == "no dead letters\n"
    log = Log(replace(settings, prefix=PREFIX))
    log.topics.create("payments")
    assert shell.fine("deadletter", "list", "payments").text == "no dead letters of topic payments\n"
    with log.writer("payments") as writer:
        for value in (b"{oops", b"\xff\x00", b'{"a":1}'):
            writer.write(value, key=b"k", headers={"trace": "7"})
    for record in log.read("payments"):
        log.dead.put(record, f"it is the {record.offset}th")

    (row,) = shell.fine("deadletter", "list", "--json").json
    assert (row["topic"], row["letters"], row["replayed"]) == ("payments", 3, 0)
    rows = shell.fine("deadletter", "list", "payments", "--json").json
    assert [row["letter"] for row in rows] == ["0", "1", "2"]
    assert (rows[1]["partition"], rows[1]["offset"], rows[1]["reason"]) == (0, 1, "it is the 1th")
    limited = shell.fine("deadletter", "list", "payments", "--limit", "1")
    assert "it is the 0th" in limited.text
    assert "it is the 1th" not in limited.text
    assert limited.err == "2 more: --limit N shows them\n"

    shown = shell.fine("deadletter", "show", "payments", "1", "--json").json
    assert (shown["value_base64"], shown["key"], shown["reason"]) == ("/wA=", "k", "it is the 1th")
    assert shown["headers"] == [{"name": "trace", "value": "7"}]
    assert shell.fine("deadletter", "show", "payments", "1", "--raw").out == b"\xff\x00"
    assert "{oops" in shell.fine("deadletter", "show", "payments", "0").text

    unsure = shell("deadletter", "replay", "payments")
    assert unsure.code == 1
    assert unsure.err.startswith("error: MR-REPLAY-UNSURE")
    assert shell.fine("deadletter", "replay", "payments", "1").err == "1 dead letter written back to payments\n"
    again = shell.fine("deadletter", "replay", "payments", "1", "2").err
    assert again == "1 dead letter written back to payments; the others had been replayed before\n"
    assert [row["letter"] for row in shell.fine("deadletter", "list", "payments", "--pending", "--json").json] == ["0"]
    shell.fine("deadletter", "replay", "payments", "--all")
    values = [record.value for record in log.read("payments", 3)]
    assert sorted(value for value in values if value) == sorted([b"{oops", b"\xff\x00", b'{"a":1}'])


def test_errors_are_one_sentence(shell: Shell) -> None:
    for args, code in (
        (("list", "nothing"), "MR-TOPIC-UNKNOWN"),
        (("show", "nothing", "0"), "MR-TOPIC-UNKNOWN"),
        (("replay", "nothing", "--all"), "MR-TOPIC-UNKNOWN"),
    ):
        done = shell("deadletter", *args)
        assert done.code == 1, args
        assert done.err.startswith(f"error: {code} "), args
        assert done.err.count("\n") == 1, args
