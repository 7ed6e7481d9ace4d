"""The repository keeps its own rules: no addresses of registries, no machine's paths, light imports, small files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = {".py", ".md", ".toml", ".lock", ".xml", ".txt", ".java", ".yml", ".yaml", ".service", ".sh", ""}
LONGEST_FILE_LINES = 500


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [path for name in listed.splitlines() if (path := ROOT / name).is_file() and path.suffix in TEXT]


def test_no_registry_address_and_no_machine_path_stands_in_the_repository() -> None:
    registry = re.compile(r"https?://\S*(maven|pypi|pythonhosted|npmjs|debian|crates)")
    machine = re.compile(r"(?<![\w.-])/(work|root|home|farm)/\w")
    for path in tracked():
        if path == Path(__file__):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            assert not registry.search(line), f"{path}:{number}"
            assert not machine.search(line), f"{path}:{number}"


def test_files_are_small_enough_to_read() -> None:
    for path in tracked():
        if path.suffix == ".py":
            lines = len(path.read_text(encoding="utf-8").splitlines())
            assert lines <= LONGEST_FILE_LINES, f"{path} has {lines} lines"


@pytest.mark.parametrize(
    "code", ["import millrace", "from millrace.cli import parser; parser()", "import millrace.testing.plugin"]
)
def test_spark_and_kafka_are_imported_only_when_used(code: str) -> None:
    lake = ("deltalake", "pyiceberg", "duckdb", "pyarrow")
    heavy = ("pyspark", "confluent_kafka", "psycopg", "rich", "nicegui", *lake)
    check = f"{code}; import sys; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", check], text=True).strip() == "[]"


def test_every_room_says_what_belongs_in_it() -> None:
    for package in (ROOT / "src" / "millrace").rglob("__init__.py"):
        first = package.read_text(encoding="utf-8").partition("\n")[0]
        assert first.startswith('"""'), package
        assert len(first) > 20, package


def test_the_public_names() -> None:
    import millrace

    assert set(millrace.__all__) == {*millrace._HOMES, "__version__"}
    for name in millrace.__all__:
        assert getattr(millrace, name) is not None
    with pytest.raises(AttributeError, match="it has App, Log"):
        _ = millrace.Ap  # type: ignore[attr-defined]
