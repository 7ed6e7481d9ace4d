"""The map: the app's graph, live, and what is known of the node that was clicked."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import ui

from millrace.console import words
from millrace.console.frame import Trouble, empty, framed
from millrace.console.layout import HEIGHT, WIDTH, Layout, layout
from millrace.console.nodes import EdgeFacts, Map, NodeFacts, map_of
from millrace.console.source_line import around
from millrace.console.watch import Watch

# A map is drawn smaller by itself only as long as it can be read well.
READABLE = 0.8
# How long a browser may take to say how wide its window is.
ANSWER_S = 10.0

_LEGEND = (
    ("well", "data moves"),
    ("idle", "nothing to do"),
    ("held", "holds others back"),
    ("late", "late because of another"),
)


def add(watch: Watch) -> None:
    @ui.page("/")
    def map_page() -> None:
        with framed(watch, "/"):
            trouble = Trouble()
            if not watch.graph.nodes:
                where = f"define some in {watch.graph.where.file}"
                empty(
                    f"App {watch.graph.app} has no topics and no streams",
                    f"What to do: {where}; see docs/guide/flows.md",
                )
                return
            stopped = empty(
                "No flow of this app runs", f"What to do: `millrace run {watch.reference}`, in another terminal"
            )
            with ui.row().classes("mr-legend"):
                for condition, text in _LEGEND:
                    ui.html(f'<span class="mr-dot {condition}"></span>{text}', sanitize=False)
                ui.space()
                fit = ui.button("Fit").props("flat dense no-caps")
            drawn = _Drawn(watch)
            fit.on_click(lambda: drawn.fit())
            ui.timer(0.2, lambda: drawn.fit(READABLE), once=True)

        def refresh() -> None:
            flows = watch.flows.trouble
            doing = "The topics cannot be looked at" if flows is None else "The flows cannot be looked at"
            trouble.show(flows or watch.extents.trouble, doing)
            looks = [history.look for history in watch.histories.flows.values()]
            stopped.set_visibility(
                bool(looks) and all(look and look.state not in ("running", "restarting") for look in looks)
            )
            drawn.show(map_of(watch.graph, watch.seen))

        refresh()
        ui.timer(1.0, refresh)


@dataclass
class _Card:
    card: ui.column
    word: ui.label
    figures: ui.label
    fresh: ui.label
    condition: str = ""


class _Drawn:
    """Drawn once; after that only what changed is sent to the browser."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        nodes = watch.graph.nodes
        number = {node: place for place, node in enumerate(nodes)}
        pairs = [(number[edge.source], number[edge.target]) for edge in watch.graph.edges]
        self._layout = layout(range(len(nodes)), pairs)
        self._map = map_of(watch.graph, watch.seen)
        self._selected: int | None = None
        size = f"width: {self._layout.width}px; height: {self._layout.height}px"
        self._zoom = 1.0
        self._chosen = False  # how large it is
        with ui.element("div").classes("mr-map-scroll"), ui.element("div").classes("mr-map").style(size) as self._board:
            self._edges = ui.html("", sanitize=False).classes("mr-edges")
            self._cards = [self._card(place, facts) for place, facts in enumerate(self._map.nodes)]
        self._detail = _Detail(watch)

    async def fit(self, least: float | None = None) -> None:
        """As small as the window's width asks for; and back. By itself, with `least`, not smaller than that, and only
        while nobody has chosen."""
        self._chosen = self._chosen or least is None
        asked = "document.querySelector('.mr-map-scroll').clientWidth - 40"
        try:
            room = await ui.run_javascript(asked, timeout=ANSWER_S)
        except TimeoutError:  # a browser that is busy, or gone
            return
        if self._chosen and least is not None:
            return
        smaller = min(float(room) / max(self._layout.width, 1), 1.0)
        self._zoom = smaller if self._zoom == 1.0 and smaller >= (least or 0.0) else 1.0
        self._board.style(f"zoom: {self._zoom:.3f}")

    def _card(self, place: int, facts: NodeFacts) -> _Card:
        x, y = self._layout.places[place]
        card = ui.column().classes("mr-node").style(f"left: {x}px; top: {y}px")
        card.props("tabindex=0 role=button")
        card.props["aria-label"] = f"{facts.kind} {facts.name}"
        card.on("click", lambda: self._select(place)).on("keydown.enter", lambda: self._select(place))
        with card:
            with ui.row().classes("mr-node-head"):
                ui.label(facts.name).classes("mr-node-name").tooltip(facts.name)
                ui.label(facts.kind).classes("mr-node-kind")
            word, figures, fresh = (
                ui.label().classes(f"mr-node-line {more}") for more in ("mr-node-word", "", "mr-soft")
            )
        return _Card(card, word, figures, fresh)

    def _select(self, place: int) -> None:
        self._selected = place
        self._detail.open(place, self._map.nodes[place])

    def show(self, found: Map) -> None:
        self._map = found
        for card, facts in zip(self._cards, found.nodes, strict=True):
            if card.condition != facts.condition:
                card.card.classes(add=facts.condition, remove=card.condition)
                card.condition = facts.condition
            card.word.set_text(_word(facts))
            card.figures.set_text(_figures(facts))
            card.fresh.set_text(_fresh(facts))
        self._edges.set_content(edges_svg(self._layout, found.edges))
        if self._selected is not None:
            self._detail.update(found.nodes[self._selected])


class _Detail:
    """The drawer with one node: figures, who holds it back, its line, its last error with the fix."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        with ui.dialog().props("position=right full-height") as self._dialog, ui.column().classes("mr-detail"):
            self._content = ui.column().classes("mr-wide")
        self._shown: NodeFacts | None = None
        self._place = 0

    def open(self, place: int, facts: NodeFacts) -> None:
        self._place, self._shown = place, None
        self.update(facts)
        self._dialog.open()

    def update(self, facts: NodeFacts) -> None:
        if facts == self._shown:
            return
        self._shown = facts
        self._content.clear()
        with self._content:
            ui.label(f"{facts.kind} {facts.name}").classes("mr-title")
            ui.label(facts.about).classes("mr-soft")
            for text in (_word(facts), _figures(facts), _fresh(facts)):
                if text:
                    ui.label(text)
            if facts.cause and facts.cause != facts.name:
                ui.label(f"Late because of {facts.cause}: {facts.why}").classes("mr-what")
            if facts.error:
                ui.label("Last error" if facts.condition != "held" else "What is wrong").classes("mr-soft")
                ui.label(facts.error).classes("mr-what")
            with ui.row().classes("mr-actions"):
                for word, name, path in (
                    ("View", facts.view, f"/view/{facts.view}"),
                    ("Lake table", facts.lake, f"/lake/{facts.lake}"),
                    ("Flow", facts.flow, f"/flow/{facts.flow}"),
                    ("Topic", facts.topic, f"/topic/{facts.topic}"),
                    ("Capture", facts.capture, "/capture"),
                ):
                    if name:
                        ui.link(f"{word} {name}", path)
            ui.label(f"Made at {facts.where}").classes("mr-soft")
            if lines := around(self._watch.graph.nodes[self._place].where):
                ui.label(lines).classes("mr-source")


def _word(facts: NodeFacts) -> str:
    if facts.condition == "late":
        return f"waits for {facts.cause}"
    return facts.word


def _figures(facts: NodeFacts) -> str:
    parts = []
    if facts.rate is not None:
        parts.append(words.rate(facts.rate))
    if facts.lag is not None:
        lag_s = f" ({words.seconds(facts.lag_s)})" if facts.lag and facts.lag_s else ""
        parts.append(f"{words.count(facts.lag)} behind{lag_s}")
    elif facts.lag_s is not None:
        parts.append(f"{words.seconds(facts.lag_s)} behind")
    return " · ".join(parts)


def _fresh(facts: NodeFacts) -> str:
    fresh = f"{words.seconds(facts.fresh_s)} old" if facts.fresh_s is not None else ""
    return " · ".join(part for part in (fresh, facts.guarantee or "") if part)


def edges_svg(placed: Layout[int], edges: tuple[EdgeFacts, ...]) -> str:
    """Curves from the right side of a node to the left side of the next; those that hold back are drawn last, on
    top."""
    lines = []
    for edge in sorted(edges, key=lambda each: ("idle", "well", "late", "held").index(each.condition)):
        (x1, y1), (x2, y2) = placed.places[edge.source], placed.places[edge.target]
        x1, y1, y2 = x1 + WIDTH, y1 + HEIGHT // 2, y2 + HEIGHT // 2
        middle = (x1 + x2) // 2
        lines.append(f'<path class="{edge.condition}" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>')
    return f'<svg width="{placed.width}" height="{placed.height}">{"".join(lines)}</svg>'
