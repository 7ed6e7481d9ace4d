"""`millrace demo`: the applications together, as a person sees them; and what it leaves out on a small machine."""

from __future__ import annotations

import os
import re
import signal
import threading
from decimal import Decimal
from pathlib import Path
from urllib.request import urlopen

import pytest

from millrace import config, local
from millrace.demo import bank_accounts as bank
from millrace.demo.together import BASE_MB, fitting
from millrace.demo.tour import STOPS, USUAL
from millrace.events import Store
from tests.command import start, until

MOST_MB = 6 * 1024


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    wanted = {"one": 500, "two": 1_000, "three": 10}
    assert fitting(wanted, BASE_MB + 1_510) == ("one", "two", "three")
    assert fitting(wanted, BASE_MB + 1_509) == ("one", "two")
    assert fitting(wanted, BASE_MB + 1_499) == ("one",)
    assert fitting(wanted, 0) == ("one",), "the first is always tried"
    assert BASE_MB + sum(STOPS[name].memory_mb for name in USUAL) < MOST_MB


class Demo:
    """What it has printed so far."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def read(self, output: object) -> None:
        for line in output:  # type: ignore[attr-defined]
            self.lines.append(line)

    def numbers(self, application: str) -> bool:
        """Whether it has told of rows, more than none."""
        told = re.compile(rf"{application}: [1-9][\d,]* ")
        return any(told.match(line) for line in self.lines)

    def found(self, pattern: str) -> list[str]:
        return [match[1] for line in self.lines if (match := re.search(pattern, line))]


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.turn(2, 7)
def test_applications_run_together_with_a_console_each(folder: Path) -> None:
    demo = Demo()
    with start("demo", cwd=folder) as command:
        reading = threading.Thread(target=demo.read, args=(command.stdout,), daemon=True)
        reading.start()

        def alive() -> None:
            assert command.poll() is None, "".join(demo.lines)

        def numbers() -> bool:
            alive()
            return all(demo.numbers(name) for name in USUAL)

        def consoles() -> bool:
            alive()
            return len(demo.found(r"console of \w+: (http\S+)")) == len(USUAL)

        until(numbers, "numbers of every application", 600)
        until(consoles, "their consoles", 600)
        for address in demo.found(r"console of \w+: (http\S+)"):
            with urlopen(address, timeout=60) as answer:
                assert b"Millrace" in answer.read()
        until(lambda: bool(demo.found(r"shop: .*revenue: (.*)")), "the shop's view", 600)
        used = [int(text.replace(",", "")) for text in demo.found(r"memory: ([\d,]+) MB in all")]
        print("memory:", used)
        assert max(used) < MOST_MB
        command.send_signal(signal.SIGINT)
        assert command.wait(180) == 0, "".join(demo.lines)
        reading.join()
    assert demo.found("(Traceback|is failed|is restarting)") == []


def money(folder: Path) -> tuple[Decimal, Decimal]:
    """What accounts and open transfers have, and what customers brought and drew themselves."""
    held, own, waiting = Decimal(0), Decimal(0), dict[str, Decimal]()
    amounts: dict[str, Decimal] = {}
    kinds = [bank.Deposited, bank.Withdrawn, bank.TransferAsked, bank.TransferTaken, bank.TransferEnded]
    settings = config.load(folder)
    with local.held(settings, ("postgres",)), Store.open("bank", settings=settings) as store:
        for each in store.read(events=kinds):
            match each.event:
                case bank.Deposited(amount, transfer):
                    held, own = held + amount, own + (amount if transfer is None else 0)
                case bank.Withdrawn(amount, transfer):
                    held, own = held - amount, own - (amount if transfer is None else 0)
                case bank.TransferAsked(amount=amount):
                    amounts[each.id] = amount
                case bank.TransferTaken():
                    waiting[each.id] = amounts[each.id]
                case bank.TransferEnded():
                    waiting.pop(each.id, None)
    return held + sum(waiting.values()), own


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.turn(0, 3)
def test_ctrl_c_ends_one_alone_before_the_servers_that_it_uses(folder: Path) -> None:
    """The bank writes to PostgreSQL beside the flows until it closes."""
    demo = Demo()
    with start("demo", "--only", "bank", cwd=folder) as command:
        reading = threading.Thread(target=demo.read, args=(command.stdout,), daemon=True)
        reading.start()

        def steps() -> bool:
            assert command.poll() is None, "".join(demo.lines)
            return demo.numbers("overdue")

        until(steps, "steps of transfers", 600)
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does it: to the whole group
        assert command.wait(180) == 0, "".join(demo.lines)
        reading.join()
    assert demo.found("(Traceback|MR-|is failed|is restarting)") == []
    assert demo.found("(stopping after this epoch)")
    total, own = money(folder)
    assert total == own > 0
