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


class Touring:
    """Use it as a context. `expect` says how many steps the start has, `step` is one of them, `show` the tour."""

    def __init__(self) -> None:
        self._terminal = sys.stdout.isatty() and sys.stderr.isatty()
        self._progress: Progress | None = None
        self._live: Live | None = None
        self._began = self._toured = time.monotonic()
        self._looked_at = self._measured_at = 0.0
        self._figures: dict[str, str] = {}
        self._memory = ""
        self._told: set[str] = set()
        self._numbers = False

    def __enter__(self) -> Touring:
        return self

    def __exit__(self, *_: object) -> None:
        for shown in (self._progress, self._live):
            if shown is not None:
                shown.stop()

    def say(self, text: str) -> None:
        say(text)

    def expect(self, steps: int) -> None:
        if not self._terminal:
            return
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), BarColumn(bar_width=20), TextColumn("{task.description}"), TimeElapsedColumn())
        self._progress = Progress(*columns, transient=True)
        self._progress.add_task("", total=steps)
        self._progress.start()

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        began = time.monotonic()
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], description=what)
        else:
            say(f"{what} …")
        yield
        if self._progress is not None:
            self._progress.advance(self._progress.task_ids[0])
            self._progress.console.print(f"{what}: {time.monotonic() - began:.0f} s", highlight=False)

    def show(self, seen: Mapping[str, Seen], consoles: Sequence[Console], settings: Settings) -> None:
        """Asks for the figures when it is time, and shows them."""
        from millrace.demo.together import used_mb
        from millrace.demo.tour import STOPS

        now = time.monotonic()
        if now - self._looked_at < FIGURES_S:
            return
        self._looked_at = now
        if not self._numbers and all(each.rows_in() for each in seen.values()):
            self._numbers = True
            self.say(f"numbers of every application after {now - self._began:.0f} s")
        self._figures = {name: STOPS[name].figures(each) + _trouble(each) for name, each in seen.items()}
        if now - self._measured_at >= MEMORY_S:
            self._measured_at = now
            used = used_mb(settings)
            parts = ", ".join(f"{name} {own_mb:,}" for name, own_mb in used.items())
            self._memory = f"memory: {sum(used.values()):,} MB in all ({parts})"
        if self._terminal:
            self._draw(consoles)
        else:
            self._print(consoles)

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

    def _draw(self, consoles: Sequence[Console]) -> None:
        from rich.console import Console as Terminal
        from rich.live import Live

        if self._progress is not None:
            self._progress.stop()
            self._progress = None
        if self._live is None:
            self._live = Live(console=Terminal(), auto_refresh=False, redirect_stderr=True, redirect_stdout=True)
            self._live.start()
            self._toured = time.monotonic()
        self._live.update(self._drawn(consoles), refresh=True)

    def _drawn(self, consoles: Sequence[Console]) -> Group:
        from rich.console import Group
        from rich.markup import escape
        from rich.panel import Panel
        from rich.table import Table

        from millrace.demo.tour import STOPS

        figures = Table.grid(padding=(0, 2))
        figures.add_column(style="bold", no_wrap=True)
        for name, told in self._figures.items():
            figures.add_row(name, escape(told))
        names = list(self._figures)
        place = int((time.monotonic() - self._toured) / STOP_S) % len(names)
        stop = STOPS[names[place]]
        lines = [escape(stop.says), f"look yourself:  [bold]{escape(stop.look)}[/bold]"]
        title = f"{names[place]} ({place + 1} of {len(names)})"
        under = Table.grid()
        for told in filter(None, map(_addressed, consoles)):
            under.add_row(escape(told))
        under.add_row(self._memory, style="dim")
        under.add_row("Ctrl-C stops everything", style="dim")
        return Group(figures, Panel("\n".join(lines), title=title, title_align="left"), under)


def _trouble(seen: Seen) -> str:
    states = [f"{name} is {each.state}" for name, each in seen.run.standings.items()]
    found = [state for state in states if state.endswith(("restarting", "failed"))]
    return f" ({', '.join(found)})" if found else ""


def _addressed(console: Console) -> str:
    if console.address:
        return f"console of {console.name}: {console.address}"
    return f"no console of {console.name}: {console.failure}" if console.settled and console.failure else ""
