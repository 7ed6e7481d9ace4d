"""Where a player stands among all, as the sorted set has it that a flow keeps in Redis."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from millrace.config import Settings
from millrace.flow import Delivery, Graph
from millrace.sinks.redis import RedisRanking
from millrace.sinks.redis_calls import connect, told


@dataclass(frozen=True)
class Rank:
    """The best one has rank 1."""

    rank: int
    points: float
    players: int


def ranking_of(graph: Graph) -> RedisRanking | None:
    """The app's, if it has one."""
    sinks = (node.sink for node in graph.nodes if isinstance(node, Delivery))
    return next((sink for sink in sinks if isinstance(sink, RedisRanking)), None)


def rank_of(sink: RedisRanking, settings: Settings, player: str) -> Rank | None:
    """None for somebody who has not played."""
    with told(sink), closing(connect(sink, sink.url(settings))) as client:
        asked = client.pipeline().zrevrank(sink.ranking, player).zscore(sink.ranking, player).zcard(sink.ranking)
        place, points, players = asked.execute()
    return None if place is None else Rank(place + 1, points, players)
