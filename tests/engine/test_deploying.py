"""`millrace deploy` with nobody beside it: views that changed take the place of the old ones, and go on from there."""

from __future__ import annotations

import json
import socket
from argparse import Namespace
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.cli.state import _folder
from millrace.config import Settings
from millrace.engine import Run, changelogs, generations, lock
from millrace.engine.changelogs import Content, differences
from millrace.engine.comparing import Compared, chosen
from millrace.engine.definition import folders_of
from millrace.engine.deploying import Deploy, is_usable
from millrace.engine.epochs import has_come, last_begun
from millrace.engine.flows import filling, flows
from millrace.engine.generations import Generation
from millrace.engine.handing import Handing, asked, asking, forget
from millrace.engine.plan import Flow, flows_of
from millrace.engine.standing import Standing
from millrace.engine.state import State
from millrace.errors import (
    CheckpointDamaged,
    FlowLocked,
    FlowUnknown,
    KafkaUnreachable,
    MillraceError,
    StateChanged,
    ViewDeployed,
    ViewNotDeployed,
)
from millrace.flow import App
from millrace.views.changelog import HEAD, TAIL, Mark, marks_topic, row_text
from millrace.views.store import Store
from millrace.views.tentative import TENTATIVE, Told, headed
from tests.engine.conftest import Project
from tests.rotation import seeded
from tests.shop import Shop
from tests.views.running import lsn, marked

OLD = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
# Of these rows some are the same, some others, and one is no more.
NEW = "SELECT customer, sum(amount) AS total FROM orders WHERE amount > 2 GROUP BY customer"
WIDER = "SELECT customer, count(*) AS orders, sum(amount) AS total FROM orders GROUP BY customer"


@dataclass
class World:
    """A shop with a view of orders, and one over that."""

    shop: Shop
    spark: SparkSession
    said: list[str] = field(default_factory=list)
    compared: list[Compared | None] = field(default_factory=list)

    def app(self, sql: str, *, with_best: bool = True) -> App:
        app = App(f"deployed-{self.shop.name}")
        app.capture(self.shop.name, ["orders"])
        app.view(f"{self.shop.name}-sums", key="customer", sql=sql)
        if with_best:
            best = f'SELECT customer FROM "{self.shop.name}-sums" WHERE total > 10'
            app.view(f"{self.shop.name}-best", key="customer", sql=best)
        return app

    def once(self, app: App, **options: Any) -> None:
        with Run(app, self.shop.settings, once=True, spark=self.spark, traffic=False, **options) as run:
            while not run.done:
                run.poll()
            run.stop()

    def deploy(self, app: App, *, agrees: bool = True, **options: Any) -> dict[str, str]:
        def agree(_: str, compared: Compared | None) -> bool:
            self.compared.append(compared)
            return agrees

        work = Deploy(app, self.shop.settings, self.said.append, agree, spark=self.spark, **options)
        return {each.view.removeprefix(f"{self.shop.name}-"): each.outcome for each in work.run()}

    def wrote(self, *statements: str) -> None:
        self.shop.run(*statements)
        marked(self.shop, lsn(self.shop))

    def held(self, view: str) -> list[Any]:
        with closing(Store(self.shop.settings, f"deployed-{self.shop.name}")) as store:
            return sorted(store.rows(f"{self.shop.name}-{view}")[1])

    def answers(self, sql: str) -> list[Any]:
        return sorted(self.shop.run(sql))


@pytest.mark.spark
@pytest.mark.server
def test_a_changed_view_takes_the_place_of_the_old_one(shop: Shop, spark: SparkSession) -> None:
    world, view = World(shop, spark), f"{shop.name}-sums"
    log, folder = shop.captures.log, shop.settings.checkpoints / f"deployed-{shop.name}"
    shop.run(
        "CREATE TABLE orders (id integer PRIMARY KEY, customer integer, amount integer)",
        "INSERT INTO orders VALUES (1, 1, 1), (2, 1, 20), (3, 2, 2), (4, 3, 5), (5, 3, 6)",
    )
    old, new = world.app(OLD), world.app(NEW)
    shop.captures.ensure(old.graph().databases[0].capture)
    marked(shop, lsn(shop))
    # A view that is not there yet is filled where it will stay.
    assert world.deploy(old) == {"sums": "new", "best": "new"}
    assert world.held("sums") == world.answers(OLD)
    assert world.deploy(old) == {"sums": "unchanged", "best": "unchanged"}
    first = log.topics.identity(view)

    # Left as it is, it goes on; what was filled beside it waits.
    assert world.deploy(new, agrees=False, views=[view], diff=True) == {"sums": "left as it was"}
    compared = world.compared[-1]
    assert compared is not None
    assert compared.counts == {"added": 0, "changed": 1, "gone": 1}
    rows = {each.kind: (each.key, each.old, each.new) for each in compared.shown}
    assert rows == {
        "changed": ('{"customer":1}', '{"customer":1,"total":21}', '{"customer":1,"total":20}'),
        "gone": ('{"customer":2}', '{"customer":2,"total":2}', None),
    }
    world.wrote("INSERT INTO orders VALUES (6, 4, 1), (7, 4, 30)")
    world.once(old)
    assert world.held("sums") == world.answers(OLD)

    assert world.deploy(new) == {"sums": "switched", "best": "unchanged"}
    assert any("going on with the new one" in each for each in world.said)
    assert world.held("sums") == world.answers(NEW)
    assert log.topics.identity(view) == first, "whoever reads the changelog goes on with it"
    epochs = [record.json()["epoch"] for record in log.read(marks_topic(view))]
    assert epochs == sorted(epochs)
    assert not [name for name in log.topics.names() if "generation" in name]
    assert not (folder / view / "checkpoint").exists()
    assert {each["view"] for each in filling(shop.settings)} >= {view, f"{shop.name}-best"}
    assert {each["flow"] for each in flows(shop.settings) if each["app"] == old.name} == {view, f"{shop.name}-best"}

    # It goes on from there, and so does what reads it, which was not touched. The old code cannot.
    world.wrote("INSERT INTO orders VALUES (8, 2, 12), (9, 3, 2)", "DELETE FROM orders WHERE id = 7")
    with pytest.raises(StateChanged):
        world.once(old)
    world.once(new)
    assert world.held("sums") == world.answers(NEW)
    assert world.held("best") == world.answers(f"SELECT customer FROM ({NEW}) s WHERE total > 10")
    assert Generation.read(folder / view).number == 2
    _, counts = _folder(Namespace(flow=view, app=None), shop.settings)
    assert {each.operator: each.keys for each in State(spark, counts, view).sizes()}["aggregate"] == 3

    # With other columns its changelog begins anew, which nobody may be reading.
    with pytest.raises(ViewNotDeployed, match=f"{shop.name}-best reads it"):
        world.deploy(world.app(WIDER))
    wider = world.app(WIDER, with_best=False)
    assert world.deploy(wider) == {"sums": "switched"}
    assert log.topics.identity(view) != first
    assert world.held("sums") == world.answers(WIDER)
    world.wrote("UPDATE orders SET customer = 5 WHERE id < 4")
    world.once(wider)
    assert world.held("sums") == world.answers(WIDER)
    # Begun afresh it is the same view, from the first epoch on.
    world.once(wider, fresh=[view])
    assert world.held("sums") == world.answers(WIDER)
    with pytest.raises(FlowUnknown, match="best"):
        world.deploy(wider, views=[f"{shop.name}-best"])
    # What was begun for SQL that is taken back goes.
    assert world.deploy(world.app(OLD, with_best=False), agrees=False) == {"sums": "left as it was"}
    assert log.topics.exists(begun := generations.beside(view, 4))
    assert world.deploy(wider) == {"sums": "unchanged"}
    assert not [name for name in log.topics.names() if "generation" in name]
    assert not (folder / begun).exists()
    assert world.held("sums") == world.answers(WIDER)


def value(row: str) -> bytes:
    return f'{HEAD}{row}{TAIL}{{"lsn":1}}}}'.encode()


@pytest.mark.server
def test_changelogs_are_compared_by_their_last_rows(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against two dictionaries, with more keys than are held at once."""
    monkeypatch.setattr(changelogs, "KEYS_HELD", 10)
    draw, held, contents = seeded("changelogs"), [], []
    for topic in ("old", "new"):
        project.log.topics.ensure(topic, partitions=2, compact=True)
        rows: dict[bytes, bytes] = {}
        with project.log.writer(topic) as writer:
            for _ in range(400):
                key, row = f'{{"id":{draw.randint(1, 60)}}}'.encode(), value(f'{{"n":{draw.randint(1, 3)}}}')
                gone = draw.random() < 0.3
                writer.write(None if gone else row, key=key)
                rows.pop(key, None)
                rows |= {} if gone else {key: row}
        held.append(rows)
        contents.append(Content(project.log, topic, project.log.topics.last(topic)))
    old, new = held
    found = {each.key: (each.kind, each.value) for each in differences(*contents)}
    assert found == {
        **{key: ("added", new[key]) for key in new.keys() - old.keys()},
        **dict.fromkeys(old.keys() - new.keys(), ("gone", None)),
        **{key: ("changed", new[key]) for key in new.keys() & old.keys() if new[key] != old[key]},
    }
    some = set(list(old)[:3])
    assert contents[0].rows(some) == {key: row_text(old[key]) for key in some}


def test_one_file_says_which_generation_counts(tmp_path: Path) -> None:
    folder = tmp_path / "revenue"
    assert generations.current(folder) == folder
    Generation(2, -3, 7, "topic").write(folder)
    assert generations.current(folder) == tmp_path / "_millrace.generation.revenue.2"
    assert Generation.read(folder) == Generation(2, -3, 7, "topic")
    generations.begin_anew(folder)
    assert Generation.read(folder) == Generation(2)


def test_who_asks_for_a_flow_is_heard_while_it_lives(tmp_path: Path) -> None:
    """On whichever host: what a killed one leaves behind does not say that it is gone."""
    file = tmp_path / "handover.json"
    assert not asked(tmp_path)
    with asking(tmp_path, "revenue"):
        told = file.read_text().replace(socket.gethostname(), "another-host")
        assert asked(tmp_path)
        forget(tmp_path)
        assert asked(tmp_path)
    assert not asked(tmp_path)
    file.write_text(told)
    assert not asked(tmp_path)
    with asking(tmp_path, "revenue"):
        assert asked(tmp_path)
        assert json.loads(file.read_text())["host"] == socket.gethostname()
    file.write_text(told)
    forget(tmp_path)
    assert not file.exists()


class Handover:
    """A run's views, without Spark: the one that waits to be started, or that somebody asked for."""

    def __init__(self, folder: Path) -> None:
        app = App("shop")
        app.topic("orders", "id long, amount long")
        app.view("revenue", key="id", sql="SELECT id, sum(amount) AS total FROM orders GROUP BY id")
        self.app, (self.flow,) = app, flows_of(app.graph())
        self.settings = Settings(folder)
        self.apps = folders_of(self.settings, "shop")
        self.folder = self.apps / "revenue"
        self.locked = FlowLocked(flow="revenue", pid=1, host="there", since="now")


def test_a_view_that_waits_to_be_started_again_is_let_go_and_taken_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Handover(tmp_path)
    waiting, let_go, handing = [world.flow], list[Flow](), Handing(world.apps)
    handing.step({}, waiting, let_go.append)
    assert (waiting, let_go, handing.away) == ([world.flow], [], {})
    with asking(world.folder, "revenue"):
        for _ in range(2):
            handing.step({}, waiting, let_go.append)
            assert (waiting, let_go, handing.away) == ([], [world.flow], {"revenue": world.flow})
    with monkeypatch.context() as jvm:  # of one that was killed, and has still the lock
        jvm.setattr(lock, "_held_here", {world.folder})
        handing.step({}, waiting, let_go.append)
        assert not waiting
    handing.step({}, waiting, let_go.append)
    assert (waiting, handing.away) == ([world.flow], {})
    # One that was deployed in the meantime is not: asked for or not, it is said once.
    Generation(2).write(world.folder)
    for _ in range(2):
        handing.step({}, waiting, let_go.append)
        assert (waiting, handing.away) == ([], {})
    assert [record.getMessage().partition(" ")[0] for record in caplog.records] == ["MR-VIEW-DEPLOYED"]


def test_a_view_whose_lock_a_deploy_has_is_away_and_has_not_failed(tmp_path: Path) -> None:
    world = Handover(tmp_path)
    handing, once, let_go = Handing(world.apps), Handing(world.apps, once=True), list[Flow]()
    assert not handing.takes(world.flow, world.locked, let_go.append), "another run has it"
    with asking(world.folder, "revenue"):
        assert not once.takes(world.flow, world.locked, let_go.append)
        assert not let_go
        assert handing.takes(world.flow, world.locked, let_go.append)
        assert let_go == [world.flow]
        run = Run(world.app, world.settings)
        run.standings = {"revenue": Standing.new("revenue").becomes("restarting", "a broker is away")}
        run._fail(world.flow, world.locked)
        assert not run.failed
        assert not run.done
        assert run.standings["revenue"].state == "ended"
        Generation(2).write(world.folder)
    # It never had this view, so it may be the one with the new code.
    waiting: list[Flow] = []
    handing.step({}, waiting, let_go.append)
    assert waiting == [world.flow]
    assert handing.takes(world.flow, ViewDeployed(view="revenue"), let_go.append)


def test_what_was_begun_beside_a_view_is_not_thrown_away_for_what_may_pass(tmp_path: Path) -> None:
    view = Handover(tmp_path).flow.view
    assert view is not None

    def told(error: MillraceError | None) -> bool:
        def look() -> None:
            if error is not None:
                raise error

        return is_usable(view, look)

    assert told(None)
    assert not told(StateChanged(flow="revenue", reason="it held other columns"))
    assert not told(CheckpointDamaged(flow="revenue", file="commits/3", reason="it ends too early"))
    with pytest.raises(ViewNotDeployed, match="it is away"):
        told(KafkaUnreachable(address="there:9092", reason="it is away"))


def test_an_epoch_is_as_far_as_another_in_all_that_both_read(tmp_path: Path) -> None:
    def wrote(checkpoint: str, line: str) -> Path:
        for name in ("offsets", "commits"):
            (tmp_path / checkpoint / name).mkdir(parents=True, exist_ok=True)
            (tmp_path / checkpoint / name / "3").write_text(f"v1\n{{}}\n{line}\n")
        return tmp_path / checkpoint

    old = wrote("old", '{"orders":{"0":5,"1":7},"left":{"0":9},"@shop":{"lsn":20}}')
    wanted = last_begun(old)
    (old / "offsets" / "3").unlink()  # as Spark does when it is old
    assert has_come(wrote("same", '{"orders":{"0":5,"1":8},"@shop":{"lsn":20}}'), wanted)
    assert not has_come(wrote("less", '{"orders":{"0":5,"1":6},"@shop":{"lsn":20}}'), wanted)
    assert not has_come(wrote("before", '{"orders":{"0":5,"1":7},"@shop":{"lsn":19}}'), wanted)
    assert not has_come(tmp_path / "nothing", wanted)
    assert has_come(tmp_path / "nothing", last_begun(tmp_path / "nothing")), "one that never began is nowhere"


def test_tentative_rows_count_the_epochs_of_all_generations() -> None:
    class Message:
        def __init__(self, header: str) -> None:
            self._header = header

        def headers(self) -> list[tuple[str, bytes]]:
            return [(TENTATIVE, self._header.encode())]

    assert [Told.of(Message(f"{headed(3, shift)}7")) for shift in (0, 5, -4)] == [Told(3, 7), Told(3, 12), Told(3, 3)]


def test_two_views_are_compared_at_the_last_position_that_both_tell() -> None:
    def marks(database: str | None, *positions: int) -> list[Mark]:
        return [Mark(place, database, lsn, 0, {}, True) for place, lsn in enumerate(positions)]

    old, new = marks("shop", 10, 20, 30, 40), marks("shop", 5, 20, 30, 45)
    assert chosen(old, new) == (old[2], new[2])
    assert chosen(old, marks("shop", 50)) == (old[3], marks("shop", 50)[0])
    assert chosen(old, marks(None, 40))[0] is old[3]
    assert chosen([], new) == (None, new[3])
