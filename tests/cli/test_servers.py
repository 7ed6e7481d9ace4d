"""`millrace url`, `logs`, `psql` and `status` over the servers that the tests share."""

from __future__ import annotations

import ipaddress
import json
import signal
from pathlib import Path

import psutil
import pytest

from millrace.config import Settings
from millrace.local import process
from tests.command import millrace, start

pytestmark = pytest.mark.server


def test_status_url_and_logs(settings: Settings, postgres: str) -> None:
    found = json.loads(millrace("status", "--json", cwd=settings.folder).stdout)
    rows = {row["server"]: row for row in found["servers"]}
    assert rows["postgres"]["state"] == rows["kafka"]["state"] == "running"
    assert rows["postgres"]["address"] == postgres
    assert millrace("url", "postgres", cwd=settings.folder).stdout.strip() == postgres
    table = millrace("status", cwd=settings.folder).stdout
    assert postgres in table
    with start("status", "--watch", "--json", cwd=settings.folder) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            assert json.loads(watching.stdout.readline())["flows"] == []
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0
    logs = millrace("logs", "kafka", "-n", "3", cwd=settings.folder)
    assert (logs.returncode, logs.stdout.count("\n")) == (0, 3)


@pytest.mark.parametrize("path", ["psql", "nothing"], ids=["with psql", "without psql"])
def test_psql_answers_with_and_without_the_program(
    settings: Settings, postgres: str, path: str, tmp_path: Path
) -> None:
    env = {} if path == "psql" else {"PATH": str(tmp_path)}
    answer = millrace("psql", "-c", "select 40 + 2 as answer", cwd=settings.folder, env=env)
    assert answer.returncode == 0, answer.stderr
    assert "answer" in answer.stdout
    assert "42" in answer.stdout
    wrong = millrace("psql", "-c", "select nonsense", cwd=settings.folder, env=env)
    assert wrong.returncode == 1
    assert "nonsense" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_the_plain_prompt_reads_statements_from_standard_input(
    settings: Settings, postgres: str, tmp_path: Path
) -> None:
    script = "create temp table t (n int);\ninsert into t\nvalues (1), (2);\nselect sum(n) as total from t;\nselect 1"
    answer = millrace("psql", cwd=settings.folder, env={"PATH": str(tmp_path)}, stdin=script)
    assert answer.returncode == 0, answer.stderr
    for word in ("CREATE TABLE", "INSERT 0 2", "total", "3", "1"):
        assert word in answer.stdout


@pytest.mark.usefixtures("postgres", "connect")
@pytest.mark.parametrize("server", ["kafka", "connect", "postgres"])
def test_nothing_listens_beyond_loopback(settings: Settings, server: str) -> None:
    heard = {
        connection.laddr.ip
        for member in process.marked(settings.state_folder, server)
        for connection in member.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert heard, "it listens at all"
    assert all(ipaddress.ip_address(address.removeprefix("::ffff:")).is_loopback for address in heard), heard
