"""Views of random SQL hold what PostgreSQL answers, after every one of random transactions. `make fuzz` has more."""

from __future__ import annotations

import pytest

from tests.views import queries
from tests.views.fuzz import EVENTS, Report, connected, run
from tests.views.worlds import MORE

WORLDS, MOST_WORLDS = 12, 30


@pytest.mark.server
def test_a_view_holds_what_postgresql_answers(postgres: str) -> None:
    report, productions = Report(), queries.productions(MORE)
    assert len(productions) > 100
    with connected(postgres) as connection:
        for seed in range(1, MOST_WORLDS):
            missing = report.missing(productions)
            if seed > WORLDS and not missing:
                break
            run(connection, seed, report, wanted=productions if missing else frozenset())
        connection.execute("DROP SCHEMA fuzz CASCADE")
    print(report.text())
    assert not report.faults, "\n".join(report.faults[:3])
    # Every production met nulls, inserts, updates and deletes.
    assert not report.missing(productions), f"of {EVENTS}"
    assert report.queries > 100
    assert report.rows > 1_000
    assert sum(report.refused.values()) < report.queries / 10, report.refused
