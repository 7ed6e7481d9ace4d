"""The view store by itself: PostgreSQL with a changelog's records, without a flow."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import psycopg
import pytest

from millrace.config import Endpoint, Secret, Settings
from millrace.errors import ViewBehind, ViewStoreNameTooLong, ViewStoreUnfit, ViewStoreUnreachable, ViewUnknown
from millrace.views import named
from millrace.views.changelog import HEAD, TAIL, Mark, row_text
from millrace.views.store import LONGEST_NAME_BYTES, Shape, Store, apps

pytestmark = pytest.mark.server

# Names that the store's own statements have too.
SHAPE = Shape("t", (("v", named("text")), ("t", named("integer")), ("value", named("numeric(12,2)"))), ("v", "t"))


@pytest.fixture
def own(settings: Settings, postgres: str) -> Iterator[Settings]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("CREATE DATABASE viewstore")
    url = f"{postgres.rpartition('/')[0]}/viewstore"
    yield replace(settings, views=Endpoint(Secret("views.url", url)))
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute("DROP DATABASE viewstore WITH (FORCE)")


def mark(epoch: int, lsn: int) -> Mark:
    return Mark(epoch, "shop", lsn, 1_700_000_000_000 + epoch, {0: epoch * 10}, True)


def row(v: str | None, t: int | None, value: str) -> tuple[bytes, bytes]:
    text = f'{{"v": {json.dumps(v)}, "t": {json.dumps(t)}, "value": {value}}}'
    return key(v, t), f'{HEAD}{text}{TAIL}{{"lsn": 1}}}}'.encode()


def key(v: str | None, t: int | None) -> bytes:
    return json.dumps({"v": v, "t": t}).encode()


def held(store: Store) -> dict[tuple[Any, ...], Decimal]:
    return {found[:2]: found[2] for found in store.rows("t")[1]}


@pytest.fixture
def store(own: Settings) -> Iterator[Store]:
    with closing(Store(own, "bank")) as made:
        yield made


def test_epochs_are_applied_with_their_position(own: Settings, store: Store) -> None:
    assert store.positions() == []
    assert store.begin(SHAPE, "one") is None
    with pytest.raises(ViewUnknown):
        store.rows("t")
    store.apply(
        SHAPE, "one", mark(0, 16), [row("a", 1, "1.50"), row(None, None, "2"), row("a", None, "3"), row("b", 2, "4")]
    )
    store.apply(SHAPE, "one", mark(1, 32), [row("a", 1, "1.75"), (key(None, None), None), (key("a", None), None)])
    assert held(store) == {("a", 1): Decimal("1.75"), ("b", 2): Decimal(4)}
    texts, position = store.texts("t", 1)
    assert (len(texts), position.lsn, position.epoch, dict(position.ends)) == (1, "0/20", 1, {0: 10})
    assert store.wait("t", "0/20", 0.1) == position
    with pytest.raises(ViewBehind, match="true up to 0/20"):
        store.wait("t", "0/21", 0.1)
    assert apps(own) == ["bank"]

    # What fails changes nothing: neither the row before it nor the position.
    with pytest.raises(ViewStoreUnfit, match="overflow"):
        store.apply(SHAPE, "one", mark(2, 48), [row("c", 3, "5"), row("d", 4, "12345678901234")])
    assert held(store) == {("a", 1): Decimal("1.75"), ("b", 2): Decimal(4)}
    assert store.position("t") == position

    # The same view of the same changelog goes on. Of another changelog, or with other columns, it begins anew; until
    # that is filled, there is what was there.
    assert store.begin(SHAPE, "one") == position
    assert store.begin(SHAPE, "two") is None
    assert (held(store), store.position("t")) == ({("a", 1): Decimal("1.75"), ("b", 2): Decimal(4)}, position)
    with pytest.raises(ViewStoreUnfit, match="overflow"):
        store.apply(SHAPE, "two", mark(0, 64), [row("e", 5, "6"), row("d", 4, "12345678901234")])
    assert (len(held(store)), store.position("t")) == (2, position)
    store.apply(SHAPE, "two", mark(0, 64), [row("e", 5, "6")])
    assert held(store) == {("e", 5): Decimal(6)}
    assert store.begin(replace(SHAPE, key=("v",)), "two") is None
    assert held(store) == {("e", 5): Decimal(6)}


def test_indexes_come_and_go_without_the_table(own: Settings, store: Store) -> None:
    def indexed() -> list[str]:
        asked = "SELECT indexdef FROM pg_indexes WHERE schemaname = %s AND tablename = 't' ORDER BY indexdef"
        with psycopg.connect(own.views.url.reveal()) as connection:  # type: ignore[union-attr]
            found = connection.execute(asked, (store.schema,)).fetchall()
        return [definition.rpartition(" USING btree ")[2] for (definition,) in found if "UNIQUE" not in definition]

    indexed_too = replace(SHAPE, indexes=(("value",), ("t", "value")))
    store.begin(indexed_too, "one")
    store.apply(indexed_too, "one", mark(0, 16), [row("a", 1, "1.50")])
    assert sorted(indexed()) == ["(t, value)", "(value)"]
    assert store.begin(replace(SHAPE, indexes=(("value",),)), "one") is not None
    assert indexed() == ["(value)"]
    assert held(store) == {("a", 1): Decimal("1.50")}


def test_many_that_begin_at_once_do_not_meet(own: Settings) -> None:
    errors: list[Exception] = []
    ready = threading.Barrier(8)

    def begin(number: int) -> None:
        store = Store(own, "crowd")
        ready.wait()
        try:
            store.begin(replace(SHAPE, view=f"view{number}"), "one")
        except Exception as error:
            errors.append(error)
        store.close()

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[0]


def test_a_store_that_is_away_is_said(own: Settings) -> None:
    away = replace(own, views=Endpoint(Secret("views.url", "postgresql://nobody:hidden@127.0.0.1:1/none")))
    with pytest.raises(ViewStoreUnreachable) as caught:
        Store(away, "bank").positions()
    assert "hidden" not in str(caught.value)


def test_a_row_keeps_every_digit_of_its_text() -> None:
    text = '{"a": 12.500, "source": ",\\"source\\":"}'
    assert row_text(f'{HEAD}{text}{TAIL}{{"lsn": 1, "ts_ms": 2}}}}'.encode()) == text


def test_an_app_whose_schema_would_be_cut_off_is_refused(own: Settings) -> None:
    own, limit_bytes = replace(own, prefix=""), LONGEST_NAME_BYTES - len("millrace__read")
    assert Store(own, "a" * limit_bytes).schema == f"millrace_{'a' * limit_bytes}"
    with pytest.raises(ViewStoreNameTooLong, match=f"a name of at most {limit_bytes} bytes"):
        Store(own, "a" * (limit_bytes + 1))
