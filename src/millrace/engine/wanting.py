"""Views that somebody waits for, beside the run's loop: a commit of ours follows at once, and the epoch that tells it.

A view is true up to a commit of the captured database, and whoever waits knows a place in the server's log, which goes
on with commits of others, of the view store too. So the next commit is made here: the capture's heartbeat, before its
time. A position that no change came with is told by epochs only every few seconds, unless it is wanted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from contextlib import closing, suppress

import psycopg
from pyspark.sql import SparkSession

from millrace.capture import Captures
from millrace.capture.postgres_source import PostgresSource
from millrace.engine.viewed import database_of
from millrace.errors import MillraceError
from millrace.flow import Table, View
from millrace.kernel.calling import operator
from millrace.sinks.postgres import connect
from millrace.views.store import schema_of, url_of
from millrace.views.wanted import CHANNEL, Wanted, heard

_LOOK_S, _AWAY_S = 0.5, 5.0
# Whoever else begins to wait by then has the same commit.
_GATHER_S = 0.02

_logger = logging.getLogger("millrace.engine")


class Wanting(threading.Thread):
    """Of one run. What goes wrong here costs a few seconds, and is told to the log file only."""

    def __init__(self, captures: Captures, app: str, spark: SparkSession) -> None:
        super().__init__(name="wanted views", daemon=True)
        self._captures, self._schema, self._spark = captures, schema_of(captures.settings, app), spark
        self._views: dict[str, View] = {}
        self._ended = threading.Event()
        # For each capture a place in the log behind which a commit was made.
        self._beaten: dict[str, int] = {}

    def add(self, view: View) -> None:
        if database_of(view) is not None:
            self._views[view.name] = view

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                self._listen()
            except Exception:
                _logger.debug("nobody listens for who waits for a view", exc_info=True)
                self._ended.wait(_AWAY_S)

    def _listen(self) -> None:
        with closing(connect(url_of(self._captures.settings))) as connection:
            connection.execute(f"LISTEN {CHANNEL}")
            while not self._ended.is_set():
                found = list(connection.notifies(timeout=_LOOK_S, stop_after=1))
                if found:
                    found += connection.notifies(timeout=_GATHER_S)
                self._wanted(heard(each.payload for each in found))

    def _wanted(self, wanted: Iterable[Wanted]) -> None:
        most: dict[str, int] = {}
        for each in wanted:
            if each.schema == self._schema and each.view in self._views:
                most[each.view] = max(each.lsn, most.get(each.view, 0))
        for name, lsn in most.items():
            view = self._views[name]
            for fed in _fed_by(view):
                operator(self._spark, "Wanted").set(fed.name, lsn)
            with suppress(MillraceError, psycopg.Error):
                self._beat(view, lsn)

    def _beat(self, view: View, lsn: int) -> None:
        capture = _table(view).capture
        assert capture is not None, "a view with positions of a database reads tables that are captured"
        source = self._captures.source(capture)
        if lsn > self._beaten.get(capture.name, 0) and isinstance(source, PostgresSource):
            self._beaten[capture.name] = source.beat(capture, lsn)


def _fed_by(view: View) -> list[View]:
    """A view and those that it reads."""
    found = [view]
    for each in found:
        found += [node for node in each.reads if isinstance(node, View) and node not in found]
    return found


def _table(view: View) -> Table:
    return next(node for each in _fed_by(view) for node in each.reads if isinstance(node, Table))
