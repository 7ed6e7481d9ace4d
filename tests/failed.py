"""What failed, by name, for `tools/test`, which runs a few of them once more by themselves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Not for tests that start pytest themselves.
_FILE = os.environ.pop("TEST_FAILED", None)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _FILE and report.failed:
        with Path(_FILE).open("a") as failed:
            failed.write(f"{report.nodeid}\n")
