"""Patterns against Flink's MATCH_RECOGNIZE: the same events, and whether the answers are the same.

    python -m bench.match [--events N]        (fails if some answers differ)

Of the patterns that both can do: Flink has no groups, no alternation and no absences, and fails where the next match
would begin with its own first row. `!odd` is written for it as rows that are not odd. The seconds are of Flink's job
and of a batch here, each with its start, and say little.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import millrace as mr
from bench.flink import VERSION, Flink
from bench.nexmark.flink import OPTIONS
from millrace import config
from millrace.engine.session import close, session

START = datetime(2026, 1, 1, tzinfo=UTC)
DEFINE = {
    "small": "{}n BETWEEN 1 AND 5",
    "large": "{}n >= 7",
    "zero": "{}n = 0",
    "odd": "MOD({}n, 2) = 1",
    "even": "MOD({}n, 2) = 0",
}
# The pattern here, the pattern there, and where the next one begins.
CASES = [
    ("small{3,} large", "small{3,} large", "past last row"),
    ("large any*? zero", "large any*? zero", "past last row"),
    ("large any*? zero", "large any*? zero", "next row"),
    ("small !odd large", "small even*? large", "past last row"),
    ("small{2,} large", "small{2,} large", "last small"),
    ("large{2} small{1,3} zero", "large{2} small{1,3} zero", "next row"),
    ("large small*? odd", "large small*? odd", "past last row"),
    ("odd small* large", "odd small* large", "next row"),
]
SKIPS = {"past last row": "PAST LAST ROW", "next row": "TO NEXT ROW", "last small": "TO LAST v_small"}

Found = Counter[tuple[Any, ...]]


def events(count: int) -> Iterator[str]:
    """Some seconds out of order; no two of a key at the same time, where Flink goes by arrival."""
    draw, last, made = random.Random(1), dict[int, int](), []
    for number in range(count):
        key = draw.randrange(max(count // 100, 1))
        last[key] = max(last.get(key, 0) + 1, number * 50 + draw.randrange(3_000))
        made.append((last[key] + draw.randrange(2_000), key, draw.randrange(10), last[key]))
    for _, key, n, at_ms in sorted(made):
        at = (START + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        yield json.dumps({"k": key, "n": n, "ts": at}) + "\n"


def flink(work: Path) -> Iterator[tuple[Found, float]]:
    files = f"'connector' = 'filesystem', 'format' = 'json', 'path' = '{(work / 'in').as_uri()}'"
    watermark = "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"
    source = f"CREATE TABLE e (k BIGINT, n BIGINT, ts TIMESTAMP(3), {watermark}) WITH ({files})"
    with Flink(work, {**OPTIONS, "state.backend.type": "hashmap"}, [source]) as peer:
        for number, (_, pattern, after) in enumerate(CASES):
            into = files.replace("/in'", f"/out{number}'")
            made = f"CREATE TABLE r{number} WITH ({into}) AS {sql(pattern, after)}"
            took = peer.ask(insert=made, after=[])["seconds"]
            rows = [json.loads(line) for path in (work / f"out{number}").iterdir() for line in path.open()]
            yield Counter((row["k"], micros(row["s"]), micros(row["e"]), row["c"]) for row in rows), took


def sql(pattern: str, after: str) -> str:
    """Variables get a prefix, since some are words of SQL."""
    names = re.findall("[a-z]+", pattern)
    define = [f"v_{name} AS {DEFINE[name].format(f'v_{name}.')}" for name in dict.fromkeys(names) if name in DEFINE]
    last, prefixed = f"v_{names[-1]}", re.sub("([a-z]+)", r"v_\1", pattern)
    return f"""SELECT k, s, e, c FROM e MATCH_RECOGNIZE (
        PARTITION BY k ORDER BY ts MEASURES FIRST(v_{names[0]}.ts) AS s, LAST({last}.ts) AS e, SUM({last}.n) AS c
        ONE ROW PER MATCH AFTER MATCH SKIP {SKIPS[after]} PATTERN ({prefixed})
        WITHIN INTERVAL '20' SECOND DEFINE {", ".join(define)})"""


def micros(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - START) // timedelta(microseconds=1)


def ours(spark: SparkSession, work: Path) -> Iterator[tuple[Found, float]]:
    rows = spark.read.schema("k long, n long, ts timestamp").json(str(work / "in"))
    since = [F.unix_micros(name) - int(START.timestamp()) * 1_000_000 for name in ("match_start", "match_end")]
    for pattern, _, after in CASES:
        begun, names = time.monotonic(), re.findall("[a-z]+", pattern)
        define = {name: DEFINE[name].format("") for name in names if name in DEFINE}
        given: Any = {"define": define, "within": "20 seconds", "late": mr.late.drop(), "after": after}
        found = mr.match(rows, by="k", pattern=pattern, measures={"c": mr.sum(f"{names[-1]}.n")}, **given)
        yield Counter(tuple(row) for row in found.select("k", *since, "c").collect()), time.monotonic() - begun


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=20_000)
    count = parser.parse_args().events
    with tempfile.TemporaryDirectory(prefix="millrace-bench-", ignore_cleanup_errors=True) as name:
        work = Path(name)
        (work / "in").mkdir()
        with (work / "in" / "events.json").open("w") as file:
            file.writelines(events(count))
        theirs = list(flink(work))
        spark = session(config.load(work), "local[2]", "bench")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        own = list(ours(spark, work))
        close(spark)
    same = 0
    for (pattern, _, after), (found, seconds), (wanted, flinks) in zip(CASES, own, theirs, strict=True):
        same += found == wanted
        verdict = "the same" if found == wanted else f"not so: {(found - wanted) + (wanted - found)}"
        print(
            f"{pattern:26} {after:14} {wanted.total():7,} matches  {verdict}  {seconds:5.1f} s, Flink {flinks:5.1f} s"
        )
    figures = {"patterns": len(CASES), "same": same, "events": count, "matches": sum(each.total() for each, _ in own)}
    print(json.dumps({"bench": "match", "ratios": {}, "figures": figures, "peer": f"Flink {VERSION} MATCH_RECOGNIZE"}))
    return 0 if same == len(CASES) else 1


if __name__ == "__main__":
    sys.exit(main())
