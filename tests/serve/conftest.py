"""No test of the server waits for ever for something that never comes."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

LIMIT_S = 100


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    def ended(*_: object) -> None:
        raise TimeoutError(f"the test takes more than {LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, ended)
    signal.alarm(LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
