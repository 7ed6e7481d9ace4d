"""Flows: one line each, and a page with a flow's figures over time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nicegui import ui

from millrace import durations
from millrace.console import charts, words
from millrace.console.arrivals import Arrivals, arrivals
from millrace.console.checkpoints import epochs
from millrace.console.frame import Trouble, answered, empty, framed, panel, table
from millrace.console.histories import History
from millrace.console.series import Series, series, thinned
from millrace.console.watch import Watch
from millrace.engine import begun, generations
from millrace.errors import FlowUnknown, nearest
from millrace.flow import Topic

MIB = 1 << 20
REFRESH_S = 2.0
ARRIVALS_S = 10.0

_COLUMNS = ("flow", "state", "epoch", "rows/s", "behind", "watermark gap", "late", "dead", "restarts")


def add(watch: Watch) -> None:
    @ui.page("/flow")
    def flows_page() -> None:
        with framed(watch, "/flow", ("Flows", "/flow")):
            if not watch.histories.flows:
                empty(f"App {watch.graph.app} has no flows", "What to do: `@app.stream(…)`; see docs/guide/flows.md")
                return
            listed = table(_COLUMNS, "flow", numbers=_COLUMNS[2:], linked="/flow/")

        def refresh() -> None:
            listed.rows = [flow_row(history) for history in watch.histories.flows.values()]
            listed.update()

        refresh()
        ui.timer(1.0, refresh)

    @ui.page("/flow/{name}")
    def flow_page(name: str) -> None:
        history = watch.history(name)
        with framed(watch, "/flow", ("Flows", "/flow"), (name, f"/flow/{name}")):
            if history is None:
                known = watch.histories.flows
                error = FlowUnknown(
                    app=watch.graph.app, kind="flow", name=name, hint=nearest(name, known), known=", ".join(known)
                )
                Trouble().show(error)
                return
            _flow(watch, history)


def flow_row(history: History) -> dict[str, Any]:
    look = history.look
    facts = look.facts if look else {}
    return {
        "flow": history.flow.name,
        "state": "never run" if look and not look.told and look.state == "stopped" else facts.get("state", "unknown"),
        "epoch": words.NOTHING if facts.get("epoch") is None else f"{facts['epoch']:,}",
        "rows/s": words.rate(history.rate()),
        "behind": words.count(facts.get("lag_records")),
        "watermark gap": words.seconds(facts.get("watermark_gap_s")),
        "late": words.count(facts.get("late")),
        "dead": words.count(facts.get("dead")),
        "restarts": words.count(facts.get("restarts")),
    }


def figures(history: History) -> list[tuple[str, str]]:
    look = history.look
    if look is None:
        return [("state", "unknown")]
    last = look.last
    row = flow_row(history)
    return [
        ("state", str(row["state"])),
        ("rows/s in", words.rate(history.rate("rows_in"))),
        (
            "rows/s out",
            words.rate(history.rate("rows_out")) if look.told.get("rows_out") is not None else words.NOTHING,
        ),
        ("last epoch", f"{words.count(last.get('epoch_ms'))} ms" if last else words.NOTHING),
        ("behind", words.count(last.get("lag_records"))),
        ("watermark gap", words.seconds(look.facts.get("watermark_gap_s"))),
        ("state rows", words.count(last.get("state_rows"))),
        ("state memory", words.size(last.get("state_bytes"))),
        ("late rows", words.count(look.told.get("late"))),
        ("dead rows", words.count(look.told.get("dead"))),
        ("starts again", words.count(look.told.get("restarts"))),
        ("delivery", history.flow.guarantee or words.NOTHING),
    ]


def _flow(watch: Watch, history: History) -> None:
    stopped = empty("This flow does not run", f"What to do: `millrace run {watch.reference}`, in another terminal")
    error = ui.label().classes("mr-what")
    shown = {}
    with panel("Now"), ui.row().classes("mr-figures"):
        for label, value in figures(history):
            with ui.column().classes("mr-figure"):
                shown[label] = ui.label(value).classes("mr-figure-value")
                ui.label(label).classes("mr-soft")
    drawn = {}
    with ui.element("div").classes("mr-grid"):
        for title, about, _ in _CHARTS:
            with panel(title, about):
                drawn[title] = ui.echart({"series": []}).classes("mr-chart")
    sources = [each for each in history.flow.reads if isinstance(each, Topic) and each.time]
    if sources:
        for topic in sources:
            _arrivals(watch, topic)
    else:
        empty("No topic that it reads has a time", "A topic with `time=…` shows here how late its events arrive")

    def refresh() -> None:
        look = history.look
        runs = look is not None and look.state in ("running", "restarting")
        stopped.set_visibility(not runs)
        said = look and (look.facts.get("error") or look.facts.get("trouble"))
        error.set_text(f"Last error: {said}" if said else "")
        error.set_visibility(bool(said))
        for label, value in figures(history):
            shown[label].set_text(value)
        found = series(history)
        for title, _, made in _CHARTS:
            options = made(history, found)
            if drawn[title].options != options:
                drawn[title].options.clear()
                drawn[title].options.update(options)
                drawn[title].update()

    refresh()
    ui.timer(REFRESH_S, refresh)


def _rows(_: History, found: Series) -> dict[str, Any]:
    return charts.lines({"in": thinned(found.rows_in), "out": thinned(found.rows_out)})


def _phases(_: History, found: Series) -> dict[str, Any]:
    return charts.stacked({word: thinned(points, 100) for word, points in found.phases_ms.items()})


def _gap(_: History, found: Series) -> dict[str, Any]:
    return charts.lines({"watermark gap (s)": thinned(found.gap_s)}, area=True)


def _state(_: History, found: Series) -> dict[str, Any]:
    sizes = [(at_ms, round(size_bytes / MIB, 3)) for at_ms, size_bytes in thinned(found.state_bytes)]
    made = charts.lines({"rows": thinned(found.state_rows), "MiB": sizes})
    made["yAxis"] = [charts.whole(made)["yAxis"], {**made["yAxis"], "minInterval": 0, "splitLine": {"show": False}}]
    made["series"][1]["yAxisIndex"] = 1
    return made


def _late(_: History, found: Series) -> dict[str, Any]:
    return charts.whole(charts.lines({"late": thinned(found.late), "dead": thinned(found.dead)}))


def _epochs(history: History, _: Series) -> dict[str, Any]:
    return timeline(history.folder)


def timeline(folder: Path) -> dict[str, Any]:
    """Epochs by when they ended, of the generation that counts, and when the flow began or began again meanwhile. What
    began before the first of all epochs is shown with it: it may have waited for its first record for days."""
    found = epochs(generations.current(folder))
    points = [(each.ended * 1_000, round(each.ended - each.began, 3)) for each in found if each.ended is not None]
    first_ms = found[0].began * 1_000 if found else 0.0
    starts = [(each.at.timestamp() * 1_000, "recovered" if each.recovers else "began") for each in begun.read(folder)]
    marks = [(at_ms, what) for at_ms, what in starts if at_ms >= first_ms]
    if found and found[0].number == 0 and len(marks) < len(starts):
        marks.insert(0, (first_ms, starts[-len(marks) - 1][1]))
    return charts.bars(points, marks)


_CHARTS: tuple[tuple[str, str, Callable[[History, Series], dict[str, Any]]], ...] = (
    ("Rows a second", "since the console began", _rows),
    ("Epoch time by phase", "ms", _phases),
    ("Watermark gap", "seconds behind the clock", _gap),
    ("State", "rows left, MiB of memory right", _state),
    ("Late and dead rows", "since the run began", _late),
    ("Epochs", "seconds; red: it began, or recovered", _epochs),
)


def _arrivals(watch: Watch, topic: Topic) -> None:
    with panel(f"Arrival of {topic.name}", f"event time {topic.time!r} against arrival, newest records"):
        trouble = Trouble()
        said = ui.label("Reading …").classes("mr-soft")
        with ui.element("div").classes("mr-grid"):
            skew = ui.echart({"series": []}).classes("mr-chart")
            lost = ui.echart({"series": []}).classes("mr-chart")

    async def refresh() -> None:
        found = await answered(watch, lambda: arrivals(watch.log, topic), trouble, "No arrivals can be shown")
        said.set_visibility(found is not None)
        if found is None:
            return
        said.set_text(arrivals_text(found))
        for chart, options in ((skew, charts.scatter(found.points)), (lost, _lost(found))):
            chart.options.clear()
            chart.options.update(options)
            chart.update()

    ui.timer(0.1, refresh, once=True)
    ui.timer(ARRIVALS_S, refresh)


def _lost(found: Arrivals) -> dict[str, Any]:
    costs = found.delays.costs
    chosen = costs.index(found.lost) if found.lost in costs else None
    return charts.shares([durations.spoken(cost.lag_ms) for cost in costs], [cost.share for cost in costs], chosen)


def arrivals_text(found: Arrivals) -> str:
    delays = found.delays
    named = ", ".join(f"{name} {words.seconds(delay / 1_000)}" for name, delay in delays.delays_ms.items())
    parts = [
        f"{words.counted(delays.records, 'record')}: delay {named}"
        if named
        else words.counted(delays.records, "record")
    ]
    parts.append(f"chosen: {found.chosen}")
    if found.lost is not None:
        loses = f"loses at most {found.lost.late:,} ({words.share(found.lost.share)})"
        parts.append(loses if found.lost.late else "loses none of these")
    if delays.suggested_ms is not None:
        parts.append(f"{durations.spoken(delays.suggested_ms)} would lose at most one in a thousand")
    return " · ".join(parts)
