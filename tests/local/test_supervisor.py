"""Servers are found again, and end when they should and not otherwise. PostgreSQL stands for all: it starts fastest."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from millrace import config, local
from millrace.errors import ServerDown, ServerUnknown
from millrace.local import process
from millrace.local.declare import choose_ports
from tests.command import millrace, start, until

pytestmark = pytest.mark.server

POSTGRES = "postgresql://"


def running(folder: Path) -> dict[str, local.Status]:
    return {row.server: row for row in local.status(config.load(folder)) if row.state == "running"}


def alive(folder: Path) -> list[psutil.Process]:
    return list(process.marked(config.load(folder).state_folder))


def gone(folder: Path) -> bool:
    return not alive(folder)


def put(url: str, value: int) -> None:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS kept (value int)")
        connection.execute("INSERT INTO kept VALUES (%s)", (value,))


def kept(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM kept ORDER BY value")]


def test_a_second_up_finds_the_running_server_and_down_leaves_nothing(folder: Path) -> None:
    first = millrace("up", "postgres", "--detach", cwd=folder)
    assert first.returncode == 0, first.stderr
    before = running(folder)["postgres"]
    assert millrace("up", "postgres", "--detach", cwd=folder).returncode == 0
    assert running(folder)["postgres"].pid == before.pid
    url = millrace("url", "postgres", cwd=folder).stdout.strip()
    assert url.startswith(POSTGRES)
    assert kept_after_put(url) == [1]

    assert millrace("down", cwd=folder).returncode == 0
    assert gone(folder)
    assert millrace("down", cwd=folder).returncode == 0, "down of nothing is fine"
    answer = millrace("url", "postgres", cwd=folder)
    assert answer.returncode == 2
    assert "millrace up postgres" in answer.stderr

    assert millrace("up", "postgres", "--detach", cwd=folder).returncode == 0
    assert running(folder)["postgres"].address == before.address, "ports are remembered"
    assert kept(url) == [1], "data survives down"
    millrace("down", cwd=folder)


def kept_after_put(url: str) -> list[int]:
    put(url, 1)
    return kept(url)


def test_committed_rows_survive_kill_9(folder: Path) -> None:
    settings = config.load(folder)
    with local.held(settings, ("postgres",)) as addresses:
        for number in range(2):
            put(addresses["postgres"], number)
            victim = running(folder)["postgres"].pid
            assert victim is not None
            os.kill(victim, signal.SIGKILL)
            until(lambda: "postgres" not in running(folder), "the kill")
            assert {row.state for row in local.status(settings) if row.server == "postgres"} == {"died"}
            with pytest.raises(ServerDown, match="millrace up postgres"):
                local.address(settings, "postgres")
            local.up(settings, ("postgres",))
            assert kept(addresses["postgres"]) == list(range(number + 1))
    assert not running(folder)


def test_sessions_that_outlive_a_killed_server_do_not_hold_up_the_next(folder: Path) -> None:
    settings = config.load(folder)
    with local.held(settings, ("postgres",)) as addresses, psycopg.connect(addresses["postgres"]):
        victim = running(folder)["postgres"].pid
        assert victim is not None
        sessions = psutil.Process(victim).children()
        for session in sessions:
            session.suspend()  # they would end by themselves, sooner or later
        os.kill(victim, signal.SIGKILL)
        until(lambda: "postgres" not in running(folder), "the kill")
        local.up(settings, ("postgres",))
        assert not [session for session in sessions if session.is_running()]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP])
def test_servers_end_with_their_foreground_command_however_it_ends(folder: Path, how: signal.Signals) -> None:
    with start("up", "postgres", cwd=folder) as command:
        assert command.stdout is not None
        assert any("running until" in line for line in command.stdout)
        assert "postgres" in running(folder)
        command.send_signal(how)
        code = command.wait(60)
    until(lambda: gone(folder), "the end of its servers")
    assert code == (0 if how in (signal.SIGINT, signal.SIGTERM) else -how)


def test_down_ends_what_two_kill_9_left_behind(folder: Path) -> None:
    with start("up", "postgres", cwd=folder) as command:
        until(lambda: "postgres" in running(folder), "postgres")
        (leash,) = process.marked(config.load(folder).state_folder, "leash")
        leash.kill()
        command.kill()
    assert "postgres" in running(folder), "nobody is left to end it"
    (folder / ".millrace" / "servers" / "postgres" / "server.json").unlink()
    assert millrace("down", cwd=folder).returncode == 0
    assert gone(folder)


def test_a_stale_pid_never_ends_a_stranger(folder: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        site = local.site_of(config.load(folder), "postgres")
        site.folder.mkdir(parents=True)
        memory = {"ports": {"sql": 15432}, "pid": stranger.pid, "holders": [stranger.pid], "started": "yesterday"}
        (site.folder / "server.json").write_text(json.dumps(memory))
        assert not running(folder)
        assert millrace("down", cwd=folder).returncode == 0
        assert stranger.poll() is None, "the stranger lives"
    finally:
        stranger.communicate(b"\n")


def test_a_torn_memory_file_is_no_obstacle(folder: Path) -> None:
    site = local.site_of(config.load(folder), "postgres")
    site.folder.mkdir(parents=True)
    (site.folder / "server.json").write_text('{"ports": {"sq')
    site.data.mkdir()
    (site.data / "half").write_text("a crash in the middle of initdb")
    with local.held(config.load(folder), ("postgres",)) as addresses:
        assert kept_after_put(addresses["postgres"]) == [1]


def test_two_projects_live_side_by_side(tmp_path: Path) -> None:
    one, two = (config.load(tmp_path / name) for name in ("one", "two"))
    for settings in (one, two):
        settings.folder.mkdir()
    one, two = (config.load(settings.folder) for settings in (one, two))
    with local.held(one, ("postgres",)) as first, local.held(two, ("postgres",)) as second:
        assert first["postgres"] != second["postgres"]
        put(first["postgres"], 1)
        put(second["postgres"], 2)
        assert (kept(first["postgres"]), kept(second["postgres"])) == ([1], [2])
        local.down(one)
        assert kept(second["postgres"]) == [2], "the end of one is not the end of the other"


def test_a_port_that_somebody_took_is_left_to_them(folder: Path) -> None:
    settings = config.load(folder)
    with local.held(settings, ("postgres",)) as addresses:
        port = psycopg.conninfo.conninfo_to_dict(addresses["postgres"])["port"]
    said: list[str] = []
    with (
        socket.create_server(("127.0.0.1", int(str(port)))),
        local.held(settings, ("postgres",), say=said.append) as moved,
    ):
        assert psycopg.conninfo.conninfo_to_dict(moved["postgres"])["port"] != port
        assert str(port) in said[0]


def test_servers_held_by_two_end_with_the_last(folder: Path) -> None:
    with start("up", "postgres", cwd=folder) as command:
        until(lambda: "postgres" in running(folder), "postgres")
        with local.held(config.load(folder), ("postgres",)) as addresses:
            command.send_signal(signal.SIGINT)
            assert command.wait(60) == 0
            assert kept_after_put(addresses["postgres"]) == [1]
    assert not running(folder)


def test_an_inner_block_leaves_the_servers_of_the_outer_one(folder: Path) -> None:
    settings = config.load(folder)
    with local.held(settings, ("postgres",)) as addresses:
        with local.held(settings, ("postgres", "valkey")):
            assert running(folder).keys() == {"postgres", "valkey"}
        assert running(folder).keys() == {"postgres"}
        assert kept_after_put(addresses["postgres"]) == [1]
    assert not running(folder)


def test_reset_asks_first_and_then_deletes(folder: Path) -> None:
    with local.held(config.load(folder), ("postgres",)) as addresses:
        put(addresses["postgres"], 1)
        refused = millrace("reset", cwd=folder)
        assert refused.returncode == 1
        assert "--yes" in refused.stderr
        assert kept(addresses["postgres"]) == [1]
        assert millrace("reset", "--yes", cwd=folder).returncode == 0
    assert not (folder / ".millrace" / "servers").exists()


def test_unknown_servers_are_named_with_their_neighbours(folder: Path) -> None:
    with pytest.raises(ServerUnknown, match="did you mean 'postgres'"):
        local.up(config.load(folder), ("postgers",))
    answer = millrace("logs", "kafka", cwd=folder)
    assert (answer.returncode, "never started" in answer.stderr) == (1, True)


def test_as_an_ordinary_user_too(request: pytest.FixtureRequest) -> None:
    """As root, this runs the same as uid 1000, with the one capability that lets it pass root's own folders."""
    prefix: tuple[str, ...] = ()
    # Not below tmp_path, which only its owner may enter: the binaries must be reachable without the capability.
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    request.addfinalizer(lambda: shutil.rmtree(place))
    cache, home = place / "cache", place / "project"
    cache.mkdir()
    home.mkdir()
    (cache / "jars").symlink_to(config.cache_folder() / "jars")
    if os.geteuid() == 0:
        for path in (cache, home):
            os.chown(path, 1000, 1000)
        capability = ("--inh-caps", "+dac_override", "--ambient-caps", "+dac_override")
        prefix = ("setpriv", "--reuid", "1000", "--regid", "1000", "--clear-groups", *capability, "--")
    env = {"HOME": str(home), "MILLRACE_CACHE": str(cache)}
    up = millrace("up", "postgres", "--detach", cwd=home, env=env, prefix=prefix)
    assert up.returncode == 0, up.stderr
    servers = json.loads(millrace("status", "--json", cwd=home, env=env, prefix=prefix).stdout)["servers"]
    (postgres,) = (server for server in servers if server["server"] == "postgres")
    assert psutil.Process(postgres["pid"]).uids().real == (1000 if os.geteuid() == 0 else os.geteuid())
    assert kept_after_put(postgres["address"]) == [1]
    assert millrace("down", cwd=home, env=env, prefix=prefix).returncode == 0
    assert gone(home)


def test_a_port_lost_between_choice_and_start_is_chosen_anew(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two projects that start at once may choose the same port: the slower one moves."""
    chosen: list[dict[str, int]] = []
    rivals: list[socket.socket] = []

    def slow(*args: Any) -> dict[str, int]:
        ports = choose_ports(*args)
        if not chosen:
            rivals.append(socket.create_server(("127.0.0.1", ports["sql"])))
        chosen.append(ports)
        return ports

    monkeypatch.setattr("millrace.local.supervisor.choose_ports", slow)
    try:
        with local.held(config.load(folder), ("postgres",)) as addresses:
            assert kept_after_put(addresses["postgres"]) == [1]
    finally:
        for rival in rivals:
            rival.close()
    assert len(chosen) == 2
    assert chosen[0]["sql"] != chosen[1]["sql"]


def test_a_state_folder_that_cannot_be_written_is_one_sentence(folder: Path) -> None:
    (folder / ".millrace").write_text("in the way")
    for command in (["up", "postgres"], ["down"], ["reset", "--yes"]):
        answer = millrace(*command, cwd=folder)
        assert answer.returncode == 2
        assert answer.stderr.startswith("error: MR-STATE-FOLDER-UNUSABLE")
        assert answer.stderr.count("\n") == 1
