"""The command line."""

from __future__ import annotations

from millrace.errors.base import UserError


class ProjectNameInvalid(UserError):
    code = "MR-PROJECT-NAME-INVALID"
    text = "{name!r} cannot be the name of a project, because it becomes the name of a Python module"
    fix = "choose one of lower-case letters, digits and _, that begins with a letter, like `shop`"


class FolderTaken(UserError):
    code = "MR-FOLDER-TAKEN"
    text = "the folder {folder} exists and is not empty"
    fix = "choose another name, or empty it first"


class UsageWrong(UserError):
    code = "MR-USAGE-WRONG"
    text = "{reason}"
    fix = "see `{command} --help`"
