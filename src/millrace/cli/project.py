"""`millrace init`, `millrace completion` and `millrace --version`."""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from importlib import metadata
from pathlib import Path

import millrace
from millrace.cli.output import Commands, command
from millrace.cli.templates import TEMPLATES
from millrace.config import Settings
from millrace.errors import FolderTaken, JavaMissing, JavaTooOld, ProjectNameInvalid


def add(commands: Commands) -> None:
    added = command(commands, "init", init, "make a new project: an application, its settings and a test")
    added.add_argument("name", help="the folder and the module to make")
    known = ", ".join(TEMPLATES)
    added.add_argument(
        "--template", choices=TEMPLATES, default="starter", help=f"what it begins as: {known} (default: starter)"
    )

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
    template = TEMPLATES[args.template]
    files = template.written(name)
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text, encoding="utf-8")
    print(f"made {folder}/ with {', '.join(files)}")
    # Where something comes before a run, the page says what.
    print(f"next: cd {folder} && {'cat README.md' if template.first else 'millrace run'}")


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
