"""What latest-by-key means: signed rows that add up to the table, whatever the log went through."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace import kernel
from millrace.model import Change, LatestByKey, Signed, refusals
from millrace.model.latest import UNAVAILABLE, members, unavailable_forms
from tests.model.histories import BROKEN, History


def added_up(signed: list[Signed]) -> dict[tuple[str, str | None], str]:
    """The table that a reader of the signed rows has."""
    counts: Counter[tuple[str, str | None, str]] = Counter()
    for row in signed:
        if row.error is None:
            assert row.row is not None
            assert row.diff is not None
            counts[row.topic, row.key, row.row] += row.diff
    assert set(counts.values()) <= {0, 1}, "a row is there once or not at all"
    return {(topic, key): row for (topic, key, row), count in counts.items() if count}


@settings(max_examples=60)
@given(seed=st.integers(0, 10**9), most=st.integers(2, 60), net=st.booleans())
def test_what_comes_out_adds_up_to_the_table(seed: int, most: int, net: bool) -> None:
    history = History(seed).grown(80)
    model = LatestByKey(net=net)
    out: list[Signed] = []
    for epoch in history.epochs(most):
        out += model.apply(epoch)
        assert added_up(out) == model.table()
    assert model.table() == history.rows()


def test_where_epochs_are_cut_does_not_matter() -> None:
    history = History(3).grown(150)
    one, many = LatestByKey(), LatestByKey()
    once = one.apply(history.changes)
    apart = [row for change in history.changes for row in many.apply([change])]
    assert Counter(once) == Counter(apart)
    assert one.state == many.state


def envelope(op: str, after: str = "null") -> bytes:
    return f'{{"before":null,"after":{after},"op":"{op}"}}'.encode()


def change(value: bytes | None, offset: int, partition: int = 0, key: str | None = "k") -> Change:
    return Change("t", key, value, partition, offset)


def test_an_update_takes_the_old_row_away_from_the_state_and_not_from_before() -> None:
    model = LatestByKey()
    assert [row.diff for row in model.apply([change(envelope("c", '{"a":1}'), 0)])] == [1]
    went, came = model.apply([change(b'{"before":{"a":9},"after":{"a":2},"op":"u"}', 1)])
    assert (went.row, went.diff, came.row, came.diff) == ('{"a":1}', -1, '{"a":2}', 1)
    assert model.apply([change(envelope("r", '{"a":2}'), 2)]) == []
    assert [(row.row, row.diff) for row in model.apply([change(envelope("d"), 3)])] == [('{"a":2}', -1)]
    assert model.apply([change(None, 4)]) == []
    assert not model.state


def test_a_repeat_at_its_old_place_is_ignored() -> None:
    model = LatestByKey()
    model.apply([change(envelope("c", '{"a":1}'), 5)])
    assert model.apply([change(envelope("u", '{"a":2}'), 5), change(envelope("d"), 4)]) == []
    assert model.table() == {("t", "k"): '{"a":1}'}


@pytest.mark.parametrize("value", BROKEN)
def test_what_cannot_be_understood_is_an_error_and_changes_nothing(value: bytes) -> None:
    model = LatestByKey()
    model.apply([change(envelope("c", '{"a":1}'), 0)])
    (refused,) = model.apply([change(value, 1)])
    assert refused.error
    assert (refused.row, refused.diff, refused.offset) == (None, None, 1)
    assert model.table() == {("t", "k"): '{"a":1}'}


def test_records_without_a_key_or_from_another_partition_are_errors() -> None:
    model = LatestByKey()
    assert model.apply([change(envelope("c", '{"a":1}'), 0, key=None)])[0].error == refusals.NO_KEY
    model.apply([change(envelope("c", '{"a":1}'), 7, partition=0)])
    assert model.apply([change(envelope("u", '{"a":2}'), 9, partition=1)])[0].error == refusals.moved(0)


def test_a_value_left_out_is_the_one_before_or_an_error_but_never_the_placeholder() -> None:
    row = f'{{"a":2, "big":"{UNAVAILABLE}", "b" : 3}}'
    model = LatestByKey()
    (unknown,) = model.apply([change(envelope("u", row), 0)])
    assert unknown.error == refusals.unavailable(["big"])
    assert unknown.error.startswith(kernel.UNFILLED)
    model.apply([change(envelope("c", '{"a":1,"big":1.10}'), 1)])
    assert [row.row for row in model.apply([change(envelope("u", row), 2)])][1:] == ['{"a":2, "big":1.10, "b" : 3}']
    # A row that got this key by a change of its key: what is held under the key is another row's value.
    assert model.apply([change(envelope("c", row), 3)])[0].error == refusals.unavailable(["big"])


def test_the_placeholder_has_a_form_for_each_type() -> None:
    forms = unavailable_forms(UNAVAILABLE)
    # As UnchangedToastedPlaceholder of Debezium makes it, and its JSON converter writes bytes.
    assert "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==" in forms
    assert [UNAVAILABLE] in forms
    assert unavailable_forms("hex:6162") == unavailable_forms("ab")


def test_members_keep_their_text() -> None:
    assert {name: member.text for name, member in members('{"a" : 1.0 ,"b":[1, {"c":2}],"\\u0063":null}').items()} == {
        "a": "1.0",
        "b": '[1, {"c":2}]',
        "c": "null",
    }
    for text in ("[]", "{", '{"a":NaN}', '{"a":1} x'):
        with pytest.raises(ValueError, match=r".*"):
            members(text)
