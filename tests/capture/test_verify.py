"""Whether a topic is true to its table: with writers going on, and with records forged behind its back."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from millrace.capture import capture
from millrace.capture.repair import overtaken, repair, repair_gap
from millrace.capture.tables import find
from millrace.capture.verify import Comparison, Difference, Verified
from millrace.capture.verify.canonical import form_of
from millrace.capture.verify.database import layout_of
from millrace.capture.verify.moment import Moment
from millrace.config import Settings
from millrace.errors import CaptureFailed, TableUnknown, TableUnverifiable
from tests.command import millrace, until
from tests.shop import Shop, opened

ORDERS = """CREATE TABLE orders (id bigint PRIMARY KEY, name text, amount numeric(12, 2), at timestamptz DEFAULT now(),
    secret text, unused text)"""
PAIRS = "CREATE TABLE pairs (name text, day date, n int, PRIMARY KEY (day, name))"
PACE_S = 0.01
ODD_NAMES = ("o'clock", 'say "hi"', "back\\slash", "ünï 中 😀", "", " ", "semi;colon -- ?", "{brace}", "tab\tnew\nline")


@pytest.fixture(scope="module")
def shop(settings: Settings, connect: str, postgres: str) -> Iterator[Shop]:
    with opened(settings) as found:
        found.run(
            ORDERS,
            PAIRS,
            KINDS,
            "INSERT INTO orders SELECT n, 'order ' || n, n * 1.1, now(), 's' || n FROM generate_series(1, 2000) n",
            put_kinds(0),
        )
        _put_pairs(found)
        definition = capture(
            found.name, ["orders", "pairs", "kinds"], mask=["orders.secret"], exclude=["orders.unused"]
        )
        found.captures.add(definition)
        assert compared(found, "orders").clean  # which waits for the snapshot's end
        yield found


def compared(shop: Shop, table: str) -> Verified:
    return comparison(shop, table).run()


def comparison(shop: Shop, table: str) -> Comparison:
    captures = shop.captures
    return Comparison(captures, *find(captures.log, f"{shop.name}.{table}"))


def told(verified: Verified) -> dict[tuple[str, ...], tuple[str, tuple[str, ...]]]:
    return {tuple(each.key.values()): (each.kind, each.columns) for each in verified.differences}


def envelope(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": row, "op": "u", "source": {}}


def partition_of(shop: Shop, topic: str, key: bytes) -> int:
    return next(record.partition for record in shop.captures.log.read(topic) if record.key == key)


@pytest.mark.server
def test_equal_while_a_writer_goes_on(shop: Shop) -> None:
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        chance = random.Random(7)
        try:
            with psycopg.connect(shop.url, autocommit=True) as connection:
                while not stop.wait(PACE_S):
                    # A text that cannot be compressed is stored apart, and not logged by updates that leave it alone.
                    number, text = chance.randrange(1, 60), chance.choice(["short", chance.randbytes(3_000).hex()])
                    with connection.transaction():
                        for statement in chance.sample(CHANGES, 2):
                            connection.execute(statement, {"id": number, "other": number + 5_000, "text": text})
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(2):
            verified = compared(shop, "orders")
            assert verified.clean, (told(verified), verified)
            # A key that came or went between both looks is looked at again, and was counted in the first.
            assert min(verified.rows, verified.topic_rows) > 1_900
    finally:
        stop.set()
        writer.join()
    assert not failures
    assert compared(shop, "orders").left_out == {"secret": "it is masked"}


CHANGES = (
    "INSERT INTO orders VALUES (%(id)s, %(text)s, 1, now(), 's') ON CONFLICT (id) DO UPDATE SET name = excluded.name",
    "UPDATE orders SET amount = amount + 1 WHERE id = %(id)s",
    "DELETE FROM orders WHERE id = %(id)s",
    "DELETE FROM orders WHERE id = %(other)s",
    "UPDATE orders SET id = %(other)s WHERE id = %(id)s AND NOT EXISTS (SELECT FROM orders WHERE id = %(other)s)",
)


@pytest.mark.server
def test_a_large_value_is_read_only_once_its_transaction_is_seen(shop: Shop) -> None:
    """It takes the key of a row that had another text, and the commit waits for a standby that does not exist: it is
    in the log, and nobody sees it."""
    texts = [random.Random(number).randbytes(3_000).hex() for number in range(2)]
    shop.run(*(f"INSERT INTO orders VALUES ({8_001 + number}, '{text}')" for number, text in enumerate(texts)))
    assert compared(shop, "orders").clean
    # Only this session waits.
    shop.run("ALTER SYSTEM SET synchronous_commit = local", "ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    shop.run("SELECT pg_reload_conf()")

    def move() -> None:
        with psycopg.connect(shop.url) as connection:
            connection.execute("SET synchronous_commit = on")
            connection.execute("DELETE FROM orders WHERE id = 8001")
            connection.execute("UPDATE orders SET id = 8001 WHERE id = 8002")

    def waits() -> bool:
        found = shop.run(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'"
        )
        return bool(found[0][0])

    mover = threading.Thread(target=move)
    mover.start()
    try:
        until(waits, "the commit waits")
        [[end]] = shop.run("SELECT pg_current_wal_flush_lsn()")
        until(lambda: sent(shop, end), "the log was sent to the capture")
        assert shop.run("SELECT name FROM orders WHERE id = 8001") == [(texts[0],)]
    finally:
        shop.run("ALTER SYSTEM RESET synchronous_standby_names", "ALTER SYSTEM RESET synchronous_commit")
        shop.run("SELECT pg_reload_conf()")
        mover.join()
    assert compared(shop, "orders").clean


def sent(shop: Shop, end: str) -> bool:
    reached = "SELECT bool_and(sent_lsn >= '{}') FROM pg_stat_replication JOIN pg_replication_slots ON active_pid = pid"
    return bool(shop.run(f"{reached} WHERE database = current_database()".format(end))[0][0])


@pytest.mark.server
def test_what_was_changed_behind_its_back_is_named_and_mended(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    log, topic = shop.captures.log, f"{shop.name}.public.orders"
    row = next(
        each["after"]
        for each in (record.json() for record in log.read(topic))
        if each and each["after"] and each["after"]["id"] == 1_001
    )
    forged: dict[int, Any] = {
        1_001: envelope({**row, "amount": "0.01", "secret": "another"}),
        1_002: None,
        1_003: b"no JSON",
        9_001: envelope({**row, "id": 9_001}),
    }
    for number, value in forged.items():
        log.write(topic, value, key=f'{{"id":{number}}}')
    found = comparison(shop, "orders")
    verified = found.run()
    assert told(verified) == {
        ("1001",): ("different", ("amount",)),
        ("1002",): ("missing", ()),
        ("1003",): ("different", ("name", "amount", "at")),
        ("9001",): ("surplus", ()),
    }
    assert not verified.clean

    # The same with so little memory that the topic is read several times, and buckets cut as fine as they get.
    with monkeypatch.context() as little:
        little.setattr("millrace.capture.verify.comparing.KEYS_HELD", 700)
        little.setattr("millrace.capture.verify.topic.KEYS_HELD", 300)
        little.setattr("millrace.capture.verify.comparing.FEW_ROWS", 0)
        again = found.run()
    assert (told(again), again.rows, again.topic_rows) == (told(verified), verified.rows, verified.topic_rows)

    done = millrace("verify", f"{shop.name}.orders", "--limit", "3", cwd=shop.settings.folder)
    assert (done.returncode, "different   id=1001   amount" in done.stdout) == (1, True), done
    assert "4 keys differ" in done.stderr
    assert "and 1 more" in done.stderr
    assert "column secret was not compared: it is masked" in done.stderr
    assert "another" not in done.stdout + done.stderr

    done = millrace("verify", f"{shop.name}.orders", "--repair", "--json", cwd=shop.settings.folder)
    assert (done.returncode, json.loads(done.stdout)["clean"]) == (0, True), done
    assert "reading 3 rows again\nremoving 1 rows that the table does not hold\n" in done.stderr
    last = {record.key: record for record in log.read(topic)}
    assert last[b'{"id":9001}'].value is None
    assert last[b'{"id":1002}'].json()["op"] == "r"


@pytest.mark.server
def test_keys_of_several_columns_and_of_odd_texts(shop: Shop) -> None:
    assert compared(shop, "pairs").clean
    log, topic = shop.captures.log, f"{shop.name}.public.pairs"
    keys = {record.key for record in log.read(topic) if record.key is not None}
    assert len(keys) == len(ODD_NAMES)
    for key in keys:
        log.write(topic, None, key=key, partition=partition_of(shop, topic, key))
    ghost = b'{"day":"1970-01-11","name":"gho\'st"}'
    log.write(topic, envelope({"name": "gho'st", "day": "1970-01-11", "n": 1}), key=ghost)
    found = comparison(shop, "pairs")
    verified = found.run()
    missing = {("2024-02-29", name): ("missing", ()) for name in ODD_NAMES}
    assert told(verified) == {**missing, ("1970-01-11", "gho'st"): ("surplus", ())}
    assert repair(found, verified, [].append).clean


def _put_pairs(shop: Shop) -> None:
    with psycopg.connect(shop.url, autocommit=True) as connection:
        for number, name in enumerate(ODD_NAMES):
            connection.execute("INSERT INTO pairs VALUES (%s, '2024-02-29', %s)", (name, number))


class Racing(Comparison):
    """Runs `insert`, once, just after the repair has looked for records that came meanwhile; waits for its record."""

    url: str
    insert: str

    def records_after(self, ends: Mapping[int, int]) -> Iterator[tuple[bytes, bool]]:
        yield from super().records_after(ends)
        statement, self.insert = self.insert, ""
        if statement:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute(statement)  # type: ignore[call-overload]
            topic, log = self.table.topic, self.captures.log
            until(lambda: any(b"again" in (record.value or b"") for record in log.read(topic)), "the insert")


@pytest.mark.server
def test_a_row_that_is_inserted_again_survives_the_tombstone(shop: Shop) -> None:
    log, topic = shop.captures.log, f"{shop.name}.public.orders"
    ghost = {"id": 9_100, "name": "ghost", "amount": "1.00", "at": "2024-01-01T00:00:00.000000Z", "secret": "x"}
    log.write(topic, envelope(ghost), key='{"id":9100}')
    captures = shop.captures
    racing = Racing(captures, *find(captures.log, f"{shop.name}.orders"))
    racing.url, racing.insert = shop.url, "INSERT INTO orders VALUES (9100, 'again', 2, now(), 's')"
    lines: list[str] = []
    mended = repair(racing, racing.run(), lines.append)
    assert mended.clean, (told(mended), lines)
    assert "1 of them were inserted again at that moment: reading them again" in lines
    of_key = [record.json() for record in log.read(topic) if record.key == b'{"id":9100}']
    assert [each and each["op"] for each in of_key] == ["u", "c", None, "r"]
    assert of_key[-1]["after"]["name"] == "again"

    # One that came before the check is left alone: the topic is newer than the comparison.
    log.write(topic, envelope({**ghost, "id": 9_101}), key='{"id":9101}')
    found = comparison(shop, "orders")
    verified = found.run()
    shop.run("INSERT INTO orders VALUES (9101, 'anew', 2, now(), 's')")
    until(lambda: any(b"anew" in (record.value or b"") for record in log.read(topic)), "the insert")
    lines.clear()
    assert repair(found, verified, lines.append).clean
    assert "1 of them have changed meanwhile" in lines
    assert [bool(record.value) for record in log.read(topic) if record.key == b'{"id":9101}'] == [True, True]


TYPES = {
    "int2": ["'-32768'"],
    "int8": ["'-9223372036854775808'"],
    "oid": ["'4294967295'"],
    "float4": ["'0.1'", "'NaN'", "'1e-45'"],
    "float8": ["'-1.7976931348623157e308'", "'NaN'", "'-0'", "'-Infinity'", "'1e16'"],
    "numeric": ["'123456789012345678901234567890.1234567890'", "'NaN'", "'Infinity'", "'1e-30'"],
    "numeric(12,2)": ["'-0.05'"],
    "money": ["'-1234567.89'"],
    "bool": ["'f'"],
    "text": ["E'a\"b\\t\\n ÄÖ 中文 😀'", "''"],
    "char(5)": ["'ab'"],
    "date": ["'2024-02-29'", "'0044-03-15 BC'", "'infinity'", "'5874897-12-31'", "'1500-02-28'"],
    "time": ["'23:59:59.999999'", "'24:00:00'"],
    "timetz": ["'12:34:56.123456+05:30'", "'24:00:00-02'"],
    "timestamp": ["'1969-12-31 23:59:59.999999'", "'-infinity'", "'294276-12-31 23:59:59.999999'"],
    "timestamptz": ["'0044-03-15 00:00:00+00 BC'", "'infinity'", "'2024-02-29 12:34:56.1+02'"],
    "interval": ["'-1 year +2 days -00:00:00.000001'", "'infinity'", "'100000 hours'", "'0'"],
    "uuid": ["'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'"],
    "json": ['\'{"a":  1.0, "a": null}\'', "'null'"],
    "jsonb": ['\'{"b": 1.10, "a": [null, "ä"]}\''],
    "bytea": ["'\\x00ff10'", "''"],
    "bit(9)": ["'000000001'"],
    "varbit": ["'0101'", "''"],
    "inet": ["'10.0.0.1'", "'fe80::1/64'"],
    "int4range": ["'[1,5)'", "'empty'"],
    "int4multirange": ["'{[1,5),[7,8)}'"],
    "point": ["'(1,2.5)'"],
    "polygon": ["'((1,2),(3,4))'"],
    "tsquery": ["'a & b'"],
    "pg_lsn": ["'16/B374D848'"],
    "mood": ["'o''k'"],
    "positive": ["'5'"],
    "pair": ["'(1,\"x y\")'"],
    "int4[]": ["'{1,NULL,3}'", "'{}'", "'{{1,2},{3,4}}'", "'[0:1]={5,6}'"],
    "text[]": ['\'{a,"b \\"c",NULL,"NULL",""}\'', "'{{a,b},{c,d}}'"],
    "numeric[]": ["'{1.10,NaN,NULL}'"],
    "float8[]": ["'{0.1,-Infinity}'"],
    "bool[]": ["'{t,f,NULL}'"],
    "timestamptz[]": ['\'{"2024-01-01 00:00:00.123456+00",-infinity,"0044-03-15 00:00:00+00 BC"}\''],
    "bytea[]": ["'{\"\\\\x00ff\"}'"],
    "interval[]": ["'{1 day}'"],
    "mood[]": ["'{\"o''k\",NULL}'"],
    "positive[]": ["'{5}'"],
    "pair[]": ["'{\"(1,x)\",NULL}'"],
    "money[]": ["'{12.34}'"],
}
COLUMNS = [f"c{number}" for number in range(len(TYPES))]
KINDS = (
    "CREATE TYPE mood AS ENUM ('o''k'); CREATE DOMAIN positive AS int CHECK (value > 0);"
    "CREATE TYPE pair AS (a int, b text); CREATE TABLE kinds (id int PRIMARY KEY, "
    + ", ".join(f"{name} {kind}" for name, kind in zip(COLUMNS, TYPES, strict=True))
    + ")"
)
KINDS_ROWS = max(map(len, TYPES.values())) + 1


def put_kinds(first: int) -> str:
    """A row for every value of each type, nulls where there are no more; the last one has nothing but nulls."""
    values = [[*values, *["NULL"] * (KINDS_ROWS - len(values))] for values in TYPES.values()]
    rows = ", ".join(f"({first + number}, {', '.join(row)})" for number, row in enumerate(zip(*values, strict=True)))
    return f"INSERT INTO kinds (id, {', '.join(COLUMNS)}) VALUES {rows}"


@pytest.mark.server
def test_every_type_is_told_right_from_wrong(shop: Shop) -> None:
    shop.run(put_kinds(100))  # by the stream; those from 0 on came by the snapshot
    verified = compared(shop, "kinds")
    assert (verified.rows, told(verified), verified.left_out) == (2 * KINDS_ROWS, {}, {})
    # Each column null where it has a value, and the other way round.
    log, topic = shop.captures.log, f"{shop.name}.public.kinds"
    rows = {json.loads(record.key or b"")["id"]: record.json()["after"] for record in log.read(topic)}
    empty = KINDS_ROWS - 1
    for number, other in ((0, empty), (100 + empty, 100)):
        log.write(topic, envelope({**rows[other], "id": number}), key=f'{{"id":{number}}}')
    found = comparison(shop, "kinds")
    verified = found.run()
    assert told(verified) == {(str(number),): ("different", tuple(COLUMNS)) for number in (0, 100 + empty)}
    assert repair(found, verified, [].append).clean


@pytest.mark.server
def test_what_cannot_be_compared_is_said(shop: Shop) -> None:
    captures = shop.captures
    with pytest.raises(TableUnknown, match="did you mean 'orders'"):
        find(captures.log, "order")
    found, table = find(captures.log, f"{shop.name}.orders")
    with pytest.raises(TableUnverifiable, match="no key"):
        layout_of(shop.name, captures.source(found.capture).address, found.capture, replace(table, key=()))
    with pytest.raises(TableUnverifiable, match="PostgreSQL"):
        Comparison(captures, replace(found, kind="mysql"), table)
    captures.pause(shop.name)
    until(lambda: captures.connect.state(shop.name)[0] == "PAUSED", "the pause")
    with pytest.raises(CaptureFailed, match="paused"):
        compared(shop, "orders")
    captures.resume(shop.name)


@pytest.mark.server
def test_after_a_lost_slot_rows_deleted_meanwhile_are_gone(shop: Shop) -> None:
    captures = shop.captures
    captures.connect.stop(shop.name)
    until(lambda: captures.connect.state(shop.name)[0] == "STOPPED", "the connector's end")
    slot = f"SELECT pg_drop_replication_slot('millrace_{shop.name}') FROM pg_replication_slots"
    until(lambda: not shop.run("SELECT 1 FROM pg_replication_slots WHERE active"), "the slot's release")
    shop.run(
        slot, "DELETE FROM orders WHERE id BETWEEN 1500 AND 1509", "UPDATE orders SET name = 'gap' WHERE id = 1510"
    )
    lines = list(repair_gap(captures, shop.name))
    assert "public.orders: removing 10 rows that the table does not hold" in lines
    assert sum("true at" in line and "not true" not in line for line in lines) == 3, lines
    last = {record.key: record.value for record in captures.log.read(f"{shop.name}.public.orders")}
    assert last[b'{"id":1505}'] is None
    assert b'"gap"' in (last[b'{"id":1510}'] or b"")


def test_a_moment_holds_what_its_snapshot_sees() -> None:
    moment = Moment.of("100:110:103,105", before=5_000, lsn=6_000)
    seen = {xid: moment.holds("c", {"txId": xid, "lsn": 5_500}) for xid in (99, 102, 103, 105, 109, 110, 200)}
    assert seen == {99: True, 102: True, 103: False, 105: False, 109: True, 110: False, 200: False}
    # Numbers come again after 2^32: an old record of a number that is not given out yet.
    assert moment.holds("c", {"txId": 200, "lsn": 4_000})
    assert Moment.of(f"{2**32 + 5}:{2**32 + 9}:", 5_000, 6_000).holds("u", {"txId": 8, "lsn": 5_900})
    assert Moment.of(f"{2**32 - 9}:{2**32 + 1}:", 5_000, 6_000).holds("u", {"txId": 2**32 - 1, "lsn": 5_900})
    assert not Moment.of(f"{2**32 - 9}:{2**32 - 1}:", 5_000, 6_000).holds("u", {"txId": 3, "lsn": 5_900})
    # Rows of snapshots belong to their place in the log.
    assert moment.holds("r", {"txId": 200, "lsn": 6_000})
    assert not moment.holds("r", {"txId": None, "lsn": None, "sequence": '["6001","6001"]'})
    assert moment.holds("r", {"txId": None, "lsn": None, "sequence": '["6000","6001"]'})


def test_a_tombstone_is_overtaken_only_by_others_before_it() -> None:
    a, b, c = b"a", b"b", b"c"
    records = [(a, False), (b, True), (a, True), (b, False), (c, True)]
    assert overtaken({a, b, c}, iter(records)) == {a}


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("numeric", "1.10", "1.1"),
        ("numeric", "0", "0.00"),
        ("timestamptz", "2024-02-29T10:34:56.123456Z", "2024-02-29T12:34:56.123456+02:00"),
        ("timestamptz", "1970-01-01T00:00:00.000000Z", 0),
        ("date", "1970-01-02", 1),
        ("interval", "P1Y", "P0Y12M0DT0H0M0S"),
        ("float8", 1e16, 10000000000000000),
    ],
)
def test_equal_values_have_one_text(kind: str, one: Any, other: Any) -> None:
    form = form_of(kind)
    assert form.netstring(one) == form.netstring(other)


def test_unequal_values_have_unequal_texts() -> None:
    values: list[Any] = [
        None,
        "",
        "-",
        [],
        ["a"],
        ["a", None],
        ["a", "-"],
        ["a-"],
        [["a"], ["b"]],
        ["a", "b"],
        "0:",
        {},
    ]
    for array in (False, True):
        form = form_of("text", array=array)
        for one, other in itertools.combinations(values, 2):
            assert form.netstring(one) != form.netstring(other), (one, other)


def test_differences_show_no_digests() -> None:
    assert "digest" not in repr(Difference("missing", {"id": "1"}, (), b"123"))
