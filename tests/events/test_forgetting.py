"""What is forgotten stays so: whoever comes back, whatever a field was called, and wherever the mark stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, List  # noqa: UP035 -- what a user may write

import pytest

from millrace.config import Settings
from millrace.errors import EventInvalid
from millrace.events import Aggregate, Store, apply, command, event, personal


@event
class Named:
    name: Annotated[str, personal(instead="gone")]


class Subject(Aggregate):
    name: str = ""

    @command
    def call(self, name: str) -> None:
        self.emit(Named(name))

    @apply
    def named(self, event: Named) -> None:
        self.name = event.name


@pytest.mark.server
def test_an_aggregate_may_be_called_a_subject(store: Store) -> None:
    subjects = store.repository(Subject)
    subjects.change("s-1", Subject.call, "ann")
    assert store.forget("s-1")
    assert (subjects.load("s-1").name, subjects.load("s-1").version) == ("gone", 1)


@pytest.mark.server
def test_who_came_back_is_in_no_old_snapshot(store: Store) -> None:
    subjects = store.repository(Subject)
    subjects.change("s-1", Subject.call, "secret")

    def meanwhile(_: Aggregate, since: int) -> bool:
        store.forget("s-1")
        subjects.change("s-1", Subject.call, "new")
        return since > 0

    assert store.repository(Subject, snapshots=meanwhile).load("s-1").name == "secret"  # begun before
    with store.connections.lent() as connection:
        assert connection.execute("SELECT state FROM events.snapshot").fetchall() == []


@pytest.mark.server
def test_a_field_that_had_another_name_can_be_forgotten(store: Store, settings: Settings, database: str) -> None:
    store.repository(Subject).change("s-1", Subject.call, "ann")
    store.forget("s-1")

    def renamed(data: dict[str, Any]) -> dict[str, Any]:
        return {"full": data["name"]}

    @event(name="Named", version=2, upcasters={1: renamed})
    class NamedInFull:
        full: Annotated[str, personal(instead="gone")]

    class Later(Aggregate, name="Subject"):
        name: str = ""

        @apply
        def named(self, event: NamedInFull) -> None:
            self.name = event.full

    with Store.open(database, settings=settings) as later:
        assert later.repository(Later).load("s-1").name == "gone"


@dataclass(frozen=True)
class Contact:
    mail: Annotated[str | None, personal]


def test_a_mark_that_would_seal_nothing_is_refused() -> None:
    hints: list[Any] = [Annotated[str, personal] | None, list[Annotated[str, personal(instead="")]], Contact,
                        tuple[Contact, ...], Annotated[Contact | None, personal]]  # fmt: skip
    for hint in hints:
        with pytest.raises(EventInvalid, match="a part of 'field' is marked"):
            event(type("Registered", (), {"__annotations__": {"field": hint}}))


def test_a_list_of_nothing_is_no_field() -> None:
    with pytest.raises(EventInvalid, match="does not say of what"):
        event(type("Registered", (), {"__annotations__": {"field": List}}))  # noqa: UP006
