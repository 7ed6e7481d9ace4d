"""The lake as the console finds it: tables, versions, and what a query gives as of one of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace import config
from millrace.config import Settings
from millrace.console import lake
from millrace.console.timeline import Dot, timeline
from millrace.errors import LakeMomentInvalid, LakeQueryInvalid, LakeTableUnknown, LakeVersionUnknown, RequestInvalid
from millrace.lakehouse import Catalog, LakeTable
from millrace.lakehouse.catalog import Unseen
from tests.lakehouse.filled import COLUMNS, epoch, file_of


@pytest.fixture
def project(tmp_path: Path) -> Settings:
    return config.load(tmp_path)


def made(settings: Settings, name: str) -> LakeTable:
    table = Catalog(settings).table(name, "delta")
    table.load()
    table.create(COLUMNS, ())
    return table


def test_tables_versions_and_what_they_hold(project: Settings) -> None:
    assert lake.tables(project) == []
    orders = made(project, "orders")
    for number in range(3):
        epoch(orders, number, [file_of(orders, range(number + 1))])
    (facts,) = lake.tables(project)
    assert isinstance(facts, lake.TableFacts)
    assert (facts.name, facts.format, facts.version, facts.rows, facts.files) == ("orders", "delta", 3, 6, 3)
    assert (facts.flow, facts.epoch) == ("flow", 2)
    found = lake.look(project, "orders")
    assert [(each.number, each.epoch) for each in found.versions] == [(0, None), (1, 0), (2, 1), (3, 2)]
    assert found.versions[-1].holds == {"shop.orders": {0: 30, 1: 30}}
    assert found.columns["amount"] == "decimal(12,2)"
    assert found.facts == facts
    (project.lake_folder / "far" / "_delta_log").mkdir(parents=True)
    trouble, facts = lake.tables(project)
    assert isinstance(trouble, Unseen)
    assert isinstance(facts, lake.TableFacts)
    assert (trouble.name, trouble.reason[:27]) == ("far", "MR-LAKE-TABLE-UNCATALOGUED ")
    with pytest.raises(LakeTableUnknown, match="did you mean 'orders'"):
        lake.look(project, "order")


def test_which_version_is_meant(project: Settings) -> None:
    orders, other = made(project, "orders"), made(project, "other")
    for number in range(3):
        epoch(orders, number, [file_of(orders, [number])])
        epoch(other, number, [file_of(other, [number, number])])

    def meant(as_of: str, table: LakeTable = orders) -> int | None:
        version = lake.choice(project, "orders", as_of)(table)
        return None if version is None else version.number

    versions = lake.look(project, "orders").versions
    assert [meant(str(each.number)) for each in versions] == [0, 1, 2, 3]
    assert [meant(each.at.isoformat()) for each in versions] == [0, 1, 2, 3]
    assert [meant(word) for word in ("", "newest", " latest ")] == [None] * 3
    # Of version 2 the other table is as it was when that was made: it had its first epoch, and not its second.
    assert [meant(number, other) for number in "123"] == [0, 1, 2]
    for as_of, sort in (("9", LakeVersionUnknown), ("2000-01-01", LakeVersionUnknown), ("soon", LakeMomentInvalid),
                        ("earliest", LakeMomentInvalid)):  # fmt: skip
        with pytest.raises(sort):
            meant(as_of)


def test_a_query_is_answered_as_of_a_version_and_reads_the_lake_alone(project: Settings) -> None:
    orders = made(project, "orders")
    for number in range(4):
        epoch(orders, number, [file_of(orders, [number])])
    answer = lake.ask(project, "orders", "SELECT id, id, amount, placed FROM orders ORDER BY 1;", "3", 2)
    assert answer.grid.columns[2:] == ("amount", "placed")
    assert answer.grid.rows == tuple((n, n, f"{n}.00", "2026-01-01T12:00:00+00:00") for n in "01")
    assert (answer.more, answer.positions) == (True, {"orders": "version 3"})
    with pytest.raises(LakeQueryInvalid, match="disabled by configuration"):
        lake.ask(project, "orders", "SELECT * FROM read_text('/etc/passwd')", "", 10)
    with pytest.raises(LakeQueryInvalid, match="no query"):
        lake.ask(project, "orders", "DROP TABLE orders", "", 10)
    with pytest.raises(RequestInvalid, match="1 to 10,000 rows"):
        lake.ask(project, "orders", "SELECT 1", "", 0)


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=30).map(sorted))
def test_a_time_line_keeps_the_order_and_its_ends(seconds: list[int]) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    dots = [Dot(number, begin + timedelta(seconds=at), "epoch", '"<') for number, at in enumerate(seconds)]
    drawn = timeline(dots, chosen=0)
    places = [float(part.partition("%")[0]) for part in drawn.split("left: ")[1:]]
    assert places == sorted(places)
    assert (min(places) >= 1, max(places)) == (True, 99)
    assert drawn.count("chosen") == 1
    assert '"&quot;&lt;"' in drawn
    assert timeline([], None) == ""


def test_the_ends_of_a_time_line_are_told_apart() -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    short, long = (
        timeline([Dot(0, begin, "epoch", ""), Dot(1, begin + timedelta(seconds=length), "epoch", "")], None)
        for length in (0.25, 60)
    )
    assert "<span>2026-01-01 00:00:00.000</span><span>2026-01-01 00:00:00.250</span>" in short
    assert "<span>2026-01-01 00:00:00</span><span>2026-01-01 00:01:00</span>" in long
