"""`module:app` -> the App it names. What goes wrong inside the user's module is told with the line of their file."""

from __future__ import annotations

import importlib
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType

from millrace.config import FILE, Settings
from millrace.errors import (
    AppMissing,
    AppReference,
    AppUnset,
    MillraceError,
    ModuleFailed,
    ModuleMissing,
    NotAnApp,
    Where,
    nearest,
)
from millrace.flow.app import App
from millrace.flow.nodes import shown

_REFERENCE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)")


def load_app(reference: str | None, settings: Settings) -> App:
    """The app named `module:name`, or the one that millrace.toml names; the project's folder is looked in too."""
    reference = reference or settings.run.app
    if not reference:
        raise AppUnset(file=settings.folder / FILE)
    match = _REFERENCE.fullmatch(reference)
    if not match:
        raise AppReference(reference=reference)
    module = load_module(match[1], settings)
    found = getattr(module, match[2], None)
    if found is None:
        apps = [name for name, value in vars(module).items() if isinstance(value, App)]
        remedy = f"its apps are {', '.join(apps)}" if apps else 'define one there: app = mr.App("…")'
        hint = nearest(match[2], vars(module))
        raise AppMissing(module=match[1], attribute=match[2], hint=hint, remedy=remedy)
    if not isinstance(found, App):
        raise NotAnApp(reference=reference, kind=type(found).__name__)
    return found


def load_module(name: str, settings: Settings) -> ModuleType:
    """The module of this name; the current folder and the project's are looked in too."""
    for folder in dict.fromkeys((str(Path.cwd()), str(settings.folder))):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    except MillraceError:
        raise
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            known = sorted(path.stem for path in settings.folder.glob("*.py"))
            raise ModuleMissing(module=name, folder=settings.folder, hint=nearest(name, known)) from None
        raise _failed(name, error) from error
    except (Exception, SystemExit) as error:
        raise _failed(name, error) from error


def _failed(module: str, error: BaseException) -> ModuleFailed:
    reason = (str(error).strip() or "no message").partition("\n")[0][:300]
    return ModuleFailed(module=module, kind=type(error).__name__, reason=reason, where=user_line(error))


def user_line(error: BaseException) -> Where | None:
    """The innermost line of the user's own code that an error came through: not a library's, not Millrace's."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return Where(shown(error.filename), error.lineno)
    lines = [
        Where(shown(frame.filename), frame.lineno)
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.lineno and is_users(frame.filename)
    ]
    return lines[-1] if lines else None


def is_users(file: str) -> bool:
    """Whether a file is the user's own: outside the interpreter, its packages and Millrace."""
    if file.startswith("<"):
        return False
    path = Path(file).resolve()
    foreign = {Path(sys.prefix) / "lib", Path(sys.base_prefix) / "lib", Path(__file__).parents[1]}
    packages = {"site-packages", "dist-packages"} & set(path.parts)
    return not packages and not any(path.is_relative_to(folder.resolve()) for folder in foreign)
