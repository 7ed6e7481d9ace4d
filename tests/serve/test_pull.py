"""Views, pulled: rows, one row, positions, reading one's own writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import sql

from millrace.config import Settings
from millrace.views.changelog import lsn_number, lsn_text
from millrace.views.store import schema_of, url_of
from millrace.views.wanted import CHANNEL, Wanted, heard
from tests.command import until
from tests.serve.world import World, Written, serving, written

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def world(settings: Settings, postgres: str) -> Iterator[World]:
    with serving(settings) as found, written(found, "revenue", "cities", "odd") as found.views:
        at = "2026-01-01T00:00:00.000000Z"
        rows = [
            {"region": "north", "orders": 3, "total": json.loads("12.50"), "latest": at},
            {"region": "south", "orders": 1, "total": 7, "latest": at},
            {"region": None, "orders": 2, "total": None, "latest": None},
            {"region": "a/b c?", "orders": 9, "total": 1, "latest": at},
        ]
        found.views["revenue"].write(*rows)
        cities = [{"region": "north", "city": city, "n": n} for n, city in enumerate(("x", "y/z", ""))]
        found.views["cities"].write(*cities)
        found.views["odd"].write({"t": "x", "r": 1, "k": 2, "c": 3})
        for each in found.views.values():
            each.applied()
        yield found


def told(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [row["region"] for row in answer.json()["rows"]]


def test_rows_are_filtered_ordered_and_limited(world: World) -> None:
    assert told(world.get("/v1/views/revenue")) == ["a/b c?", "north", "south", None]
    assert told(world.get("/v1/views/revenue?order=-orders&limit=2")) == ["a/b c?", "north"]
    assert world.get("/v1/views/revenue?limit=2").json()["more"] is True
    assert world.get("/v1/views/revenue?limit=4").json()["more"] is False
    assert told(world.get("/v1/views/revenue?total=12.5")) == ["north"]
    assert told(world.get("/v1/views/revenue?orders=1&region=north")) == []
    assert told(world.get("/v1/views/revenue?latest=2026-01-01T01:00:00%2B01:00&order=total,region")) == [
        "a/b c?", "south", "north",
    ]  # fmt: skip
    assert told(world.get("/v1/views/revenue?null=region,total")) == [None]
    assert told(world.get("/v1/views/revenue?.region=south")) == ["south"]


def test_numbers_keep_their_digits(world: World) -> None:
    text = world.get("/v1/views/revenue?region=north").text
    assert '"total":12.50' in text
    assert '"latest":"2026-01-01T00:00:00+00:00"' in text


def test_an_answer_says_what_it_is_true_of(world: World) -> None:
    position = world.get("/v1/views/revenue").json()["position"]
    assert position["lsn"] == lsn_text(world.views["revenue"].lsn)
    assert (position["epoch"], 0 <= position["age_s"] < 600) == (0, True)
    listed = {each["view"]: each for each in world.get("/v1/views").json()["views"]}
    assert listed["revenue"]["position"]["lsn"] == position["lsn"]
    assert listed["cities"]["key"] == ["region", "city"]
    assert listed["empty"]["position"] is None


def test_one_row_is_found_by_its_key(world: World) -> None:
    assert world.get("/v1/views/revenue/north").json()["row"]["orders"] == 3
    assert world.get("/v1/views/revenue/a%2Fb%20c%3F").json()["row"]["orders"] == 9
    assert world.get("/v1/views/cities/north/y%2Fz").json()["row"] == {"region": "north", "city": "y/z", "n": 1}
    assert world.get("/v1/views/cities/north/").json()["row"]["n"] == 2
    assert world.get("/v1/views/odd/x").json()["row"] == {"t": "x", "r": 1, "k": 2, "c": 3}
    missing = world.get("/v1/views/revenue/east")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "MR-ROW-UNKNOWN")
    assert world.get("/v1/views/cities/north").json()["error"]["code"] == "MR-REQUEST-INVALID"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/views/revenu", 404, "MR-VIEW-UNKNOWN"),
        ("/v1/views/millrace_positions", 404, "MR-VIEW-UNKNOWN"),
        ("/v1/views/revenue%2Fnorth", 404, "MR-VIEW-UNKNOWN"),
        ("/v1/views/revenue%2Fnorth/north", 404, "MR-VIEW-UNKNOWN"),
        ("/v1/views/empty", 503, "MR-VIEW-UNFILLED"),
        ("/v1/views/revenue?colour=red", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?order=colour", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?null=colour", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?orders=many", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?orders=1&orders=2", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?limit=0", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?limit=10001", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?wait_for=yesterday", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue?wait_for=0/1&wait_s=31", 400, "MR-REQUEST-INVALID"),
        ("/v1/views/revenue/north?colour=red", 400, "MR-REQUEST-INVALID"),
        ("/v1/view", 404, "MR-PATH-UNKNOWN"),
    ],
)
def test_what_is_wrong_is_said(world: World, path: str, status: int, code: str) -> None:
    answer = world.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert answer.json()["error"]["fix"]


def test_one_reads_ones_own_writes(world: World) -> None:
    cities: Written = world.views["cities"]
    wanted = lsn_text(cities.lsn + 0x100)
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(world.get(f"/v1/views/cities?wait_for={wanted}&n=77")))
    asking.start()
    assert cities.write({"region": "west", "city": "w", "n": 77}) == wanted
    asking.join(30)
    assert [row["city"] for row in answers[0].json()["rows"]] == ["w"]
    assert lsn_number(answers[0].json()["position"]["lsn"]) >= lsn_number(wanted)
    late = world.get(f"/v1/views/cities?wait_for={lsn_text(cities.lsn + 0x1000)}&wait_s=0.2")
    assert (late.status_code, late.json()["error"]["code"]) == (504, "MR-VIEW-BEHIND")


def test_what_the_store_does_not_take_is_tried_until_somebody_has_seen_to_it(world: World) -> None:
    cities = world.views["cities"]
    assert cities.applying is not None
    applying = cities.applying
    table = sql.SQL("ALTER TABLE {}").format(sql.Identifier(schema_of(world.settings, "shop"), "cities"))
    with psycopg.connect(url_of(world.settings), autocommit=True) as connection:
        connection.execute(table + sql.SQL(" ADD CONSTRAINT lucky CHECK (n <> 13)"))
        cities.write({"region": "east", "city": "e", "n": 13})
        until(lambda: applying.trouble is not None, "the store's refusal")
        assert "lucky" in str(applying.trouble)
        assert (applying.is_alive(), applying.busy) == (True, False), "a run that has an end does not wait for that"
        last = cities.write({"region": "east", "city": "f", "n": 14})
        assert world.get("/v1/views/cities?region=east").json()["rows"] == []
        connection.execute(table + sql.SQL(" DROP CONSTRAINT lucky"))
    answer = world.get(f"/v1/views/cities?region=east&wait_for={last}&wait_s=30")
    assert [row["n"] for row in answer.json()["rows"]] == [13, 14]
    until(lambda: applying.trouble is None, "nothing is wrong any more")


def test_the_run_hears_of_who_waits(world: World) -> None:
    wanted = world.views["cities"].lsn + 0x2000
    with psycopg.connect(url_of(world.settings), autocommit=True) as connection:
        connection.execute(f"LISTEN {CHANNEL}")
        world.get(f"/v1/views/cities?wait_for={lsn_text(wanted)}&wait_s=0.2")
        payloads = (each.payload for each in connection.notifies(timeout=10, stop_after=1))
        assert list(heard(payloads)) == [Wanted(schema_of(world.settings, "shop"), "cities", wanted)]
    assert list(heard(iter(("", "1", "[]", '["a", "b", "c"]', '{"a": 1}')))) == []


def test_how_it_stands_is_told(world: World) -> None:
    health = world.get("/health").json()
    assert (health["healthy"], health["views"]["empty"]) == (True, None)
    assert health["views"]["revenue"]["lsn"]
    assert world.get("/v1/flows").json() == {"flows": []}
    assert {each["view"] for each in world.get("/v1/lag").json()["views"]} == {"revenue", "cities", "odd"}
    text = world.get("/metrics").text
    assert 'millrace_serve_requests_total{app="shop",route="/health",status="200"}' in text
    assert 'millrace_serve_view_age_seconds{app="shop",view="revenue"}' in text


def test_changes_of_odd_columns_look_like_their_rows(world: World) -> None:
    with world.watch("/v1/views/odd/changes?r=1") as client:
        client.hear(("t",))
        client.until_lsn(world.views["odd"].write({"t": "y", "r": 1, "k": 5, "c": 6}, gone=({"t": "x"},)), ("t",))
        assert list(client.rows.values()) == [{"t": "y", "r": 1, "k": 5, "c": 6}]
