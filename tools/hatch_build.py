"""Puts the compiled Java into the wheel, so that whoever installs it needs no compiler.

Where there is no compiler, or no PySpark to compile against (an isolated build from a clone), the wheel is made
without, and Java is compiled when it is first used. `make wheel` makes sure of both.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class JavaHook(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        if importlib.util.find_spec("pyspark") is None:
            self.app.display_warning("made without compiled Java: PySpark is not installed here")
            return
        sys.path.insert(0, str(Path(self.root) / "src"))
        from millrace.errors import CompilerMissing
        from millrace.local.compile import UNITS, jar_of

        for unit in UNITS.values():
            place = unit.packaged.relative_to(Path(self.root) / "src").as_posix()
            try:
                build_data["force_include"][str(jar_of(unit))] = place
            except CompilerMissing as missing:
                self.app.display_warning(f"made without compiled Java: {missing}")
