"""A program on a terminal of its own, as a person has one: what it draws there, in the order in which it is drawn."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    def __init__(self, process: subprocess.Popen[bytes], end: int) -> None:
        self.process = process
        self._end, self._drawn = end, b""
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    @property
    def drawn(self) -> str:
        """Everything so far, without what moves the cursor and gives colours."""
        return _CONTROL.sub("", self._drawn.decode(errors="replace"))

    @property
    def raw(self) -> str:
        return self._drawn.decode(errors="replace")

    def wait(self, limit_s: float) -> int:
        code = self.process.wait(limit_s)
        self._reading.join(limit_s)
        return code

    def _read(self) -> None:
        # Linux says EIO when the program has ended.
        with contextlib.suppress(OSError):
            while part := os.read(self._end, 65_536):
                self._drawn += part


@contextlib.contextmanager
def opened(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], columns: int = 110, lines: int = 40
) -> Iterator[Terminal]:
    own, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    process = subprocess.Popen(
        command, cwd=cwd, env={**env, "TERM": "xterm-256color"}, stdin=its, stdout=its, stderr=its,
        start_new_session=True,
    )  # fmt: skip
    os.close(its)
    try:
        yield Terminal(process, own)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        os.close(own)
