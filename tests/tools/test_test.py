"""`tools/test` runs a few tests that failed once more by themselves, and hides nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import LIMIT_S

ROOT = Path(__file__).parent.parent.parent
OTHERS = ("crash", "demo", "queues", "security", "serve", "sinks", "views")
PASSES = "def test_passes(): pass\n"
FAILS = "def test_fails(): assert False\n"
FAILS_BESIDE_OTHERS = """
from pathlib import Path
def test_fails_once():
    met = Path("met")
    found = met.exists()
    met.touch()
    assert found
"""
IMPORT_FAILS = "import nothing_of_this_name\n"


@pytest.mark.parametrize(
    ("with_servers", "without", "code", "said"),
    [
        (FAILS_BESIDE_OTHERS, PASSES, 0, "nothing beside them:\n  tests/log/test_one.py::test_fails_once\n"),
        (FAILS, FAILS_BESIDE_OTHERS, 1, "FAILED tests/log/test_one.py::test_fails"),
        (FAILS_BESIDE_OTHERS, IMPORT_FAILS, 2, "nothing_of_this_name"),
    ],
)
def test_what_failed_is_run_once_more(tmp_path: Path, with_servers: str, without: str, code: int, said: str) -> None:
    for name in ("tools/test", "tests/__init__.py", "tests/rotation.py", "tests/failed.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "pytest"):
        program = tmp_path / ".venv/bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {"-m pytest" if name == "pytest" else ""} "$@"\n')
        program.chmod(0o755)
    marked = "import pytest\npytestmark = pytest.mark.server\n"
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = server\naddopts = -ra -p no:cacheprovider\n")
    (tmp_path / "tests/conftest.py").write_text("from tests.failed import pytest_runtest_logreport\n")
    for folder in (*OTHERS, "log"):
        (tmp_path / "tests" / folder).mkdir()
    (tmp_path / "tests/crash/test_two.py").write_text(marked + PASSES)
    (tmp_path / "tests/log/test_one.py").write_text(marked + with_servers)
    (tmp_path / "tests/test_three.py").write_text(without)
    environ = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [tmp_path / "tools/test"], env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr
