"""The watcher beside a foreground process: when that process is gone, it ends the servers that ran in its name.

Run as `python -m millrace.local.leash FOLDER PID`, with standard input a pipe whose other end only that process has.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main(folder: str, pid: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.read(0, 1024):  # nothing is ever written; this returns when the other end is closed
        pass
    from millrace import config
    from millrace.local.supervisor import down

    down(config.load(Path(folder)), held_by=pid)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
