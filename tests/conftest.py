"""Servers and a Spark session that all tests share: starting them is most of a test's time."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from millrace import config, local
from millrace.config import Settings
from tests import debian
from tests.failed import pytest_runtest_logreport as pytest_runtest_logreport
from tests.lakehouse.buckets import in_bucket
from tests.rotation import is_turn
from tests.shop import Shop, opened

# A run in the background of a shell, or under nohup, has these ignored, and its children inherit that: what they do
# could not be tested.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Of every JVM that a test starts: they live for seconds or minutes, in which the second compiler takes more than it
# gives. A start of `millrace run` with a view and its first answers take 0.6 of the CPU without it.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# For the S3 that is started here, which takes any; a JVM has the environment that it is started with.
os.environ |= {"AWS_ACCESS_KEY_ID": "millrace", "AWS_SECRET_ACCESS_KEY": "millrace"}

# No test is about seconds: on a machine that is busy any example may take some.
hypothesis.settings.register_profile(
    "millrace", hypothesis.settings(), deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("millrace")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out slow tests whose turn is another day, unless somebody names one."""
    if any("::" in each for each in config.args):
        return
    left_out = [item for item in items for mark in item.iter_markers("turn") if not is_turn(*mark.args)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """A project whose Kafka runs; further servers are started in it by the fixtures below."""
    settings = config.load(tmp_path_factory.mktemp("project"))
    with local.held(settings, ("kafka",)):
        yield settings
        local.down(settings)


@pytest.fixture(scope="session")
def bootstrap(settings: Settings) -> str:
    return local.address(settings, "kafka")


@pytest.fixture(scope="session")
def connect(settings: Settings) -> str:
    return local.up(settings, ("connect",))["connect"]


@pytest.fixture(scope="session")
def postgres(settings: Settings) -> str:
    return local.up(settings, ("postgres",))["postgres"]


@pytest.fixture(scope="session")
def valkey(settings: Settings) -> str:
    return local.up(settings, ("valkey",))["valkey"]


@pytest.fixture(scope="session")
def bucket(settings: Settings) -> Settings:
    """The same project, whose lake is in a bucket."""
    return in_bucket(settings, "mill/lake")


@pytest.fixture(scope="session")
def opensearch(settings: Settings) -> str:
    return local.up(settings, ("opensearch",))["opensearch"]


@pytest.fixture(scope="session")
def elasticsearch(settings: Settings) -> str:
    return local.up(settings, ("elasticsearch",))["elasticsearch"]


@pytest.fixture(scope="session")
def rabbitmq(settings: Settings) -> str:
    debian.require_unpacked(settings, "rabbitmq")
    return local.up(settings, ("rabbitmq",))["rabbitmq"]


@pytest.fixture(scope="session")
def registry(settings: Settings) -> str:
    return local.up(settings, ("apicurio",))["apicurio"]


@pytest.fixture
def shop(settings: Settings, connect: str, postgres: str) -> Iterator[Shop]:
    """A new database on the shared PostgreSQL, to be captured."""
    with opened(settings) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project folder that is also the working directory."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("MILLRACE_") and name != "MILLRACE_CACHE":
            monkeypatch.delenv(name)
    return tmp_path
