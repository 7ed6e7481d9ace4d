"""What `millrace run` shows: records as they come on standard output, how the flows are doing on standard error."""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from millrace.cli.output import say
from millrace.errors import FlowUnknown, MillraceError, nearest
from millrace.flow import Graph
from millrace.log import Log, Record

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

    from millrace.engine import Run
    from millrace.engine.standing import Standing

STATUS_S = 2.0
CATCH_UP_S = 5.0
MOST_WAITING = 10_000


def cells(standing: Standing) -> tuple[str, ...]:
    """A flow since the run began, in a few words each."""
    last = standing.last
    allowed = f" ({standing.allowed:,} allowed)" if standing.allowed else ""
    return (
        f"{standing.rows_taken:,} in",
        f"{standing.rows_out:,} out" if standing.rows_out is not None else "",
        f"{standing.dead:,} dead" if standing.dead else "",
        f"{standing.late:,} late{allowed}" if standing.late else "",
        f"{standing.left_out:,} left out" if standing.left_out else "",
        f"{last.rows_per_s:,.0f} rows/s" if last else "" if standing.state in ("restarting", "failed") else "waiting",
        f"{last.epoch_ms:,} ms" if last else "",
        f"watermark {last.watermark:%H:%M:%S}" if last and last.watermark else "",
        f"{last.lag_records:,} behind ({last.lag_s or 0:,.0f} s)" if last and last.lag_records else "",
        {"restarting": "failed, is started again", "failed": "failed"}.get(standing.state, ""),
    )


class Follower(threading.Thread):
    """Reads a topic from now on and hands its records over."""

    def __init__(self, log: Log, topic: str, records: queue.Queue[Record]) -> None:
        super().__init__(name=f"show {topic}", daemon=True)
        self.topic = topic
        self.failure: MillraceError | None = None
        self.ended = threading.Event()
        self._records = records
        self._log = log
        self._reader = log.reader(topic, "latest", follow=True, stop=self.ended)
        self._reached = {number: last for number, (_, last) in log.topics.offsets(topic).items()}

    def run(self) -> None:
        try:
            for record in self._reader.records():
                self._reached[record.partition] = record.offset + 1
                self._records.put(record)
        except MillraceError as error:
            self.failure = error

    def behind(self) -> bool:
        ends = self._log.topics.offsets(self.topic)
        return self.is_alive() and any(self._reached.get(number, 0) < last for number, (_, last) in ends.items())


def shown_topics(graph: Graph, show: Iterable[str]) -> tuple[str, ...]:
    """The topics to show, known to be topics of the app."""
    names = [topic.name for topic in graph.topics]
    for topic in show:
        if topic not in names:
            hint = nearest(topic, names)
            raise FlowUnknown(app=graph.app, kind="topic", name=topic, hint=hint, known=", ".join(names))
    return tuple(dict.fromkeys(show))


class Display:
    """Shows a run. On a terminal the flows' lines stay at the bottom; otherwise they are printed now and then."""

    every_s = STATUS_S

    def __init__(self, run: Run, show: Iterable[str]) -> None:
        from millrace.engine.standing import Standing

        log = Log(run.settings)
        self._replay = run.replay is not None
        self._records: queue.Queue[Record] = queue.Queue(MOST_WAITING)
        self._followers = [Follower(log, topic, self._records) for topic in show]
        self._flows: dict[str, Standing] = {flow.name: Standing.new(flow.name) for flow in run.planned}
        self._said_at = 0.0
        self._said: tuple[str, ...] = ()
        self._live = _live() if self._on_terminal() else None

    def _on_terminal(self) -> bool:
        return sys.stdout.isatty() and sys.stderr.isatty()

    def __enter__(self) -> Display:
        for follower in self._followers:
            follower.start()
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, *_: type[BaseException] | BaseException | TracebackType | None
    ) -> None:
        for follower in self._followers:
            follower.ended.set()
        if kind is not None and issubclass(kind, MillraceError):
            self._print_records()
            if not self._live:
                self._say_flows()
        if self._live:
            self._live.stop()

    def take(self, standings: Mapping[str, Standing]) -> None:
        """How the flows stand, to be shown when it is time."""
        self._flows.update(standings)

    def update(self, standings: Mapping[str, Standing]) -> None:
        self.take(standings)
        self._print_records()
        for follower in self._followers:
            if follower.failure:
                raise follower.failure
        if self._live:
            self._live.update(self._table(), refresh=True)
        elif time.monotonic() - self._said_at >= self.every_s:
            self._said_at = time.monotonic()
            self._say_flows()

    def finish(self) -> None:
        """Shows what is still on its way, then the sums."""
        deadline = time.monotonic() + CATCH_UP_S
        while any(follower.behind() for follower in self._followers) and time.monotonic() < deadline:
            self._print_records(wait_s=0.1)
        self._print_records()
        if self._live:
            self._live.update(self._table(), refresh=True)
        else:
            self._say_flows()
        if any(standing.dead for standing in self._flows.values()):
            kept = "a replay does not keep them" if self._replay else "`millrace deadletter list` shows them"
            self.say(f"some records did not fit their topic; {kept}")

    def say(self, text: str) -> None:
        say(text)

    def _say_flows(self) -> None:
        lines = tuple(
            f"{flow}: {', '.join(cell for cell in cells(standing) if cell)}" for flow, standing in self._flows.items()
        )
        if lines != self._said:
            for line in lines:
                say(line)
        self._said = lines

    def _print_records(self, wait_s: float = 0) -> None:
        try:
            while True:
                record = self._records.get(timeout=wait_s) if wait_s else self._records.get_nowait()
                line = record_line(record)
                if self._live:
                    self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)
                else:
                    print(line, flush=True)
        except queue.Empty:
            pass

    def _table(self) -> Table:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        for _ in range(10):
            table.add_column(no_wrap=True)
        for flow, standing in self._flows.items():
            table.add_row(flow, *cells(standing))
        return table


def _live() -> Live:
    from rich.console import Console
    from rich.live import Live

    return Live(console=Console(), auto_refresh=False, redirect_stderr=True, redirect_stdout=True)


def record_line(record: Record) -> str:
    text = "null" if record.value is None else record.value.decode(errors="replace")
    # Times are written with all their digits; a person is spared those that say nothing.
    return f"{record.topic}  {text.replace('.000000Z', 'Z')}"
