"""Lets the controller of a single Kafka that was killed declare the broker dead, before that starts again.

It would otherwise start as the leader it was, and be declared dead seconds later, when its old session ends. Just then
Kafka 4.3 takes transactions that were being committed for done, and leaves them open for ever (KAFKA-20734).
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from millrace.local import process
from millrace.local.declare import HOST, Site
from millrace.local.servers import jvm

FENCE_LIMIT_S = 30.0
UNFENCED_LIMIT_S = 5.0


def was_killed(site: Site) -> bool:
    return any(site.data.glob("__cluster_metadata-0/*.log")) and not (site.data / ".kafka_cleanshutdown").exists()


def fence(site: Site, broker: Mapping[str, object], heap_mb: int) -> None:
    values = {
        **broker,
        "process.roles": "controller",
        "listeners": f"CONTROLLER://{HOST}:{site.ports['controller']}",
        "broker.session.timeout.ms": 100,
        "broker.heartbeat.interval.ms": 50,
    }
    del values["advertised.listeners"]
    config = jvm.write_properties(site.folder / "fence.properties", values)
    command = jvm.command(site, "kafka", ["kafka.Kafka", str(config)], heap_mb)
    before = site.log.stat().st_size if site.log.exists() else 0
    child = process.spawn(
        command.argv,
        site.settings.state_folder,
        site.server.name,
        env=command.env,
        output=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
    )
    _await_fence(site, child, before)
    child.terminate()
    try:
        child.wait(FENCE_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _await_fence(site: Site, child: subprocess.Popen[bytes], since: int) -> None:
    """Until the fence is on disk. The controller says that it fences before it writes so; it writes in the order of its
    decisions, and something at least twice a second: with the second writing after its word the fence is there."""
    deadline = time.monotonic() + FENCE_LIMIT_S
    started: float | None = None
    fenced, writings, size = False, 0, 0
    while child.poll() is None and time.monotonic() < deadline and writings < 2:
        time.sleep(0.02)
        said = _words(site.log, since)
        if started is None and b"Kafka Server started" in said:
            started = time.monotonic()
        if not fenced and b"Fencing broker 1 at epoch" in said:
            fenced, size = True, _written(site)
        if fenced and (now := _written(site)) > size:
            writings, size = writings + 1, now
        if not fenced and started is not None and time.monotonic() - started > UNFENCED_LIMIT_S:
            return  # it was killed before it had come to life, and counts as dead already


def _words(log: Path, since: int) -> bytes:
    with contextlib.suppress(FileNotFoundError), log.open("rb") as lines:
        if log.stat().st_size >= since:  # not set aside for a new one meanwhile
            lines.seek(since)
        return lines.read()
    return b""


def _written(site: Site) -> int:
    return sum(path.stat().st_size for path in site.data.glob("__cluster_metadata-0/*.log"))
