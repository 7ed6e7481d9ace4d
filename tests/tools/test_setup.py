"""`tools/setup` says in one sentence what is missing on a machine, before it downloads anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PROGRAMS = ("bash", "dirname", "sed", "head", "df", "awk", "mktemp", "rm", "tail", "grep", "touch")
JAVA_17 = "echo 'openjdk version \"17.0.1\"' >&2"
PYTHON = f'exec "{sys.executable}" "$@"'


def setup(folder: Path, programs: dict[str, str], **environ: str) -> subprocess.CompletedProcess[str]:
    """Runs a copy of it on a machine that has the usual programs and these."""
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
    env = {"PATH": str(tools), "HOME": str(folder), "TMPDIR": str(folder), **environ}
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
    nowhere = "http://127.0.0.1:1"
    offline = {"HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere, "ALL_PROXY": nowhere, "PIP_RETRIES": "0"}
    offline["PIP_CONFIG_FILE"] = os.devnull
    done = setup(tmp_path, {"python3": PYTHON, "java": JAVA_17}, **offline)
    assert done.returncode == 2
    assert "the Python package registry cannot be reached" in done.stderr.splitlines()[-1]
    assert not (tmp_path / ".venv" / ".ready").exists()
