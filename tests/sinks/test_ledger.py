"""The ledger rule: what is written, what is left alone, what is refused and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.errors import EpochMissing, EpochOlder, EpochOther, MillraceError
from millrace.sinks.ledger import Entry, Epoch, FileLedger, due, ranges_of

RANGES = ranges_of([{"views": {"1": [0, 5], "0": [3, 4]}}])


def epoch(number: int, ranges: str = RANGES) -> Epoch:
    return Epoch("shop.counts", number, ranges)


def test_ranges_have_one_spelling() -> None:
    assert RANGES == '[{"views":{"0":[3,4],"1":[0,5]}}]'


@pytest.mark.parametrize("held", [None, Entry(6, "whatever")])
def test_a_new_epoch_is_due(held: Entry | None) -> None:
    assert due("files.out", epoch(7), held)


def test_the_same_epoch_is_left_alone() -> None:
    assert not due("files.out", epoch(7), Entry(7, RANGES))


@pytest.mark.parametrize(
    ("number", "ranges", "refusal"), [(7, "[]", EpochOther), (6, RANGES, EpochOlder), (9, RANGES, EpochMissing)]
)
def test_what_does_not_follow_is_refused(number: int, ranges: str, refusal: type[MillraceError]) -> None:
    with pytest.raises(refusal, match=r"millrace rebuild files\.out"):
        due("files.out", epoch(number, ranges), Entry(7, RANGES))


def test_the_next_number_of_another_life_is_refused() -> None:
    """The flow was begun anew without the sink, and came to the same number by chance."""
    assert due(
        "files.out", epoch(8, ranges_of([{"views": {"0": [4, 9], "1": [5, 5], "2": [None, 3]}}])), Entry(7, RANGES)
    )
    with pytest.raises(EpochOther, match=r"holds epoch 7.*millrace rebuild files\.out"):
        due("files.out", epoch(8, ranges_of([{"views": {"0": [4, 9], "1": [3, 5]}}])), Entry(7, RANGES))


def test_what_is_not_checked_is_always_due() -> None:
    assert due("files.out", Epoch("shop.counts", 3, "[]", checked=False), Entry(7, RANGES))


def test_a_ledger_in_a_file(tmp_path: Path) -> None:
    ledger = FileLedger(tmp_path / "own")
    assert ledger.held() is None
    ledger.write(epoch(7))
    assert FileLedger(tmp_path / "own").held() == Entry(7, RANGES)
