"""The consoles of a demo: a process each, because a console is of one application. They end with the demo, however that
ends: each reads a pipe of which only the demo has the other end.

Run as `python -m millrace.demo.consoles NAME PORT`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

from millrace import config
from millrace.config import Listen
from millrace.demo.together import application
from millrace.errors import MillraceError
from millrace.local.declare import is_free

FIRST_PORT = 9110
_END_S = 5
_ADDRESS = re.compile(r"http://\S+")


class Console:
    """One that was started. Its `address` is known when it is about to answer."""

    def __init__(self, name: str, folder: Path, port: int) -> None:
        self.name, self.address = name, ""
        self.failure = ""
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, name, str(port)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        threading.Thread(target=self._hear, daemon=True).start()

    @property
    def settled(self) -> bool:
        """Whether it answers, or never will."""
        return bool(self.address) or self._process.poll() is not None

    def _hear(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            told = line.decode(errors="replace").strip()
            if found := _ADDRESS.search(told):
                self.address = found[0]
            elif not self.address:
                self.failure = told

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port(after: int) -> int:
    """The next port that nobody listens on; 0, for any, if there is none near."""
    return next((port for port in range(after, after + 20) if is_free(port)), 0)


def main(name: str, port: int) -> None:
    from millrace.console import serve

    def watch() -> None:
        sys.stdin.buffer.read()  # nothing is ever written; it returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        serve(application(name), config.load(), f"millrace.demo.{name}:app", Listen("127.0.0.1", port), say)
    except MillraceError as error:
        say(error.sentence())


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
