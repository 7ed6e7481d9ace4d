"""What the store promises: all or nothing, once, in order, as it was written, and forgotten when asked."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any

import psycopg
import pytest

from millrace.config import Settings
from millrace.errors import (
    AggregateMisused,
    AggregateUnknown,
    ConflictFound,
    EventFromFuture,
    EventNameTaken,
    EventUnknown,
    EventUnreadable,
    SealBroken,
    StoreFormUnknown,
    StoreMisused,
)
from millrace.events import Aggregate, Forgotten, Store, apply, command, event, every, personal, rows, subject
from millrace.events.tables import FORM
from tests.command import until
from tests.events.bank import Account, Deposited, Opened, Overdrawn, Withdrawn

pytestmark = pytest.mark.server

ONE = Decimal(1)


def opened(store: Store, id: str, *amounts: int) -> Account:
    account = Account(id)
    account.open(f"owner of {id}")
    for amount in amounts:
        account.deposit(Decimal(amount))
    store.save(account)
    return account


def run(store: Store, statement: str, *values: Any) -> list[Any]:
    with store.connections.lent() as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def test_append_and_load(store: Store) -> None:
    accounts = store.repository(Account)
    saved = store.save(opened(store, "a", 5))
    assert saved.position == 0  # there was nothing left to save
    account = accounts.load("a")
    assert (account.owner, account.balance, account.version, account.pending) == ("owner of a", 5, 2, ())
    account.withdraw(Decimal(2))
    saved = accounts.save(account, meta={"user": "ann"})
    assert (saved.position, account.version, account.pending) == (3, 3, ())
    assert [(each.version, each.event) for each in store.history(Account, "a", after=1)] == [
        (2, Deposited(Decimal(5))),
        (3, Withdrawn(Decimal(2))),
    ]
    last = store.read(2)[0]
    assert (last.position, last.aggregate, last.id, last.type, last.meta) == (
        3,
        "Account",
        "a",
        "Withdrawn",
        {"user": "ann"},
    )
    with pytest.raises(AggregateUnknown, match="no Account 'b'"):
        accounts.load("b")


def test_every_text_is_kept(store: Store) -> None:
    odd = "zero \0, a lone \udcff, 😀, \\u0000, ' and \""
    account = opened(store, "a")
    account.deposit(ONE, odd)
    store.save(account)
    assert store.repository(Account).load("a").notes == (odd,)
    account.deposit(ONE)
    with pytest.raises(StoreMisused):  # of an id of a command nothing is cut off
        store.save(account, command="c\0d")
    store.save(account, command="c-\u00e9")
    handled = store.handled("c-\u00e9")
    assert handled is not None and handled.position == store.head()  # noqa: PT018 -- for the type checker
    assert store.handled("c") is None


def test_a_writer_who_saw_an_older_version_is_refused(store: Store) -> None:
    accounts = store.repository(Account)
    mine, other = opened(store, "a", 5), accounts.load("a")
    other.withdraw(Decimal(5))
    accounts.save(other)
    mine.withdraw(Decimal(5))
    with pytest.raises(ConflictFound, match="at version 3, not at 2"):
        accounts.save(mine)
    assert accounts.load("a").balance == 0
    with pytest.raises(ConflictFound):
        opened(store, "a")
    with pytest.raises(Overdrawn):  # decided anew
        accounts.change("a", Account.withdraw, Decimal(5))


def test_several_aggregates_all_or_none(store: Store) -> None:
    a, b = opened(store, "a", 5), opened(store, "b")
    stale = store.repository(Account).load("b")
    a.withdraw(ONE)
    b.deposit(ONE)
    saved = store.save(a, b)
    assert [each.position for each in store.read(saved.position - 2)] == [saved.position - 1, saved.position]
    a.withdraw(ONE)
    stale.deposit(ONE)
    with pytest.raises(ConflictFound, match="'b' is at version 2, not at 1"):
        store.save(a, stale)
    assert (store.head(), store.repository(Account).load("a").balance) == (saved.position, 4)
    with pytest.raises(AggregateMisused, match="twice"):
        store.save(a, a)


def test_a_command_happens_once(store: Store) -> None:
    accounts = store.repository(Account)
    account = opened(store, "a", 5)
    account.withdraw(Decimal(3))
    first = accounts.save(account, command="c1")
    again = accounts.load("a")
    again.deposit(ONE)  # whoever repeats may decide otherwise; what counts is what happened
    second = accounts.save(again, command="c1")
    assert (first.repeated, second.repeated, second.position, second.at) == (False, True, first.position, first.at)
    assert (again.balance, again.version, again.pending) == (2, 3, ())
    # There are 2 left: run again it would be refused, but it was handled, and is not run.
    assert accounts.change("a", Account.withdraw, Decimal(3), by="c1").repeated
    assert not accounts.change("a", Account.withdraw, Decimal(2), by="c2").repeated
    assert accounts.load("a").balance == 0
    # A repetition that would have made another account leaves none.
    other = Account("b")
    other.open("bob")
    assert accounts.save(other, command="c1").repeated
    assert (other.version, store.history(Account, "b")) == (0, [])


def test_as_it_was(store: Store) -> None:
    accounts = store.repository(Account, snapshots=every(2))
    opened(store, "a", 1, 2, 3)
    moments = [each.at for each in store.history(Account, "a")]
    accounts.load("a")
    accounts.change("a", Account.withdraw, Decimal(4))
    assert [accounts.load("a", version=n).balance for n in (1, 2, 3, 4, 5)] == [0, 1, 3, 6, 2]
    assert accounts.load("a", at=moments[-1]).balance == 6
    assert accounts.load("a", at=datetime.now(UTC) + timedelta(hours=1)).balance == 2
    with pytest.raises(AggregateUnknown, match="at version 6"):
        accounts.load("a", version=6)
    with pytest.raises(AggregateUnknown):
        accounts.load("a", at=moments[0] - timedelta(seconds=1))
    with pytest.raises(StoreMisused, match="say one of the two"):
        accounts.load("a", version=1, at=moments[0])
    with pytest.raises(StoreMisused, match="no zone"):
        accounts.load("a", at=moments[0].replace(tzinfo=None))


def test_events_are_never_changed(store: Store) -> None:
    opened(store, "a")
    for statement in ("UPDATE events.event SET type = 'x'", "DELETE FROM events.event", "TRUNCATE events.event"):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation):
            run(store, statement)


def test_a_store_of_the_form_before_is_brought_to_this_one(store: Store, settings: Settings, database: str) -> None:
    """The first form's `append` wrote one event as it wrote several."""
    store.repository(Account).change("a", Account.deposit, Decimal(1))
    definition = run(store, "SELECT pg_get_functiondef('events.append'::regproc)")[0][0]
    run(store, "UPDATE events.form SET number = 1")
    run(store, definition.replace("cardinality(ids) = 1", "false"))
    store.repository(Account).change("a", Account.deposit, Decimal(2))
    with Store.open(database, settings=settings) as opened:
        assert run(opened, "SELECT number FROM events.form") == [(FORM,)]
        assert run(opened, "SELECT pg_get_functiondef('events.append'::regproc)")[0][0] == definition
        opened.repository(Account).change("a", Account.deposit, Decimal(3))
        assert [each.position for each in opened.read()] == [1, 2, 3]
        assert opened.repository(Account).load("a").balance == 6


def test_another_form_is_refused(store: Store) -> None:
    run(store, "UPDATE events.form SET number = 99")
    with pytest.raises(StoreFormUnknown, match="has form 99"):
        Store(store.connections)


def test_versions_of_events(store: Store) -> None:
    @event(name="Priced")
    class First:
        price: int

    product = priced(First)("p")
    product.price(250)
    store.save(product)
    with pytest.raises(EventNameTaken, match="Priced"):
        store.know(third())
    fresh = Store(store.connections)
    (found,) = fresh.read(events=[third()])
    assert (found.event.price, found.event.currency) == (Decimal("2.5"), "EUR")
    Store(store.connections).know(First)  # newer code only looked
    product_3 = priced(third.known)("p3")  # type: ignore[attr-defined]
    product_3.price(Decimal(1), "EUR")
    fresh.save(product_3)
    with pytest.raises(EventFromFuture, match="holds version 3"):  # and now wrote one
        Store(store.connections).know(First)
    run(store, "DELETE FROM events.shape")
    run(store, "ALTER TABLE events.event DISABLE TRIGGER ALL")
    run(store, "DELETE FROM events.event WHERE id = 'p3'")
    run(store, "UPDATE events.event SET schema = 2")
    with pytest.raises(EventFromFuture, match="holds version 2"):  # even if nobody registered it
        Store(store.connections).read(events=[First])
    run(store, """UPDATE events.event SET schema = 1, data = '{"price": null}'""")
    with pytest.raises(EventUnreadable, match="TypeError"):
        fresh.read(events=[third.known])  # type: ignore[attr-defined]
    run(store, "UPDATE events.event SET type = 'Price'")
    with pytest.raises(EventUnknown, match="did you mean 'Priced'"):
        fresh.read()


def priced(kind: type) -> Any:
    class Product(Aggregate):
        @command
        def price(self, *given: Any) -> None:
            self.emit(kind(*given))

        @apply
        def priced(self, event: kind) -> None:  # type: ignore[valid-type]
            assert event

    return Product


def third() -> type:
    def to_2(data: dict[str, Any]) -> dict[str, Any]:
        return {"price": str(Decimal(data["price"]) / 100)}

    def to_3(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "currency": "EUR"}

    @event(name="Priced", version=3, upcasters={1: to_2, 2: to_3})
    class Third:
        price: Decimal
        currency: str

    third.known = Third  # type: ignore[attr-defined]
    return Third


def test_snapshots_are_a_hint(store: Store) -> None:
    accounts = store.repository(Account, snapshots=every(3))
    opened(store, "a", 1, 2, 3)
    assert accounts.load("a").balance == 6
    assert run(store, "SELECT version, position FROM events.snapshot") == [(4, 4)]
    accounts.change("a", Account.deposit, Decimal(4))
    assert (accounts.load("a").balance, accounts.load("a").notes) == (10, ())
    assert run(store, "SELECT version FROM events.snapshot") == [(4,)]
    # It is used: a lie in it is told.
    run(store, """UPDATE events.snapshot SET state = '{"owner": "x", "balance": "100", "notes": []}'""")
    assert accounts.load("a").balance == 104
    assert not accounts.verify("a")
    # … but not if other code made it, nor if the store is not the one that it was made of.
    for lie in ("fingerprint = 'x'", "position = 3", "version = 77, position = 77"):
        run(store, f"UPDATE events.snapshot SET {lie}")
        assert accounts.load("a").balance == 10, lie
        run(store, """DELETE FROM events.snapshot""")
        accounts.load("a")
        run(store, """UPDATE events.snapshot SET state = '{"owner": "x", "balance": "100", "notes": []}'""")
    run(store, """UPDATE events.snapshot SET state = '{"odd": 1}'""")
    assert accounts.load("a").balance == 10
    run(store, "DELETE FROM events.snapshot")
    assert accounts.verify("a")


@event
class Registered:
    customer: Annotated[str, subject]
    name: Annotated[str, personal(instead="(forgotten)")]
    mail: Annotated[str | None, personal]
    referrer: str
    referrer_mail: Annotated[str | None, personal(of="referrer")]
    plan: str


class Member(Aggregate):
    name: str = ""
    mail: str | None = None
    plan: str = ""

    @command
    def register(self, event: Registered) -> None:
        self.emit(event)

    @apply
    def registered(self, event: Registered) -> None:
        self.name, self.mail, self.plan = event.name, event.mail, event.plan


def test_forgetting(store: Store) -> None:
    members = store.repository(Member, snapshots=every(1))
    told = Registered("c7", "Ann Example", "ann@example.com", "c8", "bob@example.com", "gold")
    for number in ("1", "2"):
        members.change(number, Member.register, told)
    assert store.history(Member, "1")[0].event == told
    members.load("1")
    ((data, seals),) = run(store, "SELECT data::text, seals FROM events.event WHERE id = '1'")
    assert "Ann" not in data
    assert "@" not in data
    assert "gold" in data
    assert set(seals) == {"name", "mail", "referrer_mail"}
    assert run(store, "SELECT count(*) FROM events.snapshot") == [(1,)]

    assert store.forget("c7")
    assert not store.forget("c7")
    (found,) = store.history(Member, "1")
    assert found.event == Registered("c7", "(forgotten)", None, "c8", "bob@example.com", "gold")
    assert run(store, "SELECT count(*) FROM events.snapshot") == [(0,)]
    assert (members.load("1").name, members.load("1").plan) == ("(forgotten)", "gold")
    assert store.read(events=[Forgotten])[0].event == Forgotten("c7")
    # Who comes back gets a new key; what was forgotten stays so.
    members.change("3", Member.register, told)
    assert (members.load("3").mail, members.load("1").mail) == ("ann@example.com", None)


def test_a_changed_seal_is_told(store: Store) -> None:
    opened(store, "a")
    opened(store, "b")
    run(store, "ALTER TABLE events.event DISABLE TRIGGER ALL")
    run(
        store,
        "UPDATE events.event a SET data = b.data, seals = b.seals FROM events.event b WHERE a.id = 'a' AND b.id = 'b'",
    )
    with pytest.raises(SealBroken):  # sealed well, but for another account
        store.read()


def test_a_snapshot_does_not_outlive_who_is_forgotten(store: Store) -> None:
    """One that was begun before and written after."""
    accounts = store.repository(Account, snapshots=every(1))
    account = opened(store, "a")
    store.forget("a")
    assert accounts.snapshots is not None
    accounts.snapshots.keep(account, 1, {"a"})
    assert run(store, "SELECT count(*) FROM events.snapshot") == [(0,)]
    assert accounts.load("a").owner == "somebody"


def test_streams_by_type(store: Store) -> None:
    opened(store, "a", 1, 2)
    opened(store, "b", 3)
    assert [each.event for each in store.read(events=[Deposited])] == [Deposited(Decimal(n)) for n in (1, 2, 3)]
    assert [each.id for each in store.read(2, until=4, events=[Opened, Deposited])] == ["a", "b"]
    assert Opened("owner of a") == store.read(limit=1)[0].event


def test_following(store: Store) -> None:
    opened(store, "a", 1)
    seen: list[Any] = []
    later = threading.Thread(target=lambda: opened(Store(store.connections), "b"))
    for each in store.follow(1, ended=lambda: len(seen) == 2):
        seen.append((each.position, each.id))
        if len(seen) == 1:
            later.start()
    later.join()
    assert seen == [(2, "a"), (3, "b")]


def test_threads_share_a_commit_and_not_their_failures(store: Store) -> None:
    """One holds the lock while many come: they are written together, those that can be."""
    accounts = store.repository(Account)
    for n in range(8):
        accounts.change(f"a{n}", Account.deposit, ONE)
    told: dict[int, Any] = {}

    def write(n: int, account: Account, command: str | None) -> None:
        try:
            if n in (5, 6):  # `save` would have looked at it
                store._joint.append(rows.encoded(store, None, [account], command, None))
            else:
                told[n] = store.save(account, command=command)
        except Exception as error:
            told[n] = error

    held = [accounts.load(f"a{n}") for n in range(8)]
    for account in held:
        account.deposit(ONE)
    accounts.change("a3", Account.deposit, ONE)  # so that this one's writer has seen too little
    accounts.change("a4", Account.deposit, ONE, by="c4")
    with store.connections.lent() as blocking, blocking.transaction():
        other = Account("other")
        other.deposit(ONE)
        store.save(other, connection=blocking)
        commands = {4: "c4", 5: "zero \0", 6: "half a letter \ud800"}
        threads = [threading.Thread(target=write, args=(n, held[n], commands.get(n))) for n in range(8)]
        for thread in threads:
            thread.start()
        until(lambda: len(store._joint._waiting) == 7, "the others wait behind the first")
    for thread in threads:
        thread.join()
    assert isinstance(told[3], ConflictFound)
    assert told[4].repeated
    assert isinstance(told[5], psycopg.DataError)
    assert isinstance(told[6], UnicodeError)
    good = [0, 1, 2, 7]
    assert sorted(told[n].position for n in good) == list(range(12, 12 + len(good)))
    assert [accounts.load(f"a{n}").balance for n in range(8)] == [2, 2, 2, 2, 2, 1, 1, 2]
    xmins = run(store, "SELECT count(*), count(DISTINCT xmin::text) FROM events.event WHERE position >= 12")
    assert xmins[0][0] == len(good)


def test_what_was_saved_is_before_the_lsn(store: Store, database: str) -> None:
    """For whoever waits until a view has it: the database's log, read up to there, has the event."""
    slot = f"seen_{database}"
    peek = (
        "SELECT count(*) FROM pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, NULL, 'proto_version', '1', "
        "'publication_names', 'seen') WHERE get_byte(data, 0) = ascii('I')"
    )
    with store.connections.lent() as connection:
        connection.execute("CREATE PUBLICATION seen FOR TABLE events.event")
        connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        try:
            for number in range(1, 4):
                store.repository(Account).change("a", Account.deposit, Decimal(number))
                assert connection.execute(peek, (slot, store.lsn())).fetchone() == (number,)
        finally:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
