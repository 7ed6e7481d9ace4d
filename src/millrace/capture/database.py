"""The database that a capture reads: its address, and how its tables and columns are described to everybody else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from millrace import local
from millrace.config import Settings
from millrace.errors import DatabaseUrlInvalid

KINDS = {"postgresql": "postgres", "postgres": "postgres", "mysql": "mysql", "mariadb": "mysql"}
PORTS = {"postgres": 5432, "mysql": 3306}


@dataclass(frozen=True)
class Address:
    """A database's URL, taken apart. `kind` is "postgres" or "mysql" (which MariaDB is too)."""

    kind: str
    host: str
    port: int
    user: str
    database: str
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}/{self.database}"

    @property
    def connecting(self) -> dict[str, Any]:
        """What psycopg is told of it."""
        known = {"host": self.host, "port": self.port, "user": self.user, "password": self.password}
        return {**self.options, **known, "dbname": self.database}


@dataclass(frozen=True)
class Column:
    """`type` is the database's word for it (`numeric(12,2)`), `spark` the type under which tables show it.

    `number` is the column's lasting number in its table, by which a renamed one is known (PostgreSQL's `attnum`).
    `default` is what rows from before the column was added hold in it, as JSON text as in the topic. `enum` is the name
    of the enum that it is of, if it is of one.
    """

    name: str
    type: str
    spark: str
    nullable: bool = True
    number: int = 0
    default: str | None = None
    was: tuple[str, ...] = ()
    has_default: bool = False
    enum: str = ""


@dataclass(frozen=True)
class CapturedTable:
    """One table as readers know it, without touching the database.

    `shapes` are the sets of columns that rows in the topic have had, each in the order of the topic's JSON; a row of
    another shape means that the table has changed. `dropped` are columns that some of those rows still hold. `together`
    are columns by whose values rows are in one partition, where that is not the key: of rows that are never changed.
    """

    name: str
    topic: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]
    shapes: tuple[tuple[str, ...], ...] = ()
    dropped: tuple[str, ...] = ()
    together: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> CapturedTable:
        columns = tuple(Column(**{**each, "was": tuple(each.get("was", ()))}) for each in raw["columns"])
        shapes = tuple(tuple(shape) for shape in raw.get("shapes", ()))
        dropped, together = tuple(raw.get("dropped", ())), tuple(raw.get("together", ()))
        return cls(raw["name"], raw["topic"], tuple(raw["key"]), columns, shapes, dropped, together)


def address(settings: Settings, name: str) -> Address:
    """Where the database of this name is. Without any [databases] it is one of the project's own PostgreSQL."""
    if not settings.databases:
        found = parsed(name, local.address(settings, "postgres"))
        return Address(found.kind, found.host, found.port, found.user, name, found.password, found.options)
    return parsed(name, settings.database(name).url.reveal())


def parsed(name: str, url: str) -> Address:
    try:
        parts = urlsplit(url)
        kind = KINDS[parts.scheme.partition("+")[0]]
        database = unquote(parts.path.lstrip("/"))
        if not parts.hostname or not parts.username or not database:
            raise ValueError
        return Address(
            kind,
            parts.hostname,
            parts.port or PORTS[kind],
            unquote(parts.username),
            database,
            unquote(parts.password) if parts.password else None,
            dict(parse_qsl(parts.query)),
        )
    except (ValueError, KeyError):
        raise DatabaseUrlInvalid(name=name) from None
