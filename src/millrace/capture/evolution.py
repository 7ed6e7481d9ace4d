"""What a changed table means for what is in its topic already: a pure function of two descriptions of its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millrace.capture.database import CapturedTable, Column
from millrace.capture.reading import sources

# A table whose columns changed more often than this, within what its topic keeps, has its oldest shapes forgotten.
MOST_SHAPES = 100

_DIGITS = {"smallint": 5, "integer": 10, "bigint": 19}
_WIDER = {"smallint": ("integer", "bigint"), "integer": ("bigint",)}
_NUMERIC = re.compile(r"numeric(?:\((\d+),(-?\d+)\))?")
_LIMITED = re.compile(r"(character varying|bit varying|timestamp|time)(?:\((\d+)\))?( with(?:out)? time zone)?")
_INTEGERS = ("tinyint", "smallint", "int", "bigint")
_MOMENTS = ("date", "timestamp", "timestamp_ntz")

Shape = tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """`words` say what happened, one each. With `resnapshot` rows in the topic are shown wrongly until they are read
    again; `breaks` says why a flow that reads the table cannot go on."""

    words: tuple[str, ...] = ()
    resnapshot: bool = False
    breaks: str | None = None


def evolved(old: CapturedTable, now: CapturedTable, seen: Sequence[Shape] = ()) -> tuple[CapturedTable, Change]:
    """The table as it is now, with what is known of its past; `seen` are shapes found in the topic that nobody knew."""
    befores = {column.name: _before(old, column) for column in now.columns}
    names_before = {before.name for before in befores.values() if before}
    gone = [column.name for column in old.columns if column.name not in names_before]
    found = [_known(column, befores[column.name]) for column in now.columns]
    found, untold = _renamed_between(
        found, old, gone, seen, {column.name for column in now.columns if befores[column.name]}
    )

    words: list[str] = []
    resnapshot, breaks = False, _new_key(old, now, befores) or untold
    for column in found:
        before = befores[column.name]
        if before is None:
            words.append(f"column {column.name} ({column.type}) was added")
            resnapshot |= _filled(column) or bool(not column.number and gone)
            continue
        if before.name != column.name:
            words.append(f"column {before.name} was renamed to {column.name}")
        if before.type != column.type:
            words.append(f"column {column.name} was {before.type} and is {column.type} now")
            resnapshot |= not shown_alike(before, column)
            breaks = breaks or _unreadable(before, column)
    words += [f"column {name} was dropped" for name in gone]

    live = {name for column in found for name in (column.name, *column.was)}
    strange = [name for shape in seen for name in shape]
    dropped = tuple(dict.fromkeys(name for name in (*old.dropped, *gone, *strange) if name not in live))
    shapes = tuple(dict.fromkeys((*old.shapes, *seen, *now.shapes)))[-MOST_SHAPES:]
    # Rows stay in the partitions where their topic has them, also if they would be placed otherwise today.
    table = replace(now, columns=tuple(found), shapes=shapes, dropped=dropped, together=old.together)
    reused, exchanged = _mixed_up(old, table, befores)
    return table, Change(tuple(words), resnapshot or reused, breaks or exchanged)


def _before(old: CapturedTable, column: Column) -> Column | None:
    """The same column earlier: by its lasting number where the database has one, otherwise by its name."""
    for before in old.columns:
        if before.number == column.number if column.number else before.name == column.name:
            return before
    return None


def _known(column: Column, before: Column | None) -> Column:
    if before is None:
        return column
    earlier = () if before.name == column.name else (before.name,)
    was = tuple(name for name in dict.fromkeys((*before.was, *earlier)) if name != column.name)
    # What rows from before it was added hold stays true for them, though the database may have forgotten it since.
    return replace(column, was=was, default=column.default if before.default is None else before.default)


def _filled(column: Column) -> bool:
    """Whether a new column has values in old rows that nobody knows: a default was computed for each row."""
    return column.default is None and (column.has_default or not column.nullable)


def _mixed_up(old: CapturedTable, now: CapturedTable, befores: dict[str, Column | None]) -> tuple[bool, str | None]:
    """Whether rows hold, under the name of a new column, what another one had; and whether columns exchanged names, so
    that a row does not tell by its shape which is which."""
    reused = False
    for shape in old.shapes:
        earlier, later = sources(old, shape), sources(now, shape)
        for column in now.columns:
            before = befores[column.name]
            if before is None:
                reused |= later[column.name] is not None
            elif later[column.name] != earlier[before.name]:
                return reused, f"column {before.name} became {column.name}, which was the name of another column"
    return reused, None


def _renamed_between(
    found: list[Column], old: CapturedTable, gone: Sequence[str], seen: Sequence[Shape], lasting: set[str]
) -> tuple[list[Column], str | None]:
    """Names that columns had only between two looks at the database. A row holds its columns in their order, so as many
    unknown names as columns are missing are those; otherwise nobody can tell."""
    for shape in seen:
        known = {name for column in found for name in (column.name, *column.was)} | {*old.dropped, *gone}
        missing = [column for column in found if column.name in lasting and not {column.name, *column.was} & set(shape)]
        unknown = [name for name in shape if name not in known]
        if not missing:
            continue
        if not unknown:
            first = missing[0]
            return found, f"column {first.name} ({first.type}) is not in its records: it cannot be captured"
        if len(unknown) != len(missing):
            told = ", ".join(column.name for column in missing)
            return found, f"rows have {', '.join(unknown)} instead of {told}: it was changed several times at once"
        names = {column.name: name for column, name in zip(missing, unknown, strict=True)}
        found = [replace(each, was=(*each.was, names[each.name])) if each.name in names else each for each in found]
    return found, None


def _new_key(old: CapturedTable, now: CapturedTable, befores: dict[str, Column | None]) -> str | None:
    """A renamed key is another one too: its records have other keys."""
    same = tuple(before.name for name in now.key if (before := befores.get(name)))
    if old.key == now.key == same:
        return None
    return f"its key was ({', '.join(old.key)}) and is ({', '.join(now.key)}) now"


def shown_alike(before: Column, after: Column) -> bool:
    """Whether a value of the old type, as it is in the topic, is shown just as the database has it after the change."""
    old, new = before.type, after.type
    if old.endswith("[]") and new.endswith("[]"):
        element = replace(before, type=old[:-2], spark=before.spark[6:-1])
        return shown_alike(element, replace(after, type=new[:-2], spark=after.spark[6:-1]))
    if new in _WIDER.get(old, ()):
        return True
    if (number := _NUMERIC.fullmatch(new)) and (old in _DIGITS or _NUMERIC.fullmatch(old)):
        return _holds_number(before, after, number)
    if (limit := _LIMITED.fullmatch(old)) and (wider := _LIMITED.fullmatch(new)) and limit[1] == wider[1]:
        unlimited = wider[2] is None
        return limit[3] == wider[3] and (unlimited or (limit[2] is not None and int(wider[2]) >= int(limit[2])))
    return new == "text" and (old == "text" or bool(limit and limit[1] == "character varying"))


def _holds_number(before: Column, after: Column, number: re.Match[str]) -> bool:
    """A numeric without limits keeps every digit; one with limits pads them, which only Spark's decimal does too."""
    if number[1] is None:
        return True
    old = _NUMERIC.fullmatch(before.type)
    if not after.spark.startswith("decimal") or (old and old[1] is None):
        return False
    digits, scale = (int(old[1]), int(old[2])) if old else (_DIGITS[before.type], 0)
    return int(number[2]) >= scale and int(number[1]) - int(number[2]) >= digits - scale


def _unreadable(before: Column, after: Column) -> str | None:
    if readable(before.spark, after.spark):
        return None
    return f"column {after.name} was {before.type}, and rows from then cannot be read as {after.type}"


def readable(old: str, new: str) -> bool:
    """Whether what was written of one Spark type can be read as the other at all; see `reading.wire`."""
    if old == new:
        return True
    if old.startswith("array<") or new.startswith("array<"):
        return old.startswith("array<") and new.startswith("array<") and readable(old[6:-1], new[6:-1])
    if new in _INTEGERS:
        return old in _INTEGERS
    if new in ("float", "double"):
        return old in (*_INTEGERS, "float", "double")
    if new.startswith("decimal"):
        return old in (*_INTEGERS, "float", "double") or old.startswith("decimal")
    return old in _MOMENTS if new in _MOMENTS else new == "string"
