"""The bank's books, from its events: what each account has and which transfers are on their way, after any of them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from itertools import islice
from typing import Any, ClassVar

from millrace.console.board import Board, bring
from millrace.log import Log

EVENTS = "bank.events.event"
# The state after older ones is kept, they themselves are not: a browser's slider has no more places either.
MOST_EVENTS = 20_000

_TICK = "millrace.ticked"


@dataclass(frozen=True)
class Happened:
    position: int
    at: str
    id: str
    type: str
    data: Mapping[str, Any]

    @property
    def said(self) -> str:
        """Its fields, without those that only the bank may read."""
        shown = {name: value for name, value in self.data.items() if value is not None and name != "owner"}
        return ", ".join(f"{name} {value}" for name, value in shown.items())


@dataclass
class Books:
    """What follows from the events that were applied, in their order."""

    events: int = 0
    balances: dict[str, Decimal] = field(default_factory=dict)
    transfers: dict[str, str] = field(default_factory=dict)
    amounts: dict[str, Decimal] = field(default_factory=dict)

    def apply(self, event: Happened) -> None:
        match event.type:
            case "AccountOpened":
                self.balances.setdefault(event.id, Decimal(0))
            case "Deposited":
                self._move(event.id, Decimal(event.data["amount"]))
            case "Withdrawn":
                self._move(event.id, -Decimal(event.data["amount"]))
            case "TransferAsked":
                self.transfers[event.id], self.amounts[event.id] = "asked", Decimal(event.data["amount"])
            case "TransferTaken" | "TransferAccepted":
                self.transfers[event.id] = event.type.removeprefix("Transfer").lower()
            case "TransferEnded":
                self.transfers.pop(event.id, None)
                self.amounts.pop(event.id, None)
        self.events += 1

    def copy(self) -> Books:
        return Books(self.events, dict(self.balances), dict(self.transfers), dict(self.amounts))

    @property
    def held(self) -> Decimal:
        return sum(self.balances.values(), Decimal(0))

    @property
    def on_its_way(self) -> Decimal:
        """Taken from one account and not given to another yet."""
        return sum((self.amounts[name] for name, state in self.transfers.items() if state != "asked"), Decimal(0))

    def _move(self, account: str, amount: Decimal) -> None:
        self.balances[account] = self.balances.get(account, Decimal(0)) + amount


def read_again(log: Log) -> BankBoard:
    """Books from all events that are in the topic now."""
    found = BankBoard()
    with closing(log.reader(EVENTS, "earliest").batches()) as batches:
        for messages in batches:
            bring(found, EVENTS, [message.value() for message in messages])
    return found


class BankBoard(Board):
    """`live` is kept up event by event; `after` computes the books of any moment from the events."""

    topics: ClassVar[Mapping[str, timedelta | None]] = {EVENTS: None}

    def __init__(self) -> None:
        super().__init__()
        self._clear()

    def begin(self, topic: str) -> None:  # noqa: ARG002 -- there is one
        self._clear()

    def _clear(self) -> None:
        self.live, self._first, self._reached = Books(), Books(), Books()
        self._events: deque[Happened] = deque()
        self._position = 0

    def take(self, topic: str, row: Mapping[str, Any]) -> None:  # noqa: ARG002 -- there is one
        after = row["after"]
        position = int(after["position"])
        if position <= self._position:  # a capture that begins again tells what is there once more
            return
        data = after["data"]
        event = Happened(
            position,
            str(after["at"]),
            str(after["id"]),
            str(after["type"]),
            json.loads(data) if isinstance(data, str) else data,
        )
        self._position = position
        if event.type == _TICK:
            return
        self.live.apply(event)
        self._events.append(event)
        while len(self._events) > MOST_EVENTS:
            self._first.apply(self._events.popleft())

    def same(self, again: BankBoard) -> bool | None:
        """Whether books that were made from the whole topic once more are those that were kept up event by event; None
        while some of these events have not come here."""
        count = again.live.events
        if count > self.live.events:
            return None
        kept = self.after(count)
        return (kept.balances, kept.transfers) == (again.live.balances, again.live.transfers)

    @property
    def oldest(self) -> int:
        """After so many events the first moment is that can still be looked at."""
        return self._first.events

    def after(self, events: int) -> Books:
        """Goes on from the moment that was asked for last, if this one is later, and otherwise begins with the first
        event."""
        if not self.oldest <= self._reached.events <= events:
            self._reached = self._first.copy()
        for event in islice(self._events, self._reached.events - self.oldest, max(0, events - self.oldest)):
            self._reached.apply(event)
        return self._reached

    def before(self, events: int, most: int) -> Iterator[Happened]:
        """The events up to that moment, the newest first."""
        end = min(len(self._events), max(0, events - self.oldest))
        return (self._events[place] for place in range(end - 1, max(-1, end - 1 - most), -1))
