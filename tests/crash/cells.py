"""The deaths that there are. A cell does one to a mill that runs (or starts it), and says what went wrong by itself;
whether all is well in the end is judged after a chain of them."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from millrace.engine.stopping import epochs
from millrace.errors import MillraceError
from tests.command import until
from tests.crash.mill import FLOWS, ITEMS, SINK_SERVERS, Mill
from tests.crash.servers import no_room
from tests.crash.supervisor import PATIENCE

# Files of a checkpoint, for every flow; and those of state, for flows that have some.
LOGS = (
    "OFFSETS_BEFORE",
    "OFFSETS_WRITTEN",
    "OFFSETS_AFTER",
    "COMMITS_BEFORE",
    "COMMITS_WRITTEN",
    "COMMITS_LINKED",
    "COMMITS_AFTER",
    "LOG_PURGE",
)
STATE = ("STATE_BEFORE", "STATE_WRITTEN", "STATE_AFTER", "SNAPSHOT_WRITTEN", "SNAPSHOT_AFTER", "STATE_PURGE")
# Tasks, and the two-phase commit into Kafka.
DELIVERY = (
    "TASK_ROW",
    "TASK_WRITTEN",
    "BEFORE_FENCE",
    "BEFORE_PREPARE",
    "AFTER_PREPARE",
    "AFTER_SOME_COMMITS",
    "AFTER_ALL_COMMITS",
    "AFTER_DELIVERED",
)
SINK = ("SINK_BEFORE", "SINK_IN_BULK", "SINK_BEFORE_LEDGER", "SINK_AFTER")
# Those whose ledger has a copy beside the checkpoint.
WITNESSED = ("cache", "ranking", "search", "delta_rows", "iceberg_rows", "delta_keys", "iceberg_keys")
# While small files of a lake table are written together, beside the epochs.
LAKE = ("LAKE_COMPACTING", "LAKE_COMPACTED")
OWED = ("OWED_BEFORE", "OWED_WRITTEN", "OWED_AFTER", "OWED_PAID")
WORKER = ("SINK_TASK", "SINK_IN_BULK")
REACH_S = 300.0 * PATIENCE

# What a cell is given: the mill, a source of chance, and for how long a server is frozen. Faults come back.
Act = Callable[[Mill, random.Random, float], list[str]]


@dataclass(frozen=True)
class Cell:
    """`room` is a line of the table; `flow` the one that is needed, or "all"."""

    name: str
    room: str
    flow: str
    act: Act


class NotReached(AssertionError):
    """Nobody came to the place: the cell says nothing."""


def _reach(mill: Mill, point: str, who: str, before: int) -> None:
    mill.points.arm(point, who, before)
    mill.start()
    if not mill.supervised.await_point(point, mill.feed_now_and_then, REACH_S):
        said = mill.supervised.said()[-500:]
        mill.points.clear()
        raise NotReached(f"nobody came to {point} of {who!r}: {said}")


def killed_at(point: str, who: str, most_before: int = 2) -> Act:
    """The JVM, while somebody stands at a place; and Python, or not if it is the JVM that stands there: Python would do
    what comes after its own place."""

    def act(mill: Mill, draw: random.Random, _: float) -> list[str]:
        if mill.supervised.running and point == "BEFORE_FENCE":  # it is passed at a start only
            mill.supervised.kill()
        _reach(mill, point, who, 0 if point == "BEFORE_FENCE" else draw.randint(0, most_before))
        reached = mill.points.reached(point)
        in_jvm = reached is not None and reached.pid in {jvm.pid for jvm in mill.supervised.jvms()}
        mill.supervised.kill(jvm_only=in_jvm and draw.random() < 0.5)
        return []

    return act


def killed_at_random(mill: Mill, draw: random.Random, _: float) -> list[str]:
    mill.start()
    begun = sum(len(epochs(mill.checkpoint(flow) / "offsets")) for flow in mill.only)
    _feeding(mill, lambda: sum(len(epochs(mill.checkpoint(f) / "offsets")) for f in mill.only) != begun, "an epoch")
    mill.feed()
    time.sleep(draw.uniform(0, 2))
    mill.supervised.kill(jvm_only=draw.random() < 0.5)
    return []


def worker_killed(point: str, sink: str) -> Act:
    """The Python process of a task, at the place; everything else lives on."""

    def act(mill: Mill, draw: random.Random, _: float) -> list[str]:
        _reach(mill, point, sink, draw.randint(0, 1))
        reached = mill.points.reached(point)
        assert reached is not None
        os.kill(reached.pid, signal.SIGKILL)
        mill.points.clear()
        return mill.recovers()

    return act


def server_killed(server: str, point: str, who: str) -> Act:
    """While somebody stands at a place and is about to need it. The run goes on by itself."""

    def act(mill: Mill, draw: random.Random, _: float) -> list[str]:
        _reach(mill, point, who, draw.randint(0, 1))
        mill.servers.kill(server)
        mill.points.clear()
        time.sleep(draw.uniform(0, 2))
        mill.servers.up(server)
        return mill.recovers()

    return act


def server_restarted(server: str) -> Act:
    def act(mill: Mill, draw: random.Random, _: float) -> list[str]:
        with _busy(mill):
            mill.servers.down(server)
            time.sleep(draw.uniform(0, 2))
            mill.servers.up(server)
        return mill.recovers()

    return act


def server_frozen(server: str) -> Act:
    def act(mill: Mill, _: random.Random, freeze_s: float) -> list[str]:
        with _busy(mill), mill.servers.frozen(server):
            time.sleep(freeze_s)
        return mill.recovers()

    return act


def broker_full(mill: Mill, _: random.Random, __: float) -> list[str]:
    """A broker that cannot write ends itself; with room again, it is started again."""
    mill.log.topics.ensure("filler", partitions=1)
    with _busy(mill), mill.servers.disk_full("kafka") as lives:
        with contextlib.suppress(MillraceError):
            mill.log.write("filler", "x")
        until(lambda: not lives(), "the end of a broker without room", REACH_S)
    mill.servers.up("kafka")
    return mill.recovers()


def checkpoint_full(mill: Mill, draw: random.Random, _: float) -> list[str]:
    """Nothing that the JVM writes to a disk succeeds for a while: neither checkpoints nor state."""
    with _busy(mill):
        (jvm,) = mill.supervised.jvms()
        with no_room(jvm.pid):
            time.sleep(draw.uniform(2, 4))
    return mill.recovers()


def everything_full(mill: Mill, draw: random.Random, _: float) -> list[str]:
    """Nor what Python writes: locks, ledgers, what is owed, its log. Long enough for flows to be started again."""
    with _busy(mill):
        (jvm,), process = mill.supervised.jvms(), mill.supervised.process
        assert process is not None
        with no_room(jvm.pid), no_room(process.pid):
            until_s = time.monotonic() + draw.uniform(4, 8)
            while time.monotonic() < until_s:
                mill.feed_now_and_then()
                time.sleep(0.1)
    return mill.recovers()


def owed(point: str, sink: str) -> Act:
    """A server is away until the epoch is kept on disk; the process is killed there, and the server comes back."""

    def act(mill: Mill, _: random.Random, __: float) -> list[str]:
        server = SINK_SERVERS[sink]
        with _busy(mill):
            pass
        mill.servers.kill(server)
        mill.feed()
        if point == "OWED_PAID":
            owing = mill.checkpoint(_flow_of(sink)).parent / "sinks" / sink / "owed"
            _feeding(mill, lambda: bool(list(owing.glob("[0-9]*"))), "an epoch that is owed")
            mill.servers.up(server)
        _reach(mill, point, sink, 0)
        mill.supervised.kill()
        if point != "OWED_PAID":
            mill.servers.up(server)
        return []

    return act


@contextlib.contextmanager
def _busy(mill: Mill) -> Iterator[None]:
    """A run that has committed something itself, with more to do."""
    before = {flow: _last_commit(mill, flow) for flow in mill.only}
    mill.start()
    _feeding(mill, lambda: all(_last_commit(mill, flow) > last for flow, last in before.items()), "a first epoch")
    mill.feed()
    yield


def _last_commit(mill: Mill, flow: str) -> int:
    return max(epochs(mill.checkpoint(flow) / "commits"), default=-1)


def _feeding(mill: Mill, condition: Callable[[], bool], what: str) -> None:
    def met() -> bool:
        assert mill.supervised.running, mill.supervised.said()[-800:]
        mill.feed_now_and_then()
        return condition()

    until(met, what, REACH_S)


# Checkpoints that somebody had a hand in


def _stopped(mill: Mill) -> list[str]:
    """Everything is written, and nothing runs."""
    with _busy(mill):
        pass
    return mill.recovers() or mill.stop()


def commit_deleted(flow: str) -> Act:
    """The last epoch is done again, as after a crash before its commit: nothing to refuse, and nothing twice."""

    def act(mill: Mill, _: random.Random, __: float) -> list[str]:
        if found := _stopped(mill):
            return found
        commits = mill.checkpoint(flow) / "commits"
        (commits / str(epochs(commits)[-1])).unlink()
        mill.start()
        return mill.recovers()

    return act


def _refused(mill: Mill, flow: str, codes: Sequence[str]) -> list[str]:
    code = mill.supervised.run("run", "--once", "--only", flow)
    said = mill.supervised.said()
    if code == 0 or not any(each in said for each in codes) or "Traceback" in said or "\tat " in said:
        return [f"{flow} should be refused with one of {codes}, but ended with {code}: {said[-800:]}"]
    return []


def offsets_truncated(flow: str) -> Act:
    """Refused; with the file as it was, it goes on."""

    def act(mill: Mill, draw: random.Random, _: float) -> list[str]:
        if found := _stopped(mill):
            return found
        mill.feed()
        folder = mill.checkpoint(flow) / "offsets"
        last = folder / str(epochs(folder)[-1])
        whole = last.read_bytes()
        last.write_bytes(whole[: draw.randrange(len(whole) - 1)])
        found = _refused(mill, flow, ("MR-CHECKPOINT-DAMAGED",))
        last.write_bytes(whole)
        mill.start()
        return found or mill.recovers()

    return act


def older_copy(flow: str) -> Act:
    """Refused, of the checkpoint alone and of all that stands beside it; with the right one, it goes on."""

    def act(mill: Mill, draw: random.Random, _: float) -> list[str]:
        if found := _stopped(mill):
            return found
        folder = mill.checkpoint(flow) if draw.random() < 0.5 else mill.checkpoint(flow).parent
        copy, right = (mill.folder / name for name in ("older-copy", "right-one"))
        shutil.copytree(folder, copy)
        if found := _stopped(mill):
            return found
        mill.feed()
        folder.rename(right)
        copy.rename(folder)
        found = _refused(mill, flow, ("MR-CHECKPOINT-OLDER", "MR-EPOCH-OTHER", "MR-EPOCH-OLDER"))
        shutil.rmtree(folder)
        right.rename(folder)
        mill.start()
        return found or mill.recovers()

    return act


def _place(point: str, flow: str) -> str:
    """As the place calls it: files by their path, deliveries by the flow's outside name."""
    return f".mill/{flow}/" if point in (*LOGS, *STATE) else f".mill.{flow}"


def _flow_of(sink: str) -> str:
    keyed = {"cache": "ranked", "ranking": "ranked", "search": "ranked", "pg_table": ITEMS} | dict.fromkeys(
        ("pg_keys", "delta_keys", "iceberg_keys"), "windowed"
    )
    return keyed.get(sink, "copied")


def _cells() -> Iterator[Cell]:
    for flow in FLOWS:
        state = () if flow == "copied" else STATE
        for point in (*LOGS, *state, *(() if flow == ITEMS else DELIVERY)):  # a table alone has no topic
            yield Cell(f"jvm {point} {flow}", "jvm", flow, killed_at(point, _place(point, flow)))
        yield Cell(f"checkpoint commit-deleted {flow}", "checkpoint", flow, commit_deleted(flow))
        yield Cell(f"checkpoint offsets-truncated {flow}", "checkpoint", flow, offsets_truncated(flow))
        yield Cell(f"checkpoint older-copy {flow}", "checkpoint", flow, older_copy(flow))
    for sink in SINK_SERVERS:
        for point in (*SINK, *(("SINK_BETWEEN_LEDGERS",) if sink in WITNESSED else ())):
            yield Cell(f"sink {point} {sink}", "sinks", _flow_of(sink), killed_at(point, sink, most_before=1))
    for table in ("delta:copied", "iceberg:copied_iceberg"):
        for point in LAKE:
            yield Cell(f"lake {point} {table}", "sinks", "copied", killed_at(point, table, most_before=0))
    for sink in ("pg_rows", "cache"):
        for point in WORKER:
            yield Cell(f"worker {point} {sink}", "worker", _flow_of(sink), worker_killed(point, sink))
    for point in OWED:
        yield Cell(f"owed {point} hook", "owed", "copied", owed(point, "hook"))
    for name, point in (("produce", "TASK_ROW"), ("transaction", "TASK_WRITTEN"), ("commit", "AFTER_PREPARE")):
        yield Cell(f"broker mid-{name}", "broker", "copied", server_killed("kafka", point, ".mill.copied"))
    yield Cell("broker restart", "broker", "copied", server_restarted("kafka"))
    yield Cell("broker disk-full", "broker", "copied", broker_full)
    bulks = {"postgres": "pg_rows", "valkey": "cache", "opensearch": "search", "receiver": "hook", "rabbitmq": "queue"}
    for server, sink in bulks.items():
        killed = server_killed(server, "SINK_IN_BULK", sink)
        yield Cell(f"{server} mid-bulk", server, _flow_of(sink), killed)
    yield Cell(
        "postgres mid-transaction", "postgres", "copied", server_killed("postgres", "SINK_BEFORE_LEDGER", "pg_rows")
    )
    yield Cell("postgres restart", "postgres", "copied", server_restarted("postgres"))
    for server in ("kafka", *bulks):
        yield Cell(
            f"{server} frozen",
            "frozen",
            "ranked" if server in ("valkey", "opensearch") else "copied",
            server_frozen(server),
        )
    yield Cell("disk-full checkpoint and state", "disk", "windowed", checkpoint_full)
    yield Cell("disk-full driver too", "disk", "windowed", everything_full)
    yield Cell("random", "random", "all", killed_at_random)


CELLS: dict[str, Cell] = {cell.name: cell for cell in _cells()}
