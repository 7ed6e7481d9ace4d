"""The fraud demo's rules in Flink SQL, by event time.

Flink takes one window in a SELECT, so that each look back is a query of its own around the one before.
"""

from __future__ import annotations

from collections.abc import Mapping

from bench.nexmark.flink import OPTIONS as THROUGHPUT
from millrace.demo.fraud import MODEL, SUSPICIOUS

OPTIONS = {
    **{key: value for key, value in THROUGHPUT.items() if "mini-batch" not in key},
    "execution.buffer-timeout.interval": "1 ms",
    "pipeline.auto-watermark-interval": "10 ms",
    # Profiles do not change in this benchmark: their topic must not hold the watermark back.
    "table.exec.source.idle-timeout": "1 s",
}

_BY_CARD = "PARTITION BY card ORDER BY `at`"
_ALERT = (
    "`id` STRING, `rule` STRING, card STRING, customer BIGINT, payment STRING, evidence STRING, `at` TIMESTAMP_LTZ(3)"
)
_WEIGHTS = MODEL["weights"]


def _back(minutes: int) -> str:
    return f"({_BY_CARD} RANGE BETWEEN INTERVAL '{minutes}' MINUTE PRECEDING AND CURRENT ROW)"


_KNOWN = """SELECT p.id, p.card, p.customer, p.amount, p.status, p.country, p.lat, p.lon, p.`at`,
    p.amount / c.usual AS times_usual, CASE WHEN p.country <> c.country THEN 1 ELSE 0 END AS abroad
    FROM payments AS p LEFT JOIN profiles FOR SYSTEM_TIME AS OF p.`at` AS c ON p.customer = c.customer"""
_FAILED = f"SELECT *, SUM(CASE WHEN status = 'failed' THEN 1 ELSE 0 END) OVER {_back(5)} AS failed FROM ({_KNOWN})"
_MANY = f"SELECT *, COUNT(*) OVER {_back(1)} AS payments FROM ({_FAILED})"
_SPENT = f"SELECT *, SUM(amount) OVER {_back(10)} AS spent FROM ({_MANY})"
_PLACES = ", ".join(
    f"LAG({column}) OVER ({_BY_CARD}) AS {name}"
    for column, name in (("lat", "from_lat"), ("lon", "from_lon"), ("`at`", "from_at"))
)
_BEFORE = f"SELECT *, {_PLACES} FROM ({_SPENT})"
_KM = """2 * 6371.0088 * ASIN(SQRT(POWER(SIN(RADIANS(lat - from_lat) / 2), 2)
    + COS(RADIANS(from_lat)) * COS(RADIANS(lat)) * POWER(SIN(RADIANS(lon - from_lon) / 2), 2)))"""
_HOURS = "(TIMESTAMPDIFF(SECOND, from_at, `at`) + 0.001) / 3600.0"
_MARGIN = " + ".join(f"{weight} * CAST({name} AS DOUBLE)" for name, weight in _WEIGHTS.items())
_SCORED = f"""SELECT *, {_KM} / {_HOURS} AS kmh,
    1 / (1 + EXP(-({_MARGIN} + ({MODEL["intercept"]})))) AS score FROM ({_BEFORE})"""
_RULES = {
    "failed payments": ("failed >= 3", "failed"),
    "many payments": ("payments > 5", "payments"),
    "much money": ("spent > 5000", "spent"),
    "impossible journey": ("kmh > 500", "kmh"),
    "model": (f"score > {SUSPICIOUS}", "score"),
}
_TOLD = " UNION ALL ".join(
    f"""SELECT CONCAT('{rule}:', id) AS id, '{rule}' AS `rule`, card, customer, id AS payment,
    CAST({evidence} AS STRING) AS evidence, CAST(`at` AS TIMESTAMP_LTZ(3)) AS `at` FROM scored WHERE {condition}"""
    for rule, (condition, evidence) in _RULES.items()
)
# Flink takes a variable in one place of a pattern only.
_TESTED = """SELECT CONCAT('card testing:', payment) AS id, 'card testing' AS `rule`, card, customer, payment,
    '3' AS evidence, CAST(`at` AS TIMESTAMP_LTZ(3)) AS `at`
    FROM payments MATCH_RECOGNIZE (PARTITION BY card ORDER BY `at`
    MEASURES LAST(v_large.id) AS payment, LAST(v_large.customer) AS customer, LAST(v_large.`at`) AS `at`
    ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (v_one v_a*? v_two v_b*? v_three v_c*? v_large)
    WITHIN INTERVAL '10' MINUTE
    DEFINE v_one AS v_one.amount < 2, v_two AS v_two.amount < 2, v_three AS v_three.amount < 2,
        v_large AS v_large.amount > 500)"""


def statements(sources: Mapping[str, str], targets: Mapping[str, str]) -> list[str]:
    """Tables over the topics, and at last the one job that writes both kinds of alerts."""
    # JSON's ISO-8601 gives times with a zone.
    iso = "'json.timestamp-format.standard' = 'ISO-8601'"
    made = {
        "payments": f"""CREATE TEMPORARY TABLE payments (`id` STRING, card STRING, customer BIGINT,
            amount DECIMAL(12, 2), status STRING, country STRING, lat DOUBLE, lon DOUBLE, `at` TIMESTAMP_LTZ(3),
            WATERMARK FOR `at` AS `at` - INTERVAL '0.001' SECOND) WITH ({sources["payments"]}, {iso})""",
        "customers": f"""CREATE TEMPORARY TABLE customers (customer BIGINT, country STRING, usual DOUBLE,
            `at` TIMESTAMP_LTZ(3), WATERMARK FOR `at` AS `at`) WITH ({sources["customers"]}, {iso})""",
        "profiles": """CREATE TEMPORARY VIEW profiles AS SELECT customer, country, usual, `at` FROM (
            SELECT *, ROW_NUMBER() OVER (PARTITION BY customer ORDER BY `at` DESC) AS place FROM customers)
            WHERE place = 1""",
        "scored": f"CREATE TEMPORARY VIEW scored AS {_SCORED}",
        **{
            topic: f"CREATE TEMPORARY TABLE {topic} ({_ALERT}) WITH ({with_}, {iso})"
            for topic, with_ in targets.items()
        },
    }
    insert = f"""EXECUTE STATEMENT SET BEGIN
        INSERT INTO alerts {_TOLD};
        INSERT INTO card_testing {_TESTED};
        END"""
    return [*made.values(), insert]
