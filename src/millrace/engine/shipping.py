"""The user's own modules, for the executors of a cluster, which do not see the project's folder.

A function that runs in Spark's tasks is sent by the name of its module. What is installed is expected there too, as on
the driver; what lies in the project is packed and sent along.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from millrace.flow.loading import is_users


def packed(roots: Iterable[Path], archive: Path) -> Path | None:
    """Packs the modules that were imported from these folders so far; nothing if none was."""
    found = dict(_modules(tuple(dict.fromkeys(root.resolve() for root in roots))))
    if not found:
        return None
    # Python finds no package without an `__init__.py` in an archive that does not name its folders.
    folders = sorted({parent.as_posix() for name in found for parent in Path(name).parents} - {"."})
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as written:
        for folder in folders:
            written.mkdir(folder)
        for name, file in sorted(found.items()):
            written.write(file, name)
    return archive


def _modules(roots: tuple[Path, ...]) -> Iterable[tuple[str, Path]]:
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if name == "__main__" or not origin or not origin.endswith(".py") or not is_users(origin):
            continue
        file = Path(origin).resolve()
        place = Path(*name.split(".")) / "__init__.py" if file.name == "__init__.py" else Path(*name.split("."))
        for root in roots:
            if file == root / place.with_suffix(".py"):
                yield place.with_suffix(".py").as_posix(), file
