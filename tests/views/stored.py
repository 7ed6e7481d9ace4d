"""Views of the fuzzer as `app.view`s: through changelog, JSON and view store, and what these then say of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql
from pyspark.sql import SparkSession

from millrace.engine import Run
from millrace.engine.definition import CHECKPOINT, folder_of
from millrace.flow import App
from millrace.testing.checkpoints import forget_commit
from millrace.views.changelog import Mark, lsn_number, marks_topic, row_text
from millrace.views.store import Store, url_of
from tests.shop import Shop
from tests.views.fuzz import plain

if TYPE_CHECKING:
    from tests.views.flows import Asked, Checked


@dataclass
class Stored:
    """A run of the app reads all that is there. `asked` have keys, and are views by their place in it."""

    spark: SparkSession
    shop: Shop
    tables: Sequence[str]
    asked: list[Asked]

    def __post_init__(self) -> None:
        self._names = {id(each): f"{self.shop.name}-view{number}" for number, each in enumerate(self.asked)}

    @property
    def app(self) -> App:
        app = App(f"stored-{self.shop.name}")
        app.capture(self.shop.name, [f"fuzz.{name}" for name in self.tables])
        for each in self.asked:
            app.view(self._names[id(each)], key=each.key, sql=each.sql)
        return app

    def run(self) -> None:
        if not self.asked:
            return
        with Run(self.app, self.shop.settings, once=True, spark=self.spark, traffic=False) as run:
            while not run.done:
                run.poll()
            run.stop()

    def forget(self) -> None:
        """As after a crash between the delivery of the last epochs and their commits."""
        for each in self.asked:
            folder = folder_of(self.shop.settings, f"stored-{self.shop.name}", self._names[id(each)])
            forget_commit(folder / CHECKPOINT)

    def compare(self, commits: Sequence[int], checked: Checked, at: str) -> None:
        """The rows of the store at the end, and those of the changelog at each of its marks."""
        with closing(Store(self.shop.settings, f"stored-{self.shop.name}")) as store:
            for each in self.asked:
                name = self._names[id(each)]
                _, rows, position = store.rows(name)
                versions = [(lsn_number(position.lsn or "0/0"), rows), *self._versions(store, name)]
                for reached, told in versions:
                    place = sum(before < reached for before in commits)
                    checked.compare(each, place, [tuple(map(plain, row)) for row in told], f"{at}, in the view store")
                last = max(sum(before < reached for before in commits) for reached, _ in versions[:1])
                if last < len(commits):
                    checked.faults.append(f"{at}: the store has {last} of {len(commits)} transactions of {name}")
                checked.stored += len(versions)

    def _versions(self, store: Store, name: str) -> Iterator[tuple[int, list[tuple[Any, ...]]]]:
        log = self.shop.captures.log
        records = sorted(log.read(name), key=lambda each: each.offset)
        table = sql.Identifier(store.schema, name)
        asked = sql.SQL("SELECT r.* FROM unnest(%s::text[]) AS given (value),"
                        " LATERAL json_populate_record(NULL::{}, given.value::json) r").format(table)  # fmt: skip
        with psycopg.connect(url_of(self.shop.settings)) as connection:
            for mark in (Mark.from_json(record.json()) for record in log.read(marks_topic(name))):
                last = {each.key: each.value for each in records if each.offset < mark.ends[each.partition]}
                texts = [row_text(value) for value in last.values() if value is not None]
                if mark.whole:
                    yield mark.lsn, connection.execute(asked, (texts,), binary=True).fetchall()
