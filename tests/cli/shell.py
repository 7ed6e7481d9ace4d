"""Commands run within the test's own process: what they print and return is the same, and they start at once."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millrace.cli import main


@dataclass(frozen=True)
class Done:
    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[bytes]:
        return self.out.splitlines()


class Shell:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]) -> None:
        self.folder = folder
        self._monkeypatch, self._capture = monkeypatch, capture

    def __call__(self, *args: str, stdin: bytes = b"") -> Done:
        (self.folder / "stdin").write_bytes(stdin)
        with (self.folder / "stdin").open("rb") as file:
            self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
            code = main(list(args))
        out, err = self._capture.readouterr()
        return Done(code, out, err.decode())

    def fine(self, *args: str, stdin: bytes = b"") -> Done:
        done = self(*args, stdin=stdin)
        assert done.code == 0, done.err
        return done


def shell_at(
    bootstrap: str, prefix: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[bytes]
) -> Shell:
    """A shell in an empty project whose Kafka is the shared one, under a prefix of its own."""
    monkeypatch.setenv("MILLRACE_KAFKA_BOOTSTRAP", bootstrap)
    monkeypatch.setenv("MILLRACE_PREFIX", prefix)
    return Shell(folder, monkeypatch, capture)
