"""Views: SQL that is kept true."""

from __future__ import annotations

from millrace.errors.base import ServerError, UserError


class ViewRefused(UserError):
    code = "MR-VIEW-REFUSED"
    text = "the SQL of the view {view!r} is refused{clause}{place}: {reason}"
    fix = "{remedy}"


class ViewNotRun(UserError):
    code = "MR-VIEW-NOT-RUN"
    text = "the view {view!r} is not run: {reason}"
    fix = "{remedy}"


class ViewKeyRepeated(UserError):
    code = "MR-VIEW-KEY-REPEATED"
    text = "two rows of the view {view!r} have the same key ({key}), one of them is {row}"
    fix = "choose key columns that tell its rows apart, or group by them; then `millrace run --fresh {view}`"


class ViewStoreNameTooLong(UserError):
    code = "MR-VIEW-STORE-NAME-TOO-LONG"
    text = "the app {app!r} has views, and PostgreSQL would cut the name of its schema in the view store off"
    fix = "give the app a name of at most {limit_bytes} bytes, counting the project's prefix"


class ViewStoreUnfit(UserError):
    code = "MR-VIEW-STORE-UNFIT"
    text = "the view store does not take the view {view!r}: {reason}"
    fix = (
        "see to it in the store, or name another one under [views] url; the run tries again by itself, and with "
        "`--fresh` it fills the view anew"
    )


class ViewStoreUnreachable(ServerError):
    code = "MR-VIEW-STORE-UNREACHABLE"
    text = "the view store does not answer: {reason}"
    fix = "start it, or see to [views] url; what it lacks stays in the changelog topics and is applied when it is back"


class ViewUnknown(UserError):
    code = "MR-VIEW-UNKNOWN"
    text = "there is no view {view!r}{hint}"
    fix = "see how it is spelt; a view of the app is in the store when the app has run"


class ViewBehind(ServerError):
    code = "MR-VIEW-BEHIND"
    text = "the view {view!r} is true up to {reached}, and {wanted} was waited for {seconds} s"
    fix = "see whether its flow runs (`millrace status`), or wait for longer"


class ViewDeployed(UserError):
    code = "MR-VIEW-DEPLOYED"
    text = "the view {view!r} was deployed with other SQL, and this run has the old one: it leaves the view alone"
    fix = "start the run again, with the new code"


class ViewNotDeployed(UserError):
    code = "MR-VIEW-NOT-DEPLOYED"
    text = "the view {view!r} is not deployed: {reason}"
    fix = "{remedy}"
