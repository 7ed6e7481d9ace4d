"""A Spark standalone cluster on loopback: a master and workers as processes, as `start-master.sh` would start them."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pyspark

from millrace.local import java
from millrace.testing.plugin import JAVA_OPTIONS
from tests.command import until

HOME = Path(pyspark.__file__).parent
CORES, MEMORY = 2, "1g"
_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


@dataclass
class Cluster:
    """`url` is what `--master` is given. Workers are known by their numbers, from 0 on."""

    folder: Path
    url: str = ""
    workers: dict[int, psutil.Popen] = field(default_factory=dict)
    _master: psutil.Popen | None = None

    def begin(self) -> None:
        words = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        self._master = self._started("master", "org.apache.spark.deploy.master.Master", words)
        until(lambda: _URL.search(self._said("master")) is not None, "the master")
        found = _URL.search(self._said("master"))
        assert found is not None
        self.url = found[1]

    def work(self, number: int, prefix: Sequence[str] = ()) -> None:
        """Starts a worker, or starts one again that was killed; `prefix` is what runs its command."""
        name = f"worker-{number}"
        if (before := self.workers.pop(number, None)) is not None:
            before.wait()
        (self.folder / f"{name}.log").unlink(missing_ok=True)
        words = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0", "--cores", str(CORES), "--memory", MEMORY)
        own = ("--work-dir", str(self.folder / name), self.url)
        worker = "org.apache.spark.deploy.worker.Worker"
        self.workers[number] = self._started(name, worker, (*words, *own), prefix)

    def await_workers(self) -> None:
        for number in self.workers:
            until(lambda name=f"worker-{number}": _REGISTERED in self._said(name), f"worker {number}")  # type: ignore[misc]

    def executors(self, number: int) -> list[psutil.Process]:
        """Of a worker; with what they have started. (What `spark-class` began with stays as a zombie.)"""
        with suppress(psutil.NoSuchProcess):
            started = self.workers[number].children(recursive=True)
            return [each for each in started if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]
        return []

    def kill(self, number: int) -> None:
        """As if its machine had lost power: the worker, its executors and their Python, all at once."""
        for each in [self.workers[number], *self.executors(number)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.workers.pop(number).wait()

    def end(self) -> None:
        for number in list(self.workers):
            self.kill(number)
        if self._master is not None:
            self._master.kill()
            self._master.wait()

    def _said(self, name: str) -> str:
        path = self.folder / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _started(self, name: str, main: str, words: Sequence[str], prefix: Sequence[str] = ()) -> psutil.Popen:
        own = {
            "SPARK_HOME": str(HOME),
            "JAVA_HOME": str(java.find().resolve().parent.parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_PUBLIC_DNS": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        }
        with (self.folder / f"{name}.log").open("ab") as output:
            return psutil.Popen(
                [*prefix, str(HOME / "bin" / "spark-class"), main, *words],
                env={**os.environ, **own},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@contextmanager
def started(folder: Path, workers: int, prefix: Sequence[str] = ()) -> Iterator[Cluster]:
    folder.mkdir(parents=True)
    cluster = Cluster(folder)
    try:
        cluster.begin()
        for number in range(workers):
            cluster.work(number, prefix)
        cluster.await_workers()
        yield cluster
    finally:
        cluster.end()
