"""The leaderboard of many players: the highest rate of scores at which a change is visible within two seconds.

    python -m bench.leaderboard [--players 10000000] [--rates 500,1000,2000,5000,10000,20000,50000] [--seconds 40]
                                [--mode realtime]

First every player gets points: a backlog, of which the CPU seconds of a million are taken. Then scores of any of them
come at each rate in turn, and ten times a second one of somebody who has more than all before (a probe). A probe is
visible when its row is in the topic `leaders`, and when the sorted set in Redis has it. A rate is held when of all its
probes 99 in 100 were visible in both within two seconds, and none is missing; the first rate that is not held ends it.

Beside it the limit: redis-py's pipelines of ZADD, a thousand at a time, into a sorted set of as many players, which
keep no ranking of changes, compare no versions and survive no crash.

The cluster is on paper: cores for 500,000 scores a second, at the CPU seconds that a score took here at the highest
rate held, of Spark, Kafka and Redis together.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import redis
from pyspark.sql import functions as F

from bench.kernel import cpu_s
from bench.leaderboard_sending import PROBE
from millrace import config, local
from millrace.config import Settings
from millrace.demo import leaderboard
from millrace.engine import Run
from millrace.engine.plan import flows_of
from millrace.engine.realtime import slots_declared
from millrace.engine.session import close, session
from millrace.flow.app import MODES
from millrace.flow.nodes import Mode
from millrace.log import Log

VISIBLE_S = 2.0
WANTED_PER_S = 500_000
COMMANDS_A_PIPELINE = 1_000
ZADDS = 500_000
WAIT_S = 60.0
MEMORY = "8gb"
PARTITIONS = 2
LOOK_S = 0.1  # Redis answers for this, and its CPU seconds are counted: no more often than probes come
SETTLE_S = 10.0  # the first epochs of a rate are not those of a steady one


@dataclass
class Watching:
    """When each probe was first seen in the topic, and in Redis."""

    settings: Settings
    in_topic: dict[str, float] = field(default_factory=dict)
    in_redis: dict[str, float] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        for target in (self._read_topic, self._ask_redis):
            threading.Thread(target=target, daemon=True).start()

    def _read_topic(self) -> None:
        for record in Log(self.settings).read("leaders", "latest", follow=True, stop=self.ended):
            row = record.json()
            if row["player"].startswith(PROBE) and row["__diff"] > 0:
                self.in_topic.setdefault(row["player"], time.time())

    def _ask_redis(self) -> None:
        server = redis.Redis.from_url(local.address(self.settings, "valkey"), decode_responses=True)
        while not self.ended.wait(LOOK_S):
            best: Any = server.zrevrange("players", 0, 200)
            now = time.time()
            for player in best:
                if player.startswith(PROBE):
                    self.in_redis.setdefault(player, now)

    def delays_s(self, begun: float, ended: float) -> list[float]:
        """Of the probes sent in between: until they were visible in both."""
        return sorted(
            max(self.in_topic[name], self.in_redis[name]) - sent
            for name in set(self.in_topic) & set(self.in_redis)
            if begun <= (sent := int(name.removeprefix(PROBE)) / 1000) < ended
        )


class Bench:
    def __init__(self, settings: Settings, players: int, mode: Mode) -> None:
        self.settings, self.players, self.log = settings, players, Log(settings)
        app = leaderboard.application("leaderboard", mode=mode)
        # In real time every task holds a slot all the while.
        slots = max(2, slots_declared(flows_of(app.graph()), PARTITIONS))
        self.spark = session(settings, f"local[{slots}]", "bench")
        self.run = Run(app, settings, spark=self.spark, traffic=False)

    def load(self) -> dict[str, float]:
        """One score of every player: written before the flows begin."""
        self.log.topics.ensure("scores", partitions=PARTITIONS)
        # More than a project's own server takes unless it is told.
        with redis.Redis.from_url(local.address(self.settings, "valkey")) as server:
            server.config_set("maxmemory", MEMORY)
        player = F.format_string("player-%d", "id")
        row = F.struct(
            player.alias("player"),
            (F.rand(1) * 10_000).cast("long").alias("points"),
            F.date_format(F.current_timestamp(), "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'").alias("at"),
        )
        rows = self.spark.range(0, self.players, 1, PARTITIONS).select(
            player.cast("binary").alias("key"), F.to_json(row).alias("value")
        )
        rows.write.format("kafka").options(**self.log.data_source.options).option("topic", "scores").save()
        spent, started = cpu_s(), time.monotonic()
        self.run.start()
        while min(each.rows_in for each in self.run.standings.values()) < self.players:
            self.run.poll()
            time.sleep(0.2)
        took_s = time.monotonic() - started
        return {
            "players_per_s": round(self.players / took_s),
            "spark_cpu_s_per_million": round((cpu_s() - spent) * 1e6 / self.players, 1),
        }

    def held(self, watching: Watching, rate: int, seconds: float) -> dict[str, float]:
        """What became of the probes at a rate, and what a score cost."""
        begun, spent = time.time(), self._spent()
        command = [sys.executable, "-m", "bench.leaderboard_sending", json.dumps(self._client()), "scores"]
        sender = subprocess.Popen(
            [*command, str(rate), str(seconds), str(self.players)], stdout=subprocess.PIPE, text=True
        )
        while sender.poll() is None:
            self.run.poll()
            time.sleep(0.2)
        assert sender.stdout is not None
        sent = json.loads(sender.stdout.read())
        ended, deadline = time.time(), time.monotonic() + WAIT_S
        while len(watching.delays_s(begun, ended)) < sent["probes"] and time.monotonic() < deadline:
            self.run.poll()
            time.sleep(0.2)
        every, steady = watching.delays_s(begun, ended), watching.delays_s(begun + SETTLE_S, ended)
        spent_s = {name: now - spent[name] for name, now in self._spent().items()}
        return {
            "rate": round(sent["sent"] / sent["seconds"]),
            "probes": sent["probes"],
            "missing": sent["probes"] - len(every),
            "p50_s": round(_at(steady, 0.5), 2),
            "p99_s": round(_at(steady, 0.99), 2),
            **{f"{name}_cpu_s_per_million": round(own * 1e6 / sent["sent"], 1) for name, own in spent_s.items()},
        }

    def end(self) -> None:
        self.run.stop()
        close(self.spark)

    def _client(self) -> Mapping[str, str]:
        return {"bootstrap.servers": local.address(self.settings, "kafka")}

    def _spent(self) -> dict[str, float]:
        servers = {each.server: each.pid for each in local.status(self.settings) if each.pid is not None}
        return {"spark": cpu_s(), **{name: sum(psutil.Process(pid).cpu_times()[:2]) for name, pid in servers.items()}}


def _at(delays_s: Sequence[float], part: float) -> float:
    return delays_s[min(len(delays_s) - 1, int(len(delays_s) * part))] if delays_s else float("inf")


def zadds(settings: Settings, players: int) -> int:
    """ZADDs a second by redis-py alone, of players that the set has already."""
    server, draw = redis.Redis.from_url(local.address(settings, "valkey")), random.Random(2)
    commands = [(f"player-{draw.randrange(players)}", draw.randrange(10_000)) for _ in range(ZADDS)]
    started = time.monotonic()
    for first in range(0, ZADDS, COMMANDS_A_PIPELINE):
        pipeline = server.pipeline(transaction=False)
        for player, points in commands[first : first + COMMANDS_A_PIPELINE]:
            pipeline.zadd("players", {player: points})
        pipeline.execute()
    return round(ZADDS / (time.monotonic() - started))


def measured(folder: Path, players: int, rates: Sequence[int], seconds: float, mode: Mode) -> dict[str, Any]:
    found = config.load(folder)
    options = {"spark.sql.shuffle.partitions": str(PARTITIONS), "spark.driver.memory": "2g"}
    settings = replace(found, spark=replace(found.spark, options=options))
    with local.held(settings, ("kafka", "valkey")):
        bench = Bench(settings, players, mode)
        loaded = bench.load()
        print(f"{players:,} players loaded: {loaded}", flush=True)
        watching, best = Watching(settings), None
        watching.start()
        for rate in rates:
            one = bench.held(watching, rate, seconds)
            print(f"{rate:8,}/s: " + ", ".join(f"{key} {value:,}" for key, value in one.items()), flush=True)
            if one["missing"] or one["p99_s"] > VISIBLE_S or one["rate"] < 0.95 * rate:
                break
            best = one
        watching.ended.set()
        bench.end()
        return {"loaded": loaded, "held": best, "zadd_per_s": zadds(settings, players)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--players", type=int, default=10_000_000)
    parser.add_argument("--rates", default="500,1000,2000,5000,10000,20000,50000")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--mode", choices=MODES, default=MODES[0], help="how the flow of the best hundred runs")
    args = parser.parse_args()
    rates = [int(each) for each in args.rates.split(",")]
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name:
        figures = measured(Path(name), args.players, rates, args.seconds, args.mode)
    held = figures["held"]
    if held is not None:
        cost_s = sum(value for key, value in held.items() if key.endswith("_cpu_s_per_million"))
        figures |= {"cpu_s_per_million": round(cost_s, 1), "cores_for_500000_per_s": round(cost_s * WANTED_PER_S / 1e6)}
        print(
            f"held: {held['rate']:,}/s, {cost_s:.1f} CPU s a million;"
            f" {figures['cores_for_500000_per_s']} cores for 500,000/s"
        )
    ratios = {"to_zadd": round(held["rate"] / figures["zadd_per_s"], 3) if held else 0.0}
    print(json.dumps({"bench": "leaderboard", "ratios": ratios, "figures": figures, "peer": "redis-py's ZADD"}))


if __name__ == "__main__":
    main()
