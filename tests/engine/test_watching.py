"""`millrace run` as a process that others watch: health, metrics, JSON lines, and `millrace status` beside it."""

from __future__ import annotations

import json
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.engine.flows import flows
from tests.command import millrace, start
from tests.engine.conftest import Project
from tests.engine.test_process import LIMIT_S, machines
from tests.serve.exposition import Family, parsed
from tests.serve.test_metrics import asked

pytestmark = [pytest.mark.spark, pytest.mark.server]

APP = """\
import millrace as mr
from pyspark.sql import functions as F

app = mr.App("watched")
numbers = app.topic("numbers", "n long, at timestamp", time="at", lateness="1 hour")


@app.stream(numbers)
def same(p):
    return p.select("n")


@app.stream(numbers)
def inverses(p):
    return p.select(F.udf(lambda n: str(1 / n))("n").alias("inverse"))
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.mark.turn(1, 2)
def test_a_run_is_watched_from_outside(project: Project, until: Callable[..., None]) -> None:
    folder, port = project.settings.folder, free_port()
    prepared(project, folder)
    url = f"http://127.0.0.1:{port}"

    def health() -> dict[str, Any]:
        try:
            return dict(json.loads(asked(f"{url}/health")[2])["flows"])
        except OSError:  # nobody listens yet
            return {}

    def metrics() -> dict[str, Family]:
        return parsed(asked(f"{url}/metrics")[2])

    def value(name: str, flow: str) -> float | None:
        family = metrics().get(f"millrace_flow_{name}")
        return family.samples.get((("app", "watched"), ("flow", flow))) if family else None

    def shown() -> dict[str, dict[str, Any]]:
        return {each["flow"]: each for each in flows(project.settings)}

    project.write("numbers", [b'{"n":1,"at":"2026-01-01T00:00:00Z"}', b"junk"])
    with start("run", "--log", "json", "--metrics", str(port), "--show", "same", cwd=folder) as command:
        until(lambda: bool(health()), "it answers", LIMIT_S)
        until(lambda: value("rows_in_total", "inverses") == value("rows_in_total", "same") == 2, "both read", LIMIT_S)
        assert asked(f"{url}/health")[0] == 200
        assert value("dead_rows_total", "same") == 1
        assert value("lag_records", "same") == value("lag_seconds", "same") == 0
        assert value("up", "inverses") == 1

        project.write("numbers", [b'{"n":0,"at":"2026-01-01T00:00:00Z"}'])
        until(lambda: health()["inverses"]["state"] == "failed", "one fails", LIMIT_S)
        assert asked(f"{url}/health")[0] == 503
        assert "ZeroDivisionError" in health()["inverses"]["reason"]
        assert health()["same"] == {"state": "running", "reason": ""}
        until(lambda: value("rows_in_total", "same") == 3, "the other goes on", LIMIT_S)
        until(lambda: shown()["same"]["epoch"] == value("last_epoch", "same"), "status has heard of it", LIMIT_S)
        found = {each["flow"]: each for each in json.loads(millrace("status", "--json", cwd=folder).stdout)["flows"]}
        assert (found["same"]["state"], found["same"]["pid"], found["same"]["dead"]) == ("running", command.pid, 1)
        assert (found["inverses"]["state"], found["inverses"]["pid"]) == ("failed", None)

        command.send_signal(signal.SIGTERM)
        output, _ = command.communicate(timeout=LIMIT_S)
    assert command.returncode == 1, output
    assert [each["state"] for each in shown().values()] == ["failed", "stopped"]
    assert "ZeroDivisionError" in millrace("status", cwd=folder).stdout
    (lag,) = json.loads(millrace("group", "lag", "watched.same", "--json", cwd=folder).stdout)
    assert (lag["topic"], lag["committed"], lag["records"]) == ("numbers", 3, 0)
    check_lines(output)
    until(lambda: not machines(folder), "no JVM is left")


def prepared(project: Project, folder: Path) -> None:
    from millrace.testing.plugin import JAVA_OPTIONS

    (folder / "watched.py").write_text(APP)
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        '[run]\napp = "watched:app"\n[spark]\nmaster = "local[2]"\n'
        f'[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    project.log.topics.create("numbers", partitions=1)


def check_lines(output: str) -> None:
    """Records of the shown topic are as they are; everything else is JSON with the promised fields."""
    lines = output.splitlines()
    assert [line for line in lines if line.startswith("same  ")] == ['same  {"n":1}', 'same  {"n":0}']
    events = [json.loads(line) for line in lines if not line.startswith("same  ")]
    for event in events:
        assert {"time", "level", "event", "message"} <= set(event), event
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", event["time"])
    names = [event["event"] for event in events]
    assert set(names) == {"notice", "start", "epoch", "failure"}
    assert sorted(event["flow"] for event in events if event["event"] == "start") == ["inverses", "same"]
    first, last = [event for event in events if event["event"] == "failure"]
    assert (first["flow"], first["level"], first["code"]) == ("inverses", "error", "MR-BODY-FAILED")
    assert "flow" not in last
    assert last["message"] == first["message"]
    epochs = [event for event in events if event["event"] == "epoch" and event["flow"] == "same"]
    assert sum(event["rows_in"] for event in epochs) == 3
    assert sum(event["dead"] for event in epochs) == 1
