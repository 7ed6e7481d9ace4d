"""Where a capture stands in a server's binlog, and whether the server still has what comes next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millrace.capture.mysql import Database

# Where MySQL says where it is; the former name was taken away in 8.4.
_RENAMED = (8, 2, 0)


@dataclass(frozen=True)
class Binlog:
    """The files that the server still has, oldest first, with their sizes; and the end of the newest."""

    files: Mapping[str, int]
    file: str
    position: int

    def behind_bytes(self, file: str, position: int) -> int | None:
        """How much follows after a position; None if its file is not there."""
        if file not in self.files:
            return None
        names = list(self.files)
        later = sum(self.files[name] for name in names[names.index(file) : names.index(self.file)])
        return max(0, later + self.position - position)


def read(database: Database) -> Binlog | None:
    """None if the server writes no binlog."""
    renamed = not database.is_mariadb and database.version >= _RENAMED
    end = database.row("SHOW BINARY LOG STATUS" if renamed else "SHOW MASTER STATUS")
    if end is None:
        return None
    files = {row["Log_name"]: int(row["File_size"]) for row in database.rows("SHOW BINARY LOGS")}
    return Binlog(files, end["File"], int(end["Position"]))


def lost(database: Database, binlog: Binlog | None, offsets: Mapping[str, Any]) -> str | None:
    """Why a capture cannot go on from where it is; None if it can."""
    if binlog is None:
        return "the server no longer writes a binlog"
    gtids = offsets.get("gtids")
    if not gtids:
        return gap_of_files(binlog, offsets.get("file", ""), int(offsets.get("pos") or 0))
    if database.is_mariadb:
        oldest = next(iter(binlog.files))
        asks = "SELECT BINLOG_GTID_POS(%s, 4) AS begins, @@GLOBAL.gtid_binlog_state AS ends"
        row = database.row(asks, oldest) or {}
        return gap_of_numbers(row["begins"] or "", row["ends"] or "", gtids)
    asks = (
        "SELECT GTID_SUBSET(@@GLOBAL.gtid_purged, %s) AS has, GTID_SUBSET(%s, @@GLOBAL.gtid_executed) AS knows, "
        "@@GLOBAL.gtid_purged AS purged"
    )
    row = database.row(asks, gtids, gtids) or {}
    if not row["has"]:
        return f"the server has purged transactions that were not captured (gtid_purged is {row['purged']})"
    if not row["knows"]:
        return "the server does not know transactions that were captured: it was set back, or is another one"
    return None


def gap_of_files(binlog: Binlog, file: str, position: int) -> str | None:
    if file not in binlog.files:
        return f"the server has purged {file}, where the capture has to go on: it begins at {next(iter(binlog.files))}"
    if file == binlog.file and position > binlog.position:
        return f"the server is at {file}:{binlog.position}, before {position} that was captured: it was set back"
    return None


def gap_of_numbers(begins: str, ends: str, captured: str) -> str | None:
    """By MariaDB's GTIDs: those before the oldest file, those that were written ever, and those that were captured."""
    for domain, number in _domains(captured).items():
        if number < _domains(begins).get(domain, 0):
            return f"the server has purged what follows {captured}: its binlog begins after {begins}"
        if number > _domains(ends).get(domain, 0):
            return f"the server is at {ends}, before {captured} that was captured: it was set back"
    return None


def _domains(gtids: str) -> dict[str, int]:
    """`domain-server-number,…`: the highest number of each domain."""
    found: dict[str, int] = {}
    for gtid in filter(None, (part.strip() for part in gtids.split(","))):
        domain, _, rest = gtid.partition("-")
        found[domain] = max(found.get(domain, 0), int(rest.rpartition("-")[2]))
    return found
