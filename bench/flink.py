"""Flink, as long as a benchmark needs it, in an environment and a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from millrace import config
from millrace.local import jars, java

VERSION = "2.3.0"
JAVA = ("-Xmx2g",)
_FOLDER = Path(__file__).parent


@dataclass
class Flink:
    """Flink while it runs; leaving it ends it."""

    work: Path
    options: Mapping[str, str]
    tables: Sequence[str]
    process: subprocess.Popen[str] = field(init=False)

    def __enter__(self) -> Self:
        python = environment()
        home = {"JAVA_HOME": str(java.find().resolve().parent.parent), "JVM_ARGS": " ".join(JAVA)}
        with (self.work / "flink.log").open("w") as log:
            self.process = subprocess.Popen(
                [str(python), str(_FOLDER / "flink_process.py")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "FLINK_LOG_DIR": str(self.work), **home},
            )
        own = {
            "execution.checkpointing.dir": self._checkpoints.as_uri(),
            "io.tmp.dirs": str(self.work),
        }
        connectors = [path.as_uri() for path in jars.paths("flink", lock=_FOLDER / "nexmark" / "flink.lock")]
        self.ask(options={**self.options, **own}, jars=connectors, tables=list(self.tables))
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        started = psutil.Process(self.process.pid).children(recursive=True)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:  # in the middle of a query
            for each in started:
                each.kill()
            self.process.kill()

    def kill(self) -> None:
        """As a machine that loses power would; what was written of checkpoints stays."""
        own = psutil.Process(self.process.pid)
        for each in [own, *own.children(recursive=True)]:
            each.kill()
        self.process.wait()

    def last_checkpoint(self) -> str:
        """From which another one can go on."""
        found = self._checkpoints.glob("*/chk-*/_metadata")
        return max(found, key=lambda path: path.stat().st_mtime).parent.as_uri()

    @property
    def _checkpoints(self) -> Path:
        return self.work / "flink-checkpoints"

    def cpu_s(self) -> float:
        own = psutil.Process(self.process.pid)
        return sum(sum(each.cpu_times()[:2]) for each in [own, *own.children(recursive=True)])

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"Flink ended:\n{(self.work / 'flink.log').read_text()[-3_000:]}")
        found: dict[str, Any] = json.loads(line)
        return found


def kafka_options(bootstrap: str, topic: str, since: str | None) -> str:
    """Of a table over a topic of JSON, as SQL: one to read `since` somewhere, or to write."""
    options = {
        "connector": "kafka",
        "topic": topic,
        "properties.bootstrap.servers": bootstrap,
        "format": "json",
        **({} if since is None else {"scan.startup.mode": since, "json.ignore-parse-errors": "true"}),
    }
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())


def environment() -> Path:
    """The Python of Flink's environment, which is made if it is not there."""
    folder = config.cache_folder() / "flink" / VERSION
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists():
        print(f"installing Flink {VERSION} into {folder}: 700 MB", flush=True)
        uv = str(Path(sys.executable).with_name("uv"))
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder)], check=True)
        wanted = [f"apache-flink=={VERSION}"]
        subprocess.run([uv, "pip", "install", "--quiet", "--python", str(python), *wanted], check=True)
        ready.touch()
    return python
