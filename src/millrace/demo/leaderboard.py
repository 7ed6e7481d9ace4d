"""A leaderboard: the hundred best of all players, as scores come in; and everybody's rank, in Redis.

millrace demo --only leaderboard                    made-up scores; the changes of the best hundred are printed
millrace run millrace.demo.leaderboard:at_once      the same in real time: each change as soon as its score is there

scores ──┬──▶ top 100 ──▶ leaders: what went (__diff -1) and what came (+1)
         └──▶ Redis sorted set `players`: ZREVRANK players ann
"""

from __future__ import annotations

import random
from typing import Any

from pyspark.sql import DataFrame

import millrace as mr

PLAYERS = 100_000
BEST = 100


def leaders(scores: DataFrame) -> DataFrame:
    """The best hundred by their newest points, of players who have played within a week. Ranks that have changed are
    told, as signed rows: a reader that takes away what went and adds what came always has the ranking."""
    return mr.top(
        scores, BEST, of="player", order=["-points", "player"], emit="updates", ttl="7 days", late=mr.late.drop()
    )


def application(name: str, **how: Any) -> mr.App:
    """The app. `how` are options of the stream of leaders (`mode`, `epoch`)."""
    app = mr.App(name)
    columns = "player string, points long, at timestamp"
    scores = app.topic("scores", columns, time="at", lateness="10 seconds", key="player")
    app.traffic(scores, rate=200)(made_up)
    app.stream(scores, key="player", **how)(leaders)
    # Players who are not among the best want to know their ranks too: the sorted set answers for all.
    scores.to(mr.redis_ranking("players", member="player", score="points"))
    return app


def made_up(chance: random.Random, n: int) -> dict[str, Any]:
    return score(chance, n)


def score(chance: random.Random, n: int, players: int = PLAYERS) -> dict[str, Any]:
    """Somebody's points after a game: the more games, the more points, and sometimes somebody begins anew."""
    points = 0 if chance.random() < 0.01 else int(chance.paretovariate(1.5) * 100) + n // 10
    return {"player": f"player-{chance.randrange(players)}", "points": points}


app = application("leaderboard")
at_once = application("leaderboard_at_once", mode="realtime")
