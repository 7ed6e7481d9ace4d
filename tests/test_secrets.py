"""A broker of one's own, with TLS and a password: everything works, and the password is seen nowhere."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.command import millrace, start, until
from tests.secured import USER, broker

pytestmark = [pytest.mark.server, pytest.mark.spark]

CANARY = "canary-86e1b2"

APP = """
import millrace as mr
app = mr.App("safe")
events = app.topic("events", "n long")

@app.stream(events)
def doubled(e):
    return e.selectExpr("n * 2 as n")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("safe")
    with broker(tmp_path_factory.mktemp("secured") / "broker", CANARY) as (address, certificate):
        (folder / "safe.py").write_text(APP)
        (folder / "millrace.toml").write_text(f"""
            prefix = "stage"
            [kafka]
            bootstrap = "{address}"
            [kafka.options]
            security.protocol = "SASL_SSL"
            sasl.mechanisms = "PLAIN"
            sasl.username = "{USER}"
            sasl.password = "env:SAFE_PASSWORD"
            ssl.ca.location = "{certificate}"
            [run]
            app = "safe:app"
            show = ["doubled"]
        """)
        env = {"SAFE_PASSWORD": CANARY}
        until(lambda: millrace("topic", "list", cwd=folder, env=env).returncode == 0, "the broker")
        yield folder


def seen(folder: Path, *said: str) -> list[str]:
    """Where the canary stands: in what was said, in any file of the project, on any command line."""
    found = [text for text in said if CANARY in text]
    for path in folder.rglob("*"):
        if path.is_file() and CANARY.encode() in path.read_bytes():
            found.append(str(path))
    for process in psutil.process_iter(["cmdline"]):
        if any(CANARY in word for word in process.info["cmdline"] or ()):
            found.append(f"the command line of process {process.pid}")
    return found


@pytest.mark.turn(1, 2)
def test_the_log_and_a_flow_work_and_the_password_is_seen_nowhere(project: Path) -> None:
    env = {"SAFE_PASSWORD": CANARY}
    created = millrace("topic", "create", "events", cwd=project, env=env)
    assert created.returncode == 0, created.stderr
    written = millrace("topic", "write", "events", cwd=project, env=env, stdin='{"n": 21}\nnonsense\n{"n": 4}\n')
    assert written.returncode == 1, "one line was no JSON"
    raw = millrace("topic", "write", "events", "--raw", cwd=project, env=env, stdin="not json\n")
    assert raw.returncode == 0, raw.stderr
    shown: list[str] = []
    with start("run", cwd=project, env=env) as command:
        assert command.stdout is not None
        for line in command.stdout:
            shown.append(line)
            if sum("doubled  {" in each for each in shown) == 2:
                break
        assert not seen(project, *shown)
        os.killpg(command.pid, signal.SIGINT)
        shown += command.stdout.readlines()
    values = sorted(json.loads(line.partition("  ")[2])["n"] for line in shown if line.startswith("doubled  {"))
    assert values == [8, 42], "".join(shown)
    listed = millrace("topic", "list", "--all", "--json", cwd=project, env=env)
    names = {row["topic"] for row in json.loads(listed.stdout)}
    assert {"stage.events", "stage.doubled", "stage.events.dead"} <= names, names
    letters = millrace("deadletter", "list", "events", "--json", cwd=project, env=env)
    assert len(json.loads(letters.stdout)) == 1
    assert not seen(project, *shown, written.stderr, listed.stdout, letters.stdout)


@pytest.mark.parametrize(
    ("env", "code", "says"),
    [({"SAFE_PASSWORD": "wrong-" + CANARY}, 2, "MR-KAFKA"), ({}, 1, "SAFE_PASSWORD")],
    ids=["a wrong password", "no password"],
)
def test_refusals_say_why_and_not_the_password(project: Path, env: dict[str, str], code: int, says: str) -> None:
    answer = millrace("topic", "list", cwd=project, env=env)
    assert (answer.returncode, says in answer.stderr) == (code, True), answer.stderr
    assert answer.stderr.count("\n") == 1
    run = millrace("run", "--once", cwd=project, env=env)
    assert (run.returncode, says in run.stderr) == (code, True), run.stderr
    assert "\tat " not in run.stderr
    assert not seen(project, answer.stderr, answer.stdout, run.stderr, run.stdout)
