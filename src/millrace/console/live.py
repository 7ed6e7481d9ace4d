"""Live pages: which there are, and what an app has to have for each. An app names its page by its topics, so that one
that was made from a demo has it too."""

from __future__ import annotations

from millrace.console.board import LivePage
from millrace.console.board_bank import EVENTS, BankBoard
from millrace.console.board_fraud import FraudBoard
from millrace.console.board_leaders import LeaderBoard
from millrace.console.board_pageviews import PageviewBoard

_ALERT = frozenset({"id", "rule", "card", "payment", "evidence", "at"})

FRAUD = LivePage(
    "Fraud",
    "/live/fraud",
    FraudBoard,
    {"payments": frozenset({"id", "card", "lat", "lon", "at"}), "alerts": _ALERT, "card_testing": _ALERT},
)
PAGEVIEWS = LivePage(
    "Page views",
    "/live/pageviews",
    PageviewBoard,
    {
        "busiest_now": frozenset({"url", "window_end", "rank", "views", "__diff"}),
        "busiest": frozenset({"url", "window_end", "rank", "views"}),
        "busiest_about": frozenset({"url", "window_end", "at_least", "at_most"}),
        "per_minute": frozenset({"url", "window_end", "replaces"}),
    },
)
LEADERS = LivePage(
    "Leaders", "/live/leaders", LeaderBoard, {"leaders": frozenset({"player", "points", "rank", "__diff"})}
)
BANK = LivePage(
    "Bank", "/live/bank", BankBoard, {"transfer_steps": frozenset({"id", "type", "at"})}, frozenset({EVENTS})
)

LIVE = (FRAUD, PAGEVIEWS, LEADERS, BANK)
