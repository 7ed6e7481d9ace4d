"""Which page is where."""

from __future__ import annotations

from millrace.console import (
    page_bank,
    page_capture,
    page_flow,
    page_fraud,
    page_lake,
    page_leaders,
    page_map,
    page_pageviews,
    page_topic,
    page_view,
)
from millrace.console.watch import Watch


def pages(watch: Watch) -> None:
    page_map.add(watch)
    page_flow.add(watch)
    page_topic.add(watch)
    page_view.add(watch)
    page_lake.add(watch)
    page_capture.add(watch)
    page_fraud.add(watch)
    page_pageviews.add(watch)
    page_leaders.add(watch)
    page_bank.add(watch)
