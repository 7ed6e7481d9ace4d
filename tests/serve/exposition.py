"""A strict reader of Prometheus's text format: whatever its description does not allow is an error here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_HELP = re.compile(rf"# HELP ({_NAME}) ((?:[^\\]|\\\\|\\n)*)")
_TYPE = re.compile(rf"# TYPE ({_NAME}) (counter|gauge)")
_LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\\\|\\"|\\n)*"'
_SAMPLE = re.compile(rf"({_NAME})(?:{{({_LABEL}(?:,{_LABEL})*)?}})? (\S+)")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?([eE][+-]?\d+)?|Inf)|NaN")


@dataclass
class Family:
    kind: str
    help: str
    samples: dict[tuple[tuple[str, str], ...], float] = field(default_factory=dict)


def parsed(text: str) -> dict[str, Family]:
    assert text == "" or text.endswith("\n"), "the last line ends with a line feed"
    families: dict[str, Family] = {}
    current = about = None
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP"):
            found = _HELP.fullmatch(line)
            assert found, line
            about = found.groups()
        elif line.startswith("# TYPE"):
            found = _TYPE.fullmatch(line)
            assert found, line
            assert about, f"no HELP before {line}"
            assert about[0] == found[1] not in families, f"{line} does not follow its HELP, or comes twice"
            current, families[found[1]] = found[1], Family(found[2], about[1])
            assert (found[2] == "counter") == found[1].endswith("_total"), line
        else:
            found = _SAMPLE.fullmatch(line)
            assert found, line
            assert found[1] == current, f"{line} stands outside its family"
            labels = tuple((name, _unescaped(value)) for name, value in _pairs(found[2] or ""))
            assert len(dict(labels)) == len(labels), line
            assert _NUMBER.fullmatch(found[3]), line
            assert labels not in families[found[1]].samples, f"{line} comes twice"
            families[found[1]].samples[labels] = float(found[3])
    assert all(family.samples for family in families.values())
    return families


def _pairs(labels: str) -> list[tuple[str, str]]:
    return re.findall(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"', labels)


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)
