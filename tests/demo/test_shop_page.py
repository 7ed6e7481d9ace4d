"""What the page about the shop says to type is typed, in its order: while the demo runs; and, when it has been stopped,
what is for afterwards, while there is business."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.command import environ, start, until
from tests.test_guide import GUIDE

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.turn(4, 7)]

LIMIT_S = 600
# The client does not come with Millrace; and what watches a view goes on for ever.
LEFT_OUT, ENDLESS = "redis-cli ", "millrace view watch "


def lines() -> list[str]:
    (block,) = re.findall(r"```sh\n(.*?)```", (GUIDE / "shop.md").read_text(encoding="utf-8"), re.DOTALL)
    return [line for line in block.splitlines() if not line.startswith(LEFT_OUT)]


def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    given = f"timeout 30 {line}" if line.startswith(ENDLESS) else line
    command = [shutil.which("bash") or "bash", "-c", given]
    return subprocess.run(command, cwd=folder, env={**environ(), "PATH": path}, capture_output=True, text=True)


def answers(line: str, folder: Path) -> bool:
    """What is asked before there is anything, or while keys are on their way, is asked again."""
    done = typed(line, folder)
    print(line, done.returncode, done.stdout[-500:], done.stderr[-500:])
    if line.startswith("curl "):
        return bool(re.search(r'"title": ?"[a-z]+ lamp', done.stdout))
    told = done.stdout + done.stderr
    if "cannot be judged yet" in told:  # some keys are on their way: of the others none differs
        return True
    return bool(told) and done.returncode == (124 if line.startswith(ENDLESS) else 0)


def test_each_line_does_what_it_says(folder: Path) -> None:
    *meanwhile, rebuild = lines()
    assert "millrace rebuild" in rebuild
    said: list[str] = []
    with start("demo", "--only", "shop", "--no-console", cwd=folder) as demo:
        reading = threading.Thread(target=lambda: said.extend(demo.stdout or ()), daemon=True)
        reading.start()

        def numbers() -> bool:
            assert demo.poll() is None, "".join(said)
            return any(re.search("shop: .*revenue: ", line) for line in said)

        until(numbers, "the shop's view", LIMIT_S)
        for line in meanwhile:
            until(lambda line=line: answers(line, folder), line, LIMIT_S)  # type: ignore[misc]
        os.killpg(demo.pid, signal.SIGINT)
        assert demo.wait(180) == 0, "".join(said)
        reading.join()
    command = [sys.executable, "-m", "millrace.demo.shop"]
    with subprocess.Popen(command, cwd=folder, env=environ(), stdout=subprocess.PIPE, text=True) as business:
        try:
            assert business.stdout is not None
            assert "business" in business.stdout.readline()
            done = typed(rebuild, folder)
            assert done.returncode == 0, done.stdout + done.stderr
        finally:
            business.send_signal(signal.SIGINT)
            business.wait(60)
