"""`module:app`: found, or told in a sentence with the line of the user's file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace import config, errors
from millrace.errors import MillraceError
from millrace.flow import load_app

APP = "import millrace as mr\napp = mr.App('shop')\nother = 7\n"


@pytest.fixture
def project(folder: Path) -> Iterator[Path]:
    """A project folder; what its modules leave behind in this process is taken back."""
    paths, modules = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = paths
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def test_an_app_is_found_in_the_project(project: Path) -> None:
    (project / "shop_found.py").write_text(APP)
    assert load_app("shop_found:app", config.load()).name == "shop"


def test_the_app_of_millrace_toml_is_the_default(project: Path) -> None:
    (project / "shop_default.py").write_text(APP)
    (project / "millrace.toml").write_text('[run]\napp = "shop_default:app"\n')
    assert load_app(None, config.load()).name == "shop"


def test_a_folder_below_the_project_finds_it_too(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "shop_above.py").write_text(APP)
    (project / "millrace.toml").write_text("")
    (project / "below").mkdir()
    monkeypatch.chdir(project / "below")
    assert load_app("shop_above:app", config.load()).name == "shop"


MISTAKES: dict[str, tuple[str, str | None, type[MillraceError], str, int | None]] = {
    "not_named": (APP, None, errors.AppUnset, "millrace.toml", None),
    "not_a_reference": (APP, "shop.py", errors.AppReference, "module:name", None),
    "no_module": (APP, "no_modul:app", errors.ModuleMissing, "did you mean 'no_module'", None),
    "no_attribute": (APP, "no_attribute:ap", errors.AppMissing, "did you mean 'app'", None),
    "not_an_app": (APP, "not_an_app:other", errors.NotAnApp, "int", None),
    "raises": ("x = 1\n\ny = x / 0\n", "raises:app", errors.ModuleFailed, "ZeroDivisionError", 3),
    "imports_nothing": ("import no_such_thing\n", "imports_nothing:app", errors.ModuleFailed, "no_such_thing", 1),
    "bad_syntax": ("x = 1\ndef (:\n", "bad_syntax:app", errors.ModuleFailed, "SyntaxError", 2),
    "leaves": ("import sys\nsys.exit(3)\n", "leaves:app", errors.ModuleFailed, "SystemExit", 2),
    "in_a_library": ("import json\njson.loads('{')\n", "in_a_library:app", errors.ModuleFailed, "JSONDecodeError", 2),
    "defines_badly": (
        "import millrace as mr\napp = mr.App('shop')\n\napp.topic('x', '')\n",
        "defines_badly:app",
        errors.SchemaMissing,
        "'x'",
        4,
    ),
}


@pytest.mark.parametrize("module", MISTAKES)
def test_a_mistake_is_one_sentence_with_the_line(project: Path, module: str) -> None:
    text, reference, kind, words, line = MISTAKES[module]
    (project / f"{module}.py").write_text(text)
    with pytest.raises(kind) as caught:
        load_app(reference, config.load())
    assert words in str(caught.value)
    found = caught.value.where
    assert (found and (found.file, found.line)) == (line and (f"{module}.py", line))
