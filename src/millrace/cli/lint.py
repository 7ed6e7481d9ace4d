"""`millrace lint`: the classic mistakes of stream processing, found before they run."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from millrace.cli.apps import log_to_file
from millrace.cli.arguments import app_argument
from millrace.cli.output import Commands, command, json_option, say
from millrace.config import Settings

if TYPE_CHECKING:
    from millrace.engine.lint import Finding, Report


def add(commands: Commands) -> None:
    added = command(commands, "lint", lint_app, "say which classic mistakes an app has, without starting anything")
    added.epilog = "Exit code 0, with --strict 1 if anything was found. The rules: docs/guide/lint.md."
    app_argument(added)
    added.add_argument("--strict", action="store_true", help="exit with 1 if anything was found")
    json_option(added)


def lint_app(args: argparse.Namespace, settings: Settings) -> int:
    from millrace.flow import load_app

    app = load_app(args.app, settings)
    app.graph()  # what is wrong with it is told before Spark is loaded
    log_to_file(settings)
    from millrace.engine.lint import lint

    report = lint(app, settings)
    if args.json:
        print(json.dumps(_plain(report), indent=2))
    else:
        _show(report)
    return 1 if args.strict and report.findings else 0


def _show(report: Report) -> None:
    print("\n\n".join(_paragraph(finding) for finding in report.findings) or "nothing found")
    for stream, reason in report.left_out.items():
        say(f"not looked at: {stream}, because {reason}")


def _paragraph(finding: Finding) -> str:
    return f"{finding.rule}: {finding.what} (at {finding.where})\n        {finding.why}\n        fix: {finding.fix}"


def _plain(report: Report) -> dict[str, object]:
    findings = [asdict(finding) for finding in report.findings]
    return {"findings": findings, "not_looked_at": dict(report.left_out)}
