"""The web console."""

from __future__ import annotations

from millrace.errors.base import UserError


class ConsolePublic(UserError):
    code = "MR-CONSOLE-PUBLIC"
    text = (
        "the console shows records and moves groups, {host} can be reached from other machines, and there is no token "
        "that anybody would need"
    )
    fix = (
        "`millrace token create NAME --scope console` first; or leave out the host, and reach it from elsewhere "
        "through a tunnel: `ssh -L {port}:127.0.0.1:{port} HOST`"
    )


class BrowseLimit(UserError):
    code = "MR-BROWSE-LIMIT"
    text = "{given} is not a number of records from 1 to {most}"
    fix = "ask for fewer, and begin at another place; `millrace topic read` has no limit"


class SeekUnsure(UserError):
    code = "MR-SEEK-UNSURE"
    text = "group {group!r} is moved only when its name is typed, because what it has read is read again or left out"
    fix = "type {group}"
