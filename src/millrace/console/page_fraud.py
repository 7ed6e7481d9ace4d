"""The fraud demo, live: where payments are made, and which alerts there are, each with its rule and evidence."""

from __future__ import annotations

from nicegui import events, ui

from millrace.console import charts, words
from millrace.console.board_fraud import SINCE, FraudBoard
from millrace.console.frame import panel, table
from millrace.console.grid import Grid
from millrace.console.live import FRAUD
from millrace.console.page_live import figures, live
from millrace.console.watch import Watch

_ALL = "all rules"
_COLUMNS = ("at", "rule", "evidence", "card")
_MOST_LISTED = 500
_MINUTES = round(SINCE.total_seconds() / 60)


def add(watch: Watch) -> None:
    live(watch, FRAUD, f"No payments in the last {_MINUTES} minutes", lambda board: _Page(board).draw)


class _Page:
    def __init__(self, board: FraudBoard) -> None:
        self._board, self._drawn = board, -1
        self._figures = figures("payments", "alerts", "cards with alerts", "most frequent rule")
        with ui.element("div").classes("mr-grid mr-wide-left"):
            with panel("Places", f"of the last {_MINUTES} minutes; lines are impossible journeys"):
                self._plane = ui.echart(charts.plane([], [])).classes("mr-plane")
            with panel("Alerts", "the newest first; click on one for its card"):
                self._rule = ui.select([_ALL], value=_ALL, label="Rule", on_change=self._list).props("dense")
                self._rule.style("min-width: 220px")
                self._alerts = table(_COLUMNS, "id", pagination=12).classes("mr-alerts")
                self._alerts.on("row-click", self._open)
                self._none = ui.label("No payment has broken a rule yet").classes("mr-soft")
        with ui.dialog() as self._dialog, ui.card().style("min-width: min(760px, 92vw)"):
            self._card = ui.column().classes("mr-wide")

    def draw(self) -> bool:
        board = self._board
        board.age()
        if self._drawn != board.n:
            self._drawn = board.n
            rules = board.rules()
            for label, value in zip(self._figures, self._told(), strict=True):
                label.set_text(value)
            options = {_ALL: f"{_ALL} ({sum(rules.values()):,})"}
            options |= {rule: f"{rule} ({count:,})" for rule, count in rules.most_common()}
            self._rule.set_options(options)
            places = [(each.lon, each.lat, each.country, each.payments, each.alerts) for each in board.places()]
            lines = [((a.lon, a.lat), (b.lon, b.lat)) for a, b in board.journeys()]
            self._plane.options.clear()
            self._plane.options.update(charts.plane(places, lines))
            self._plane.update()
            self._list()
        return bool(board.payments or board.alerts)

    def _told(self) -> tuple[str, ...]:
        board, rules = self._board, self._board.rules()
        frequent = rules.most_common(1)[0][0] if rules else words.NOTHING
        return (words.count(board.paid()), words.count(sum(rules.values())), words.count(board.cards()), frequent)

    def _list(self) -> None:
        chosen = None if self._rule.value in (None, _ALL) else str(self._rule.value)
        with self._board.guard:
            found = self._board.told(chosen)[:_MOST_LISTED]
        self._alerts.rows = [
            {"id": each.id, "at": _clock(each.at), "rule": each.rule, "evidence": each.evidence, "card": each.card}
            for each in found
        ]  # fmt: skip
        self._alerts.update()
        self._alerts.set_visibility(bool(found))
        self._none.set_visibility(not found)

    def _open(self, event: events.GenericEventArguments) -> None:
        card = str(event.args[1]["card"])
        with self._board.guard:
            payments = self._board.of_card(card)
            alerts = [each for each in self._board.told() if each.card == card]
        self._card.clear()
        with self._card:
            ui.label(card).classes("mr-title")
            for each in alerts:
                ui.label(f"{_clock(each.at)} · {each.rule}: {each.evidence}").classes("mr-what")
            rows = tuple(
                (_clock(each.at), each.amount, each.status, each.country, f"{each.lat:.2f}", f"{each.lon:.2f}", each.id)
                for each in payments
            )
            columns = ("at", "amount", "status", "country", "lat", "lon", "payment")
            ui.html(Grid(columns, rows).html(), sanitize=False).classes("mr-wide mr-rows-scroll")
            ui.button("Close", on_click=self._dialog.close).props("flat no-caps")
        self._dialog.open()


def _clock(at: str) -> str:
    """The time of day of what ISO 8601 has."""
    return at.partition("T")[2][:8] or at
