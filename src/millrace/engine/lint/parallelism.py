"""idle-parallelism: more cores than there are partitions to read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from millrace.config import Settings
from millrace.engine.lint.finding import Finding
from millrace.engine.plan import Flow
from millrace.flow import Changes, Readable, Topic, View
from millrace.views.changelog import PARTITIONS

_CORES = re.compile(r"local\[(\d+)(,\s*\d+)?\]")


def findings(flows: Iterable[Flow], settings: Settings) -> Iterator[Finding]:
    """Only where somebody chose a number of cores: `local[*]` is as many as the machine has. Flows run beside each
    other, so cores are idle if all of them together read fewer partitions."""
    chosen = _CORES.fullmatch(settings.spark.master)
    counts = {flow: [_partitions(source) for source in flow.reads] for flow in flows}
    known = {flow: sum(each for each in found if each) for flow, found in counts.items() if None not in found}
    if chosen is None or len(known) < len(counts):
        return
    cores, together = int(chosen[1]), sum(known.values())
    for flow, partitions in known.items():
        if together < cores:
            inputs = ", ".join(source.name for source in flow.reads)
            yield Finding(
                "idle-parallelism",
                flow.name,
                flow.where,
                f"{flow.name} reads {partitions} partition{'' if partitions == 1 else 's'} ({inputs}) on {cores} cores",
                f"a partition is read by one task: {cores - together} of the {cores} cores have nothing to read",
                f"more partitions where the topic is declared (partitions={cores}), or master = "
                f'"local[{together}]" under [spark]',
            )


def _partitions(source: Readable | View) -> int | None:
    """As declared; of somebody else's topic nobody here knows."""
    if isinstance(source, Topic):
        return source.partitions
    if isinstance(source, View):
        return PARTITIONS
    table = source.of if isinstance(source, Changes) else source
    return None if table.capture is None else table.capture.partitions
