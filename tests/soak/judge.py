"""Whether a figure stays as it is: its slope over time, against what it may grow."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

# The first minutes do not count: caches fill, code is compiled, a checkpoint does not have its hundred epochs yet.
WARM_UP = 0.3
# Pairs of so many points are enough for a slope.
MOST_POINTS = 200


@dataclass(frozen=True)
class Series:
    """A figure over time. It is flat if in the judged time it grows by less than `part` of its level, or by less than
    `floor` in its own unit, which is what it varies by anyway."""

    name: str
    unit: str
    floor: float
    points: Sequence[tuple[float, float]]  # minutes, value
    part: float = 0.1

    @property
    def judged(self) -> list[tuple[float, float]]:
        if not self.points:
            return []
        first, last = self.points[0][0], self.points[-1][0]
        kept = [point for point in self.points if point[0] >= first + WARM_UP * (last - first)]
        return kept[:: max(1, len(kept) // MOST_POINTS)]

    @property
    def level(self) -> float:
        return statistics.median(value for _, value in self.judged)

    @property
    def slope(self) -> float:
        """A minute, the median over all pairs of points, which a few wild ones do not move (Theil and Sen)."""
        slopes = [(b - a) / (then - now) for (now, a), (then, b) in combinations(self.judged, 2) if then > now]
        return statistics.median(slopes) if slopes else 0.0

    @property
    def growth(self) -> float:
        """Over the judged time."""
        return self.slope * (self.judged[-1][0] - self.judged[0][0]) if self.judged else 0.0

    @property
    def allowed(self) -> float:
        return max(self.floor, self.part * abs(self.level))

    @property
    def flat(self) -> bool:
        """What shrinks is flat too. A figure of which nothing is known is not."""
        return bool(self.judged) and self.growth <= self.allowed

    def line(self) -> str:
        if not self.judged:
            return f"{self.name}: nothing was measured"
        words = "flat" if self.flat else "GROWS"
        grown = f"{self.growth:+,.1f} {self.unit} in {self.judged[-1][0] - self.judged[0][0]:.0f} minutes"
        return f"{self.name}: {self.level:,.1f} {self.unit}, {grown} (allowed {self.allowed:,.1f}): {words}"


def svg(series: Sequence[Series], title: str) -> str:
    """A small picture of each, one below the other; the judged part darker."""
    height, wide, parts = 70, 640, [f'<text x="10" y="18" font-weight="bold">{title}</text>']
    for row, each in enumerate(one for one in series if one.points):
        top, values = 30 + row * height, [value for _, value in each.points]
        low, high, end = min(*values, 0.0), max(*values, 1e-9), max(each.points[-1][0], 1e-9)
        for points, colour in ((each.points, "#9bb"), (each.judged, "#146")):
            at = (f"{10 + m / end * wide:.1f},{top + 50 - (v - low) / (high - low) * 44:.1f}" for m, v in points)
            parts.append(f'<polyline fill="none" stroke="{colour}" points="{" ".join(at)}"/>')
        parts.append(f'<text x="10" y="{top + 62}">{each.line()}; at most {max(values):,.1f}</text>')
    size = f'width="{wide + 20}" height="{40 + height * len(series)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="10">'
    return "\n".join([head, f'<rect {size} fill="#fff"/>', *parts, "</svg>\n"])
