"""The way most people take: the wheel in an empty environment, `millrace init`, `millrace run`, `pytest`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.local import process
from tests.command import LIMIT_S, environ, until

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.turn(1, 2)]

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).parent / "uv"


def run(*command: str | Path, cwd: Path) -> str:
    # Without PATH entries of the clone's own environment: what is not in the new one must not be found by accident.
    done = subprocess.run(
        command, cwd=cwd, env=environ(), capture_output=True, text=True, timeout=3 * LIMIT_S, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a new environment with nothing but the wheel, its dependencies and pytest."""
    place = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--no-build-isolation", "--wheel", "--out-dir", place, ROOT, cwd=ROOT)
    (wheel,) = place.glob("millrace-*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    constraints = ["--constraint", str(ROOT / "requirements.lock")]
    python = place / "venv" / "bin" / "python"
    run(UV, "pip", "install", "--quiet", "--python", python, *constraints, f"{wheel}[local]", "pytest", cwd=place)
    return place / "venv" / "bin"


@pytest.fixture(scope="module")
def shop(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    place = tmp_path_factory.mktemp("outside")
    run(installed / "millrace", "init", "shop", cwd=place)
    yield place / "shop"
    run(installed / "millrace", "down", cwd=place / "shop")


def test_it_is_the_wheel_that_is_tested(installed: Path, shop: Path) -> None:
    where = run(installed / "python", "-c", "import millrace; print(millrace.__file__)", cwd=shop)
    assert str(ROOT) not in where
    assert "Spark 4.3.0" in run(installed / "millrace", "--version", cwd=shop)


def test_it_brings_its_java_compiled(installed: Path, shop: Path) -> None:
    code = "from millrace.local.compile import UNITS, compiled; print(*(compiled(name) for name in UNITS))"
    for jar in map(Path, run(installed / "python", "-c", code, cwd=shop).split()):
        assert jar.is_relative_to(installed.parent), "it was compiled here"


def test_run_starts_the_servers_and_shows_numbers(installed: Path, shop: Path) -> None:
    shown: list[str] = []
    with subprocess.Popen(
        [installed / "millrace", "run"],
        cwd=shop,
        env=environ(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as command:
        assert command.stdout is not None
        try:
            for line in command.stdout:
                shown.append(line)
                if '"views":' in line:
                    break
            os.killpg(command.pid, signal.SIGINT)  # as a terminal's Ctrl-C: to the whole group
            shown.extend(command.stdout)
            code = command.wait(LIMIT_S)
        finally:
            if command.poll() is None:
                command.kill()
    text = "".join(shown)
    assert '"url":' in text, text
    assert code == 0, text
    assert "Traceback" not in text
    assert "Exception" not in text
    until(lambda: not list(process.marked(shop / ".millrace")), "the end of its servers")


def test_its_own_tests_pass(installed: Path, shop: Path) -> None:
    assert "1 passed" in run(installed / "pytest", "-q", cwd=shop)
