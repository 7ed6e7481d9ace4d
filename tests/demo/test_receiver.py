"""The receiver of the notifications demo: killed with kill -9, it prints nothing again."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from millrace.demo import notifications
from tests.command import LIMIT_S, environ

OPEN = """
import sys
from millrace.demo.notifications import beside
with beside() as found:
    print(*found.values(), flush=True)
    sys.stdin.read()
"""


class Receiver:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert process.stdout is not None
        self._url = process.stdout.readline().strip()

    def post(self, key: str, user: int) -> None:
        body = json.dumps({"row": {"user": user, "text": "Your order was placed."}}).encode()
        with urlopen(Request(self._url, body, {"Idempotency-Key": key}), timeout=LIMIT_S) as answer:
            assert answer.status == 204

    def kill(self) -> list[str]:
        """Without a word to it; what it has printed."""
        self._process.kill()
        return self._process.communicate()[0].splitlines()


@contextmanager
def receiver(folder: Path) -> Iterator[Receiver]:
    with subprocess.Popen(
        [sys.executable, "-c", OPEN],
        cwd=folder,
        env=environ(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Receiver(process)
        finally:
            process.kill()


def test_a_receiver_that_is_killed_knows_what_it_has_taken(tmp_path: Path) -> None:
    (tmp_path / "millrace.toml").touch()
    printed: list[str] = []
    for round_ in range(2):
        with receiver(tmp_path) as opened:
            for number in range(20 * (round_ + 1)):  # in the second round the flow posts its last epoch again
                opened.post(f"key-{number}", number)
                opened.post(f"key-{number}", number)
            printed += opened.kill()
    assert printed == [f"to user {number}: Your order was placed." for number in range(40)]


def test_a_key_that_was_cut_off_is_none(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text("one\ntw", encoding="utf-8")
    taken = notifications.Taken(path)
    assert [taken.take(key) for key in ("one", "two", "tw", "two")] == [False, True, True, False]
    taken.close()
    assert path.read_text(encoding="utf-8").split() == ["one", "two", "tw"]


def test_of_many_keys_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text("".join(f"{number}\n" for number in range(10)), encoding="utf-8")
    monkeypatch.setattr(notifications, "MOST_KEYS", 3)
    notifications.Taken(path).close()
    assert path.read_text(encoding="utf-8").split() == ["7", "8", "9"]
