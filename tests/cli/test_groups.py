"""`millrace group …`, as a person and as a program uses it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.log import Log
from tests.cli.shell import Shell, shell_at

pytestmark = pytest.mark.server

PREFIX = "cli-groups"


@pytest.fixture
def shell(
    bootstrap: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Shell:
    return shell_at(bootstrap, PREFIX, folder, monkeypatch, capfdbinary)


def test_a_group_is_listed_described_measured_and_moved(shell: Shell, settings: Settings) -> None:
    log = Log(replace(settings, prefix=PREFIX))
    log.topics.create("payments")
    with log.writer("payments") as writer:
        writer.write_batch([b"%d" % number for number in range(10)])
    with log.join("billing", ["payments"]) as reader:
        assert len(list(reader.records(limit=4))) == 4
        described = shell.fine("group", "describe", "billing", "--json").json
        assert (described["state"], described["assignor"]) == ("stable", "cooperative-sticky")
        assert described["members"][0]["partitions"] == [["payments", 0]]
        assert "payments/0" in shell.fine("group", "describe", "billing").text
        refused = shell("group", "seek", "billing", "--to", "earliest")
        assert refused.code == 1
        assert refused.err.startswith("error: MR-GROUP-ACTIVE")
        assert "millrace at 127.0.0.1" in refused.err

    (row,) = shell.fine("group", "lag", "billing", "--json").json
    assert (row["topic"], row["partition"], row["committed"], row["end"], row["records"]) == ("payments", 0, 4, 10, 6)
    assert row["seconds"] >= 0
    assert "records" in shell.fine("group", "lag", "billing").text

    moved = shell.fine("group", "seek", "billing", "--to", "7", "--json").json
    assert moved == [{"topic": "payments", "partition": 0, "before": 4, "after": 7}]
    assert shell.fine("group", "lag", "billing", "--json").json[0]["records"] == 3
    shell.fine("group", "seek", "audit", "--topic", "payments", "--to", "1 hour ago")
    assert shell.fine("group", "lag", "audit", "--json").json[0]["records"] == 10

    names = {found["group"] for found in shell.fine("group", "list", "--json").json}
    assert names == {"billing", "audit"}
    assert f"{PREFIX}.billing" in shell.fine("group", "list", "--all").text
    assert "nobody reads with it" in shell.fine("group", "describe", "billing").text


def test_errors_are_one_sentence(shell: Shell) -> None:
    for args, code in (
        (("lag", "nobody"), "MR-GROUP-UNKNOWN"),
        (("describe", "nobody"), "MR-GROUP-UNKNOWN"),
        (("seek", "nobody", "--to", "earliest"), "MR-SEEK-NOTHING"),
        (("seek", "nobody", "--to", "earliest", "--topic", "nothing"), "MR-TOPIC-UNKNOWN"),
        (("seek", "nobody", "--to", "there"), "MR-POSITION-INVALID"),
    ):
        done = shell("group", *args)
        assert done.code == 1, args
        assert done.err.startswith(f"error: {code} "), args
        assert done.err.count("\n") == 1, args
