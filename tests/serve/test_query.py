"""Queries: over the views, for reading alone, within limits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from millrace.client import Client
from millrace.config import Endpoint, Secret, Settings
from millrace.errors import QueryRefused
from millrace.serve import query
from millrace.views.changelog import lsn_text
from tests.serve.world import World, served, serving, written

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def world(settings: Settings, postgres: str) -> Iterator[World]:
    with serving(settings) as found, written(found, "revenue", "cities") as found.views:
        rows = [{"region": name, "orders": n, "total": n, "latest": None} for n, name in enumerate(("a", "b", "c"))]
        found.views["revenue"].write(*rows)
        found.views["cities"].write({"region": "a", "city": "x", "n": 5})
        for each in found.views.values():
            each.applied()
        yield found


def asked(world: World, sql: str, **body: Any) -> Any:
    return world.post("/v1/query", {"sql": sql, **body})


def test_views_are_joined_and_the_answer_says_what_it_is_true_of(world: World) -> None:
    answer = asked(
        world,
        "WITH c AS (SELECT region, sum(n) AS n FROM cities GROUP BY region)"
        " SELECT r.region, c.n, r.total::numeric(10,3) AS total FROM revenue r LEFT JOIN c USING (region) ORDER BY 1",
    )
    assert answer.status_code == 200, answer.text
    assert '"total":0.000' in answer.text
    assert [(row["region"], row["n"]) for row in answer.json()["rows"]] == [("a", 5), ("b", None), ("c", None)]
    assert answer.json()["positions"]["revenue"]["lsn"] == lsn_text(world.views["revenue"].lsn)
    assert asked(world, "SELECT 1 AS q, 2 AS t").json()["rows"] == [{"q": 1, "t": 2}]
    limited = asked(world, "SELECT region FROM revenue ORDER BY region DESC", limit=2).json()
    assert ([row["region"] for row in limited["rows"]], limited["more"]) == (["c", "b"], True)


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM revenue",
        "SELECT 1; DELETE FROM revenue",
        "INSERT INTO revenue VALUES ('x', 1, 1, NULL) RETURNING *",
        "WITH gone AS (DELETE FROM revenue RETURNING *) SELECT * FROM gone",
        "SELECT * INTO copied FROM revenue",
        "CREATE TABLE x (y int)",
        "COPY revenue TO PROGRAM 'true'",
        "SELECT * FROM pg_roles",
        "SELECT * FROM pg_catalog.pg_authid",
        "SELECT * FROM information_schema.tables",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT pg_sleep(1)",
        'SELECT U&"pg\\005fsleep"(1)',
        "SELECT (WITH pg_roles AS (SELECT 1) SELECT 1), rolname FROM pg_roles",
        "SELECT query_to_xml('select 1', true, true, '')",
        "SELECT set_config('role', 'millrace', false)",
        "SET ROLE millrace",
        "RESET ROLE",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT * FROM revenue FOR UPDATE",
        "EXPLAIN SELECT 1",
        "SELECT 1) q; DELETE FROM revenue --",
        "SELECT 1;",
        "SELECT * FROM nothing",
        "SELECT region +",
        "SELECT '\ud800'",
        "SELECT '\x00'",
        "SELECT 1/0",
        "",
        "(" * 5_000,
    ],
)
def test_what_is_not_a_reading_of_views_is_refused(world: World, sql: str) -> None:
    answer = asked(world, sql)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "MR-QUERY-REFUSED"), answer.text
    assert len(world.get("/v1/views/revenue").json()["rows"]) == 3


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM revenue RETURNING 1",
        "SELECT 1) q; DELETE FROM revenue --",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT rolpassword FROM pg_authid",
        "SELECT set_config('transaction_read_only', 'off', true), lo_from_bytea(0, 'x')",
        "SELECT lo_from_bytea(0, 'x')",
        "SELECT * FROM public.other",
        "SELECT set_config('role', 'millrace', false)",
        "SELECT nextval('public.numbers')",
    ],
)
def test_the_role_holds_without_any_look_at_the_sql(
    world: World, postgres: str, sql: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS public.other (secret text)")
        connection.execute("CREATE SEQUENCE IF NOT EXISTS public.numbers")
    monkeypatch.setattr(query, "checked", lambda *_: None)
    answer = asked(world, sql)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "MR-QUERY-REFUSED"), answer.text


def test_a_query_waits_for_all_views_that_it_reads(world: World) -> None:
    """A commit of one's own is in each of them, or it is said which one is behind."""
    revenue, cities = world.views["revenue"], world.views["cities"]
    number = max(revenue.lsn, cities.lsn) + 0x100
    wanted, joined = lsn_text(number), "SELECT c.n FROM revenue r JOIN cities c USING (region)"
    answers: list[Any] = []
    asking = threading.Thread(target=lambda: answers.append(asked(world, joined, wait_for=wanted, wait_s=30)))
    asking.start()
    cities.lsn = number - 0x100
    cities.write({"region": "a", "city": "x", "n": 5})
    alone = asked(world, "SELECT n FROM cities", wait_for=wanted)
    assert alone.json()["rows"] == [{"n": 5}]
    assert asking.is_alive(), "revenue is not that far"
    revenue.lsn = number - 0x100
    revenue.write({"region": "a", "orders": 0, "total": 0, "latest": None})
    asking.join(40)
    assert answers[0].status_code == 200, answers[0].text
    told = answers[0].json()["positions"]
    assert [told[name]["lsn"] for name in ("revenue", "cities")] == [wanted, wanted]
    late = asked(world, joined, wait_for=lsn_text(number + 0x1000), wait_s=0.2)
    assert (late.status_code, late.json()["error"]["code"]) == (504, "MR-VIEW-BEHIND")
    assert asked(world, "SELECT 1 AS one", wait_for=lsn_text(number + 0x1000)).json()["rows"] == [{"one": 1}]
    with Client(world.address) as client:
        assert client.query("SELECT n FROM cities", wait_for=wanted) == [{"n": 5}]


def test_what_cannot_be_waited_for_is_said(world: World) -> None:
    with written(world, "odd") as found:
        found["odd"].database = None
        found["odd"].write({"t": "x", "r": 1, "k": 2, "c": 3})
        found["odd"].applied()
        refused = asked(world, "SELECT * FROM odd, cities", wait_for="0/1")
        assert "the view odd is not over one database, and has no LSN" in refused.json()["error"]["what"]
    for wrong in ({"wait_for": "now"}, {"wait_for": 1}, {"wait_for": None}, {"wait_s": 31}, {"wait_s": True}):
        answer = asked(world, "SELECT n FROM cities", **wrong)
        assert answer.status_code == 400, (wrong, answer.text)


def test_a_query_leaves_nothing_behind(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "checked", lambda *_: None)
    for _ in range(query.CONNECTIONS + 1):
        changed = asked(world, "SELECT set_config('statement_timeout', '0', false) AS s, pg_advisory_lock(4) IS NULL")
        assert changed.json()["rows"][0]["s"] == "0", changed.text
    for _ in range(query.CONNECTIONS + 1):
        left = asked(world, "SELECT current_setting('statement_timeout') AS s, count(*) AS n FROM pg_locks"
                            " WHERE locktype = 'advisory'")  # fmt: skip
        assert left.json()["rows"] == [{"s": "5s", "n": 0}]


def test_limits_of_time_rows_and_bytes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    many = "SELECT a.region FROM revenue a, generate_series(1, 20000)"
    answer = asked(world, many)
    assert (len(answer.json()["rows"]), answer.json()["more"]) == (query.MOST_ROWS, True)
    large = asked(world, "SELECT repeat('x', 100000) AS x FROM generate_series(1, 1000)")
    assert large.json()["error"]["code"] == "MR-QUERY-TOO-LARGE"
    slow = asked(world, "SELECT count(*) FROM generate_series(1, 100000) a, generate_series(1, 1000000) b")
    assert slow.json()["error"]["code"] == "MR-QUERY-TOO-SLOW"
    assert asked(world, "SELECT 1 AS one").json()["rows"] == [{"one": 1}]
    for body in ({"sql": 1}, {"sql": "SELECT 1", "limit": 0}, {"sql": "SELECT 1", "x": 1}, [], {"limit": 1}):
        assert world.post("/v1/query", body).status_code == 400


def test_a_store_of_ones_own_needs_a_role_that_only_reads(world: World, postgres: str) -> None:
    own = replace(world.settings, views=Endpoint(Secret("views.url", postgres)))
    for read, reason in ((None, "its only URL may write"), (postgres, "is a mighty one")):
        endpoint = Endpoint(None if read is None else Secret("views.read_url", read))
        with served(replace(own, views_read=endpoint), world.app) as server:
            other = replace(world, server=server)
            answer = asked(other, "SELECT 1")
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "MR-QUERY-UNSAFE"), answer.text
            assert reason in answer.json()["error"]["what"]
            assert other.get("/v1/views/revenue").status_code == 200


def test_what_is_checked_is_said_clearly() -> None:
    query.checked(
        "SELECT * FROM revenue r, (SELECT 1) x, generate_series(1, 2) WHERE EXISTS (TABLE revenue)", ("revenue",)
    )
    with pytest.raises(QueryRefused, match="none of the views revenue"):
        query.checked("SELECT * FROM orders", ("revenue",))
    with pytest.raises(QueryRefused, match="2 statements"):
        query.checked("SELECT 1; SELECT 2", ("revenue",))
