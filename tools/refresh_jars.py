"""Rewrites src/millrace/local/jars.lock from jars.toml, or with --check says whether the two and the registry agree.

    PYTHONPATH=src python tools/refresh_jars.py [--check] [GROUP…]

Everything is fetched anew, into a throw-away folder: the cache is no evidence of what the registry has. A jar that
is in the lock already and comes with another SHA-256 stops the refresh, because released jars do not change.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.local import ivy, jars
from millrace.local.ivy import Coordinates
from millrace.local.jars import Jar

ROOTS = Path(__file__).with_name("jars.toml")
HEADER = """\
# The jars that Millrace fetches: organisation:name:version[:classifier][@extension]  SHA-256  size in bytes
# Written by tools/refresh_jars.py from tools/jars.toml.
"""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="change nothing; fail if the lock would change")
    parser.add_argument("group", nargs="*", help="only these groups; the others stay as they are")
    args = parser.parse_args(argv)
    wanted = tomllib.loads(ROOTS.read_text(encoding="utf-8"))
    locked = dict(jars.read()) if jars.LOCK.exists() else {}
    if unknown := set(args.group) - set(wanted):
        parser.error(f"{ROOTS.name} has no group {', '.join(sorted(unknown))}")
    found = {group: locked[group] for group in wanted if group in locked}
    for group in args.group or wanted:
        found[group] = refreshed(group, wanted[group])
        print(f"{group}: {len(found[group])} jars, {sum(jar.size_bytes for jar in found[group]) / 1e6:.1f} MB")
    if changed := sorted(contradictions(locked, found)):
        print("released jars have changed, which they never should:", *changed, sep="\n  ")
        return 1
    text = written(found)
    before = jars.LOCK.read_text(encoding="utf-8") if jars.LOCK.exists() else ""
    if args.check:
        print("jars.lock is as it should be" if text == before else "jars.lock is not what tools/jars.toml asks for")
        return 0 if text == before else 1
    jars.LOCK.write_text(text, encoding="utf-8")
    return 0


def refreshed(group: str, wanted: Mapping[str, Any]) -> tuple[Jar, ...]:
    roots = [Coordinates.parse(root) for root in wanted["roots"]]
    with tempfile.TemporaryDirectory(prefix="millrace-jars-") as name:
        work = Path(name)
        if wanted.get("transitive"):
            roots = resolved(roots, wanted.get("exclude", []), work)
        words = ivy.fetch(roots, work, lambda _: None)
        found = []
        for one in sorted(roots):
            path = ivy.arrived(one, work)
            if path is None:
                sys.exit(f"{group}: {one} did not arrive. Ivy said:\n{words}")
            found.append(Jar(one, jars.sha256(path), path.stat().st_size))
    return tuple(found)


def resolved(roots: Sequence[Coordinates], excluded: Sequence[str], work: Path) -> list[Coordinates]:
    """The roots and all that their POMs ask for at run time, one version of each."""
    part = work / "resolve"
    part.mkdir()
    resolving = ivy.start(part, ivy.module(roots, transitive=True, excluded=excluded), poms=True)
    if resolving.wait(timeout=ivy.FETCH_TIMEOUT_S) != 0:
        sys.exit(f"Ivy could not resolve {', '.join(map(str, roots))}:\n{(part / 'words').read_text()}")
    found = []
    # Ivy's own report of a resolution that it has just made: not a document from outside.
    for module in ElementTree.parse(part / "millrace-jars-default.xml").iter("module"):
        for revision in module.iter("revision"):
            found += [
                Coordinates(
                    module.attrib["organisation"],
                    artifact.attrib["name"],
                    revision.attrib["name"],
                    next((value for key, value in artifact.items() if key.endswith(".classifier")), ""),
                    artifact.attrib["ext"],
                )
                for artifact in revision.iter("artifact")
            ]
    return found


def contradictions(locked: Mapping[str, Sequence[Jar]], found: Mapping[str, Sequence[Jar]]) -> set[str]:
    before = {jar.coordinates: jar.sha256 for group in locked.values() for jar in group}
    return {
        str(jar.coordinates)
        for group in found.values()
        for jar in group
        if before.get(jar.coordinates, jar.sha256) != jar.sha256
    }


def written(groups: Mapping[str, Sequence[Jar]]) -> str:
    text = HEADER
    for group in sorted(groups):
        text += f"\n[{group}]\n"
        text += "".join(f"{jar.coordinates}  {jar.sha256}  {jar.size_bytes}\n" for jar in sorted(groups[group]))
    return text


if __name__ == "__main__":
    sys.exit(main())
