"""When a failed flow is started again: the waits, what is said, and which errors are worth a second try."""

from __future__ import annotations

import inspect

from hypothesis import given
from hypothesis import strategies as st

from millrace import errors
from millrace.engine.restarts import (
    CALM_EPOCHS,
    CALM_S,
    FIRST_S,
    JITTER,
    LASTING,
    MOST_S,
    PASSING,
    Restarts,
    passes,
)
from millrace.errors import MillraceError, ServerError, capture, engine, log, sinks


def made(kind: type[MillraceError]) -> MillraceError:
    import re

    return kind(**dict.fromkeys(re.findall(r"{(\w+)", kind.text + kind.fix), "x"))


def test_every_error_of_a_server_was_thought_about() -> None:
    found = {
        kind
        for room in (engine, capture, log, sinks)
        for _, kind in inspect.getmembers(room, inspect.isclass)
        if issubclass(kind, ServerError) and kind is not ServerError
    }
    assert found == set(LASTING) | set(PASSING)
    assert not set(LASTING) & set(PASSING)


def test_what_may_pass() -> None:
    for kind in (errors.FlowFailed, errors.KafkaUnreachable, errors.DatabaseUnreachable, errors.ServerDown):
        assert passes(made(kind)), kind
    for kind in (
        errors.BodyFailed, errors.StateChanged, errors.SchemaChanged, errors.InputsChanged, errors.TableBroken,
        errors.RecordsGone, errors.FlowReplaced, errors.TableStale, errors.TopicUnknown, errors.RowUnreadable,
    ):  # fmt: skip
        assert not passes(made(kind)), kind


@given(st.lists(st.floats(0, 1), min_size=1, max_size=80))
def test_waits_double_up_to_the_most_less_the_jitter(chances: list[float]) -> None:
    restarts, now = Restarts(), 0.0
    for number, chance in enumerate(chances):
        wait_s, _ = restarts.failed(now, "away", chance)
        whole = min(FIRST_S * 2.0**number, MOST_S)
        assert whole * (1 - JITTER) <= wait_s <= whole
        assert not restarts.due(now + wait_s * 0.99)
        now += wait_s
        assert restarts.due(now)
    assert restarts.total == restarts.in_a_row == len(chances)


def test_a_sentence_is_news_once_and_again_when_it_changes() -> None:
    restarts = Restarts()
    said = [
        restarts.failed(0, sentence, 0)[1]
        for sentence in ("job 1 lost", "job 22 lost", "broker away", "broker away", "job 3 lost")
    ]
    assert said == [True, False, True, False, True]


@given(st.lists(st.floats(0, CALM_S), max_size=30))
def test_it_counts_from_the_start_after_some_epochs_over_a_while(pauses: list[float]) -> None:
    restarts, now = Restarts(), 100.0
    for _ in range(4):
        restarts.failed(now, "away", 0)
    restarts.started(now)
    for number, pause in enumerate(pauses, 1):
        now += pause
        restarts.committed(now)
        calm = number >= CALM_EPOCHS and now - 100.0 >= CALM_S
        assert restarts.in_a_row == (0 if calm else 4)
        if calm:
            assert restarts.failed(now, "away", 0) == (FIRST_S, True)
            break
