"""Views: SQL that is kept true."""

from __future__ import annotations

from millrace.errors.base import UserError


class ViewRefused(UserError):
    code = "MR-VIEW-REFUSED"
    text = "the SQL of the view {view!r} is refused{clause}{place}: {reason}"
    fix = "{remedy}"
