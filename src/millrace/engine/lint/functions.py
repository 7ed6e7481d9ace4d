"""processing-time and unrepeatable-id: functions that give something else when the same rows are computed again."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.engine.lint.finding import Finding
from millrace.engine.lint.planning import Planned
from millrace.engine.lint.trees import nodes
from millrace.engine.plans import analyzed, expressions, line_of
from millrace.flow import Topic

_OF_THE_CLOCK = {"current_timestamp", "now", "localtimestamp", "current_date", "current_time"}
_COUNTER = "monotonically_increasing_id"
_OF_CHANCE = {"rand", "randn", "randstr", "uniform", "uuid", "shuffle", _COUNTER}

# With a seed too: Spark takes a new one each time that it runs an epoch (SPARK-24896, SPARK-25010).
_DRAWN = "after a crash the last epoch is done again and gets other values: readers cannot tell a repeat from a new row"
_COUNTED = "it counts anew in each epoch, so that different rows get the same number"


def findings(plan: Planned) -> Iterator[Finding]:
    stream = plan.stream
    for node in nodes(analyzed(plan.result), [analyzed(frame) for frame in plan.inputs]):
        for path in expressions(node):
            name = path[-1].prettyName()
            if name not in _OF_THE_CLOCK | _OF_CHANCE:
                continue
            where, what = line_of(path) or stream.where, f"{stream.name} calls {name}()"
            if name in _OF_CHANCE:
                why = _COUNTED if name == _COUNTER else _DRAWN
                fix = "make it of what the event says: F.sha2(F.concat_ws('|', …), 256) over columns that identify it"
                yield Finding("unrepeatable-id", stream.name, where, what, why, fix)
            else:
                why = (
                    "its results depend on when they are computed: "
                    "a flow that was behind, or begins afresh, gives others of the same events"
                )
                yield Finding("processing-time", stream.name, where, what, why, _event_time(plan))


def _event_time(plan: Planned) -> str:
    times = dict.fromkeys(source.time for source in plan.stream.reads if isinstance(source, Topic) and source.time)
    if times:
        return f"use the time of the event: {' or '.join(repr(time) for time in times)}"
    return 'use the time of the event; the topic says which column that is: time="at", lateness="10 seconds"'
