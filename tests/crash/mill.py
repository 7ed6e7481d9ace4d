"""The app that is run while things die: a stateless flow, one with windows and one of the kernel's, each exactly once
into a topic and into sinks, and a captured table whose rows come, change and go; what it is fed; and all that it wrote,
read back from the servers."""

from __future__ import annotations

import contextlib
import json
import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import redis
from psycopg import sql
from psycopg.rows import dict_row

from millrace import local
from millrace.config import Lake as LakeSettings
from millrace.config import Secret, Settings
from millrace.engine.definition import CHECKPOINT, SINKS, folder_of
from millrace.engine.epochs import offsets
from millrace.engine.stopping import epochs
from millrace.errors import ServerError
from millrace.lakehouse import Catalog
from millrace.lakehouse.asking import asked
from millrace.lakehouse.table import DATA
from millrace.log import Log
from millrace.log.deadletters import OFFSET, PARTITION
from millrace.testing.plugin import JAVA_OPTIONS
from tests import rabbit
from tests.crash.oracles import Event, Item, Seen
from tests.crash.servers import Servers
from tests.crash.supervisor import LIMIT_S, Points, Supervised
from tests.sinks.test_opensearch import documents

APP = """\
import millrace as mr

app = mr.App("mill")
events = app.topic(
    "events", "id long, key string, amount long, at timestamp", time="at", lateness="1 minute", partitions=2
)


@app.stream(events, key="key", delivery="exactly once")
def copied(e):
    return e.select("id", "key", "amount")


@app.stream(events, key="key", delivery="exactly once")
def windowed(e):
    sums = {"n": mr.count(), "total": mr.sum("amount")}
    return mr.window(e, "1 minute", by="key", **sums, emit="updates", late=mr.late.side("late_windowed"))


@app.stream(events, key="key", delivery="exactly once")
def ranked(e):
    sums = {"n": mr.count(over="10 days"), "total": mr.sum("amount", over="10 days")}
    return mr.lookback(e, by="key", **sums, late=mr.late.side("late_ranked"))


copied.to(
    mr.postgres("copied", database="target", name="pg_rows"),
    mr.files("out", format="json", name="files"),
    mr.webhook("hook", name="hook"),
    mr.lake("copied", format="delta", name="delta_rows"),
    mr.lake("copied_iceberg", format="iceberg", name="iceberg_rows"),
    mr.rabbitmq("PREFIX", name="queue"),
)
windowed.to(
    mr.postgres("windowed", key=["key", "window_start"], database="target", name="pg_keys"),
    mr.lake("windowed", format="delta", key=["key", "window_start"], name="delta_keys"),
    mr.lake("windowed_iceberg", format="iceberg", key=["key", "window_start"], name="iceberg_keys"),
)
ranked.to(
    mr.redis("PREFIX", key="key", name="cache"),
    mr.redis_ranking("PREFIX-best", member="key", score="total", name="ranking"),
    mr.opensearch("PREFIX", key="key", name="search"),
)

items = app.table("items", "id long, name string, amount long", key="id")
items.to(mr.postgres("items", database="target", name="pg_table"))
"""

ITEMS = "items"
FLOWS = ("copied", "windowed", "ranked", ITEMS)
# Which server is behind each sink; files need none, and Delta tables are such.
SINK_SERVERS = {
    "pg_rows": "postgres",
    "pg_keys": "postgres",
    "pg_table": "postgres",
    "files": "",
    "hook": "receiver",
    "queue": "rabbitmq",
    "cache": "valkey",
    "ranking": "valkey",
    "search": "opensearch",
    "delta_rows": "",
    "iceberg_rows": "postgres",
    "delta_keys": "",
    "iceberg_keys": "postgres",
}
# Tables of the lake by the sinks that write them.
LAKE = {
    "copied": {"delta_rows": "copied", "iceberg_rows": "copied_iceberg"},
    "windowed": {"delta_keys": "windowed", "iceberg_keys": "windowed_iceberg"},
}
OPTIONS = {
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.sql.shuffle.partitions": "2",
    # Snapshots and purges in nearly every epoch, so that they can be hit.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "2",
    "spark.sql.streaming.stateStore.maintenanceInterval": "300ms",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "0",
}
# Of events; and of items, few enough that each comes and goes often.
KEYS, ROWS = 6, 40
FEED_S = 0.7
# Whether a mill has caught up is asked of the broker, for each of its flows.
_LOOK_S = 0.3
# Between two events, and how long before the first one those happened that come late.
STEP = timedelta(seconds=1)
LATE = timedelta(hours=1)


def servers_of(flows: Iterable[str]) -> tuple[str, ...]:
    """Those that a mill of these flows needs: a search index that nobody writes is a long time to start."""
    needed = {"copied": ("rabbitmq",), "ranked": ("valkey", "opensearch")}
    return "kafka", "postgres", *(server for flow, servers in needed.items() if flow in flows for server in servers)


@dataclass
class Mill:
    """On the servers of `settings`, in a folder, a prefix and a database of its own. `canary` is a password that may
    be seen nowhere; it is in the address of every server that a sink writes to."""

    settings: Settings
    folder: Path
    name: str
    seed: int = 0
    canary: str = ""
    only: tuple[str, ...] = FLOWS
    master: str = "local[2]"
    env: Mapping[str, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list, init=False)
    items: dict[int, Item] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.canary = self.canary or f"canary-{os.urandom(6).hex()}"
        self.servers = Servers(self.settings, self.folder)
        try:
            self._make()
        except BaseException:
            self.servers.close()
            raise

    def _make(self) -> None:
        bootstrap = local.address(self.settings, "kafka")
        kafka = replace(self.settings.kafka, bootstrap=bootstrap)
        self.log = Log(replace(self.settings, folder=self.folder, prefix=self.name, kafka=kafka))
        self._draw = random.Random(self.seed)
        self._begin = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(days=1)
        self._fed = 0.0
        self._make_database()
        self._write_project(bootstrap)
        for topic in ("events", ITEMS):
            self.log.topics.create(topic, partitions=2)
        env = {
            "MILLRACE_DATABASES_TARGET_URL": self.database,
            "MILLRACE_LAKE_CATALOG": self.database,
            "MILLRACE_SINKS_HOOK_URL": f"http://mill:{self.canary}@127.0.0.1:{self.servers.port}/hook",
            "MILLRACE_QUEUES_RABBITMQ_URL": self._with_canary("rabbitmq", "amqp://127.0.0.1:1/"),
            "MILLRACE_SINKS_VALKEY_URL": self._with_canary("valkey", "redis://127.0.0.1:1/0"),
            "MILLRACE_SINKS_OPENSEARCH_URL": self._with_canary("opensearch", "http://127.0.0.1:1"),
            **self.env,
        }
        self.points = Points(self.folder / "points")
        self.supervised = Supervised(self.folder, self.points, env)

    def _address(self, server: str, nowhere: str) -> str:
        """Somewhere also where it is not needed: a server without an address is started by the run."""
        return local.address(self.settings, server) if server in servers_of(self.only) else nowhere

    def _with_canary(self, server: str, nowhere: str) -> str:
        """The canary where the server lets it pass: Valkey's own user needs no password and takes any, OpenSearch
        without its security asks for none. RabbitMQ knows its users' passwords: there it is in a part of the address
        that is not heard."""
        url = urlsplit(self._address(server, nowhere))
        if server == "rabbitmq":
            told = quote(str({"canary": self.canary}))
            return url._replace(query=f"client_properties={told}").geturl()
        return url._replace(netloc=f"default:{self.canary}@{url.netloc.rpartition('@')[2]}").geturl()

    def _make_database(self) -> None:
        server = local.address(self.settings, "postgres")
        with psycopg.connect(server, autocommit=True) as connection:
            words = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}")
            connection.execute(words.format(sql.Identifier(self.name), self.canary))
            words = sql.SQL("CREATE DATABASE {0} OWNER {0}")
            connection.execute(words.format(sql.Identifier(self.name)))
        place = server.rpartition("@")[2].rpartition("/")[0].removeprefix("postgresql://")
        self.database = f"postgresql://{self.name}:{self.canary}@{place}/{self.name}"

    def _write_project(self, bootstrap: str) -> None:
        (self.folder / "mill.py").write_text(APP.replace("PREFIX", self.name))
        options = "\n".join(f'"{name}" = "{value}"' for name, value in OPTIONS.items())
        (self.folder / "millrace.toml").write_text(
            f'prefix = "{self.name}"\n[kafka]\nbootstrap = "{bootstrap}"\n[run]\napp = "mill:app"\n'
            f'[spark]\nmaster = "{self.master}"\n[spark.options]\n{options}\n'
        )

    # Fed

    def feed(self, count: int = 24) -> None:
        """So many more events, and changes of items, as far as a flow reads them."""
        if self.only != (ITEMS,):
            self._feed_events(count)
        if ITEMS in self.only:
            self._feed_items(count)
        self._fed = time.monotonic()

    def _feed_items(self, count: int) -> None:
        """As Debezium tells of a table: rows come, change and go, and their keys come again."""
        with self.log.writer(ITEMS) as writer:
            for _ in range(count):
                key = self._draw.randrange(ROWS)
                goes = key in self.items and self._draw.random() < 0.3
                op = "d" if goes else "u" if key in self.items else "c"
                if goes:
                    del self.items[key]
                else:
                    self.items[key] = Item(f"n{key}", self._draw.randrange(100))
                after = None if goes else {"id": key, "name": self.items[key].name, "amount": self.items[key].amount}
                value = {"before": None, "after": after, "op": op, "source": {"ts_ms": 1, "lsn": 5}}
                writer.write(value, key=json.dumps({"id": key}), partition=key % 2)

    def _feed_events(self, count: int) -> None:
        """Each key is in one partition, so that its order is defined. Once windows have closed, some come late; some do
        not fit."""
        settled = all(epochs(self.checkpoint(flow) / "commits") for flow in self.only)
        made: list[Event] = []
        for number in range(count):
            key = number % 2 if number < 2 else self._draw.randrange(KEYS)  # no partition is without
            chance = self._draw.random()
            late = settled and (chance < 0.08 or number == count - 1)
            kind = "late" if late else "dead" if chance > 0.96 else "event"
            made.append(Event(len(self.events) + len(made), f"k{key}", self._draw.randrange(100), kind))
        with self.log.writer("events") as writer:
            for each in made:
                writer.write(self._value(each), key=each.key, partition=int(each.key[1:]) % 2)
        self.events += made

    def _value(self, event: Event) -> str:
        if event.kind == "dead":
            return f"no JSON {event.id}"
        at = self._begin - LATE if event.kind == "late" else self._begin + event.id * STEP
        values = {"id": event.id, "key": event.key, "amount": event.amount, "at": at.isoformat()}
        return json.dumps(values)

    def window(self, event: Event) -> str:
        """The start of the window that it belongs to."""
        at = self._begin + event.id * STEP
        return at.replace(second=0).strftime("%Y-%m-%dT%H:%M:%S")

    def feed_now_and_then(self) -> None:
        if time.monotonic() - self._fed > FEED_S:
            self.feed()

    # Run

    def start(self) -> None:
        """Unless it runs. One that ended by itself is not started again: a run recovers without a hand."""
        if self.supervised.process is not None:
            assert self.supervised.running, f"it ended by itself: {self.supervised.said()[-800:]}"
        if self.supervised.process is None:
            only = () if self.only == FLOWS else [word for flow in self.only for word in ("--only", flow)]
            self.supervised.start("run", *only)

    def checkpoint(self, flow: str) -> Path:
        return folder_of(self.log.settings, "mill", flow) / CHECKPOINT

    def caught_up(self) -> bool:
        """Whether every flow has committed all that there is, and no sink and no dead letter is owed."""
        for flow in self.only:
            topic = flow if flow == ITEMS else "events"
            try:
                ends = {str(number): end for number, (_, end) in self.log.topics.offsets(topic).items()}
            except ServerError:  # a broker that has just been started
                return False
            outside = self.log.topics.outside(topic)
            done = epochs(self.checkpoint(flow) / "commits")
            if not done:
                return False
            (read, *_) = offsets(self.checkpoint(flow), done[-1]) or [{}]
            if read.get(outside) != ends:
                return False
            if list((self.checkpoint(flow).parent / SINKS).glob("*/owed/[0-9]*")):
                return False
            if flow != ITEMS and not self._letters_kept(ends):
                return False
        return True

    def _letters_kept(self, ends: dict[str, int]) -> bool:
        """A run that is stopped waits a while for its dead letters, which a busy machine may not write in that time."""
        marks = folder_of(self.log.settings, "mill", "_dead").glob("events-*.json")
        return any(json.loads(mark.read_text()) == ends for mark in marks)

    def recovers(self, limit_s: float = LIMIT_S) -> list[str]:
        """Waits until all is done, by whatever runs; why not, if it does not come to that."""
        deadline = time.monotonic() + limit_s
        while not self.caught_up():
            if not self.supervised.running:
                return [f"it ended by itself: {self.supervised.said()[-800:]}"]
            if time.monotonic() > deadline:
                return [f"not recovered in {limit_s:.0f} s: {self.supervised.said()[-800:]}"]
            time.sleep(_LOOK_S)
        return []

    def stop(self) -> list[str]:
        code = self.supervised.stop()
        return [] if code == 0 else [f"after Ctrl-C it ended with {code}: {self.supervised.said()[-800:]}"]

    def close(self) -> None:
        try:
            if self.supervised.process is not None:
                self.supervised.kill()
        finally:
            self.servers.close()
        if "copied" in self.only:
            with rabbit.channel(local.address(self.settings, "rabbitmq")) as channel:
                channel.queue_delete(self.name)
        with psycopg.connect(local.address(self.settings, "postgres"), autocommit=True) as connection:
            for words in ("DROP DATABASE IF EXISTS {} WITH (FORCE)", "DROP ROLE IF EXISTS {}"):
                connection.execute(sql.SQL(words).format(sql.Identifier(self.name)))

    # Seen

    def seen(self) -> Seen:
        """All that the flows wrote."""
        found = Seen()
        if "copied" in self.only:
            found.topics["copied"] = list(self._records("copied"))
            found.rows["pg_rows"] = self._table("SELECT id, key, amount FROM copied")
            found.rows["files"] = list(self._files())
            found.posts = list(self._posts())
            found.messages = list(self._messages())
            found.rows |= self._lake("copied", "id, key, amount")
        if "windowed" in self.only:
            found.topics["windowed"] = list(self._records("windowed"))
            found.late["windowed"] = [record["row"]["id"] for record in self._records("late_windowed")]
            start = "to_char(window_start AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS') AS window_start"
            found.rows["pg_keys"] = self._table(f"SELECT key, {start}, n, total FROM windowed")
            start = "strftime(window_start, '%Y-%m-%dT%H:%M:%S') AS window_start"
            found.rows |= self._lake("windowed", f"key, {start}, n, total")
        if "ranked" in self.only:
            found.topics["ranked"] = list(self._records("ranked"))
            found.late["ranked"] = [record["row"]["id"] for record in self._records("late_ranked")]
            found.rows["cache"] = list(self._hashes())
            found.rows["ranking"] = list(self._scores())
            found.rows["search"] = list(documents(local.address(self.settings, "opensearch"), self.name))
        if ITEMS in self.only:
            found.rows["pg_table"] = self._table("SELECT id, name, amount FROM items")
        found.dead = [record.text or "" for record in self._letters()]
        return found

    def _records(self, topic: str) -> Iterator[dict[str, Any]]:
        if self.log.topics.exists(topic):
            for record in self.log.read(topic):
                value = record.json()
                yield json.loads(value) if isinstance(value, str) else value

    def _letters(self) -> Iterator[Any]:
        """Each once: they are at least once, and say which record they were."""
        if not self.log.topics.exists("events.dead"):
            return
        known = set()
        for record in self.log.read("events.dead"):
            headers = dict(record.headers)
            place = (headers.get(PARTITION), headers.get(OFFSET))
            if place not in known:
                known.add(place)
                yield record

    def _table(self, query: str) -> list[dict[str, Any]]:
        with psycopg.connect(self.database, row_factory=dict_row) as connection:
            return [dict(row) for row in connection.execute(query)]

    @property
    def _lake_settings(self) -> Settings:
        return replace(self.log.settings, lake=LakeSettings(catalog=Secret("lake.catalog", self.database)))

    def _lake(self, flow: str, columns: str) -> dict[str, list[dict[str, Any]]]:
        """As DuckDB reads the tables."""
        found = {}
        for sink, name in LAKE[flow].items():
            with asked(self._lake_settings, f"SELECT {columns} FROM {name}") as rows:
                found[sink] = rows.to_arrow_table().to_pylist()
        return found

    def _files(self) -> Iterator[dict[str, Any]]:
        folders = sorted((self.folder / "out").glob("epoch=*"), key=lambda path: int(path.name.partition("=")[2]))
        for folder in folders:
            for path in sorted(folder.glob("part-*.json")):
                yield from map(json.loads, path.read_text().splitlines())

    def _posts(self) -> Iterator[dict[str, Any]]:
        if self.servers.posts.exists():
            yield from map(json.loads, self.servers.posts.read_text().splitlines())

    def _messages(self) -> Iterator[dict[str, Any]]:
        for message in rabbit.look(local.address(self.settings, "rabbitmq"), self.name):
            yield {"id": message.id, "row": json.loads(message.body)}

    @contextlib.contextmanager
    def _valkey(self) -> Iterator[Any]:
        with contextlib.closing(
            redis.Redis.from_url(local.address(self.settings, "valkey"), decode_responses=True)
        ) as client:
            yield client

    def _hashes(self) -> Iterator[dict[str, Any]]:
        with self._valkey() as client:
            for name in client.scan_iter(f"{self.name}:*"):
                yield {str(field): value for field, value in client.hgetall(name).items()}

    def _scores(self) -> Iterator[dict[str, Any]]:
        with self._valkey() as client:
            for member, score in client.zrange(f"{self.name}-best", 0, -1, withscores=True):
                yield {"key": member, "total": score}

    # Left behind

    def left_behind(self) -> list[str]:
        """Processes, open transactions, slots, half files; and places where the password stands."""
        half = [f"{path} is left behind" for path in self.log.settings.checkpoints.rglob("*.tmp")]
        return [*self.supervised.left_behind(), *half, *self._orphans(), *self._open(), *self._told()]

    def _orphans(self) -> list[str]:
        """Files of the lake that no version has. What the last death left goes when the flow is started again, and it
        was: so there are none."""
        found, catalog = [], Catalog(self._lake_settings)
        for name in (each for flow in self.only for each in LAKE.get(flow, {}).values()):
            with catalog.opened(name) as table:
                known = {each.note.written for each in table.versions() if each.note is not None}
                for path in (table.folder / DATA).glob("*/*"):
                    if str(path.relative_to(table.folder / DATA)) not in known:
                        found.append(f"{path} is in no version of {name}")
        return found

    def _open(self) -> list[str]:
        found = []
        for topic in (summary.name for summary in self.log.topics.list()):
            ends = [self.log.topics.offsets(topic, committed=committed) for committed in (True, False)]
            if held := sum(ends[1][number][1] - ends[0][number][1] for number in ends[0]):
                found.append(f"{held} offsets of {topic} are held back by an open transaction")
        with psycopg.connect(local.address(self.settings, "postgres")) as connection:
            asked = {
                "sessions of the sink": "SELECT count(*) FROM pg_stat_activity WHERE usename = %s",
                "slots": "SELECT count(*) FROM pg_replication_slots WHERE database = %s",
            }
            for what, query in asked.items():
                (count,) = connection.execute(query, (self.name,)).fetchone() or (0,)
                found += [f"{count} {what} are left in PostgreSQL"] if count else []
        return found

    def _told(self) -> list[str]:
        secret = self.canary.encode()
        logs = [path for path in (self.settings.state_folder / "logs").glob("*") if path.is_file()]
        own = [path for path in self.folder.rglob("*") if path.is_file()]
        return [f"the password stands in {path}" for path in (*own, *logs) if secret in _bytes(path)]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:  # a log that was just set aside
        return b""
