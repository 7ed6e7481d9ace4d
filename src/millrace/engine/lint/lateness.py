"""long-lateness: state that is kept for weeks because something may come late."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from millrace import durations
from millrace.engine.lint.finding import Finding
from millrace.engine.lint.planning import Planned
from millrace.engine.lint.trees import nodes
from millrace.engine.plans import analyzed
from millrace.flow import Adaptive, Fixed, Graph, Topic

# Records are usually kept for a week; what comes later is better mended from what was kept than waited for.
LONGEST_MS = 7 * 86_400_000

_WINDOWS = "millrace.kernel.WindowProcessor"


def of_topics(graph: Graph) -> Iterator[Finding]:
    for topic in graph.topics:
        lag_ms = _lag_ms(topic)
        if lag_ms > LONGEST_MS:
            lag = durations.spoken(lag_ms)
            yield Finding(
                "long-lateness",
                topic.name,
                topic.where,
                f"{topic.name} waits up to {lag} for late events",
                f"windows and joins over it keep their state {lag} longer, and tell what is final {lag} later",
                f"wait for most events (`millrace topic delays {topic.name} --time {topic.time}` says what each lag "
                "costs), and say with mr.late.… what is done with the others",
            )


def _lag_ms(topic: Topic) -> int:
    if isinstance(topic.lateness, Adaptive):
        return topic.lateness.most_ms
    return topic.lateness.lag_ms if isinstance(topic.lateness, Fixed) else 0


def of_windows(plan: Planned) -> Iterator[Finding]:
    stream = plan.stream
    for node in nodes(analyzed(plan.result), [analyzed(frame) for frame in plan.inputs]):
        grace_ms = _grace_ms(node)
        if grace_ms > LONGEST_MS:
            grace = durations.spoken(grace_ms)
            yield Finding(
                "long-lateness",
                stream.name,
                stream.where,
                f"a window of {stream.name} takes late rows for {grace}",
                f"the state of every window is kept for {grace} after its end",
                "a shorter time; mr.late.side(…) keeps what comes after it in a topic, to be counted by a batch",
            )


def _grace_ms(node: Any) -> int:
    """For how long after its end a window of the kernel takes rows. Its settings are the operator's own, so they are
    looked for inside."""
    if node.nodeName() != "TransformWithState":
        return 0
    processor = node.statefulProcessor()
    if processor.getClass().getName() != _WINDOWS:
        return 0
    settings = processor.getClass().getDeclaredField("settings")
    settings.setAccessible(True)
    return int(settings.get(processor).graceUs()) // 1_000
