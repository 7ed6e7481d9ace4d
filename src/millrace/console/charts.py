"""Charts as ECharts takes them. Times are ms since 1970, shown in UTC."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.console.land import OUTLINES

Points = Sequence[tuple[float, float]]

_COLORS = ("#1f6feb", "#2e8b57", "#d98a00", "#8a63d2", "#cf3b2e", "#7a8794")
_AXIS: dict[str, Any] = {
    "axisLabel": {"color": "#7a8794", "fontSize": 11, "hideOverlap": True},
    "splitLine": {"lineStyle": {"color": "rgba(128,140,150,.2)"}},
}


def lines(named: Mapping[str, Points], *, area: bool = False) -> dict[str, Any]:
    return _chart(
        [
            {"name": name, "type": "line", "data": [list(point) for point in points], "showSymbol": False,
             "lineStyle": {"width": 1.5}, **({"areaStyle": {"opacity": 0.15}} if area else {})}
            for name, points in named.items()
        ]
    )  # fmt: skip


def whole(chart: dict[str, Any]) -> dict[str, Any]:
    """The same chart with no parts of one on its axis: what is counted has none."""
    return {**chart, "yAxis": {**chart["yAxis"], "minInterval": 1}}


def stacked(named: Mapping[str, Points]) -> dict[str, Any]:
    return _chart(
        [
            {"name": name, "type": "bar", "stack": "all", "data": [list(point) for point in points], "barMaxWidth": 8}
            for name, points in named.items()
        ]
    )


# Beside a mark at the edge, as a part of the axis: its word is centred over it.
_MARK_ROOM = 0.05


def bars(points: Points, marks: Sequence[tuple[float, str]]) -> dict[str, Any]:
    """Bars with a red line wherever something began again."""
    made = _chart([{"name": "epoch (s)", "type": "bar", "data": [list(point) for point in points], "barMaxWidth": 10}])
    made["series"][0]["markLine"] = {
        "symbol": "none",
        "animation": False,
        "lineStyle": {"color": "#cf3b2e", "type": "solid"},
        "label": {"formatter": "{b}", "fontSize": 10, "color": "#cf3b2e"},
        "data": [{"xAxis": at_ms, "name": what} for at_ms, what in marks],
    }
    if points and marks:  # by itself the axis has the bars alone
        bars_ms, marks_ms = [at_ms for at_ms, _ in points], [at_ms for at_ms, _ in marks]
        least, most = min(*bars_ms, *marks_ms), max(*bars_ms, *marks_ms)
        room = _MARK_ROOM * (most - least)
        made["xAxis"] |= {"min": least - room} if least < min(bars_ms) else {}
        made["xAxis"] |= {"max": most + room} if most > max(bars_ms) else {}
    return made


def scatter(points: Points) -> dict[str, Any]:
    """Event time (up) against arrival (to the right), with the line on which both are the same."""
    made = _chart([{"name": "event", "type": "scatter", "symbolSize": 4, "data": [list(point) for point in points]}])
    made["yAxis"] = {"type": "time", "name": "event time", **_AXIS, "scale": True}
    made["xAxis"] |= {"name": "arrival", "nameLocation": "middle", "nameGap": 24}
    made["grid"]["bottom"] = 26
    if points:
        first, last = min(point[0] for point in points), max(point[0] for point in points)
        made["series"].append(
            {"name": "no delay", "type": "line", "data": [[first, first], [last, last]], "showSymbol": False, "z": 3,
             "lineStyle": {"width": 2, "type": "dashed", "color": "#d98a00"}}
        )  # fmt: skip
    return made


def shares(labels: Sequence[str], values: Sequence[float], chosen: int | None) -> dict[str, Any]:
    """A bar for each lag with the percentage it would lose; the chosen one is marked."""
    data = [
        {"value": round(value * 100, 4), "itemStyle": {"color": "#cf3b2e" if number == chosen else "#1f6feb"}}
        for number, value in enumerate(values)
    ]
    made = _chart([{"name": "% too late", "type": "bar", "data": data, "barMaxWidth": 24}])
    made["yAxis"]["axisLabel"] = {**_AXIS["axisLabel"], "formatter": "{value} %"}
    made["xAxis"] = {"type": "category", "data": list(labels), "axisLabel": {"fontSize": 10, "color": "#7a8794"}}
    return made


# ECharts has no polygons of its own on a plane of numbers: each is drawn by a function.
_LAND: dict[str, Any] = {
    "name": "land", "type": "custom", "silent": True, "clip": True, "z": 0, "tooltip": {"show": False},
    ":renderItem": f"""(params, api) => ({{type: "polygon",
        shape: {{points: {json.dumps(OUTLINES)}[params.dataIndex].map((place) => api.coord(place))}},
        style: {{fill: "rgba(128,140,150,.16)", stroke: "rgba(128,140,150,.35)", lineWidth: 1}}}})""",
    # By its first corner alone ECharts would leave out what begins outside the plane.
    "data": [[0, 0]] * len(OUTLINES), "encode": {"x": -1, "y": -1},
}  # fmt: skip

# Longitude, latitude, a name, how many payments and how many alerts.
Place = tuple[float, float, str, int, int]


def plane(places: Sequence[Place], journeys: Sequence[tuple[tuple[float, float], ...]]) -> dict[str, Any]:
    """Places by longitude and latitude, and lines between two of them."""
    most = max((payments for _, _, _, payments, _ in places), default=0)
    spans = _span([each[0] for each in places], 180), _span([each[1] for each in places], 90)
    paid = [_place(lon, lat, name, payments, most) for lon, lat, name, payments, _ in places]
    for each, side in zip(paid, sides(paid, *spans), strict=True):
        each["label"]["position"] = side
    alarmed = [_place(lon, lat, name, alerts, most) for lon, lat, name, _, alerts in places if alerts]
    label = {"show": True, "color": "#5b6b7c", "fontSize": 12}
    lines = {"color": "#cf3b2e", "width": 1.5, "curveness": 0.15, "opacity": 0.7}
    made = _chart(
        [
            _LAND,
            {"name": "payments", "type": "scatter", "data": paid, "label": label,
             "labelLayout": {"hideOverlap": True}, "itemStyle": {"color": "#1f6feb66"}},
            {"name": "alerts", "type": "scatter", "data": alarmed, "z": 3, "itemStyle": {"color": "#cf3b2ebf"}},
            {"name": "impossible journeys", "type": "lines", "coordinateSystem": "cartesian2d", "z": 4, "silent": True,
             "symbol": ["none", "arrow"], "symbolSize": 8, "lineStyle": lines,
             "data": [{"coords": [list(end) for end in each]} for each in journeys]},
        ]
    )  # fmt: skip
    axis = {**_AXIS, "type": "value", "axisLabel": {**_AXIS["axisLabel"], "formatter": "{value}°"}}
    axis["axisLine"] = axis["axisTick"] = {"show": False}
    made["legend"]["data"] = [each["name"] for each in made["series"][1:]]
    made["tooltip"] = {"trigger": "item", "formatter": "{a} at {b}"}
    made["xAxis"], made["yAxis"] = ({**axis, **span} for span in spans)
    made["dataZoom"] = [{"type": "inside", f"{one}AxisIndex": 0, "filterMode": "none"} for one in "xy"]
    return made


# Of a circle, in pixels: small enough that neighbouring capitals are told apart when there is something in Australia.
_SMALLEST, _LARGEST = 6, 28
# In pixels too, about: the plane, and a letter and a line of a name.
_PLANE = (650, 460)
_LETTER, _LINE = 8, 14
SIDES = ("bottom", "top", "right", "left")
# Left, upper, right and lower edge.
Box = tuple[float, float, float, float]


def _place(lon: float, lat: float, name: str, count: int, most: int) -> dict[str, Any]:
    """Its area beside that of the place with most payments."""
    size = _SMALLEST + (_LARGEST - _SMALLEST) * (min(count / most, 1) ** 0.5 if most else 1)
    told = {"formatter": name}  # how many is said to whoever points at it: there is little room
    return {"name": f"{name} ({count:,})", "value": [lon, lat], "symbolSize": round(size, 1), "label": told}


def boxes(place: Mapping[str, Any], across: Mapping[str, int], up: Mapping[str, int]) -> dict[str, Box]:
    """Where the circle of a place is on the plane, about, in pixels, and where its name would be on each side of it."""
    lon, lat = place["value"]
    x = (lon - across["min"]) / (across["max"] - across["min"]) * _PLANE[0]
    y = (up["max"] - lat) / (up["max"] - up["min"]) * _PLANE[1]
    far, half, high = place["symbolSize"] / 2, len(place["label"]["formatter"]) * _LETTER / 2, _LINE / 2
    beside = far + 5 + half
    middles = {"bottom": (x, y + far + 5 + high), "top": (x, y - far - 5 - high), "right": (x + beside, y),
               "left": (x - beside, y)}  # fmt: skip
    found = {side: (mx - half, my - high, mx + half, my + high) for side, (mx, my) in middles.items()}
    return {**found, "circle": (x - far, y - far, x + far, y + far)}


def sides(places: Sequence[Mapping[str, Any]], across: Mapping[str, int], up: Mapping[str, int]) -> list[str]:
    """On which side of each place its name stands, so that as few as possible stand on another."""
    known = [boxes(place, across, up) for place in places]
    taken = [each["circle"] for each in known]
    found = []
    for own in known:
        hits = {side: sum(_overlap(own[side], other) for other in taken) for side in SIDES}
        found.append(min(SIDES, key=lambda side: hits[side]))
        taken.append(own[found[-1]])
    return found


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _span(values: Sequence[float], most: int) -> dict[str, int]:
    """All of them, with room around; all there is if there are none."""
    if not values:
        return {"min": -most, "max": most}
    low, high = int(min(values) // 10) * 10 - 10, -int(-max(values) // 10) * 10 + 10
    return {"min": max(low, -most), "max": min(high, most)}


def _chart(series: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "animation": False,
        "useUTC": True,
        "color": list(_COLORS),
        "grid": {"left": 8, "right": 16, "top": 34, "bottom": 8, "containLabel": True},
        "legend": {
            "show": len(series) > 1,
            "top": 0,
            "itemHeight": 8,
            "itemWidth": 12,
            "itemGap": 8,
            "textStyle": {"color": "#7a8794", "fontSize": 11},
        },
        "tooltip": {"trigger": "axis"},
        "xAxis": {"type": "time", **_AXIS, "splitLine": {"show": False}},
        "yAxis": {"type": "value", **_AXIS},
        "series": series,
    }
