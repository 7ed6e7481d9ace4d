"""Days and moments of PostgreSQL as Python's, and as PostgreSQL's words those that Python's types cannot hold: before
the year 1, after 9999, infinite ones."""

from __future__ import annotations

import struct
from datetime import date, timedelta
from typing import Any

import psycopg
from psycopg.types.datetime import DateBinaryLoader, TimestampBinaryLoader, TimestamptzBinaryLoader

_FIRST = date(2000, 1, 1)
# After so many days, which are 400 years, the calendar is the same again.
_CYCLE_DAYS, _CYCLE_YEARS = 146_097, 400
_DAY_US = 86_400_000_000


def load_far_moments(connection: psycopg.Connection[Any]) -> None:
    for name, loader in (("date", _Date), ("timestamp", _Timestamp), ("timestamptz", _Timestamptz)):
        connection.adapters.register_loader(name, loader)


def _words(days: int, clock: str) -> str:
    cycles, rest = divmod(days, _CYCLE_DAYS)
    day = _FIRST + timedelta(days=rest)
    year = day.year + cycles * _CYCLE_YEARS
    counted, era = (year, "") if year > 0 else (1 - year, " BC")
    return f"{counted:04}-{day.month:02}-{day.day:02}{clock}{era}"


def _moment(micros: int, zone: str) -> str:
    days, rest = divmod(micros, _DAY_US)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f" {seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return _words(days, clock + (f".{fraction:06}".rstrip("0") if fraction else "") + zone)


class _Date(DateBinaryLoader):
    def load(self, data: Any) -> Any:
        (days,) = struct.unpack("!i", data)
        if days in (2**31 - 1, -(2**31)):
            return "infinity" if days > 0 else "-infinity"
        try:
            return super().load(data)
        except psycopg.DataError:
            return _words(days, "")


class _Timestamp(TimestampBinaryLoader):
    def load(self, data: Any) -> Any:
        return _loaded(super().load, data, "")


class _Timestamptz(TimestamptzBinaryLoader):
    def load(self, data: Any) -> Any:
        return _loaded(super().load, data, "+00")


def _loaded(load: Any, data: Any, zone: str) -> Any:
    (micros,) = struct.unpack("!q", data)
    if micros in (2**63 - 1, -(2**63)):
        return "infinity" if micros > 0 else "-infinity"
    try:
        return load(data)
    except psycopg.DataError:
        return _moment(micros, zone)
