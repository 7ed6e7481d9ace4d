"""A pytest plugin for users' own tests: the fixtures `play`, which plays an app, and `spark`, a session set up as for a
run.

pytest loads this file in every project that has Millrace installed, so it imports nothing heavy before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from millrace.flow import App
    from millrace.testing.play import Play

# Two of everything, as on two cores, and slots enough for flows in real time, whose tasks all run at once.
MASTER = "local[16]"
TWO = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}

# Tests run code once or twice; the JVM's second compiler would spend more on it than it gains. With one compiler alone
# Java keeps 48 MB for compiled code, which hundreds of queries fill: then nothing is compiled any more, and calls fail.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests, since starting one takes seconds.

    What it writes goes to a temporary folder; its options are those of millrace.toml.
    """
    from millrace import config
    from millrace.engine.session import close, session

    settings = config.load()
    options = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, **TWO, **settings.spark.options}
    own = replace(settings.spark, checkpoints=None, options=options)
    started = session(replace(settings, folder=tmp_path_factory.mktemp("millrace"), spark=own), MASTER, "tests")
    yield started
    close(started)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("millrace")
    group.addoption(
        "--play-broker", action="store_true", help="play on the project's Kafka instead of without a broker"
    )
    group.addoption("--play-seed", type=int, help="play with what is fed cut at random, and crashes in between")


@pytest.fixture
def play(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[Callable[..., Play]]:
    """`play(app)` plays an app; its options are those of `millrace.testing.Play`. Ended after the test."""
    from contextlib import ExitStack

    from millrace import config, local
    from millrace.testing.play import Play

    with ExitStack() as ending:

        def begin(app: App, **options: Any) -> Play:
            options.setdefault("seed", request.config.getoption("--play-seed"))
            if request.config.getoption("--play-broker") and "settings" not in options:
                options["settings"] = config.load()
                ending.enter_context(local.held(options["settings"], ("kafka",)))
            return ending.enter_context(Play(app, spark, **options))

        yield begin
