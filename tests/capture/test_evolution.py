"""What a changed table means for the rows in its topic: which of them are still shown as they are."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import pytest

from millrace.capture import types
from millrace.capture.database import CapturedTable, Column
from millrace.capture.evolution import MOST_SHAPES, Change, evolved
from millrace.capture.reading import decoded, sources


def column(name: str, type_name: str = "integer", number: int = 0, **more: object) -> Column:
    spark = types.postgres(SimpleNamespace(root=type_name, dimensions=0))
    return Column(name, type_name, spark, number=number, **more)  # type: ignore[arg-type]


def table(*columns: Column, key: tuple[str, ...] = ("id",)) -> CapturedTable:
    """With the columns numbered as they come."""
    numbers = count(1)
    numbered = tuple(replace(each, number=each.number or next(numbers)) for each in columns)
    return CapturedTable("public.t", "shop.public.t", key, numbered, (tuple(each.name for each in columns),))


ID = column("id")
OLD = table(ID, column("name", "text"), column("n", "integer"))


def test_nothing_changed_means_nothing() -> None:
    assert evolved(OLD, OLD) == (OLD, Change())  # a new value of an enum, too: it is no other type


def test_rows_stay_in_the_partitions_where_their_topic_has_them() -> None:
    """One that was captured before rows lay together goes on so, and the other way round."""
    together = replace(OLD, together=("n",))
    assert evolved(OLD, together) == (OLD, Change())
    assert evolved(together, OLD) == (together, Change())
    assert CapturedTable.from_json(together.as_json()) == together


def test_a_column_that_is_added_is_null_in_older_rows_or_has_its_default() -> None:
    now, change = evolved(
        OLD, table(*OLD.columns, column("more", "text", 4), column("five", "integer", 5, default="5"))
    )
    assert change == Change(("column more (text) was added", "column five (integer) was added"))
    assert now.shapes == (("id", "name", "n"), ("id", "name", "n", "more", "five"))
    assert decoded(now, '{"id":1,"name":"a","n":2}') == {"id": 1, "name": "a", "n": 2, "more": None, "five": 5}
    assert decoded(now, '{"id":1,"name":"a","n":2,"more":"x","five":null}')["five"] is None

    # The database forgets such a default when it writes the table anew; older rows in the topic stay as they are.
    later = replace(now, columns=tuple(replace(each, default=None) for each in now.columns), shapes=now.shapes[1:])
    again, change = evolved(now, later)
    assert (again, change) == (now, Change())


@pytest.mark.parametrize("more", [{"has_default": True}, {"nullable": False}])
def test_a_column_with_values_that_nobody_knows_has_its_rows_read_again(more: dict[str, bool]) -> None:
    _, change = evolved(OLD, table(*OLD.columns, column("at", "timestamp with time zone", 4, **more)))
    assert change.resnapshot
    assert change.breaks is None


def test_a_dropped_column_stays_known_and_is_not_shown() -> None:
    now, change = evolved(OLD, table(*OLD.columns[:2]))
    assert change == Change(("column n was dropped",))
    assert now.dropped == ("n",)
    assert decoded(now, '{"id":1,"name":"a","n":2}') == {"id": 1, "name": "a"}


def test_a_renamed_column_is_read_under_both_names() -> None:
    now, change = evolved(OLD, table(ID, column("title", "text", 2), column("n", "integer", 3)))
    assert change == Change(("column name was renamed to title",))
    assert decoded(now, '{"id":1,"name":"a","n":2}') == decoded(now, '{"id":1,"title":"a","n":2}')
    # … and back.
    back, change = evolved(now, OLD)
    assert change == Change(("column title was renamed to name",))
    assert decoded(back, '{"id":1,"title":"a","n":2}')["name"] == "a"


def test_a_name_that_another_column_had_is_not_mixed_up_with_it() -> None:
    now, change = evolved(
        OLD, table(ID, column("title", "text", 2), column("n", "integer", 3), column("name", "text", 4))
    )
    assert not change.resnapshot
    assert sources(now, ("id", "name", "n")) == {"id": "id", "title": "name", "n": "n", "name": None}
    assert decoded(now, '{"id":1,"name":"a","n":2}') == {"id": 1, "title": "a", "n": 2, "name": None}
    assert decoded(now, '{"id":1,"title":"a","n":2,"name":"b"}') == {"id": 1, "title": "a", "n": 2, "name": "b"}

    exchanged = table(ID, column("n", "text", 2), column("name", "integer", 3))
    assert "which was the name of another column" in str(evolved(OLD, exchanged)[1].breaks)


def test_a_dropped_column_that_comes_again_under_its_name_has_its_rows_read_again() -> None:
    now, change = evolved(OLD, table(*OLD.columns[:2], column("n", "integer", 4)))
    assert change.words == ("column n (integer) was added", "column n was dropped")
    assert change.resnapshot
    assert now.dropped == ()
    gone, _ = evolved(OLD, table(*OLD.columns[:2]))
    assert evolved(gone, table(*OLD.columns[:2], column("n", "integer", 4)))[1].resnapshot


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("smallint", "integer"),
        ("integer", "bigint"),
        ("integer", "numeric"),
        ("integer", "numeric(10,0)"),
        ("bigint", "numeric(25,4)"),
        ("numeric(10,2)", "numeric(12,2)"),
        ("numeric(10,2)", "numeric(12,4)"),
        ("numeric(10,2)", "numeric"),
        ("character varying(10)", "character varying(20)"),
        ("character varying(10)", "character varying"),
        ("character varying(10)", "text"),
        ("timestamp(3) without time zone", "timestamp without time zone"),
        ("bit varying(3)", "bit varying"),
        ("integer[]", "bigint[]"),
    ],
)
def test_a_wider_type_shows_what_is_there(before: str, after: str) -> None:
    now, change = evolved(table(ID, column("v", before)), table(ID, column("v", after)))
    assert change == Change((f"column v was {before} and is {after} now",))
    assert now.columns[1].type == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("bigint", "integer"),
        ("real", "double precision"),  # 0.1 becomes 0.10000000149011612
        ("bigint", "numeric(10,0)"),
        ("numeric(12,2)", "numeric(12,4)"),
        ("numeric(10,2)", "numeric(60,4)"),
        ("text", "character varying(10)"),
        ("timestamp without time zone", "timestamp with time zone"),
        ("timestamp without time zone", "timestamp(0) without time zone"),
        ("integer", "text"),
        ("json", "jsonb"),
    ],
)
def test_another_type_that_old_rows_can_be_read_as_has_them_read_again(before: str, after: str) -> None:
    _, change = evolved(table(ID, column("v", before)), table(ID, column("v", after)))
    assert (change.resnapshot, change.breaks) == (True, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("text", "integer"),
        ("numeric", "numeric(12,2)"),
        ("double precision", "integer"),
        ("text", "boolean"),
        ("integer", "integer[]"),
        ("bytea", "date"),
    ],
)
def test_a_type_that_old_rows_cannot_be_read_as_stops_flows(before: str, after: str) -> None:
    _, change = evolved(table(ID, column("v", before)), table(ID, column("v", after)))
    assert change.resnapshot
    assert change.breaks == f"column v was {before}, and rows from then cannot be read as {after}"


def test_another_key_stops_flows() -> None:
    assert "its key was (id)" in str(evolved(OLD, replace(OLD, key=("id", "n")))[1].breaks)
    renamed = table(column("number", "integer", 1), *OLD.columns[1:], key=("number",))
    assert "is (number) now" in str(evolved(OLD, renamed)[1].breaks)


def test_shapes_between_two_looks_are_understood_or_refused() -> None:
    # name was `label` for a while, and a column `brief` came and went.
    now, change = evolved(OLD, table(ID, column("title", "text", 2), column("n", "integer", 3)), [("id", "label", "n")])
    assert change.breaks is None
    assert decoded(now, '{"id":1,"label":"a","n":2}') == {"id": 1, "title": "a", "n": 2}
    now, change = evolved(OLD, OLD, [("id", "name", "n", "brief")])
    assert (change.breaks, now.dropped) == (None, ("brief",))
    assert decoded(now, '{"id":1,"name":"a","n":2,"brief":3}') == {"id": 1, "name": "a", "n": 2}
    # Two are missing, one is strange: nobody can tell which it is.
    assert "several times at once" in str(evolved(OLD, OLD, [("id", "label")])[1].breaks)
    assert "cannot be captured" in str(evolved(OLD, OLD, [("id", "name")])[1].breaks)


def test_only_so_many_shapes_are_remembered_and_the_present_one_always() -> None:
    shapes = tuple(("id", "name", "n", f"x{number}") for number in range(MOST_SHAPES + 50))
    now, _ = evolved(replace(OLD, shapes=shapes), OLD)
    assert len(now.shapes) == MOST_SHAPES
    assert now.shapes[-1] == ("id", "name", "n")


def test_without_lasting_numbers_a_rename_is_not_taken_for_null() -> None:
    """MySQL: what looks like one column gone and one come may be a rename."""

    def plain(*names: str) -> CapturedTable:
        columns = tuple(Column(name, "int", "int") for name in names)
        return CapturedTable("shop.t", "shop.shop.t", ("id",), columns, (names,))

    assert evolved(plain("id", "a"), plain("id", "b"))[1].resnapshot
    assert not evolved(plain("id", "a"), plain("id", "a", "b"))[1].resnapshot
