"""The registry of event schemas: a file in the project that says how each version of each event looks.

What code makes of events that were written long ago cannot be seen in the code alone. The file is kept with the code,
and `millrace events check` holds each change against it, in the user's CI, before anything is written by it.

- **backward**: this code reads all events that were ever written. Tried, not supposed: events are made up in every
  registered shape, led through the upcasters, and read by the class.
- **forward**: whoever knows the shape before (SQL, a flow, another service) can read what this code writes: no field of
  it is gone, sealed, or wider than it was.
- **full**: both.

Which fields are personal stands there too: without its mark a field is written for all to read, and for ever.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from millrace.errors import EventNameTaken, EventUnreadable, RegistryUnreadable
from millrace.events.aggregate import Aggregate
from millrace.events.kinds import Kind, kind_of
from millrace.events.values import Shape

FILE = "events.json"
COMPATIBILITIES = ("backward", "forward", "full")

_SAMPLES: dict[str, list[Any]] = {
    "text": ["", "a text"],
    "boolean": [True, False],
    "integer": [0, -7],
    "number": [0.5, -1.0],
    "decimal": ["0", "-12.50"],
    "time": ["2026-01-01T00:00:00+00:00"],
    "date": ["2026-01-01"],
    "uuid": ["00000000-0000-0000-0000-000000000001"],
}


@dataclass(frozen=True)
class Finding:
    """`new` is one that registering mends."""

    event: str
    version: int
    what: str
    fix: str
    new: bool = False


# The sealed fields of an event, each with the field that says whose it is; null is the aggregate's id.
Personal: TypeAlias = Mapping[str, str | None]


@dataclass(frozen=True)
class Registry:
    """`shapes` are the fields of each version of each event, and `personal` those that are sealed; None in a file of an
    older version of Millrace, which did not say."""

    compatibility: str = "backward"
    shapes: Mapping[str, Mapping[int, Mapping[str, Shape]]] = field(default_factory=dict)
    personal: Mapping[str, Mapping[int, Personal]] | None = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Registry:
        if not path.exists():
            return cls()
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            if raw["compatibility"] not in COMPATIBILITIES:
                raise ValueError(f"compatibility {raw['compatibility']!r}")
            personal = _by_number(raw["personal"]) if "personal" in raw else None
            return cls(raw["compatibility"], _by_number(raw["events"]), personal)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise RegistryUnreadable(file=path, reason=error) from None

    def write(self, path: Path) -> None:
        told = {"compatibility": self.compatibility, "events": _by_text(self.shapes)}
        if self.personal is not None:
            told["personal"] = _by_text(self.personal)
        text = json.dumps(told, indent=2)
        path.write_text(text + "\n", encoding="utf-8")

    def with_kinds(self, kinds: Iterable[Kind]) -> Registry:
        """With versions that it does not have yet. One that it has stays as it was registered."""
        shapes = {name: dict(versions) for name, versions in self.shapes.items()}
        personal = {name: dict(versions) for name, versions in (self.personal or {}).items()}
        for kind in kinds:
            shapes.setdefault(kind.name, {}).setdefault(kind.version, kind.record.shape)
            if kind.personal:
                personal.setdefault(kind.name, {}).setdefault(kind.version, kind.personal)
        return Registry(self.compatibility, shapes, personal)

    def sealed(self, kind: Kind, version: int) -> Personal:
        """Those of a registered version. A file that does not say is taken at the code's word."""
        return kind.personal if self.personal is None else self.personal.get(kind.name, {}).get(version, {})


def _by_number(raw: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[int, Any]]:
    return {name: {int(number): dict(each) for number, each in versions.items()} for name, versions in raw.items()}


def _by_text(found: Mapping[str, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {
        name: {str(number): dict(each) for number, each in sorted(versions.items())}
        for name, versions in sorted(found.items())
    }


def events_in(module: ModuleType) -> dict[str, type]:
    """The events of a module by their names: those defined in it or imported, and those of its aggregates."""
    found: dict[str, type] = {}
    for value in vars(module).values():
        kinds = value.__aggregate__.applies if isinstance(value, type) and issubclass(value, Aggregate) else (value,)
        for each in kinds:
            if not isinstance(each, type) or "__event__" not in vars(each):
                continue
            first = found.setdefault(kind_of(each).name, each)
            if first is not each:
                raise EventNameTaken(name=kind_of(each).name, first=first.__qualname__, second=each.__qualname__)
    return found


def check(kinds: Mapping[str, Kind], registry: Registry) -> list[Finding]:
    """What of these events does not go together with what is registered."""
    findings = []
    for name, versions in registry.shapes.items():
        if name not in kinds:
            fix = "keep its class: the store may hold such events, and they are never passed over"
            findings.append(Finding(name, max(versions), "the code does not know it any more", fix))
    for kind in kinds.values():
        findings += _one(kind, registry)
    return findings


def _one(kind: Kind, registry: Registry) -> list[Finding]:
    known, compatibility = registry.shapes.get(kind.name, {}), registry.compatibility

    def finding(what: str, fix: str, version: int = kind.version) -> Finding:
        return Finding(kind.name, version, what, fix)

    if known and max(known) > kind.version:
        what = f"version {max(known)} is registered, and the code has {kind.version}"
        return [finding(what, "do not go back: make a new version that looks like the old one")]
    last = max(known, default=0)
    marks = _marks(registry.sealed(kind, last), kind)
    if kind.version in known:
        changed = [*_difference(known[kind.version], kind.record.shape), *marks]
        if changed:
            what = f"its fields are not those that are registered: {', '.join(changed)}"
            fix = f"raise it to version={kind.version + 1}, and write the upcaster from {kind.version}"
            fix = f"mark it as it was; if the change is meant, {fix}" if marks else fix
            return [finding(what, fix)]
        found = _unread(kind, known) if compatibility != "forward" else []
        if not found and kind.personal and registry.personal is None:
            return [Finding(kind.name, kind.version, "which fields are personal is not registered", _WRITE, new=True)]
        return found
    found = []
    if compatibility != "forward":
        found += _unread(kind, known)
    if known and compatibility != "backward":
        fix = "keep the field as it was, beside the new"
        lost = _lost(known[last], kind.record.shape)
        lost += [f"{name!r} is sealed" for name in kind.personal if name in known[last] and name not in
                 registry.sealed(kind, last)]  # fmt: skip
        found += [finding(f"who knows version {last} cannot read it: {reason}", fix) for reason in lost]
    what = "it is not registered" if not known else "this version is not registered"
    what += f"; {', '.join(marks)}" if known and marks else ""
    return found or [Finding(kind.name, kind.version, what, _WRITE, new=True)]


_WRITE = "`millrace events check MODULE --write` registers it; commit the file"


def _marks(before: Personal, kind: Kind) -> list[str]:
    """What is sealed otherwise than it was. Of fields that are gone there is nothing to say."""
    words = []
    for name in (each for each in kind.record.fields if before.get(each, ...) != kind.personal.get(each, ...)):
        if name not in kind.personal:
            words.append(f"{name!r} is not personal any more, and nobody could forget what is written from now on")
        elif name not in before:
            words.append(f"{name!r} is personal now, and what was written before is not sealed")
        else:
            owners = [each or "the aggregate's id" for each in (before[name], kind.personal[name])]
            words.append(f"{name!r} was personal data of {owners[0]} and is of {owners[1]}")
    return words


def _unread(kind: Kind, known: Mapping[int, Mapping[str, Shape]]) -> list[Finding]:
    """Older events that the upcasters do not bring to the class."""
    found = []
    for version, fields in known.items():
        for sample in samples({"record": fields}):
            try:
                kind.decode(sample, version, 0)
            except EventUnreadable as error:
                what = f"an event of version {version} cannot be read: {error.facts['reason']}"
                found.append(Finding(kind.name, version, what, f"mend the upcaster from {version} on"))
                break
    return found


def _lost(old: Mapping[str, Shape], new: Mapping[str, Shape]) -> list[str]:
    found = []
    for name, shape in old.items():
        if name not in new:
            if not (isinstance(shape, dict) and "optional" in shape):
                found.append(f"{name!r} is gone")
        elif not _within(new[name], shape):
            found.append(f"{name!r} was {_spoken(shape)} and is {_spoken(new[name])}")
    return found


def _within(new: Shape, old: Shape) -> bool:
    """Whether every value of the new shape is also one of the old."""
    if new == old:
        return True
    if isinstance(old, dict) and "optional" in old:
        inner = new["optional"] if isinstance(new, dict) and "optional" in new else new
        return _within(inner, old["optional"])
    if (new, old) == ("integer", "number"):
        return True
    if not isinstance(new, dict) or not isinstance(old, dict) or new.keys() != old.keys():
        return isinstance(new, dict) and "enum" in new and old == {str: "text", int: "integer"}[type(new["enum"][0])]
    if "enum" in new:
        return set(new["enum"]) <= set(old["enum"])
    if "record" in new:
        return not _lost(old["record"], new["record"])
    if "pairs" in new:
        return all(map(_within, new["pairs"], old["pairs"]))
    (word,) = new
    return _within(new[word], old[word])


def samples(shape: Shape) -> list[Any]:
    """Made-up JSON of a shape: each part in each of its forms at least once."""
    if isinstance(shape, str):
        return _SAMPLES[shape]
    ((word, inner),) = shape.items()
    if word == "enum":
        return list(inner)
    if word == "optional":
        return [None, *samples(inner)]
    if word == "list":
        return [[], samples(inner)]
    if word == "map":
        return [{}, {f"key {n}": each for n, each in enumerate(samples(inner))}]
    if word == "pairs":
        return [[], [[samples(inner[0])[0], each] for each in samples(inner[1])]]
    made = {name: samples(each) for name, each in inner.items()}
    most = max(map(len, made.values()), default=1)
    return [{name: each[n % len(each)] for name, each in made.items()} for n in range(most)]


def _difference(old: Mapping[str, Shape], new: Mapping[str, Shape]) -> list[str]:
    words = [f"{name!r} is gone" for name in old if name not in new]
    words += [f"{name!r} is new" for name in new if name not in old]
    words += [
        f"{name!r} was {_spoken(old[name])} and is {_spoken(new[name])}"
        for name in new
        if name in old and old[name] != new[name]
    ]
    return words


def _spoken(shape: Shape) -> str:
    if isinstance(shape, str):
        return shape
    ((word, inner),) = shape.items()
    if word == "enum":
        return "one of " + ", ".join(map(repr, inner))
    return f"{word} {_spoken(inner)}" if word in ("optional", "list", "map") else word
