"""Topics: a list, and a page with partitions, groups, dead letters and a browser of records."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from nicegui import ui

from millrace.console import words
from millrace.console.frame import Trouble, answered, empty, framed, noted, panel, table
from millrace.console.page_records import place, records
from millrace.console.readers import Reader, moved, planned, readers
from millrace.console.watch import Watch
from millrace.log import DeadLetter, Extent
from millrace.log.deadletters import SUFFIX

REFRESH_S = 3.0
MOST_LETTERS = 500
# Of the dead-letter topic so many records are looked at: it may have grown for years.
MOST_LOOKED_AT = 5_000


def add(watch: Watch) -> None:
    @ui.page("/topic")
    def topics_page() -> None:
        with framed(watch, "/topic", ("Topics", "/topic")):
            trouble = Trouble()
            none = empty("There are no topics yet", "What to do: `millrace topic create NAME`, or run an app")
            search = ui.input("Search").props("clearable dense")
            listed = table(
                ("topic", "partitions", "records", "in the app"),
                "topic",
                numbers=("partitions", "records"),
                linked="/topic/",
            )
            search.bind_value_to(listed, "filter")
            none.set_visibility(False)

        async def refresh() -> None:
            found = await answered(watch, lambda: topic_rows(watch), trouble, "The topics cannot be listed")
            none.set_visibility(found == [])
            listed.set_visibility(bool(found))
            listed.rows = found or []
            listed.update()

        ui.timer(0.1, refresh, once=True)
        ui.timer(REFRESH_S, refresh)

    @ui.page("/topic/{name}")
    def topic_page(name: str) -> None:
        with framed(watch, "/topic", ("Topics", "/topic"), (name, f"/topic/{quote(name)}")):
            _topic(watch, name)


def topic_rows(watch: Watch) -> list[dict[str, Any]]:
    """Those of the app first; the records of the others are counted too, in the same three requests."""
    own = {topic.name for topic in watch.graph.topics}
    listed = watch.log.topics.list()
    extents = watch.log.topics.extents([topic.name for topic in listed])
    rows = [
        {
            "topic": topic.name,
            "partitions": topic.partitions,
            "records": f"{sum(each.last - each.first for each in extents.get(topic.name, {}).values()):,}",
            "in the app": "yes" if topic.name in own else "",
        }
        for topic in listed
    ]
    return sorted(rows, key=lambda row: (row["in the app"] == "", row["topic"]))


def _topic(watch: Watch, name: str) -> None:
    trouble = Trouble()
    with ui.element("div").classes("mr-grid"):
        with panel("Partitions"):
            columns = ("partition", "first", "end", "records", "newest")
            partitions = table(columns, "partition", numbers=columns[:-1])
        with panel("Groups", "who reads it, and how far behind"):
            none = ui.label("No group has read this topic").classes("mr-soft")
            groups = table(("group", "state", "behind", "flow", "seek"), "group", numbers=("behind",))
            groups.add_slot("body-cell-seek", _SEEK)
            seek = _Seek(watch, name)
            groups.on("seek", lambda event: seek.open(event.args))
    records(watch, name)
    if not name.endswith(SUFFIX):
        _letters(watch, name)

    async def refresh() -> None:
        def look() -> tuple[dict[int, Extent], list[Reader]]:
            watch.log.topics.known(name)
            extents = watch.log.topics.extents([name]).get(name, {})
            return extents, readers(watch.log, name, extents, watch.graph.app, watch.histories.flows)

        if (found := await answered(watch, look, trouble, "This topic cannot be looked at")) is None:
            return
        extents, read = found
        partitions.rows = [partition_row(number, extent) for number, extent in sorted(extents.items())]
        partitions.update()
        groups.rows = [
            {"group": each.group, "state": each.state, "behind": f"{each.behind:,}", "flow": each.flow} for each in read
        ]
        groups.update()
        none.set_visibility(not read)
        groups.set_visibility(bool(read))

    ui.timer(0.1, refresh, once=True)
    ui.timer(REFRESH_S, refresh)


# The group of a flow only tells where the flow stands: moving it would change nothing.
_SEEK = """<q-td :props="props"><span v-if="props.row.flow">it only tells where the flow stands</span>
<q-btn v-else flat dense no-caps color="primary" label="Seek …" @click="$parent.$emit('seek', props.row.group)" />
</q-td>"""


def partition_row(number: int, extent: Extent) -> dict[str, Any]:
    count = extent.last - extent.first
    return {
        "partition": number,
        "first": f"{extent.first:,}",
        "end": f"{extent.last:,}",
        "records": f"{count:,}",
        "newest": words.clock(extent.newest),
    }


def moved_by(records: int) -> str:
    """What a move does with so many records; fewer than none are behind the group."""
    if not records:
        return "stays"
    return f"{records:,} left out" if records > 0 else f"{-records:,} read again"


class _Seek:
    """The catch before a group is moved: first what would move is shown, then its name has to be typed."""

    def __init__(self, watch: Watch, topic: str) -> None:
        self._watch, self._topic, self._group = watch, topic, ""
        with ui.dialog() as self._dialog, ui.card().classes("mr-page").style("min-width: 480px"):
            self._title = ui.label().classes("mr-title")
            ui.label("What it has read is read again, or left out. A group that somebody reads with is not moved.")
            self._to = ui.input("To", placeholder='earliest, latest, an offset, a time, "10 minutes ago"')
            self._to.classes("mr-wide").on_value_change(self._changed)
            self._trouble = Trouble()
            columns = ("partition", "before", "after", "records")
            self._moves = table(columns, "partition", numbers=columns[:-1])
            self._typed = ui.input(on_change=self._armed).classes("mr-wide")
            with ui.row().classes("mr-actions"):
                ui.button("What would move", on_click=self._plan).props("outline no-caps")
                self._move = ui.button("Move", on_click=self._do).props("color=negative no-caps")
                ui.button("Cancel", on_click=self._dialog.close).props("flat no-caps")

    def open(self, group: str) -> None:
        self._group = group
        self._title.set_text(f"Move group {group} in {self._topic}")
        self._typed.props["label"] = f"Type {group} to move it"
        self._typed.set_value("")
        self._to.set_value("")
        self._changed()
        self._trouble.show(None)
        self._dialog.open()

    def _changed(self) -> None:
        """Another place is another move: what was shown and typed before does not count for it."""
        self._moves.rows = []
        self._moves.set_visibility(False)
        self._typed.set_value("")
        self._armed()

    def _armed(self) -> None:
        ready = bool(self._moves.rows) and (self._typed.value or "").strip() == self._group
        self._move.set_enabled(ready)
        self._typed.set_enabled(bool(self._moves.rows))

    async def _plan(self) -> None:
        to = place(self._to.value)
        found = await answered(
            self._watch,
            lambda: planned(self._watch.log, self._group, to, self._topic),
            self._trouble,
            "It cannot be moved",
        )
        if found is None or to != place(self._to.value):
            return
        self._moves.rows = [
            {
                "partition": move.partition,
                "before": words.NOTHING if move.before is None else f"{move.before:,}",
                "after": f"{move.after:,}",
                "records": words.NOTHING if move.before is None else moved_by(move.after - move.before),
            }
            for move in found
        ]
        self._moves.update()
        self._moves.set_visibility(True)
        self._armed()

    async def _do(self) -> None:
        to, typed = place(self._to.value), self._typed.value or ""
        found = await answered(
            self._watch,
            lambda: moved(self._watch.log, self._group, to, self._topic, typed),
            self._trouble,
            "It was not moved",
        )
        if found is not None:
            self._dialog.close()
            noted(f"group {self._group} was moved in {words.counted(len(found), 'partition')}")


def _letters(watch: Watch, name: str) -> None:
    with panel("Dead letters", "records that could not be processed, kept whole"):
        trouble = Trouble()
        none = ui.label("Nothing of this topic has died").classes("mr-soft")
        more = ui.label().classes("mr-soft")
        columns = ("letter", "partition", "offset", "time", "replayed", "reason")
        letters = table(columns, "letter", numbers=("partition", "offset"))
        letters.props("selection=multiple wrap-cells")
        with ui.row().classes("mr-actions") as actions:
            chosen = ui.button("Replay selected").props("outline no-caps")
            everything = ui.button("Replay all").props("outline no-caps")
    with ui.dialog() as sure, ui.card():
        question = ui.label()
        with ui.row().classes("mr-actions"):
            ui.button("Replay", on_click=lambda: sure.submit(True)).props("color=negative no-caps")
            ui.button("Cancel", on_click=lambda: sure.submit(False)).props("flat no-caps")

    seen = Letters()

    async def refresh() -> None:
        nonlocal seen
        found = await answered(watch, lambda: letters_of(watch, name, seen), trouble, "The dead letters cannot be read")
        seen = found or Letters()
        none.set_visibility(found is not None and not seen.rows)
        letters.set_visibility(bool(seen.rows))
        actions.set_visibility(bool(seen.rows))
        more.set_text(f"The newest; the older ones: `millrace deadletter list {name} --limit N`" if seen.more else "")
        if seen.rows != letters.rows:
            letters.rows = seen.rows
            letters.update()

    async def replay(which: list[str] | None) -> None:
        if which == []:
            noted("Select letters first", well=False)
            return
        meant = "All letters that were not replayed yet" if which is None else words.counted(len(which), "letter")
        question.set_text(f"{meant} will be written back to {name}, as they were. Is their cause mended?")
        if not await sure:
            return
        written = await answered(watch, lambda: watch.log.dead.replay(name, which), trouble, "They were not replayed")
        if written is not None:
            noted(f"{words.counted(written, 'dead letter')} written back to {name}")
            letters.selected.clear()
            await refresh()

    chosen.on_click(lambda: replay([row["letter"] for row in letters.selected if row["replayed"] == "no"]))
    everything.on_click(lambda: replay(None))
    ui.timer(0.2, refresh, once=True)
    ui.timer(4 * REFRESH_S, refresh)


@dataclass(frozen=True)
class Letters:
    """The newest letters of a topic, newest first, and whether there may be `more`. `held` are the offsets of its
    dead-letter topic, of which they are."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    more: bool = False
    held: Mapping[int, tuple[int, int]] | None = None


def letters_of(watch: Watch, name: str, before: Letters) -> Letters:
    """Reads only what is looked at, and only when it is another than before: a page asks all the time."""
    topics = watch.log.topics
    held = topics.offsets(name + SUFFIX) if topics.exists(name + SUFFIX) else {}
    if held == before.held:
        return before
    rows = deque[dict[str, Any]](maxlen=MOST_LETTERS)
    count = 0
    for letter in watch.log.dead.newest(name, MOST_LOOKED_AT):
        rows.append(_letter_row(letter))
        count += 1
    records = sum(last - first for first, last in held.values())
    return Letters(list(rows)[::-1], count > len(rows) or records > MOST_LOOKED_AT, held)


def _letter_row(letter: DeadLetter) -> dict[str, Any]:
    record = letter.record
    return {
        "letter": letter.id,
        "partition": record.partition,
        "offset": f"{record.offset:,}",
        "time": words.clock(record.time),
        "replayed": "yes" if letter.replayed else "no",
        "reason": letter.reason,
    }
