"""A view's changelog becomes that of the generation which takes its place, however often that is begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.engine.changelogs import Content
from millrace.engine.generations import Generation, beside
from millrace.engine.joining import drop, ensure, join
from millrace.engine.view_epochs import Reached, ViewEpochs, marks
from millrace.errors import Where
from millrace.flow import View
from millrace.log import Log
from millrace.views.changelog import AFTER, HEAD, TAIL, marks_topic, row_text
from tests.engine.conftest import Project

VIEW = View("sums", "", ("id",), (), (), Where("", 0))
OLD = {1: "1", 2: "2", 3: "3"}


def wrote(log: Log, topic: str, rows: dict[int, str]) -> None:
    with log.writer(topic) as writer:
        for key, row in rows.items():
            writer.write(f'{HEAD}{row}{TAIL}{{"lsn":1}}}}'.encode(), key=f'{{"id":{key}}}'.encode())


def held(log: Log, topic: str) -> dict[str, str]:
    rows = Content(log, topic, log.topics.last(topic)).last(0, 1)
    return {key.decode(): row_text(value) for key, value in rows or ()}


def begun(folder: Path, epoch: int) -> None:
    """A checkpoint whose last epoch was this one, of a view that was filled by then."""
    (folder / "checkpoint" / "offsets").mkdir(parents=True)
    (folder / "checkpoint" / "offsets" / str(epoch)).write_text('v1\n{"batchTimestampMs": 5}\n{}\n')
    (folder / "filling.json").write_text("{}")


@pytest.mark.server
def test_a_generation_takes_the_place_of_the_one_before(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    log, named = project.log, project.settings.folder / "sums"
    begun(named, 9)
    ensure("sums", log)
    wrote(log, "sums", OLD)
    ViewEpochs(VIEW, log, named / "checkpoint", named).mark(9, Reached(11, 10, 5, True))
    identity = log.topics.identity("sums")

    # The second one's epoch 4 is the tenth of the view.
    own, folder = beside("sums", 2), named.with_name(beside("sums", 2))
    begun(folder, 4)
    ensure(own, log)
    wrote(log, own, {1: "1", 2: "22", 4: "4"})
    join(VIEW, named, log, "shop")
    assert held(log, "sums") == {f'{{"id":{key}}}': row for key, row in OLD.items()}, "it is not the view yet"
    Generation(2, 6, 4).write(named)
    with monkeypatch.context() as killed:
        killed.setattr(ViewEpochs, "mark", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            join(VIEW, folder, log, "shop")
    assert [mark.epoch for mark in marks(log, "sums")] == [9]
    ends = log.topics.last("sums")
    join(VIEW, folder, log, "shop")
    assert log.topics.last("sums") == ends, "what was written before the kill is not written again"
    assert held(log, "sums") == {'{"id":1}': "1", '{"id":2}': "22", '{"id":4}': "4"}
    assert log.topics.identity("sums") == identity
    assert [(mark.epoch, mark.lsn, mark.whole, dict(mark.ends)) for mark in marks(log, "sums")][1:] == [
        (10, 12, True, ends)
    ]
    last = {record.key: record for record in log.read("sums")}
    assert [dict(last[key].headers)[AFTER] for key in (b'{"id":2}', b'{"id":3}')] == [b"11", b"11"]
    assert not log.topics.exists(own)
    assert not log.topics.exists(marks_topic(own))
    assert not (named / "checkpoint").exists()
    join(VIEW, folder, log, "shop")
    assert len(marks(log, "sums")) == 2

    # Rows of another kind begin another topic.
    own, third = beside("sums", 3), named.with_name(beside("sums", 3))
    begun(third, 0)
    ensure(own, log)
    wrote(log, own, {7: "7"})
    Generation(3, 11, 0, identity).write(named)
    join(VIEW, third, log, "shop")
    assert log.topics.identity("sums") != identity
    assert held(log, "sums") == {'{"id":7}': "7"}
    assert [mark.epoch for mark in marks(log, "sums")] == [11]
    assert not folder.exists()
    drop("sums", log)
