"""`millrace demo`: the applications together, as a person sees them; and what it leaves out on a small machine."""

from __future__ import annotations

import os
import re
import signal
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from millrace import config, local
from millrace.cli.demo import DEMOS, _names, _shown, crowded
from millrace.config import Settings
from millrace.demo import bank_accounts as bank
from millrace.demo import fraud
from millrace.demo.starting import JAVA_OPTIONS, Starting, each_once, start_java_quickly
from millrace.demo.together import BASE_MB, Together, application, fitting
from millrace.demo.tour import STOPS, USUAL, Seen
from millrace.engine import Run
from millrace.engine.plan import flows_of
from millrace.engine.realtime import slots_declared
from millrace.errors import FlowUnknown
from millrace.events import Store
from millrace.local import process
from tests.command import start, until
from tests.engine.conftest import Project
from tests.rotation import todays

MOST_MB = 6 * 1024


def test_what_does_not_fit_is_left_out_from_the_end() -> None:
    wanted = {"one": 500, "two": 1_000, "three": 10}
    assert fitting(wanted, BASE_MB + 1_510) == ("one", "two", "three")
    assert fitting(wanted, BASE_MB + 1_509) == ("one", "two")
    assert fitting(wanted, BASE_MB + 1_499) == ("one",)
    assert fitting(wanted, 0) == ("one",), "the first is always tried"
    assert BASE_MB + sum(STOPS[name].memory_mb for name in USUAL) < MOST_MB


def test_what_is_left_out_and_what_few_cores_mean_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for free_mb, found in ((BASE_MB + 800, ("fraud", "pageviews")), (10**6, tuple(STOPS))):
        monkeypatch.setattr("millrace.demo.together.free_mb", lambda free_mb=free_mb: free_mb)
        assert _names(Namespace(only=None, all=True)) == found
    assert capsys.readouterr().err == (
        "2,700 MB of memory are free, which is too little for all: "
        "without leaderboard, shop, notifications, trending, attribution, bank, features\n"
    )
    monkeypatch.setattr("millrace.demo.together.free_mb", lambda: 0)
    assert _names(Namespace(only="shop", all=False)) == ("shop",)
    assert capsys.readouterr().err == ""
    assert crowded(30, 6.0, 2) == (
        "2 cores have 30 flows to run: each looks for new records every 6 s; those in real time take them at once"
    )
    assert crowded(30, 1.5, 8) == ""


def test_only_topics_that_there_are_can_be_shown() -> None:
    apps = {"fraud": fraud.app}
    assert _shown(Namespace(only="fraud", show=[]), apps) == STOPS["fraud"].topics
    assert _shown(Namespace(only=None, show=[]), apps) == ()
    assert _shown(Namespace(only="fraud", show=["payments"]), apps) == ["payments"]
    with pytest.raises(FlowUnknown, match="did you mean 'payments'"):
        _shown(Namespace(only=None, show=["paymnets"]), apps)


def test_each_server_is_started_for_the_first_application_that_needs_it() -> None:
    wanted = {
        "fraud": ["kafka"],
        "ranks": ["kafka", "valkey"],
        "views": ["kafka"],
        "shop": ["kafka", "valkey", "postgres"],
    }
    assert each_once(wanted) == {"fraud": ["kafka"], "ranks": ["valkey"], "views": [], "shop": ["postgres"]}


def test_options_that_somebody_has_set_for_java_come_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=4")
    start_java_quickly()
    assert os.environ["JDK_JAVA_OPTIONS"] == f"{JAVA_OPTIONS} -XX:TieredStopAtLevel=4"


def test_flows_in_epochs_cannot_take_the_slots_of_those_in_real_time() -> None:
    """Spark refuses an epoch in real time that does not find its slots free."""
    alone = flows_of(fraud.app.graph())
    others = [flow for name in ("pageviews", "leaderboard", "shop") for flow in flows_of(application(name).graph())]
    assert all(flow.epoch_ms is None for flow in others)
    more = slots_declared([*alone, *others], 2) - slots_declared(alone, 2)
    assert more >= len(others) * 4, "for each a partition of what it reads and of a shuffle, twice"
    assert slots_declared(others, 2) == 0, "without real time a session has one for each core"


def test_after_a_failure_no_more_servers_are_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They would be waited for before the failure is told."""
    together, servers = Together((), Settings(tmp_path)), {"one": ["kafka"], "two": ["postgres"]}
    starting = Starting(together, servers, lambda _: nullcontext(), lambda _: None)
    started: list[str] = []

    @contextmanager
    def held(_: Settings, servers: Sequence[str], **__: object) -> Iterator[None]:
        started.extend(servers)
        starting._tasks[1].failure = FlowUnknown(app="one", kind="flow", name="x", hint="", known="none")
        yield

    monkeypatch.setattr("millrace.local.held", held)
    starting._serve()
    assert started == ["kafka"]


@pytest.mark.server
def test_figures_go_on_after_a_trouble(project: Project) -> None:
    """A topic that is not there is one that passes, as a broker that is away would be."""
    run = Run(fraud.app, project.settings, traffic=False)
    with Seen(run, ("alerts", "card_testing")) as seen:
        until(lambda: all(thread.is_alive() for thread in seen._threads), "it looks")
        for topic, lines in (("alerts", ['{"id": 1}', "no JSON", "[]", '{"id": 2}']), ("card_testing", ['{"id": 3}'])):
            project.log.topics.create(topic, partitions=1)
            for line in lines:
                project.log.write(topic, line)
        until(lambda: seen.came == {"alerts": 2, "card_testing": 1}, "both topics are followed")
        assert seen.last["alerts"] == {"id": 2}


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
    """The bank writes to PostgreSQL beside the flows until it closes. One alone has a tour and a console too, and
    prints what it writes."""
    demo = Demo()
    with start("demo", "--only", "bank", cwd=folder) as command:
        reading = threading.Thread(target=demo.read, args=(command.stdout,), daemon=True)
        reading.start()

        def steps() -> bool:
            assert command.poll() is None, "".join(demo.lines)
            return demo.numbers("bank") and bool(demo.found(r"^(hasty|overdue)  \{"))

        until(steps, "steps of transfers, and a record", 600)
        until(lambda: bool(demo.found(r"console of bank: (http\S+)")), "its console", 600)
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does it: to the whole group
        assert command.wait(180) == 0, "".join(demo.lines)
        reading.join()
    assert demo.found("(Traceback|MR-|is failed|is restarting)") == []
    assert demo.found("(stopping after this epoch)")
    stops = demo.found("^(stopping .*) …")
    assert stops == ["stopping bank", "stopping Spark", "stopping servers and what is beside them"]
    total, own = money(folder)
    assert total == own > 0


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.parametrize("name", todays(sorted(set(DEMOS) - {"bank"}), 1))
def test_each_runs_alone(folder: Path, name: str) -> None:
    """Another one every day; the bank is above."""
    demo = Demo()
    with start("demo", "--only", name, cwd=folder) as command:
        reading = threading.Thread(target=demo.read, args=(command.stdout,), daemon=True)
        reading.start()

        def numbers() -> bool:
            assert command.poll() is None, "".join(demo.lines)
            return demo.numbers(name)

        until(numbers, "numbers", 600)
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(180) == 0, "".join(demo.lines)
        reading.join()
    assert demo.found("(Traceback|MR-|is failed|is restarting)") == []


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.turn(1, 3)
def test_ctrl_c_while_it_starts_leaves_nothing_behind(folder: Path) -> None:
    demo = Demo()
    with start("demo", cwd=folder) as command:
        reading = threading.Thread(target=demo.read, args=(command.stdout,), daemon=True)
        reading.start()
        until(lambda: bool(demo.found("(servers of fraud)")), "its first step", 600)
        family = psutil.Process(command.pid).children(recursive=True)
        os.killpg(command.pid, signal.SIGINT)
        assert command.wait(180) == 0, "".join(demo.lines)
        reading.join()
    assert demo.found("(Traceback|MR-)") == []
    assert not demo.found("(fraud: flows)"), "it did not go on"
    assert list(process.marked(config.load(folder).state_folder)) == []
    assert not [each for each in family if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
