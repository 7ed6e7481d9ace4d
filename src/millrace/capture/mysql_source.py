"""MariaDB's and MySQL's side of a capture: the binlog, signals, the history of tables, and how it stands with them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from millrace import local
from millrace.capture import connector, memory, mysql, mysql_check, mysql_connector, mysql_history, mysql_position
from millrace.capture.check import Finding
from millrace.capture.database import Address, CapturedTable
from millrace.capture.definition import Capture
from millrace.capture.source import Health
from millrace.config import Settings
from millrace.errors import PluginMissing
from millrace.log import Log


class MysqlSource:
    def __init__(self, settings: Settings, name: str, address: Address) -> None:
        self.settings, self.name, self.address = settings, name, address

    def check(self, capture: Capture) -> tuple[Finding, ...]:
        with mysql.connect(self.name, self.address) as database:
            return mysql_check.check(database, self.address, capture, self.settings)

    def whole(self, table: str) -> str:
        return mysql.qualified(table, self.address.database)

    def describe(self, capture: Capture) -> tuple[CapturedTable, ...]:
        with mysql.connect(self.name, self.address) as database:
            tables = mysql.chosen(database, capture, self.address.database)
            return tuple(mysql.described(database, capture, table.name, self.address.database) for table in tables)

    def estimates(self, capture: Capture) -> Mapping[str, int]:
        with mysql.connect(self.name, self.address) as database:
            return {table.name: table.rows for table in mysql.chosen(database, capture, self.address.database)}

    def prepare(self, capture: Capture) -> list[str]:
        log = Log(self.settings)
        with mysql.connect(self.name, self.address) as database:
            todo = mysql.statements(capture, mysql.tables(database))
            for statement in todo:
                database.rows(statement)
            mysql_history.ensure(log, capture)
            before = memory.read(log).get(capture.name)
            fresh = [
                name for name in map(self.whole, capture.tables) if before is not None and name not in before.tables
            ]
            mysql_history.tell(log, capture, {name: mysql.definition(database, name) for name in fresh})
        return todo

    def config(
        self, capture: Capture, together: Mapping[str, Sequence[str]], password: str | None, plugins: set[str]
    ) -> dict[str, str]:
        assert not together  # an event store is PostgreSQL's
        with mysql.connect(self.name, self.address) as database:
            is_mariadb = database.is_mariadb
        needed = mysql_connector.MARIADB if is_mariadb else mysql_connector.MYSQL
        if needed not in plugins:
            raise PluginMissing(name=capture.name, plugin=needed)
        names = [self.whole(table) for table in capture.tables]
        bootstrap = local.address(self.settings, "kafka")
        return mysql_connector.config(
            capture, names, self.address, password, self.settings, bootstrap, is_mariadb=is_mariadb
        )

    def snapshot(self, capture: Capture, tables: Sequence[str], conditions: Mapping[str, str]) -> str:
        signal = mysql.quoted(mysql.own_table(capture))
        number = str(uuid.uuid4())
        data: dict[str, Any] = {"type": "incremental", "data-collections": [connector.pattern(name) for name in tables]}
        if conditions:
            data["additional-conditions"] = [
                {"data-collection": table, "filter": condition} for table, condition in conditions.items()
            ]
        with mysql.connect(self.name, self.address) as database:
            # Signals are read from the binlog: the row itself has done its duty.
            statement = f"INSERT INTO {signal} (id, type, data) VALUES (%s, 'execute-snapshot', %s)"  # noqa: S608 - quoted
            database.rows(statement, number, json.dumps(data))
            database.rows(f"DELETE FROM {signal} WHERE id = %s", number)  # noqa: S608 - quoted
        return number

    def health(self, capture: Capture, offsets: Mapping[str, Any] | None) -> Health:  # noqa: ARG002 - of the protocol
        with mysql.connect(self.name, self.address) as database:
            binlog = mysql_position.read(database)
            begun = offsets is not None and "file" in offsets and not offsets.get("snapshot")
            lost = mysql_position.lost(database, binlog, offsets) if begun and offsets else None
        if binlog is None:
            return Health(None, None, lost)
        behind = None
        if offsets is not None and "file" in offsets:
            behind = binlog.behind_bytes(offsets["file"], int(offsets.get("pos") or 0))
        # The server keeps its binlog for a time, not for its readers: nothing is held back.
        return Health(None, behind, lost)

    def hindrance(self, capture: Capture) -> str | None:  # noqa: ARG002 - of the protocol
        """Nothing waits for others here: a place in the binlog is there at once."""
        return None

    def clean(self, capture: Capture, *, begins_anew: bool = False) -> list[str]:
        """Nothing was made in the server for this capture alone. One that begins anew goes on with its history of
        tables."""
        log = Log(self.settings)
        if not begins_anew and log.topics.exists(mysql_history.topic(capture)):
            log.topics.delete(mysql_history.topic(capture))
        return []
