"""The columns of rows that are put together from two sides."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.errors import OptionInvalid, Where


def named(operator: str, left: Sequence[str], right: Sequence[str], prefix: str, where: Where) -> dict[str, str]:
    """What the right columns are called beside the left ones: a name that is taken gets the prefix. Spark takes names
    that differ only in case for the same."""
    taken = {name.casefold() for name in left}
    names = {name: f"{prefix}{name}" if name.casefold() in taken else name for name in right}
    every = taken | {name.casefold() for name in right}
    for name, new in names.items():
        if name.casefold() in taken and new.casefold() in every:
            remedy = f"another one: there is a column {new!r} already"
            raise OptionInvalid(name=operator, option="prefix", given=prefix, remedy=remedy, where=where)
    return names
