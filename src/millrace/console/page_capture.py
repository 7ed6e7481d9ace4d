"""Captures: tables, how far their snapshots are, and what their databases keep for them."""

from __future__ import annotations

from nicegui import ui

from millrace.capture.status import CaptureStatus
from millrace.console import words
from millrace.console.captures import CapturesLook, progress
from millrace.console.frame import Trouble, empty, framed, panel
from millrace.console.watch import Watch

# Of the replication log: above it the disk of the database is worth a look.
MUCH_BYTES = 1 << 30


def add(watch: Watch) -> None:
    @ui.page("/capture")
    def capture_page() -> None:
        with framed(watch, "/capture", ("Captures", "/capture")):
            trouble = Trouble()
            waiting = empty("Asking Kafka, Connect and the databases …")
            none = empty(
                "There are no captures",
                "What to do: `app.capture(…)` in the app and `millrace run`, or `millrace capture add NAME TABLE`",
            )
            shown = ui.column().classes("mr-wide")
        drawn: list[object] = [None]

        def refresh() -> None:
            looking = watch.captures
            trouble.show(looking.trouble, "The captures cannot be looked at")
            waiting.set_visibility(looking.waiting)
            none.set_visibility(looking.found is not None and not looking.found.remembered)
            if looking.found is not None and looking.found is not drawn[0]:
                drawn[0] = looking.found
                shown.clear()
                with shown:
                    _draw(looking.found)

        refresh()
        ui.timer(1.0, refresh)


def _draw(found: CapturesLook) -> None:
    for name in found.remembered:
        if (error := found.troubles.get(name)) is not None:
            with panel(f"Capture {name}", f"of database {found.remembered[name].capture.database}"):
                Trouble().show(error, "It is not known how it stands")
        else:
            _capture(found.statuses[name], found.remembered[name].capture.database)


def _capture(status: CaptureStatus, database: str) -> None:
    with panel(f"Capture {status.capture}", f"of database {database}"):
        figures = (
            ("state", status.state),
            ("behind", words.size(status.behind_bytes)),
            ("log kept for it", words.size(status.kept_bytes)),
            ("position", status.position or words.NOTHING),
        )
        with ui.row().classes("mr-figures"):
            for label, value in figures:
                with ui.column().classes("mr-figure"):
                    ui.label(value).classes("mr-figure-value" + (" mr-code-figure" if label == "position" else ""))
                    ui.label(label).classes("mr-soft")
        if status.error:
            ui.label(status.error).classes("mr-what")
            ui.label(f"What to do: {status.fix}").classes("mr-remedy")
        if (status.kept_bytes or 0) > MUCH_BYTES:
            ui.label(
                "The database keeps much of its log for this capture, and its disk may fill: see that the capture "
                "runs, or end it with `millrace capture remove`"
            ).classes("mr-what")
        for table in status.tables:
            done = progress(table)
            with ui.row().classes("mr-wide mr-actions"):
                ui.link(table.table, f"/topic/{table.topic}").style("width: 220px")
                bar = ui.linear_progress(value=done or 0.0, show_value=False).style("width: 160px")
                bar.props["aria-label"] = f"snapshot of {table.table}"
                bar.props["indeterminate"] = done is None
                guess = f" of about {table.estimated:,} rows" if table.phase == "snapshot" and table.estimated else ""
                said = f"{table.phase} · {words.counted(table.records, 'record')}{guess}"
                ui.label(f"{said} · {words.rate(table.events_per_s)}").classes("mr-soft")
                behind = f"{words.seconds(table.lag_s)} behind" if table.lag_s is not None else ""
                ui.label(f"last change {words.clock(table.last)} {behind}").classes("mr-soft")
