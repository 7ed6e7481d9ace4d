"""The classic mistakes of stream processing, found in an app before it runs: rules over its graph and its plans.

Functions are called to see what they plan; nothing is started and no server is asked. A rule that cannot tell for sure
says nothing.
"""

from __future__ import annotations

from contextlib import ExitStack

from pyspark.sql import SparkSession

from millrace.config import Settings
from millrace.engine.lint import endless, functions, keys, lateness, parallelism, repeats, state, views, writers
from millrace.engine.lint.finding import Finding, Report
from millrace.engine.lint.planning import planned, unknown
from millrace.engine.plan import flows_of
from millrace.engine.session import close, session
from millrace.flow import App

__all__ = ["Finding", "Report", "lint"]

_PLAN_RULES = (functions.findings, state.findings, keys.findings, lateness.of_windows, repeats.findings)


def lint(app: App, settings: Settings, spark: SparkSession | None = None) -> Report:
    """What is wrong with an app. One that cannot be planned raises its own error, as a run would."""
    graph = app.graph()
    flows = tuple(flow for flow in flows_of(graph) if flow.view is None)
    with ExitStack() as stack:
        why = {flow: unknown(flow, settings) for flow in flows}
        if spark is None and not all(why.values()):
            spark = session(settings, "local[1]", settings.named(graph.app))
            stack.callback(close, spark)
        plans = [plan for flow in flows if spark and not why[flow] for plan in planned(spark, flow, settings)]
        sides = {plan.stream: plan.side for plan in plans if plan.side is not None}
        found = [*writers.findings(graph, sides), *parallelism.findings(flows, settings), *lateness.of_topics(graph)]
        found += [*views.findings(graph), *endless.findings(graph)]
        found += [finding for plan in plans for rule in _PLAN_RULES for finding in rule(plan)]
    left_out = (
        {stream.name: reason for flow, reason in why.items() if reason is not None for stream in flow.streams}
        | views.left_out(graph)
        | endless.left_out(graph)
    )
    ordered = sorted(dict.fromkeys(found), key=lambda finding: (finding.where.file, finding.where.line, finding.rule))
    return Report(tuple(ordered), left_out)
