"""Figures in the text format that Prometheus reads (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Metric:
    """A counter only grows while the process lives, and its name ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str

    def __post_init__(self) -> None:
        assert (self.kind == "counter") == self.name.endswith("_total"), self.name


Sample: TypeAlias = tuple[Metric, Mapping[str, str], float | int | None]


def exposition(samples: Iterable[Sample]) -> str:
    """The samples of a metric stand together, under its HELP and TYPE. One without a value is left out."""
    lines: dict[Metric, list[str]] = {}
    for metric, labels, value in samples:
        if value is not None:
            shown = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            lines.setdefault(metric, []).append(f"{metric.name}{{{shown}}} {value!r}\n")
    text = ""
    for metric, found in lines.items():
        about = metric.help.replace("\\", r"\\").replace("\n", r"\n")
        text += f"# HELP {metric.name} {about}\n# TYPE {metric.name} {metric.kind}\n{''.join(found)}"
    return text


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
