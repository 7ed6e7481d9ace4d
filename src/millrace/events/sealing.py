"""Personal data in a log that is never changed: sealed with a key of its subject, and forgotten by deleting that key.

Keys are in a schema apart, so that they can be backed up, or not, by other rules than the events. What was sealed
with a key that is gone reads as the value that the field says to put instead.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

from millrace.errors import ExtraMissing, SealBroken

if TYPE_CHECKING:
    from psycopg import Connection

_NONCE_BYTES = 12
_KEY_BITS = 256


@dataclass(frozen=True)
class Subject:
    """Marks the field that says whose personal data an event holds; without one it is the aggregate's id."""


@dataclass(frozen=True)
class Personal:
    """Marks a field as personal data. `of` names the field that says whose; `instead` is what is read once that
    subject is forgotten."""

    of: str | None = None
    instead: Any = None

    def __call__(self, *, of: str | None = None, instead: Any = None) -> Personal:
        return Personal(of, instead)


subject, personal = Subject(), Personal()


@dataclass(frozen=True)
class Key:
    id: str
    subject: str
    secret: bytes


class Keys:
    """The subjects' keys, in the schema `NAME_keys` beside the store's."""

    def __init__(self, schema: str) -> None:
        self.schema = f"{schema}_keys"
        self._table = sql.Identifier(self.schema, "key")

    def create(self) -> sql.Composed:
        return sql.SQL(
            "CREATE SCHEMA {}; CREATE TABLE {} (id uuid PRIMARY KEY, subject text NOT NULL UNIQUE, "
            "secret bytea NOT NULL, at timestamptz NOT NULL DEFAULT now())"
        ).format(sql.Identifier(self.schema), self._table)

    def of(self, connection: Connection[Any], subjects: Iterable[str]) -> dict[str, Key]:
        """The keys of these subjects by name; those who have none are given one."""
        names = sorted(set(subjects))
        found = self._rows(connection, "subject = ANY(%s)", names)
        fresh = [name for name in names if name not in {key.subject for key in found}]
        if fresh:
            made = [(str(uuid.uuid4()), name, _aes().generate_key(_KEY_BITS)) for name in fresh]
            insert = sql.SQL("INSERT INTO {} (id, subject, secret) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING")
            with connection.cursor() as cursor:
                cursor.executemany(insert.format(self._table), made)
            found = self._rows(connection, "subject = ANY(%s)", names)
        return {key.subject: key for key in found}

    def by_id(self, connection: Connection[Any], ids: Iterable[str]) -> dict[str, Key]:
        wanted = sorted(set(ids))
        return {key.id: key for key in self._rows(connection, "id = ANY(%s::uuid[])", wanted)} if wanted else {}

    def held(self, connection: Connection[Any], subjects: Iterable[str]) -> bool:
        """Whether all of them have keys, which stay until this transaction ends."""
        names = sorted(set(subjects))
        query = sql.SQL("SELECT subject FROM {} WHERE subject = ANY(%s) FOR SHARE").format(self._table)
        return len(connection.execute(query, (names,)).fetchall()) == len(names)

    def forget(self, connection: Connection[Any], subject: str) -> bool:
        done = connection.execute(sql.SQL("DELETE FROM {} WHERE subject = %s").format(self._table), (subject,))
        return done.rowcount > 0

    def _rows(self, connection: Connection[Any], condition: str, values: list[str]) -> list[Key]:
        query = sql.SQL(f"SELECT id::text, subject, secret FROM {{}} WHERE {condition}").format(self._table)  # noqa: S608 -- texts of our own
        return [Key(number, name, bytes(secret)) for number, name, secret in connection.execute(query, (values,))]


def seal(value: Any, key: Key, about: str) -> str:
    """The JSON value, sealed; `about` (the event and the field) is not in it, but needed to open it."""
    nonce = os.urandom(_NONCE_BYTES)
    hidden = _aes()(key.secret).encrypt(nonce, json.dumps(value).encode(), about.encode())
    return base64.b64encode(nonce + hidden).decode()


def open_seals(
    data: dict[str, Any],
    seals: Mapping[str, str],
    keys: Mapping[str, Key],
    instead: Mapping[str, Any],
    about: str,
    position: int,
) -> dict[str, Any]:
    """The data with its sealed fields (each under the id of its key) opened, or with what stands instead."""
    found = dict(data)
    for name, number in seals.items():
        key = keys.get(number)
        if key is None:
            found[name] = instead.get(name)
            continue
        from cryptography.exceptions import InvalidTag

        hidden = base64.b64decode(data[name])
        try:
            opened = _aes()(key.secret).decrypt(
                hidden[:_NONCE_BYTES], hidden[_NONCE_BYTES:], f"{about}.{name}".encode()
            )
        except InvalidTag:
            raise SealBroken(field=name, position=position) from None
        found[name] = json.loads(opened)
    return found


def _aes() -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ExtraMissing(what="personal data of events", reason=error, extra="events") from None
    return AESGCM
