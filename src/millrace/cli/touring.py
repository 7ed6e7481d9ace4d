"""What `millrace demo` shows: how far the start is, then the figures of each application and a tour through them. On a
terminal it stays in its place; otherwise lines are printed now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from millrace.cli.output import say
from millrace.config import Settings

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live
    from rich.progress import Progress

    from millrace.demo.consoles import Console
    from millrace.demo.tour import Seen

FIGURES_S = 2.0
MEMORY_S = 10.0
STOP_S = 12.0  # at each stop of the tour, so long
STEPS = 2  # of an application's start, at least: its data, its flows


class Touring:
    """Use it as a context. `expect` says which applications will come, `step` is one of what their start takes (in any
    thread), `show` the tour through those that run."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty() and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._live: Live | None = None
        self._began = time.monotonic()
        self._toured = self._looked_at = self._measured_at = 0.0
        self._expected: list[str] = []
        self._numbered: list[str] = []
        self._figures: dict[str, str] = {}
        self._memory = ""
        self._told: set[str] = set()

    def __enter__(self) -> Touring:
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        say(text)

    def expect(self, names: Sequence[str]) -> None:
        self._expected = list(names)
        if not self._terminal:
            return
        from rich.console import Console as Terminal
        from rich.live import Live

        self._progress = _bar("starting", STEPS * len(names))
        self._live = Live(self._progress, console=Terminal(), redirect_stderr=True, redirect_stdout=True)
        self._live.start()

    def stopping(self, steps: int) -> None:
        """There is nothing to tour any more; so many steps are to come."""
        if self._live is not None:
            self._progress = _bar("stopping", steps)
            self._live.update(self._progress)

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        if self._progress is None and self._terminal and self._live is None:
            with _bar(what, None):  # before it is known how much there is to do
                yield
            return
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], description=what)
        else:
            say(f"{what} …")
        yield
        if self._progress is not None and self._live is not None:
            self._progress.advance(self._progress.task_ids[0])
            self._live.console.print(f"{what}: {time.monotonic() - began:.0f} s", highlight=False)

    def show(self, seen: Mapping[str, Seen], consoles: Sequence[Console], settings: Settings) -> None:
        """Asks for the figures when it is time, and shows them."""
        from millrace.demo.tour import STOPS

        now = time.monotonic()
        if not seen or now - self._looked_at < FIGURES_S:
            return
        self._looked_at = now
        self._tell_numbers([name for name, each in seen.items() if each.rows_in()], now - self._began)
        self._figures = {name: STOPS[name].figures(each) + _trouble(each) for name, each in seen.items()}
        if len(seen) == len(self._expected) and now - self._measured_at >= MEMORY_S:
            self._measured_at = now
            self._memory = _memory(settings)
        if self._live is not None:
            self._live.update(self._drawn(consoles))
        else:
            self._print(consoles)

    def print_records(self, seen: Mapping[str, Seen]) -> None:
        """Those that have come to the topics that are shown."""
        from millrace.cli.live import record_line

        for each in seen.values():
            while each.records:
                line = record_line(each.records.popleft())
                if self._live is not None:
                    self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
                else:
                    print(line, flush=True)

    def _tell_numbers(self, numbered: list[str], after_s: float) -> None:
        """How long a person had to wait for the first, and for all."""
        if numbered and not self._numbered:
            self.say(f"first numbers after {after_s:.0f} s")
        if len(self._numbered) < len(numbered) == len(self._expected):
            self.say(f"numbers of every application after {after_s:.0f} s")
            self._progress = None
        self._numbered = numbered

    def _print(self, consoles: Sequence[Console]) -> None:
        """What is new."""
        for name, figures in self._figures.items():
            self._say_once(f"{name}: {figures}")
        for console in consoles:
            self._say_once(_addressed(console))
        self._say_once(self._memory)

    def _say_once(self, line: str) -> None:
        if line and line not in self._told:
            self._told.add(line)
            print(line, flush=True)

    def _drawn(self, consoles: Sequence[Console]) -> Group:
        from rich.console import Group
        from rich.markup import escape
        from rich.panel import Panel
        from rich.spinner import Spinner
        from rich.table import Table

        from millrace.demo.tour import STOPS

        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="bold", no_wrap=True)
        for name, told in self._figures.items():
            figures.add_row(name, escape(told))
        names = list(self._figures)
        self._toured = self._toured or time.monotonic()
        place = int((time.monotonic() - self._toured) / STOP_S) % len(names)
        stop = STOPS[names[place]]
        lines = [escape(stop.says), f"look yourself:  [bold]{escape(stop.look)}[/bold]"]
        title = f"{names[place]} ({place + 1} of {len(names)})"
        under = Table.grid()
        if self._progress is not None:
            under.add_row(self._progress)
        for console in consoles:
            starting = Spinner("dots", f"console of {console.name}: starting", style="dim")
            under.add_row(escape(_addressed(console)) if console.settled else starting)
        under.add_row(self._memory, style="dim")
        under.add_row("Ctrl-C stops everything", style="dim")
        return Group(figures, Panel("\n".join(lines), title=title, title_align="left"), under)


def _bar(what: str, steps: int | None) -> Progress:
    """Without `steps` one that only says that something is at work, and goes when it is done."""
    from rich.console import Console as Terminal
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=20), TextColumn("{task.description}"), TimeElapsedColumn())
    made = Progress(*columns, console=Terminal(), transient=steps is None)
    made.add_task(what, total=steps)
    return made


def _memory(settings: Settings) -> str:
    from millrace.demo.together import used_mb

    used = used_mb(settings)
    parts = ", ".join(f"{name} {own_mb:,}" for name, own_mb in used.items())
    return f"memory: {sum(used.values()):,} MB in all ({parts})"


def _trouble(seen: Seen) -> str:
    states = [f"{name} is {each.state}" for name, each in seen.run.standings.items()]
    found = [state for state in states if state.endswith(("restarting", "failed"))]
    return f" ({', '.join(found)})" if found else ""


def _addressed(console: Console) -> str:
    if console.address:
        return f"console of {console.name}: {console.address}"
    return f"no console of {console.name}: {console.failure}" if console.settled and console.failure else ""
