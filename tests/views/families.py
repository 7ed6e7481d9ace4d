"""What the fuzzer's expressions are of: families of types, literals of each, and aggregates."""

from __future__ import annotations

# Type families: n number (exact), f floating, s text, b boolean, d date, m timestamp, z timestamptz, c char; where
# tables have them, t time, e enum, u uuid, j json, y bytea.
FAMILY = {
    "integer": "i", "bigint": "i", "smallint": "i", "numeric(8,2)": "n", "numeric(12,4)": "n", "numeric": "w",
    "text": "s", "varchar(8)": "s", "char(4)": "c", "boolean": "b", "double precision": "f", "real": "f", "date": "d",
    "timestamp": "m", "timestamptz": "z", "time": "t", "time(1)": "t",
    "mood": "e", "uuid": "u", "jsonb": "j", "bytea": "y",
}  # fmt: skip
AGGREGATES = (
    "count(*)", "count", "count distinct", "sum", "sum", "avg", "avg", "min", "max", "bool_and", "bool_or", "stddev",
    "stddev_pop", "variance", "var_pop", "array_agg", "array_agg",
)  # fmt: skip
LITERALS = {
    "i": ("0", "1", "2", "3", "-1", "7", "100"),
    "n": ("0.5", "1.25", "-0.01", "2", "1e2"),
    "w": ("0.5", "3"),
    "f": ("0.5::double precision", "2::double precision", "1e10::double precision"),
    "s": ("'a'", "''", "'ab'", "'zebra'", "'12'"),
    "c": ("'a'::char(4)", "'ab  '::char(4)"),
    "b": ("TRUE", "FALSE"),
    "d": ("DATE '2024-02-29'", "'2024-03-01'::date"),
    "m": ("TIMESTAMP '2024-02-01 00:00:00'", "'2024-02-29 12:00:00'::timestamp"),
    "t": ("'12:00'::time", "TIME '12:00:00.45'", "'24:00'::time"),
    "u": ("'0000000a-0000-4000-8000-00000000000f'::uuid", "'A000000A-0000-4000-8000-00000000000f'::uuid"),
    "z": ("TIMESTAMPTZ '2024-02-01 00:00:00+00'",),
}  # fmt: skip
