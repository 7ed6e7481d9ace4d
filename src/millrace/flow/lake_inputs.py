"""What `app.lake` declares, checked: a table that stands still, or one whose additions flow through a topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from millrace.errors import OptionInvalid, Where
from millrace.flow import topics
from millrace.flow.lakes import LakeInput
from millrace.flow.nodes import PARTITIONS, Topic


def lake_input(
    app: str, table: str, schema: str | None, version: int | None, options: Mapping[str, Any], where: Where
) -> LakeInput | Topic:
    from millrace.lakehouse.catalog import NAME  # an app is defined without what a lake needs

    if not isinstance(table, str) or not NAME.fullmatch(table):
        remedy = "name a table as `millrace lake list` shows it"
        raise OptionInvalid(name="app.lake", option="table", given=table, remedy=remedy, where=where)
    if schema is None:
        return _still(table, version, options, where)
    if version is not None:
        remedy = "leave it out: a table that streams goes on with what is added"
        raise OptionInvalid(name="app.lake", option="version", given=version, remedy=remedy, where=where)
    given = {"time": None, "lateness": None, "partitions": PARTITIONS, **options}
    found = topics.topic(f"{app}.lake.{table}", schema, where=where, **given)
    return replace(found, lake=table)


def _still(table: str, version: int | None, options: Mapping[str, Any], where: Where) -> LakeInput:
    if options:
        remedy = "give the columns too, if the table is to stream: the option is a topic's"
        raise OptionInvalid(name="app.lake", option=next(iter(options)), given="it", remedy=remedy, where=where)
    if version is not None and (isinstance(version, bool) or not isinstance(version, int) or version < 0):
        remedy = f"a number that `millrace lake history {table}` shows"
        raise OptionInvalid(name="app.lake", option="version", given=version, remedy=remedy, where=where)
    return LakeInput(table, version, where)
