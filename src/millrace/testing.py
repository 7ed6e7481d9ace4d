"""A pytest plugin for users' own tests: the fixture `spark`, a session set up as Millrace sets it up for a run.

pytest loads this file in every project that has Millrace installed, so it imports nothing heavy before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"

# Tests run code once or twice; the JVM's second compiler would spend more on it than it gains.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests, since starting one takes seconds.

    What it writes goes to a temporary folder; its options are those of millrace.toml.
    """
    from millrace import config
    from millrace.engine.session import close, session

    settings = config.load()
    options = {"spark.driver.extraJavaOptions": JAVA_OPTIONS, **settings.spark.options}
    own = replace(settings.spark, checkpoints=None, options=options)
    started = session(replace(settings, folder=tmp_path_factory.mktemp("millrace"), spark=own), MASTER, "tests")
    yield started
    close(started)
