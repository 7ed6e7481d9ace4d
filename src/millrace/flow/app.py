"""`App`: what a user's module makes, and what its decorators register nodes with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from millrace import durations
from millrace.capture.definition import HISTORY, capture
from millrace.errors import (
    InputForeign,
    InputMissing,
    InputStill,
    InputUnknown,
    NameTaken,
    OptionInvalid,
    ParametersInvalid,
    SchemaMissing,
    Where,
    nearest,
)
from millrace.flow import schema as schemas
from millrace.flow import topics, views
from millrace.flow.deliveries import Delivered, Delivery
from millrace.flow.graph import Graph
from millrace.flow.lake_inputs import lake_input
from millrace.flow.lakes import LakeInput
from millrace.flow.nodes import (
    PARTITIONS,
    TOPIC_GUARANTEES,
    Body,
    Emit,
    Input,
    Maker,
    Mode,
    Node,
    Stream,
    Topic,
    TopicGuarantee,
    Traffic,
    caller,
    checked_name,
    kind,
)
from millrace.flow.tables import FORMATS, Changes, Database, Table
from millrace.flow.time import AHEAD, IDLE, Duration, Lateness, duration_ms
from millrace.flow.views import View

EMISSIONS = ("updates", "final")
MODES = ("microbatch", "realtime")
# At each end of an epoch a real-time flow pauses for some tenths of a second, so they are long; what waits for the
# watermark, and what is repeated after a crash, asks for short ones. Spark takes none below five seconds.
EPOCH = "60 seconds"
LEAST_EPOCH_MS = 5_000


class App:
    """The graph of topics and streams that one Python module defines. Defining starts nothing.

    Its name is part of where checkpoints live, so renaming an app starts it afresh.
    """

    def __init__(self, name: str) -> None:
        self.where = caller()
        self.name = checked_name("an app", name, self.where)
        self._nodes: dict[str, Node] = {}

    def topic(
        self,
        name: str,
        schema: str,
        *,
        time: str | None = None,
        lateness: Duration | Lateness | None = None,
        idle: Duration = IDLE,
        ahead: Duration | None = AHEAD,
        partitions: int = PARTITIONS,
        key: str | Sequence[str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Topic:
        """Declares a topic of JSON records with these columns, to be read by streams.

        `time` names the column that says when an event happened; then `lateness` says how long to wait for events
        that come late: "10 seconds", or `mr.adaptive(…)`, `mr.monotonic()`, `mr.marked(…)`. A partition that is silent
        for `idle` is not waited for. An event whose time is more than `ahead` after its arrival has a wrong clock and
        goes to the dead letters. `partitions` counts when the topic does not exist yet and is created. `key` says of
        which columns its writers make the record's key: by it `millrace lint` knows which events stay in their order,
        and made-up traffic is written so. `headers` gives columns of the record's headers, as texts, null where it has
        none: `{"id": "millrace-id"}` is the id by which a record of a real-time stream is known if it comes again.
        """
        where = caller()
        checked_name("a topic", name, where)
        keys = _keys(name, key, where)
        topic = topics.topic(name, schema, time, lateness, partitions, where, idle=idle, ahead=ahead, key=keys)
        if headers is not None:
            topic = topics.with_headers(topic, headers)
        self._add(topic)
        return topic

    def capture(
        self,
        name: str,
        tables: Sequence[str],
        *,
        database: str | None = None,
        history: str = HISTORY,
        partitions: int = PARTITIONS,
        exclude: Sequence[str] = (),
        mask: Sequence[str] = (),
        publication: str | None = None,
        slot: str | None = None,
        failover: bool = False,
    ) -> Database:
        """Captures tables of the database that millrace.toml calls `name` (or `database`): each becomes a topic of
        every committed change, in order, and a table that streams can read (`db.orders`).

        `history` is how long every change is kept; the current rows are kept always. `exclude` leaves columns out and
        `mask` blots them out (`customers.email`). `publication` and `slot` name those that somebody made already.
        """
        where = caller()
        definition = capture(
            name,
            tables,
            database=database,
            history=history,
            partitions=partitions,
            exclude=exclude,
            mask=mask,
            publication=publication,
            slot=slot,
            failover=failover,
            where=where,
        )
        found = Database(name, definition, where)
        self._add(found)
        return found

    def table(self, topic: str, schema: str, *, key: str | Sequence[str], format: str = "debezium") -> Table:  # noqa: A002
        """A table whose topic somebody else's Debezium writes, with these columns, known by this key."""
        where = caller()
        name = checked_name("a table", topic, where)
        if format not in FORMATS:
            raise OptionInvalid(name=name, option="format", given=format, remedy='there is "debezium"', where=where)
        known = schemas.columns(name, schema, where)
        keys = _keys(name, key, where)
        for column in keys:
            if column not in known:
                remedy = f"name columns of it{nearest(column, known)}"
                raise OptionInvalid(name=name, option="key", given=column, remedy=remedy, where=where)
        table = Table(name, None, name, where, schema, keys)
        self._add(table)
        return table

    @overload
    def lake(self, table: str, *, version: int | None = None) -> LakeInput: ...

    @overload
    def lake(
        self,
        table: str,
        schema: str,
        *,
        time: str | None = None,
        lateness: Duration | Lateness | None = None,
        idle: Duration = IDLE,
        ahead: Duration | None = AHEAD,
        partitions: int = PARTITIONS,
    ) -> Topic: ...

    def lake(
        self, table: str, schema: str | None = None, *, version: int | None = None, **options: Any
    ) -> LakeInput | Topic:
        """A table of the lake as an input beside others that stream: the function is given a batch DataFrame with the
        rows of the table's newest version when the flow is started, or of that `version`, for as long as it runs.

        With a `schema`, of the columns that are wanted, it streams instead: first the rows of the newest version, then
        what each version adds, each row once. The table has to be one that rows are only added to. While the app runs
        they are written to a topic, `APP.lake.TABLE`, which is read like any other; the options are those of a topic.
        """
        where = caller()
        found = lake_input(self.name, table, schema, version, options, where)
        self._add(found)
        return found

    def stream(
        self,
        *inputs: Input,
        key: str | Sequence[str] | None = None,
        name: str | None = None,
        to: Topic | None = None,
        emit: Emit | None = None,
        schema: str | None = None,
        time: str | None = None,
        lateness: Duration | Lateness | None = None,
        partitions: int = PARTITIONS,
        mode: Mode = "microbatch",
        epoch: Duration | None = None,
        delivery: TopicGuarantee = "at least once",
    ) -> Callable[[Body], Stream]:
        """Makes a stream of a function: one DataFrame in for each input, one out, written to the topic of its name.

        `key` names the columns that become the record's key. `to` writes to a declared topic instead of one of its
        own. `emit` says when an aggregate's results go out: "updates" each time they change, "final" once.
        `schema` (with `time` and `lateness` as for a topic) is needed when another stream reads this one.
        `mode="realtime"` answers each event in milliseconds; its `epoch` is how often it commits and time moves on.
        `delivery="exactly once"` writes each epoch in transactions, so that a crash repeats none of its records; "at
        most once" counts an epoch as done before it is written, so that a crash may lose some of them instead.
        """
        where = caller()

        def register(body: Body) -> Stream:
            flow = checked_name("a stream", name or getattr(body, "__name__", body), where)
            if to is None:
                output = topics.output(flow, schema, time, lateness, partitions, where)
            else:
                self._own(flow, to, where)
                _refuse_twice(flow, schema=schema, time=time, lateness=lateness, where=where)
                output = to
            if not inputs:
                raise InputMissing(name=flow, where=where)
            for source in inputs:
                self._own(flow, source, where)
                _readable(source)
            if all(isinstance(source, LakeInput) for source in inputs):
                raise InputStill(name=flow, where=where)
            _fits(flow, body, len(inputs), where)
            stream = Stream(
                name=flow,
                inputs=inputs,
                output=output,
                key=_keys(flow, key, where),
                emit=_emission(flow, emit, where),
                body=body,
                where=where,
                mode=_mode(flow, mode, where),
                epoch_ms=_epoch_ms(flow, mode, epoch, where),
                delivery=_guarantee(flow, mode, delivery, where),
            )
            self._add(stream)
            return stream

        return register

    def view(
        self,
        name: str,
        *,
        key: str | Sequence[str],
        sql: str,
        index: Sequence[str | Sequence[str]] = (),
        mode: Mode = "microbatch",
        epoch: Duration | None = None,
    ) -> View:
        """A table that holds what the SQL gives, in PostgreSQL's dialect, as its tables change. It reads captured
        tables, views, topics and streams of this app by their names; `key` names the columns that tell its rows apart,
        `index` those by which its table in the view store is asked beside that: each a column, or several together.

        `mode="realtime"` shows each change in milliseconds, tentatively: it is certain when its `epoch` is committed,
        and put right by itself if that never is. What cannot be kept true is refused, with the clause and another way
        to write it.
        """
        where = caller()
        checked = checked_name("a view", name, where)
        indexes = tuple(
            _keys(checked, each, where, "index") for each in ((index,) if isinstance(index, str) else index)
        )
        epoch_ms = _epoch_ms(checked, _mode(checked, mode, where), epoch, where)
        found = views.defined(checked, sql, _keys(checked, key, where), self._nodes.values(), where, indexes, epoch_ms)
        self._add(found)
        return found

    def traffic(
        self, topic: Topic, *, rate: float, seed: int = 1, name: str | None = None
    ) -> Callable[[Maker], Traffic]:
        """Makes up events for a topic while one develops: the function takes a seeded `random.Random` (and, if it
        wants, the event's number) and returns a row as a dict. The time column is now when the row has none.

        `millrace run` writes them, `rate` a second; `--no-traffic` leaves them out.
        """
        where = caller()

        def register(maker: Maker) -> Traffic:
            source = checked_name("traffic", name or getattr(maker, "__name__", maker), where)
            self._own(source, topic, where)
            if not isinstance(topic, Topic):
                raise InputUnknown(name=source, given=f"the {kind(topic)} {topic.name!r}", hint="", where=where)
            if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1_000_000:
                remedy = "events a second: a number above 0, at most 1000000"
                raise OptionInvalid(name=source, option="rate", given=rate, remedy=remedy, where=where)
            if not (_binds(maker, 1) or _binds(maker, 2)):
                raise ParametersInvalid(
                    name=source,
                    takes=_takes(maker),
                    gives="made-up traffic is given one or two",
                    remedy="write it as `def …(random)` or `def …(random, n)`",
                    where=where,
                )
            traffic = Traffic(source, topic, float(rate), seed, maker, where)
            self._add(traffic)
            return traffic

        return register

    def graph(self) -> Graph:
        """The whole of it, checked: frozen nodes and edges, in the order of the data's way."""
        return Graph.of(self.name, self.where, (*self._nodes.values(), *self._deliveries()))

    def _deliveries(self) -> list[Delivery]:
        """All sinks, each of another name: ledgers, folders and dead letters are called so."""
        delivered: list[Delivered] = []
        for node in self._nodes.values():
            delivered += node.tables.values() if isinstance(node, Database) else ()
            delivered += (node,) if isinstance(node, Delivered) else ()
        found: dict[str, Delivery] = {}
        for delivery in (each for node in delivered for each in node.deliveries):
            name = checked_name("a sink", delivery.name, delivery.where)
            first = found.get(name) or self._nodes.get(name)
            if first is not None:
                raise NameTaken(name=name, kind=kind(first), first=first.where, where=delivery.where)
            found[name] = delivery
        return list(found.values())

    def _add(self, node: Node) -> None:
        first = self._nodes.get(node.name)
        if first is not None:
            raise NameTaken(name=node.name, kind=kind(first), first=first.where, where=node.where)
        self._nodes[node.name] = node

    def _own(self, name: str, given: object, where: Where) -> None:
        if isinstance(given, Database):
            names = ", ".join(given.capture.tables)
            raise InputUnknown(
                name=name, given=f"the database {given.name!r}", hint=f"; its tables: {names}", where=where
            )
        if not isinstance(given, Topic | Stream | Traffic | Table | Changes | LakeInput):
            hint = nearest(given, self._nodes) if isinstance(given, str) else ""
            shown = f"the text {given!r}" if isinstance(given, str) else f"a {type(given).__name__}"
            raise InputUnknown(name=name, given=shown, hint=hint, where=where)
        if not self._has(given):
            raise InputForeign(name=name, app=self.name, given=given.name, where=where)
        if isinstance(given, Traffic):
            raise InputUnknown(name=name, given=f"the traffic {given.name!r}", hint="", where=where)

    def _has(self, given: Node) -> bool:
        node = given.of if isinstance(given, Changes) else given
        if isinstance(node, Table) and node.capture is not None:
            return any(isinstance(each, Database) and each.capture is node.capture for each in self._nodes.values())
        return self._nodes.get(node.name) is node

    def __repr__(self) -> str:
        return f"App({self.name!r}, {len(self._nodes)} nodes)"


def _readable(source: Input) -> None:
    topic = source.output if isinstance(source, Stream) else source
    if isinstance(topic, Topic) and topic.schema is None:
        raise SchemaMissing(name=topic.name, example=f"schema={schemas.EXAMPLE}", where=topic.where)


def _refuse_twice(name: str, where: Where, **given: object) -> None:
    for option, value in given.items():
        if value is not None:
            remedy = "leave it out: the topic given with `to` has its own"
            raise OptionInvalid(name=name, option=option, given=value, remedy=remedy, where=where)


def _keys(name: str, key: str | Sequence[str] | None, where: Where, option: str = "key") -> tuple[str, ...]:
    keys = () if key is None else (key,) if isinstance(key, str) else tuple(key)
    if not all(isinstance(column, str) and column for column in keys) or (key is not None and not keys):
        raise OptionInvalid(
            name=name, option=option, given=key, remedy="name a column, or a list of columns", where=where
        )
    return keys


def _emission(name: str, emit: Emit | None, where: Where) -> Emit | None:
    if emit is not None and emit not in EMISSIONS:
        remedy = 'choose "updates" (each time results change) or "final" (once, when no more can come)'
        raise OptionInvalid(name=name, option="emit", given=emit, remedy=remedy, where=where)
    return emit


def _mode(name: str, mode: Mode, where: Where) -> Mode:
    if mode not in MODES:
        remedy = 'choose "microbatch" (epoch after epoch) or "realtime" (each event at once)'
        raise OptionInvalid(name=name, option="mode", given=mode, remedy=remedy, where=where)
    return mode


def _guarantee(name: str, mode: Mode, delivery: TopicGuarantee, where: Where) -> TopicGuarantee:
    remedy = ""
    if delivery not in TOPIC_GUARANTEES:
        remedy = (
            'choose "exactly once" (in transactions), "at least once" (the last epoch may come again) or '
            '"at most once" (it may be missing)'
        )
    elif delivery != "at least once" and mode == "realtime":
        remedy = "leave it out: rows in real time leave before their epoch is committed; a reader can drop repeats"
    if remedy:
        raise OptionInvalid(name=name, option="delivery", given=delivery, remedy=remedy, where=where)
    return delivery


def _epoch_ms(name: str, mode: Mode, epoch: Duration | None, where: Where) -> int | None:
    if mode != "realtime":
        if epoch is not None:
            remedy = 'leave it out, or say mode="realtime"; otherwise an epoch is as long as its records take'
            raise OptionInvalid(name=name, option="epoch", given=epoch, remedy=remedy, where=where)
        return None
    length_ms = duration_ms(name, "epoch", EPOCH if epoch is None else epoch, where)
    if length_ms < LEAST_EPOCH_MS:
        remedy = f"at least {durations.spoken(LEAST_EPOCH_MS)}: at its end a flow pauses for some tenths of a second"
        raise OptionInvalid(name=name, option="epoch", given=epoch, remedy=remedy, where=where)
    return length_ms


def _fits(name: str, body: Body, inputs: int, where: Where) -> None:
    if not _binds(body, inputs):
        gives = f"it is given {inputs} input{'s' if inputs > 1 else ''}"
        remedy = "one parameter for each input, in their order"
        raise ParametersInvalid(name=name, takes=_takes(body), gives=gives, remedy=remedy, where=where)


def _binds(function: Callable[..., Any], count: int) -> bool:
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    return True


def _takes(function: Callable[..., Any]) -> str:
    if not callable(function):
        return "is not a function"
    count = len(inspect.signature(function).parameters)
    return f"takes {count} parameter{'' if count == 1 else 's'}"
