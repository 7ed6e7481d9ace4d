"""Flows in real time: each event at once, an epoch's end in between, stopped and crashed, on a real broker."""

from __future__ import annotations

import json
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import psutil
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import millrace as mr
from millrace.engine import Run, realtime
from millrace.engine.stopping import epochs
from millrace.errors import OptionInvalid, RealTimeRefused
from millrace.flow import App, Topic
from millrace.kernel.calling import operator
from millrace.model.dedup import Dedup, Row
from millrace.model.lookback import Event, Lookback
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import start, until
from tests.engine.conftest import Project
from tests.engine.items import once
from tests.engine.test_run import checkpoint, is_whole

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.usefixtures("whole_epochs")]

EVENTS = "id long, key string, at timestamp"
# Longer than anything here takes: what comes out meanwhile did not wait for an epoch's end.
EPOCH = "10 minutes"


def topic_of(app: App) -> Topic:
    return app.topic("events", EVENTS, time="at", lateness="1 minute", ahead=None)


def app_of(mode: Any = "realtime", epoch: str | None = EPOCH) -> App:
    app = App("now")
    events = topic_of(app)

    @app.stream(events, key="id", mode=mode, epoch=epoch)
    def doubled(events: DataFrame) -> DataFrame:
        return events.select("id", (F.col("id") * 2).alias("twice"))

    @app.stream(events, key="key", mode=mode, epoch=epoch)
    def counts(events: DataFrame) -> DataFrame:
        return mr.window(events, "1 hour", by="key", n=mr.count(), emit="updates", late=mr.late.drop())

    return app


def write(project: Project, first: int, last: int) -> None:
    rows = [{"id": n, "key": f"k{n % 3}", "at": f"2026-01-01T00:00:{n % 60:02}Z"} for n in range(first, last)]
    for number in (0, 1):
        project.write("events", [json.dumps(row).encode() for row in rows if row["id"] % 2 == number], number)


def ids(project: Project) -> Counter[int]:
    if not project.log.topics.exists("doubled"):
        return Counter()
    rows = [record.json() for record in project.log.read("doubled")]
    assert all(row["twice"] == 2 * row["id"] for row in rows)
    return Counter(row["id"] for row in rows)


def counted(project: Project) -> dict[str, int]:
    """The greatest count that was told of each key."""
    told: dict[str, int] = {}
    for record in project.log.read("counts") if project.log.topics.exists("counts") else ():
        row = record.json()
        told[row["key"]] = max(row["n"], told.get(row["key"], 0))
    return told


def truth(count: int) -> dict[str, int]:
    return dict(Counter(f"k{n % 3}" for n in range(count)))


def come(run: Run, project: Project, count: int) -> None:
    def there() -> bool:
        run.poll()
        return set(ids(project)) == set(range(count)) and counted(project) == truth(count)

    until(there, f"{count} events", 120)


def test_rows_leave_at_once_and_a_stop_ends_the_epoch(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=2)
    app = app_of()
    with Run(app, project.settings, spark=spark) as run:
        write(project, 0, 30)
        project.write("events", [b"junk"])
        come(run, project, 30)
        assert not epochs(checkpoint(project, "counts", "now") / "commits")
        # No epoch has ended, and yet it is known what was read.
        said = run.standings.values
        until(lambda: not run.poll() and {each.under_way for each in said()} == {31}, "what is under way")
        assert {(each.rows_in, each.rows_taken) for each in said()} == {(0, 31)}
        heard = run.stop()
        assert {(each.rows_in, each.rows_taken) for each in said()} == {(31, 31)}
    assert {each.flow: (each.rows_in, each.dead) for each in heard} == {"doubled": (31, 1), "counts": (31, 1)}
    assert [record.value for record in project.log.read("events.dead")] == [b"junk"]
    # Nothing comes twice after a stop, and the state is there.
    with Run(app, project.settings, spark=spark) as run:
        write(project, 30, 40)
        come(run, project, 40)
    assert ids(project) == Counter(range(40))
    # The same state epoch by epoch, and back.
    with Run(app_of("microbatch", None), project.settings, spark=spark) as run:
        write(project, 40, 50)
        come(run, project, 50)
    with Run(app, project.settings, spark=spark, once=True) as run:
        write(project, 50, 55)
        while not run.done:
            run.poll()
    with Run(app, project.settings, spark=spark) as run:
        write(project, 55, 60)
        come(run, project, 60)
    assert counted(project) == truth(60)
    assert sorted(ids(project)) == list(range(60))
    # What real time gave has an id; those of different records differ.
    marked = {record.text: dict(record.headers).get("millrace-id") for record in project.log.read("doubled")}
    given = [name for name in marked.values() if name is not None]
    assert 45 <= len(given) == len(set(given)) <= 50  # the run that ends read what was there when it began


def test_the_first_epochs_are_short_and_grow(
    project: Project, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(realtime, "FIRST_EPOCH_MS", 20)
    project.log.topics.create("events", partitions=2)
    heard = []
    with Run(app_of(), project.settings, spark=spark, only=["counts"]) as run:

        def ended(count: int) -> bool:
            heard.extend(run.poll())
            return len(epochs(checkpoint(project, "counts", "now") / "commits")) >= count and len(heard) >= count

        for count in (2, 4):
            write(project, 5 * (count - 2), 5 * count)
            until(lambda count=count: ended(count), f"{count} epochs' ends", 120)  # type: ignore[misc]
        until(lambda: ended(4) and counted(project) == truth(20), "20 events", 120)
        heard.extend(run.stop())
    assert sum(each.rows_in for each in heard) == 20
    assert [each.epoch for each in heard] == list(range(len(heard)))
    most = operator(spark, "FirstEpochs").mostMs
    assert [most(1_000, after) for after in (0, 39, 40, 41, 44)] == [1_000, 1_000, 2_000, 4_000, 32_000]
    assert most(1_000, 71) > 10**18  # as long as the flow's own


@pytest.mark.turn(1, 2)
def test_the_first_rows_of_each_key_are_told_as_they_change(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=2)
    app = App("now")

    @app.stream(topic_of(app), key="key", mode="realtime", epoch=EPOCH)
    def first(events: DataFrame) -> DataFrame:
        numbered = events.withColumn("place", F.col("id") % 5)
        return mr.top(numbered, 2, by="key", of="place", order="-id", emit="updates", ttl="1 day", late=mr.late.drop())

    def ranking() -> Counter[tuple[str, int, int]]:
        held: Counter[tuple[str, int, int]] = Counter()
        for record in project.log.read("first") if project.log.topics.exists("first") else ():
            row = record.json()
            held[row["key"], row["rank"], row["id"]] += row["__diff"]
        return Counter({row: count for row, count in held.items() if count})

    def best(count: int) -> Counter[tuple[str, int, int]]:
        return Counter((f"k{n % 3}", (count - 1 - n) // 3 + 1, n) for n in range(count - 6, count))

    with Run(app, project.settings, spark=spark) as run:
        for count in (30, 45):
            write(project, {30: 0, 45: 30}[count], count)
            until(lambda count=count: run.poll() is not None and ranking() == best(count), f"{count} events", 120)  # type: ignore[misc]
        assert not epochs(checkpoint(project, "first", "now") / "commits")


def test_a_crash_repeats_at_most_the_epoch_at_hand(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=2)
    app = app_of()
    with Run(app, project.settings, spark=spark) as run:
        write(project, 0, 10)
        come(run, project, 10)
    run = Run(app, project.settings, spark=spark)
    run.start()
    write(project, 10, 20)
    come(run, project, 20)
    run.abandon()
    with Run(app, project.settings, spark=spark) as run:
        write(project, 20, 25)
        come(run, project, 25)
    told = ids(project)
    assert set(told) == set(range(25))
    assert [told[n] for n in (*range(10), *range(20, 25))] == [1] * 15
    assert all(told[n] <= 2 for n in range(10, 20))

    # Who drops the ids that it has seen, reads each once.
    reader = App("reader")
    doubled = reader.topic("doubled", "id long, twice long", headers={"record": "millrace-id"})

    @reader.stream(doubled)
    def single(rows: DataFrame) -> DataFrame:
        return mr.dedup(rows, on="record", clock="processing")

    assert told.total() > len(told), "some came again"
    once(spark, project.settings, reader)
    found = [record.json() for record in project.log.read("single")]
    assert Counter(row["id"] for row in found) == Counter(range(25))
    assert len({row["record"] for row in found}) == len(found)


MODULE = """\
import millrace as mr
from millrace.engine import realtime
from pyspark.sql import functions as F

realtime.FIRST_EPOCH_MS = 0  # no short ones first: they end before one has looked
app = mr.App("now")
events = app.topic("events", "id long, key string, at timestamp", time="at", lateness="1 minute", ahead=None)


@app.stream(events, key="id", mode="realtime", epoch="20 seconds")
def doubled(events):
    return events.select("id", (F.col("id") * 2).alias("twice"))


@app.stream(events, key="key", mode="realtime", epoch="20 seconds")
def counts(events):
    return mr.window(events, "1 hour", by="key", n=mr.count(), emit="updates", late=mr.late.drop())


keyed = app.topic("keyed", "id long, key string, at timestamp", time="at", lateness="1 minute", ahead=None, key="key")


@app.stream(keyed, key="key", mode="realtime", epoch="20 seconds")
def chain(keyed):
    given = mr.dedup(keyed, on="key", ttl="4 seconds", late=mr.late.drop())
    return mr.lookback(given, by="key", n=mr.count(over="10 seconds"), late=mr.late.drop())
"""


def write_keyed(project: Project, first: int, last: int) -> None:
    """Those of a key to one partition, so that they come in the same order again."""
    for number in (0, 1):
        rows = [{"id": n, "key": f"k{n % 3}", "at": f"2026-01-01T00:00:{n:02}Z"} for n in range(first, last)]
        own = [json.dumps(row).encode() for row in rows if row["id"] % 3 % 2 == number]
        project.write("keyed", own, number)


def chained(project: Project) -> dict[tuple[int, int], list[str]]:
    """What was told of each event, with the ids under which it came."""
    told: dict[tuple[int, int], list[str]] = {}
    for record in project.log.read("chain") if project.log.topics.exists("chain") else ():
        row = record.json()
        told.setdefault((row["id"], row["n"]), []).append(str(dict(record.headers)["millrace-id"]))
    return told


def chain_truth(count: int) -> set[tuple[int, int]]:
    given = Dedup(4_000_000, 0).epoch([Row(f"k{n % 3}", n * 1_000_000, n) for n in range(count)], 0).given
    model = Lookback([(10_000_000, lambda events, _: len(events))], 0, False)
    found = model.epoch([Event(row.key, row.time, row.value) for row in given], 0)
    return {(each.event.value, *each.values) for each in found.results}


def have_ended(project: Project, count: int) -> bool:
    """Whether the epochs that have ended have read so many records, in each flow."""
    for flow in ("doubled", "counts", "chain"):
        folder = checkpoint(project, flow, "now")
        done = epochs(folder / "commits")
        if not done:
            return False
        (read,) = json.loads((folder / "offsets" / str(done[-1])).read_text().splitlines()[2]).values()
        if sum(read.values()) != count:
            return False
    return True


def killed_in_an_epoch(project: Project, command: subprocess.Popen[str], there: Callable[[int], bool]) -> range:
    """Kill -9 of the command and its JVM when rows have been told whose epoch has not ended, and these rows."""
    for first in range(0, 50, 10):
        last = first + 10
        write(project, first, last)
        write_keyed(project, first, last)
        until(partial(there, last), f"{last} events", 150)
        own = psutil.Process(command.pid)
        every = [own, *own.children(recursive=True)]  # the JVM has a process group of its own
        # They do not get any further while they are looked at.
        for process in every:
            process.suspend()
        if first > 0 and have_ended(project, first):
            for process in every:
                process.kill()
            command.wait()
            psutil.wait_procs(every)
            return range(first, last)
        for process in every:
            process.resume()
        until(partial(have_ended, project, last), "their epochs' ends", 150)
    raise AssertionError("each time their epochs had ended")


@pytest.mark.turn(1, 2)
def test_kill_9_in_an_epoch_and_what_the_terminal_says(project: Project) -> None:
    folder = project.settings.folder
    (folder / "now.py").write_text(MODULE)
    (folder / "millrace.toml").write_text(
        f'prefix = "{project.settings.prefix}"\n[kafka]\nbootstrap = "{project.settings.kafka.bootstrap}"\n'
        f'[run]\napp = "now:app"\n[spark.options]\n"spark.driver.extraJavaOptions" = "{JAVA_OPTIONS}"\n'
    )
    for topic in ("events", "keyed"):
        project.log.topics.create(topic, partitions=2)

    def there(count: int) -> bool:
        if set(ids(project)) != set(range(count)) or counted(project) != truth(count):
            return False
        return chained(project).keys() == chain_truth(count)

    # Slots for all tasks are taken without being asked for, whatever the number of cores.
    with start("run", cwd=folder) as first:
        hit = killed_in_an_epoch(project, first, there)
    whole = hit.stop + 5
    with start("run", cwd=folder) as again:
        write(project, hit.stop, whole)
        write_keyed(project, hit.stop, whole)
        until(lambda: there(whole), "both parts", 150)
        again.send_signal(signal.SIGINT)
        output, _ = again.communicate(timeout=150)
    assert again.returncode == 0, output
    assert "Exception" not in output
    assert is_whole(checkpoint(project, "counts", "now"))
    # Rows of the epoch that was hit came again, and only they; with the ids that they had.
    assert ids(project) == Counter({n: 2 if n in hit else 1 for n in range(whole)})
    for (id_, _), names in chained(project).items():
        assert len(names) == (2 if id_ in hit else 1)
        assert len(set(names)) == 1


@pytest.mark.turn(0, 2)
def test_refused_rows_go_to_their_topic_at_once(project: Project, spark: SparkSession) -> None:
    project.log.topics.create("events", partitions=1)
    app = App("aside")

    @app.stream(topic_of(app), key="key", mode="realtime", epoch="5 seconds")
    def counts(events: DataFrame) -> DataFrame:
        late = mr.late.side("too-late")
        found = mr.window(events, "1 minute", by="key", n=mr.count(), emit="updates", late=late)
        return found.where("n < 100").select("key", "n")

    def put(number: int, at: str) -> None:
        project.write("events", [json.dumps({"id": number, "key": "k", "at": at}).encode()])

    def there(topic: str) -> list[Any]:
        run.poll()
        return [record.json() for record in project.log.read(topic)] if project.log.topics.exists(topic) else []

    def watermark_ms() -> int:
        run.poll()
        commits = checkpoint(project, "counts", "aside") / "commits"
        done = epochs(commits)
        text = (commits / str(done[-1])).read_text() if done else '"nextBatchWatermarkMs":0'
        return int(text.partition('"nextBatchWatermarkMs":')[2].split(",")[0].rstrip("}"))

    with Run(app, project.settings, spark=spark) as run:
        put(1, "2026-01-01T00:00:30Z")
        put(2, "2026-01-01T01:00:00Z")
        until(lambda: watermark_ms() > 0, "the watermark", 120)
        put(3, "2026-01-01T00:00:31Z")
        put(4, "2026-01-01T01:00:00Z")
        until(lambda: len(there("too-late")) == 1 and len(there("counts")) == 3, "both outputs", 120)
        # One that the broker does not take fails the flow, which does its epoch again, until it is taken.
        project.log.topics.alter("too-late", config={"max.message.bytes": "10"})
        put(5, "2026-01-01T00:00:32Z")
        until(lambda: there("counts") and run.standings["counts"].state == "restarting", "a failure", 120)
        assert "too-late" in (run.standings["counts"].error or "")
        project.log.topics.alter("too-late", config={"max.message.bytes": "1000000"})
        until(lambda: {row["row"]["id"] for row in there("too-late")} == {3, 5}, "the other late row", 120)
    late = next(record.json() for record in project.log.read("too-late"))
    assert (late["row"]["id"], late["window_start"][:19]) == (3, "2026-01-01T00:00:00")


def joined(events: DataFrame, others: DataFrame) -> DataFrame:
    return mr.join(events, others, on="id", within=("0 seconds", "1 minute"), how="left")


def joined_in_full(events: DataFrame, others: DataFrame) -> DataFrame:
    found = events.where("id > 0")
    found = mr.join(found, others, on="id", within=("0 seconds", "1 minute"), how="full")
    return found.where("key IS NOT NULL").select("id", "key")


def named(events: DataFrame) -> DataFrame:
    return events.select(F.udf(str.upper, useArrow=False)("key").alias("key"))


def in_sessions(events: DataFrame) -> DataFrame:
    return events.groupBy(F.session_window("at", "1 minute")).count()


def told_once(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("at", "1 minute")).count()


def in_order(events: DataFrame) -> DataFrame:
    found = events.select("id", "key")
    return found.orderBy(F.col("id").desc())


@pytest.mark.parametrize(
    ("body", "inputs", "emit", "named", "line"),
    [
        (joined, 2, None, "a join of two streams by Spark", 1),
        (joined_in_full, 2, None, "a join of two streams by Spark", 2),
        (named, 1, None, "the Python function upper", 1),
        (in_sessions, 1, "updates", "Spark's session_window", None),
        (told_once, 1, "final", "an aggregate that is told once", None),
        (in_order, 1, None, "orderBy", 2),
    ],
)
def test_what_cannot_is_named(
    project: Project, spark: SparkSession, body: Callable[..., DataFrame], inputs: int, emit: Any, named: str, line: Any
) -> None:
    """With its line in the function, or where Spark does not take that down, with the stream's."""
    app = App("now")
    others = app.topic("others", EVENTS, time="at", lateness="1 minute", ahead=None)
    read = [topic_of(app), others][:inputs]
    stream = app.stream(*read, mode="realtime", emit=emit)(body)
    with (
        pytest.raises(RealTimeRefused, match=f"cannot run in real time because of {named}") as refused,
        Run(app, project.settings, spark=spark),
    ):
        pass
    where = refused.value.where
    assert where is not None
    assert where.file.endswith("test_realtime.py")
    assert where.line == (stream.where.line if line is None else body.__code__.co_firstlineno + line)


def test_options() -> None:
    app = App("now")
    events = topic_of(app)
    with pytest.raises(OptionInvalid, match='choose "microbatch"'):
        app.stream(events, name="a", mode="fast")(lambda rows: rows)  # type: ignore[arg-type]
    with pytest.raises(OptionInvalid, match="at least 5 seconds"):
        app.stream(events, name="a", mode="realtime", epoch="1 second")(lambda rows: rows)
    with pytest.raises(OptionInvalid, match='say mode="realtime"'):
        app.stream(events, name="a", epoch="10 seconds")(lambda rows: rows)
