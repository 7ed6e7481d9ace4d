"""Events as rows of the store's table, and rows as events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg.types.json import Json

from millrace.errors import EventInvalid
from millrace.events import checks
from millrace.events.aggregate import Aggregate
from millrace.events.connections import Connection
from millrace.events.kinds import Kind, Recorded, kind_of
from millrace.events.sealing import open_seals, seal

if TYPE_CHECKING:
    from millrace.events.store import Store

# Streams of no aggregate. The names are such that none of the user's has them by chance.
SUBJECTS, CLOCK = "millrace.subject", "millrace.clock"

COLUMNS = "position, aggregate, id, version, at, type, schema, data, seals, command, meta"


def encoded(
    store: Store,
    connection: Connection | None,
    changed: Sequence[Aggregate],
    command: str | None,
    meta: Mapping[str, Any] | None,
) -> tuple[Any, ...]:
    """What these aggregates emitted, as the arguments of the function `append`."""
    aggregates, ids, versions, types, schemas, contents, seals = [], [], [], [], [], [], []
    for each in changed:
        version = each.version - len(each.pending)
        for event in each._pending:
            version += 1
            kind = kind_of(type(event))
            data = kind.encode(event)
            sealed = _sealed(store, connection, kind, data, each.__aggregate__.name, each.id) if kind.personal else None
            aggregates.append(each.__aggregate__.name)
            ids.append(each.id)
            versions.append(version)
            types.append(kind.name)
            schemas.append(kind.version)
            contents.append(_written(kind, data))
            seals.append(sealed)
    texts = (_array(aggregates), _array(ids), _numbers(versions), _array(types), _numbers(schemas))
    return command, *texts, _array(contents), _array(seals), checks.about(meta)


def _written(kind: Kind, data: dict[str, Any]) -> str:
    try:
        return checks.written(data)
    except ValueError as error:  # a number of more digits than Python writes
        raise EventInvalid(event=kind.name, reason=error, remedy="keep it as a text") from None


def _array(values: Sequence[str | None]) -> str:
    """An array as PostgreSQL reads it. By psycopg's own way, type by type, it takes twenty times as long."""
    return "{" + ",".join(["NULL" if each is None else f'"{_escaped(each)}"' for each in values]) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _numbers(values: Sequence[int]) -> str:
    return "{" + ",".join(map(str, values)) + "}"


def _sealed(
    store: Store,
    connection: Connection | None,
    kind: Kind,
    data: dict[str, Any],
    aggregate: str,
    id: str,
) -> str:
    """Seals the personal fields in place; gives the ids of the keys, by field."""
    whose = {
        name: id if of is None else checks.text(f"the subject of {kind.name}", data[of])
        for name, of in kind.personal.items()
    }
    with store.on(connection) as used:
        keys = store.keys.of(used, whose.values())
    for name, subject in whose.items():
        data[name] = seal(data[name], keys[subject], f"{_about(kind.name, aggregate, id)}.{name}")
    return checks.written({name: keys[subject].id for name, subject in whose.items()})


def recorded(
    store: Store, connection: Connection, condition: str, values: Sequence[Any], order: str, limit: int | None = None
) -> list[Recorded[Any]]:
    query = f"SELECT {COLUMNS} FROM {{}}.event WHERE {condition} ORDER BY {order}"  # noqa: S608 -- texts of our own
    if limit is not None:
        query, values = f"{query} LIMIT %s", [*values, limit]
    found = connection.execute(store.sql(query), values).fetchall()
    keys = opened_by(store, connection, [row[8] for row in found])
    return [
        Recorded(
            row[0], row[1], row[2], row[3], row[4],
            decoded(store, row[5], row[7], row[6], row[0], row[8], keys, row[1], row[2]),
            row[5], row[9], row[10] or {},
        )
        for row in found
    ]  # fmt: skip


def opened_by(store: Store, connection: Connection, seals: Sequence[Mapping[str, str] | None]) -> Mapping[str, Any]:
    """The keys, by id, that these seals need and that are still there."""
    wanted = {number for each in seals if each for number in each.values()}
    return store.keys.by_id(connection, wanted) if wanted else {}


def decoded(
    store: Store,
    type: str,
    data: dict[str, Any],
    version: int,
    position: int,
    seals: Mapping[str, str] | None,
    keys: Mapping[str, Any],
    aggregate: str,
    id: str,
) -> Any:
    kind = store.kind(type, position)
    if seals:
        data = open_seals(data, seals, keys, kind.instead, _about(type, aggregate, id), position)
    forgotten = bool(seals) and any(number not in keys for number in (seals or {}).values())
    return kind.decode(data, version, position, forgotten)


def _about(type: str, aggregate: str, id: str) -> str:
    return f"{type}/{aggregate}/{id}"


def tell(store: Store, connection: Connection, aggregate: str, id: str, event: object) -> int:
    """Appends one event that no aggregate emitted, as the next of its stream; in a transaction. Gives its position."""
    query = store.sql("SELECT coalesce(max(version), 0) + 1 FROM {}.event WHERE aggregate = %s AND id = %s")
    kind = kind_of(type(event))
    store.keep_shapes([kind])
    while True:
        row = connection.execute(query, (aggregate, id)).fetchone()
        assert row is not None
        texts = (_array([aggregate]), _array([id]), _numbers([row[0]]), _array([kind.name]), _numbers([kind.version]))
        values = (None, *texts, _array([checks.written(kind.encode(event))]), _array([None]), None)
        done = connection.execute(store._append, values).fetchone()
        assert done is not None
        if done[0] == "written":
            return int(done[1])


def keep_shapes(connection: Connection, store: Store, kinds: Iterable[Kind]) -> None:
    """Remembers how these events look, for `millrace events check` and for those who read the table by SQL."""
    query = store.sql("INSERT INTO {}.shape (type, version, fields) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING")
    with connection.cursor() as cursor:
        cursor.executemany(query, [(kind.name, kind.version, Json(kind.record.shape)) for kind in kinds])


def put_back(aggregate: Aggregate, stored: Aggregate) -> None:
    """Makes an aggregate what the store has of it."""
    own = vars(aggregate)
    own.clear()
    own.update(vars(stored))
