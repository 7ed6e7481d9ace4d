"""Which modules are sent to executors: the project's own, as they lie in its folder."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from millrace.engine.shipping import packed


def test_the_projects_own_modules_are_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    (folder / "shop_words" / "inner").mkdir(parents=True)
    (folder / "shop_words" / "__init__.py").write_text("")
    (folder / "shop_words" / "inner" / "deep.py").write_text("said = 'deep'")  # inner is a namespace
    (folder / "shop_app.py").write_text("from shop_words.inner.deep import said\nimport json")
    (folder / "shop_unused.py").write_text("")
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    before = set(sys.modules)
    try:
        __import__("shop_app")
        archive = packed((folder, folder), tmp_path / "modules.zip")
        assert archive is not None
        with zipfile.ZipFile(archive) as found:
            assert [name for name in found.namelist() if name.endswith(".py")] == [
                "shop_app.py",
                "shop_words/__init__.py",
                "shop_words/inner/deep.py",
            ]
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]
    assert packed((folder,), tmp_path / "none.zip") is None
    monkeypatch.setattr(sys, "path", [str(archive), *sys.path[1:]])
    deep = __import__("shop_words.inner.deep", fromlist=["said"])
    assert deep.said == "deep"
    assert "modules.zip" in deep.__file__
    for name in [name for name in sys.modules if name.startswith("shop_")]:
        del sys.modules[name]
