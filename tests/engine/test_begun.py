"""When a flow began is known afterwards, and what it recovered from."""

from __future__ import annotations

from pathlib import Path

from millrace.engine import begun, standing
from millrace.engine.standing import Board, Standing


class Runs:
    """Runs of one flow, one after the other, as each shows itself."""

    def __init__(self, folder: Path) -> None:
        (folder / "counts").mkdir(parents=True)
        self.folder, self.now = folder, 0.0
        self.begin()

    def begin(self) -> None:
        self.board, self.standing = Board(self.folder), Standing.new("counts")

    def becomes(self, state: standing.State, error: str | None = None) -> None:
        self.standing = self.standing.becomes(state, error)
        self.show()

    def show(self) -> None:
        self.now += 2
        self.board.show({"counts": self.standing}, self.now)

    @property
    def begun(self) -> list[str]:
        return [each.recovers for each in begun.read(self.folder / "counts")]


def test_starts_and_what_they_recover_from(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    assert runs.begun == []
    runs.show()
    assert runs.begun == [], "it waits"
    runs.becomes("running")
    runs.standing = runs.standing.troubled("slow")
    runs.show()
    assert runs.begun == [""]
    runs.becomes("restarting", "MR-X it broke")
    runs.becomes("running")
    again = "started again after a failure: MR-X it broke"
    assert runs.begun == ["", again]
    runs.begin()  # the last one was killed
    runs.becomes("running")
    lost = "the run before it did not end: it was killed, or lost"
    assert runs.begun == ["", again, lost]
    runs.becomes("ended")
    runs.begin()
    runs.becomes("running")
    assert runs.begun == ["", again, lost, ""]
    moments = [each.at for each in begun.read(tmp_path / "counts")]
    assert moments == sorted(moments)
    assert moments[-1] == runs.standing.since.replace(microsecond=moments[-1].microsecond)


def test_so_many_are_kept_and_a_torn_line_is_passed_over(tmp_path: Path) -> None:
    at = Standing.new("counts").since
    for number in range(5 * begun.MOST):
        begun.note(tmp_path, at, left=None, restarts=number, error=str(number))
    last = f"started again after a failure: {5 * begun.MOST - 1}"
    assert [each.recovers for each in begun.read(tmp_path)][-1] == last
    assert len(begun.read(tmp_path)) == begun.MOST
    assert len((tmp_path / begun.FILE).read_text().splitlines()) <= 2 * begun.MOST
    with (tmp_path / begun.FILE).open("a") as file:
        file.write('{"at": "2026-')
    assert [each.recovers for each in begun.read(tmp_path)][-1] == last
