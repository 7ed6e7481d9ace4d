"""Views: SQL that is kept true."""

from __future__ import annotations

from millrace.errors.base import UserError


class ViewRefused(UserError):
    code = "MR-VIEW-REFUSED"
    text = "the SQL of the view {view!r} is refused{clause}{place}: {reason}"
    fix = "{remedy}"


class ViewNotRun(UserError):
    code = "MR-VIEW-NOT-RUN"
    text = "app {app!r} has views ({names}), which this version plans and does not run yet"
    fix = "leave them out, or look at them with `millrace graph`"
