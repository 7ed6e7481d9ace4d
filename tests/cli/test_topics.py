"""`millrace topic …`, as a person and as a program uses it."""

from __future__ import annotations

import json
import signal
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from millrace.config import Settings
from millrace.log import Log
from tests.cli.shell import Shell, shell_at
from tests.command import start

pytestmark = pytest.mark.server

PREFIX = "cli-topics"
_numbers = count(1)


@pytest.fixture
def shell(
    bootstrap: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Shell:
    return shell_at(bootstrap, PREFIX, folder, monkeypatch, capfdbinary)


@pytest.fixture
def topic(shell: Shell) -> str:
    name = f"topic-{next(_numbers)}"
    shell.fine("topic", "create", name)
    return name


def test_a_topic_from_making_to_deleting(shell: Shell) -> None:
    made = shell.fine("topic", "create", "orders", "--partitions", "2", "--retention", "7 days", "--compact")
    assert made.err == "topic orders is there, with 2 partitions\n"
    assert {"topic": "orders", "partitions": 2, "replication": 1} in shell.fine("topic", "list", "--json").json
    assert f"{PREFIX}.orders" in shell.fine("topic", "list", "--all").text
    assert "orders" in shell.fine("topic", "list").text

    found = shell.fine("topic", "describe", "orders", "--json").json
    assert found["config"] == {"cleanup.policy": "compact,delete", "retention.ms": "604800000"}
    assert found["partitions"][1] == {
        "partition": 1, "leader": 1, "replicas": [1], "in_sync": [1], "first": 0, "last": 0
    }  # fmt: skip
    table = shell.fine("topic", "describe", "orders").text
    assert "in sync" in table
    assert "604800000" in table

    refused = shell("topic", "alter", "orders", "--partitions", "4")
    assert refused.code == 1
    assert "most keys move" in refused.err
    assert "--yes" in refused.err
    shell.fine(
        "topic", "alter", "orders", "--retention", "1 day", "--config", "segment.ms=60000", "--reset", "cleanup.policy"
    )
    changed = shell.fine("topic", "alter", "orders", "--partitions", "4", "--yes")
    assert "keys may now be in other partitions" in changed.err
    found = shell.fine("topic", "describe", "orders", "--json").json
    assert found["config"] == {"retention.ms": "86400000", "segment.ms": "60000"}
    assert len(found["partitions"]) == 4

    unsure = shell("topic", "delete", "orders")
    assert unsure.code == 1
    assert "--yes" in unsure.err
    shell.fine("topic", "delete", "orders", "--yes")
    gone = shell("topic", "describe", "orders")
    assert gone.code == 1
    assert gone.err.startswith("error: MR-TOPIC-UNKNOWN")


def test_errors_are_one_sentence(shell: Shell, topic: str) -> None:
    for args, code in (
        (("create", "a b"), "MR-TOPIC-NAME-INVALID"),
        (("create", topic), "MR-TOPIC-EXISTS"),
        (("create", "new", "--config", "nonsense"), "MR-TOPIC-CONFIG-INVALID"),
        (("create", "new", "--retention", "soon"), "MR-DURATION-INVALID"),
        (("read", topic, "--from", "somewhere"), "MR-POSITION-INVALID"),
        (("read", topic, "--until", "5"), "MR-USAGE-INVALID"),
        (("read", topic, "--partition", "9"), "MR-PARTITION-UNKNOWN"),
        (("write", "nowhere"), "MR-TOPIC-UNKNOWN"),
        (("write", topic, "--format", "avro"), "MR-RECORD-SCHEMA-MISSING"),
        (("write", topic, "--schema", "x.avsc"), "MR-RECORD-SCHEMA-UNUSED"),
    ):
        done = shell("topic", *args)
        assert done.code == 1, args
        assert done.err.startswith(f"error: {code} "), args
        assert done.err.count("\n") == 1, args
        assert done.out == b"", args


def test_a_broker_that_is_away_is_a_servers_error(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    done = shell("topic", "list")
    assert done.code == 2
    assert done.err.startswith("error: MR-KAFKA-UNREACHABLE")
    assert done.err.count("\n") == 1


def test_lines_are_written_and_read_as_they_are(shell: Shell, topic: str) -> None:
    lines = [b'{"card": "c%d", "n": %d}' % (number % 7, number) for number in range(5_000)]
    done = shell.fine("topic", "write", topic, "--key", "card", stdin=b"\n".join(lines))
    assert done.err == f"5,000 records written to {topic}\n"
    assert shell.fine("topic", "read", topic).lines == lines
    assert shell.fine("topic", "read", topic, "--from", "4990", "--limit", "3").lines == lines[4990:4993]
    first = json.loads(shell.fine("topic", "read", topic, "--json", "--limit", "1").out)
    assert (first["key"], first["value"], first["offset"]) == ("c0", {"card": "c0", "n": 0}, 0)
    assert shell.fine("topic", "read", topic, "--from", "1 hour ago").lines == lines
    assert shell.fine("topic", "read", topic, "--until", first["time"]).lines == []
    assert shell.fine("topic", "read", topic, "--from", "latest").out == b""
    assert shell.fine("topic", "read", topic, "--follow", "--for", "1s", "--from", "4999").lines == lines[4999:]


def test_lines_that_are_not_json_are_kept_and_the_others_written(shell: Shell, topic: str) -> None:
    content = b'{"a":1}\n{oops\n\n{"a":2}\n\xff\xfe\n' + b"bad\n" * 10
    done = shell("topic", "write", topic, stdin=content)
    assert done.code == 1
    assert shell.fine("topic", "read", topic).lines == [b'{"a":1}', b'{"a":2}']
    said = done.err.splitlines()
    assert said[0].startswith("line 2: not JSON: ")
    assert said[1].startswith("line 5: not UTF-8")
    assert len(said) == 5 + 2
    assert said[5] == f"2 records written to {topic}; 1 blank line passed over"
    (file,) = (shell.folder / ".millrace" / "rejects").iterdir()
    assert said[6] == f"12 lines not written; kept with the reasons in {file}"
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    assert [row["line"] for row in kept] == [2, 5, *range(6, 16)]
    assert kept[0]["text"] == "{oops"
    assert kept[1]["text_base64"] == "//4="
    assert all(row["reason"] for row in kept)


def test_a_file_that_is_whole_says_so_in_every_partition(shell: Shell) -> None:
    shell.fine("topic", "create", "whole", "--partitions", "3")
    write = ("topic", "write", "whole", "--complete", "until=2026-01-02 01:00+01:00")
    broken = shell(*write, stdin=b'{"n":1}\nnot json\n')
    assert broken.code == 1
    assert "whole is not marked as complete" in broken.err
    assert "1 record written" in shell.fine(*write, stdin=b'{"n":2}\n').err
    found = [json.loads(line) for line in shell.fine("topic", "read", "whole", "--json").lines]
    marks = [each["partition"] for each in found if each["value"] == {"until": "2026-01-02T00:00:00+00:00"}]
    assert (len(found), sorted(marks)) == (5, [0, 1, 2])
    for given, says in (
        (("--complete", "2026-01-02"), "not COLUMN=TIME"),
        (("--complete", "until=soon"), "'soon' of --complete is no time"),
        (("--complete", "until=2026-01-02", "--acks", "0"), "acknowledged"),
        (("--complete", "until=2026-01-02", "--format", "avro"), "avro"),
    ):
        refused = shell("topic", "write", "whole", *given)
        assert (refused.code, says in refused.err) == (1, True), refused.err


def test_rejects_go_where_one_says(shell: Shell, topic: str) -> None:
    shell("topic", "write", topic, "--rejects", "bad.jsonl", stdin=b"bad")
    assert json.loads((shell.folder / "bad.jsonl").read_text())["text"] == "bad"


def test_raw_lines_and_what_is_no_text(shell: Shell, topic: str) -> None:
    shell.fine("topic", "write", topic, "--raw", "--acks", "1", stdin=b"plain\n\xff\n\n[1]")
    assert shell.fine("topic", "read", topic).out == b"plain\n\xff\n\n[1]\n"
    shown = [json.loads(line) for line in shell.fine("topic", "read", topic, "--json").lines]
    assert [row.get("value_text", row.get("value_base64", row.get("value"))) for row in shown] == [
        "plain",
        "/w==",
        "",
        [1],
    ]
    unreadable = shell("topic", "read", topic, "--format", "json")
    assert unreadable.code == 1
    assert f"offset 0 of topic '{topic}'" in unreadable.err


def test_avro_and_protobuf(shell: Shell, topic: str, registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_REGISTRY_URL", registry)
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"], "default": None}]
    (shell.folder / "p.avsc").write_text(json.dumps({"type": "record", "name": "P", "fields": fields}))
    (shell.folder / "p.proto").write_text('syntax = "proto3"; message P { int32 id = 1; string name = 2; }')
    lines = b'{"id":1,"name":"a"}\n{"id":2,"name":"b"}\n{"id":"x"}\n{"other":1}'
    for kind, file in (("avro", "p.avsc"), ("protobuf", "p.proto")):
        name = f"{topic}-{kind}"
        shell.fine("topic", "create", name)
        done = shell("topic", "write", name, "--format", kind, "--schema", file, "--key", "id", stdin=lines)
        assert done.code == 1
        assert f"2 records written to {name}" in done.err
        assert "line 3: " in done.err
        assert "line 4: " in done.err
        assert shell.fine("topic", "read", name, "--format", kind).lines == lines.splitlines()[:2]
        shown = json.loads(shell.fine("topic", "read", name, "--format", kind, "--json", "--limit", "1").out)
        assert (shown["key"], shown["value"]) == ("1", {"id": 1, "name": "a"})


def test_how_late_events_come_and_what_each_lag_loses(shell: Shell, settings: Settings) -> None:
    shell.fine("topic", "create", "late", "--partitions", "2")
    arrived = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=30)
    delays_s = [2] * 994 + [9, 9, 40, 40, 40] + [-3]
    with Log(replace(settings, prefix=PREFIX)).writer("late") as writer:
        writer.write({"at": "soon"}, partition=0, time=arrived)
        for delay_s in delays_s:
            writer.write({"at": arrived - timedelta(seconds=delay_s)}, partition=0, time=arrived)
        for ahead_s in (7_200, -90):
            at = int((arrived + timedelta(seconds=ahead_s)).timestamp())
            writer.write({"at": at, "as": "a number"}, partition=1, time=arrived + timedelta(seconds=5))

    said = shell.fine("topic", "delays", "late", "--time", "at").text.splitlines()
    first, last = (f"{arrived + timedelta(seconds=after_s):%Y-%m-%d %H:%M:%S}" for after_s in (0, 5))
    assert said == [
        f"1,003 records of late read, which arrived from {first} to {last} (UTC)",
        "1 of 1,003 records has no time in 'at'",
        "ahead of their arrival: 2 events",
        "by more than 1 hour: 1; flows set these aside, and they do not count below",
        "from happening to arriving: P50 2.0 seconds, P90 2.0 seconds, P99 2.0 seconds, P99.9 40.0 seconds, "
        "max 1.6 minutes",
        "",
        " 0 seconds loses 0.50 %",
        "  1 second loses 0.50 %",
        " 5 seconds loses 0.50 %",
        "10 seconds loses 0.30 %",
        "30 seconds loses 0.30 %",
        "45 seconds loses nothing",
        "",
        'suggested: lateness="45 seconds", the least of these that loses at most 0.1 %',
    ]

    newest = shell.fine("topic", "delays", "late", "--time", "at", "--limit", "5", "--json").json
    assert (newest["records"], newest["untimed"], newest["events"], newest["set_aside"]) == (5, 0, 4, 1)
    assert newest["delays_ms"] == {"p50": 40_000, "p90": 95_000, "p99": 95_000, "p99.9": 95_000, "max": 95_000}
    assert newest["costs"] == [{"lag_ms": 0, "late": 0, "share": 0.0}]
    assert newest["suggested_ms"] == 0
    assert datetime.fromisoformat(newest["first_arrival"]) == arrived

    wrong = shell("topic", "delays", "late", "--time", "att")
    assert wrong.code == 1
    assert wrong.err.startswith("error: MR-TIME-ABSENT no record of topic 'late' has a time in 'att' (1,003 read, ")
    assert "did you mean 'at'?" in wrong.err
    assert wrong.err.count("\n") == 1


def test_following_ends_with_ctrl_c(shell: Shell, topic: str, bootstrap: str) -> None:
    env = {"MILLRACE_KAFKA_BOOTSTRAP": bootstrap, "MILLRACE_PREFIX": PREFIX}
    with start("topic", "read", topic, "--follow", cwd=shell.folder, env=env) as command:
        assert command.stdout
        for line in (b"[1]", b"[2]"):
            shell.fine("topic", "write", topic, stdin=line)
            assert command.stdout.readline() == line.decode() + "\n"
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130
        assert command.stdout.read() == ""
