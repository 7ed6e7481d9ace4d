"""Charts as ECharts takes them. Times are ms since 1970, shown in UTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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


def stacked(named: Mapping[str, Points]) -> dict[str, Any]:
    return _chart(
        [
            {"name": name, "type": "bar", "stack": "all", "data": [list(point) for point in points], "barMaxWidth": 8}
            for name, points in named.items()
        ]
    )


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
    return made


def scatter(points: Points) -> dict[str, Any]:
    """Event time (up) against arrival (to the right), with the line on which both are the same."""
    made = _chart([{"name": "event", "type": "scatter", "symbolSize": 4, "data": [list(point) for point in points]}])
    made["yAxis"] = {"type": "time", "name": "event time", **_AXIS, "scale": True}
    made["xAxis"]["name"] = "arrival"
    if points:
        first, last = min(point[0] for point in points), max(point[0] for point in points)
        made["series"].append(
            {"name": "no delay", "type": "line", "data": [[first, first], [last, last]], "showSymbol": False,
             "lineStyle": {"width": 1, "type": "dashed", "color": "#7a8794"}}
        )  # fmt: skip
    return made


def shares(labels: Sequence[str], values: Sequence[float], chosen: int | None) -> dict[str, Any]:
    """A bar for each lag with the percentage it would lose; the chosen one is marked."""
    data = [
        {"value": round(value * 100, 4), "itemStyle": {"color": "#cf3b2e" if number == chosen else "#1f6feb"}}
        for number, value in enumerate(values)
    ]
    made = _chart([{"name": "% too late", "type": "bar", "data": data, "barMaxWidth": 24}])
    made["xAxis"] = {"type": "category", "data": list(labels), "axisLabel": {"fontSize": 10, "color": "#7a8794"}}
    return made


# Longitude, latitude, a name, how many payments and how many alerts.
Place = tuple[float, float, str, int, int]


def plane(places: Sequence[Place], journeys: Sequence[tuple[tuple[float, float], ...]]) -> dict[str, Any]:
    """Places by longitude and latitude, and lines between two of them."""
    paid = [_place(lon, lat, name, payments) for lon, lat, name, payments, _ in places]
    alarmed = [_place(lon, lat, name, alerts) for lon, lat, name, _, alerts in places if alerts]
    label = {"show": True, "formatter": "{b}", "position": "bottom", "color": "#7a8794", "fontSize": 11}
    lines = {"color": "#cf3b2e", "width": 1.5, "curveness": 0.15, "opacity": 0.7}
    made = _chart(
        [
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
    made["tooltip"] = {"trigger": "item", "formatter": "{a} at {b}"}
    made["xAxis"] = {**axis, **_span([each[0] for each in places], 180)}
    made["yAxis"] = {**axis, **_span([each[1] for each in places], 90)}
    made["dataZoom"] = [{"type": "inside", "xAxisIndex": 0}, {"type": "inside", "yAxisIndex": 0}]
    return made


def _place(lon: float, lat: float, name: str, count: int) -> dict[str, Any]:
    return {"name": f"{name} ({count:,})", "value": [lon, lat], "symbolSize": min(6 + 1.5 * count**0.5, 36)}


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
