"""The command line."""

from __future__ import annotations

from millrace.errors.base import UserError


class ProjectNameInvalid(UserError):
    code = "MR-PROJECT-NAME-INVALID"
    text = "{name!r} cannot be the name of a project, because it becomes the name of a Python module"
    fix = "choose lower-case letters, digits and _, beginning with a letter, and no name that Python has, like `shop`"


class FolderTaken(UserError):
    code = "MR-FOLDER-TAKEN"
    text = "the folder {folder} exists and is not empty"
    fix = "choose another name, or empty it first"


class StdinClosed(UserError):
    code = "MR-STDIN-CLOSED"
    text = "`millrace {command}` reads lines from standard input, which is closed"
    fix = "give it a file or a pipe: `millrace {command} … < FILE`"


class UsageInvalid(UserError):
    code = "MR-USAGE-INVALID"
    text = "{reason}"
    fix = "see `{command} --help`"
