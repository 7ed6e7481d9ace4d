"""The README's example runs as it stands there."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import LIMIT_S, environ, millrace

ROOT = Path(__file__).parent.parent


def block(language: str) -> str:
    found = re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(found) == 1, f"one block of {language} is expected in README.md"
    return str(found[0])


def test_its_links_lead_somewhere() -> None:
    for name in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", (ROOT / name).read_text(encoding="utf-8")):
            assert target.startswith("http") or (ROOT / target).exists(), f"{name} links to {target}"


def test_every_make_target_it_names_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for name in ("README.md", "CONTRIBUTING.md"):
        named = re.findall(r"make ([a-z-]+)", (ROOT / name).read_text(encoding="utf-8"))
        assert set(named) - {"sure"} <= targets, name


@pytest.mark.server
@pytest.mark.spark
def test_the_ten_lines_print_what_is_promised(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(block("python"))
    # `millrace` of this environment, whatever is on PATH.
    commands = f'millrace() {{ "{sys.executable}" -m millrace "$@"; }}\nset -e\n{block("sh")}'
    try:
        done = subprocess.run(
            [shutil.which("bash") or "bash", "-c", commands],
            cwd=tmp_path,
            env=environ(),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    finally:
        millrace("down", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    promised = re.search(r"prints `(.*?)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert promised is not None
    assert promised[1] in done.stdout, done.stdout + done.stderr
    assert "\tat " not in done.stderr
