"""`millrace init`, `millrace demo`, `millrace completion` and `millrace --version`."""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from importlib import metadata, resources
from pathlib import Path

import millrace
from millrace.cli.output import Commands, command
from millrace.config import Settings
from millrace.errors import FolderTaken, JavaMissing, JavaTooOld, ProjectNameInvalid

TOML = """# What this project is, and which servers it uses. Everything has a default.

[run]
app = "{name}:app"      # what `millrace run` runs
show = ["views"]        # the topics that it prints as it goes

# Servers of your own instead of the local ones:
# [kafka]
# bootstrap = "broker-1:9092,broker-2:9092"
# [kafka.options]
# security.protocol = "SASL_SSL"
# sasl.mechanisms = "PLAIN"
# sasl.username = "shop"
# sasl.password = "env:KAFKA_PASSWORD"
"""

TEST = '''"""The body of a stream is an ordinary function of DataFrames: a test calls it with rows."""

from datetime import datetime

from {name} import views


def test_views_are_counted_by_url_and_ten_seconds(spark):
    rows = [
        ("/", 1, datetime(2026, 1, 1, 12, 0, 1)),
        ("/", 2, datetime(2026, 1, 1, 12, 0, 9)),
        ("/", 3, datetime(2026, 1, 1, 12, 0, 10)),
        ("/cart", 1, datetime(2026, 1, 1, 12, 0, 2)),
    ]
    counted = views(spark.createDataFrame(rows, "url string, user long, at timestamp")).collect()

    found = sorted((row.url, row.window_start.second, row.views) for row in counted)
    assert found == [("/", 0, 2), ("/", 10, 1), ("/cart", 0, 1)]
'''

README = """# {name}

    millrace run      # starts Kafka, makes up some visitors, counts their page views, prints the counts
    pytest            # tests the counting without any server

`{name}.py` is the application, `millrace.toml` its settings, `.millrace/` what Millrace keeps: data, logs, checkpoints.
"""


def add(commands: Commands) -> None:
    added = command(commands, "init", init, "make a new project: an application, its settings and a test")
    added.add_argument("name", help="the folder and the module to make")

    command(commands, "demo", demo, "start Kafka, make page views, count them on Spark and print the counts")

    added = command(commands, "completion", completion, "print a completion script for your shell")
    added.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    added.epilog = 'For bash: eval "$(millrace completion bash)"'


def init(args: argparse.Namespace, _: Settings) -> None:
    name = args.name
    taken = {"millrace", "pyspark", "test", *keyword.kwlist, *sys.stdlib_module_names}
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or name in taken:
        raise ProjectNameInvalid(name=name)
    folder = Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FolderTaken(folder=folder)
    source = resources.files("millrace.demo").joinpath("pageviews.py").read_text(encoding="utf-8")
    files = {
        f"{name}.py": source.replace('mr.App("pageviews")', f'mr.App("{name}")'),
        f"test_{name}.py": TEST.format(name=name),
        "millrace.toml": TOML.format(name=name),
        "README.md": README.format(name=name),
        ".gitignore": ".millrace/\n__pycache__/\n",
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    print(f"made {folder}/ with {', '.join(files)}")
    print(f"next: cd {folder} && millrace run")


def demo(_: argparse.Namespace, __: Settings) -> int:
    from millrace.cli import main

    return main(["run", "millrace.demo.pageviews:app", "--show", "views"])


def completion(args: argparse.Namespace, _: Settings) -> None:
    import shtab

    from millrace.cli import parser

    print(shtab.complete(parser(), shell=args.shell))


def print_versions() -> None:
    from millrace.local import jars, java

    try:
        found = java.version()
    except (JavaMissing, JavaTooOld) as error:
        found = f"none that fits ({error.what})"
    print(f"Millrace {millrace.__version__}")
    print(f"Spark {metadata.version('pyspark')}")
    print(f"Kafka {jars.version('kafka_2.13')}")
    print(f"Java {found}")
