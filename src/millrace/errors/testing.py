"""Errors of `millrace.testing`."""

from __future__ import annotations

from millrace.errors.base import UserError


class PlayRowsInvalid(UserError):
    code = "MR-PLAY-ROWS-INVALID"
    text = "the rows of a play cannot be read: {reason}"
    fix = "write them as dicts, or as a Markdown table"


class PlayMisused(UserError):
    code = "MR-PLAY-MISUSED"
    text = "a play cannot do that: {reason}"
    fix = "see docs/guide/testing.md"
