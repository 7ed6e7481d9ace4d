"""`millrace serve` and `millrace token`, and the commands of the guide as they stand there."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace import local
from millrace.client import Client
from millrace.config import Settings, load
from millrace.engine.applying import Applying
from millrace.log import Log
from millrace.serve.tokens import Tokens
from tests.cli.shell import Shell
from tests.command import environ, millrace, start, until
from tests.serve.world import Written

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "serve.md"


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Shell:
    return Shell(folder, monkeypatch, capfdbinary)


def blocks(kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def test_tokens_are_made_listed_and_revoked(shell: Shell) -> None:
    assert shell("token", "list").text == "no tokens: whoever is on this machine is served\n"
    made = shell("token", "create", "board", "--scope", "view:revenue", "--scope", "status", "--expires", "90d")
    assert made.code == 0, made.err
    secret = made.text.strip()
    assert Tokens(shell.folder / ".millrace" / "tokens.json").found(secret).name == "board"
    listed = shell("token", "list", "--json")
    assert secret not in listed.text
    assert [(row["name"], row["scopes"]) for row in listed.json] == [("board", "view:revenue, status")]
    assert shell("token", "create", "board", "--scope", "query").code == 1
    assert "MR-SCOPE-INVALID" in shell("token", "create", "x", "--scope", "everything").err
    assert shell("token", "revoke", "board").code == 0
    left = shell("token", "list").text
    assert left.startswith("no tokens are left: nobody is served")
    assert str(Path(".millrace", "tokens.json")) in left
    assert "MR-TOKEN-UNKNOWN" in shell("token", "revoke", "board").err


def test_what_cannot_be_served_is_said_before_anything_starts(folder: Path) -> None:
    (folder / "shop.py").write_text(blocks("python")[0])
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = (("0.0.0.0:0", "MR-SERVE-UNGUARDED"), ("x", "MR-USAGE-INVALID"), (address, "MR-ADDRESS-UNSERVABLE"))
        dones = [(millrace("serve", "shop:app", "--listen", listen, cwd=folder), code) for listen, code in refused]
    for done, code in dones:
        assert (done.returncode, code in done.stderr, done.stderr.count("\n")) == (1, True, 1), done.stderr
    assert not (folder / ".millrace" / "servers").exists()


@pytest.mark.server
def test_the_guide(settings: Settings, postgres: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its commands and its Python, against `millrace serve` in a process of its own."""
    app, client = blocks("python")
    (folder / "shop.py").write_text(app)
    kafka = local.address(settings, "kafka")
    (folder / "millrace.toml").write_text(
        f'prefix = "guides"\n[kafka]\nbootstrap = "{kafka}"\n'
        f'[views]\nurl = "{postgres}"\nread_url = "{reader(postgres)}"\n'
    )
    own = load(folder, {})
    names: dict[str, Any] = {}
    exec(app, names)
    view = Written(Log(own), names["app"], "revenue").begin()
    view.write({"region": "north", "orders": 1, "total": 12.5})
    view.applied()
    assert isinstance(view.applying, Applying)
    grant(postgres)
    asked_by_hand(folder)
    with start("serve", "shop:app", "--listen", "0", cwd=folder) as command:
        assert command.stdout is not None
        address = command.stdout.readline().split()[2].rstrip(";")
        port = address.rpartition(":")[2]
        until(lambda: answers(address), "the server", 60)
        commands = [block for block in blocks("bash") if "curl" in block]
        assert sum(block.count("curl") for block in commands) == 8
        for block in commands:
            text = re.sub(r"^millrace serve.*\n", "", block, flags=re.M).replace("localhost:8642", f"localhost:{port}")
            for line in re.sub(r"\\\n\s*", "", text).splitlines():
                said = subprocess.run(["sh", "-c", f"{line.partition('  #')[0]} -sS"], capture_output=True, text=True)
                assert "error" not in json.loads(said.stdout), (line, said.stdout, said.stderr)
        exec(client.replace("127.0.0.1:8642", f"127.0.0.1:{port}"), {})
        said_text = capsys.readouterr().out
        assert (
            "12.50\n{'region': 'north', 'orders': 1, 'total': Decimal('12.50')}\n[{'regions': 1}]\nTrue " in said_text
        )
        with Client(address) as asking:
            assert asking.send("orders", {"id": 1, "region": "north", "amount": "12.50"}, key="order-1")["repeated"]
        os.killpg(command.pid, signal.SIGTERM)
        assert command.wait(30) == 0, command.stdout.read()
    view.end()


def asked_by_hand(folder: Path) -> None:
    """`millrace view query` and the URL for others: as the role that may read."""
    import psycopg

    done = millrace("view", "query", "SELECT sum(total) AS total FROM revenue", cwd=folder)
    assert (done.returncode, done.stdout) == (0, '{"total":12.50}\n'), done.stderr
    late = millrace("view", "query", "SELECT 1 FROM revenue", "--wait-for", "yesterday", cwd=folder)
    assert (late.returncode, "is no LSN" in late.stderr) == (1, True), late.stderr
    waited = millrace("view", "query", "SELECT orders FROM revenue", "--wait-for", "0/1", cwd=folder)
    assert (waited.returncode, waited.stdout) == (0, '{"orders":1}\n'), waited.stderr
    done = millrace("view", "query", "DELETE FROM revenue", cwd=folder)
    assert (done.returncode, "MR-QUERY-REFUSED" in done.stderr) == (1, True), done.stderr
    url = millrace("view", "url", cwd=folder).stdout.strip()
    with psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT region FROM revenue").fetchall() == [("north",)]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("DELETE FROM revenue")


def reader(postgres: str) -> str:
    return postgres.replace("//millrace@", "//guide_reader@")


def grant(postgres: str) -> None:
    import psycopg

    assert reader(postgres) != postgres
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE ROLE guide_reader LOGIN")
        connection.execute('GRANT USAGE ON SCHEMA "millrace_guides.shop" TO guide_reader')
        connection.execute('GRANT SELECT ON ALL TABLES IN SCHEMA "millrace_guides.shop" TO guide_reader')


def answers(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_the_guides_settings_load(folder: Path) -> None:
    (block,) = blocks("toml")
    (folder / "millrace.toml").write_text(block)
    assert load(folder, environ()).serve.hosts == ("mill.example",)
