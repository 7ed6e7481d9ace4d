"""The tour on a terminal: what stays in its place, moves and goes. Figures are of runs that were not started."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tests import terminal
from tests.command import LIMIT_S, environ

# What stands in records is no markup, so it is drawn as it is.
# The tour itself, over two applications: one tells figures, the other has a flow that failed.
TOUR = """
import threading
from dataclasses import replace
from millrace import config
from millrace.cli import touring
from millrace.demo.together import application
from millrace.demo.tour import Seen
from millrace.engine import Run
from millrace.engine.standing import Standing
from millrace.log.record import Record

class Started:  # as a console's process tells of itself
    name, address, failure, settled = "fraud", "", "", False

touring.FIGURES_S = 0.0
settings = config.load()
seen = {name: Seen(Run(application(name), settings), ()) for name in ("fraud", "trending")}
with touring.Touring() as tour:
    with tour.step("loading what is to run"):
        threading.Event().wait(0.5)
    tour.expect(list(seen))
    for name, each in seen.items():
        with tour.step(f"{name}: flows"):
            each.run.standings = {flow: Standing.new(flow).becomes("running") for flow in ("card_testing", name)}
    console = Started()
    tour.show(seen, [console], settings)
    threading.Event().wait(0.5)
    standing = seen["fraud"].run.standings["card_testing"]
    seen["fraud"].run.standings["card_testing"] = replace(standing, rows_in=1_200, under_way=34)
    seen["trending"].run.standings["trending"] = Standing.new("trending").becomes("failed")
    seen["fraud"].records.append(Record("alerts", 0, 7, None, b"[bold]", b'{"rule": "[red]"}', ()))
    console.address, console.settled = "http://127.0.0.1:9110", True
    tour.print_records(seen)
    tour.show(seen, [console], settings)
    threading.Event().wait(0.5)
    tour.stopping(2)
    with tour.step("stopping Spark"):
        pass
"""


def test_the_tour_stays_in_its_place_on_a_terminal(tmp_path: Path) -> None:
    (tmp_path / "millrace.toml").touch()
    with terminal.opened([sys.executable, "-c", TOUR], tmp_path, environ()) as opened:
        code = opened.wait(LIMIT_S)
    drawn = opened.drawn
    assert code == 0, drawn
    order = (
        r"loading what is to run 0:00:0",
        r"fraud: flows: 0 s",
        r"trending: flows: 0 s",
        r"fraud +0 payments, 0 alerts",
        r"trending +0 posts",
        r"╭─ fraud \(1 of 2\) ─",
        r"Payments, judged by six rules in real time",
        r"look yourself: +millrace topic read alerts --follow",
        r"console of fraud: starting",
        r"Ctrl-C stops everything",
        r'alerts .*"\[red\]"',
        r"first numbers after \d+ s",
        r"fraud +1,234 payments, 0 alerts",
        r"trending +0 posts \(trending is failed\)",
        r"console of fraud: http://127\.0\.0\.1:9110",
        r"stopping Spark: 0 s",
    )
    at = 0
    for pattern in order:
        found = re.compile(pattern).search(drawn, at)
        assert found, f"{pattern} after {drawn[max(at - 300, 0) : at]!r} in {drawn[at:]!r}"
        at = found.start()
    assert "\x1b[1A" in opened.raw or re.search(r"\x1b\[\d*A", opened.raw), "it is drawn over itself"
    assert len(set(re.findall(r"([⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏]) console of fraud: starting", drawn))) > 1, "what starts is seen to move"
