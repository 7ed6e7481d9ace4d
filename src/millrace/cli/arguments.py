"""What several commands are given, read in one way: an app, an address, a time, a position of PostgreSQL's log."""

from __future__ import annotations

import argparse
import contextlib
from datetime import datetime

from millrace.config import Listen
from millrace.errors import PositionInvalid, UsageInvalid


def app_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("app", nargs="?", metavar="MODULE:APP", help="default: [run] app of millrace.toml")


def listen(option: str, text: str, command: str) -> Listen:
    if (found := Listen.of(text)) is None:
        raise UsageInvalid(reason=f"{option} {text} is not [HOST:]PORT", command=command)
    return found


def moment(option: str, text: str, command: str) -> datetime:
    from millrace.log import position

    with contextlib.suppress(PositionInvalid):
        if isinstance(found := position(text), datetime):
            return found
    reason = f'{text!r} of {option} is no time, like 2026-01-31T12:00 (UTC) or "10 minutes ago"'
    raise UsageInvalid(reason=reason, command=command)


def lsn(option: str, text: str, command: str) -> int:
    from millrace.views.changelog import lsn_number

    try:
        return lsn_number(text)
    except ValueError:
        reason = f"{option} {text} is no LSN, as `SELECT pg_current_wal_lsn()` writes it"
        raise UsageInvalid(reason=reason, command=command) from None
