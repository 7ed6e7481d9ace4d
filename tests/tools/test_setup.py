"""`tools/setup` says in one sentence what is missing on a machine, before it downloads anything."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import terminal
from tests.command import LIMIT_S

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ("bash", "dirname", "sed", "head", "df", "awk", "mktemp", "rm", "tail", "grep", "touch", "sleep")
JAVA_17 = "echo 'openjdk version \"17.0.1\"' >&2"
NOWHERE = "http://127.0.0.1:1"
OFFLINE = {
    **dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"), NOWHERE),
    "PIP_RETRIES": "0",
    "PIP_CONFIG_FILE": os.devnull,
}
PYTHON = f'exec "{sys.executable}" "$@"'


def machine(folder: Path, programs: dict[str, str], **environ: str) -> dict[str, str]:
    """A copy of it on a machine that has the usual programs and these; the environment there."""
    (folder / "tools").mkdir()
    for name in ("tools/setup", "tools/uv.lock", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, folder / name)
    tools = folder / "bin"
    tools.mkdir()
    for name in PROGRAMS:
        (tools / name).symlink_to(shutil.which(name) or name)
    for name, script in programs.items():
        (tools / name).unlink(missing_ok=True)
        (tools / name).write_text(f"#!{tools / 'bash'}\n{script}\n")
        (tools / name).chmod(0o755)
    return {"PATH": str(tools), "HOME": str(folder), "TMPDIR": str(folder), **environ}


def setup(folder: Path, programs: dict[str, str], **environ: str) -> subprocess.CompletedProcess[str]:
    env = machine(folder, programs, **environ)
    return subprocess.run(
        ["bash", "tools/setup"], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize(
    ("programs", "says"),
    [
        ({}, "Python was not found"),
        ({"python3": "[ $1 = --version ] && echo Python 3.9; exit 1"}, "too old"),
        ({"python3": PYTHON}, "Java was not found"),
        ({"python3": PYTHON, "java": "echo 'openjdk version \"11.0.2\"' >&2"}, "Java 11 is too old"),
        ({"python3": PYTHON, "java": JAVA_17, "df": "echo; echo x x x 17 x x"}, "only 17 MB are free"),
    ],
    ids=["no python", "old python", "no java", "old java", "full disk"],
)
def test_what_is_missing_is_one_sentence_with_the_fix(tmp_path: Path, programs: dict[str, str], says: str) -> None:
    done = setup(tmp_path, programs)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / ".venv").exists()


def test_no_network_is_said_and_the_next_run_can_go_on(tmp_path: Path) -> None:
    done = setup(tmp_path, {"python3": PYTHON, "java": JAVA_17}, **OFFLINE)
    assert done.returncode == 2
    assert "the Python package registry cannot be reached" in done.stderr.splitlines()[-1]
    assert not (tmp_path / ".venv" / ".ready").exists()


def test_somebody_who_looks_sees_that_it_is_at_work(tmp_path: Path) -> None:
    env = machine(tmp_path, {"python3": PYTHON, "java": JAVA_17}, **OFFLINE)
    with terminal.opened(["bash", "tools/setup"], tmp_path, env) as opened:
        assert opened.wait(LIMIT_S) == 2
    seen = re.findall(r"([|/\\-]) (an environment|the installer) … \d+ s", opened.drawn)
    assert {what for _, what in seen} == {"an environment", "the installer"}
    assert len({frame for frame, what in seen if what == "an environment"}) > 1, "it moves"
    last = opened.raw.splitlines()[-1].rpartition("\r")[2]
    assert last.removeprefix("\x1b[K").startswith("error: the Python package registry cannot be reached")
