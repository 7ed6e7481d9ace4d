"""A column of every type of PostgreSQL, with the values that others have lost: SQL expressions, by type."""

from __future__ import annotations

# Something of every plane of Unicode, what JSON and arrays escape, and a byte order mark.
PLANES = (
    "U&'A\\00e9\\4e2d\\+01F600\\+020BB7\\+0E0001\\+0F0000\\+10FFFD\\0001\\007f\\2028\\feff' || E' \\\\ \"q\" \\t\\r\\n'"
)
LARGE_DEFAULT = "repeat(md5('a') || md5('b'), 4000)"
LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 4000) i)"

SETUP = """
CREATE EXTENSION citext; CREATE EXTENSION hstore; CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad, and "so"', 'ok');
CREATE TYPE pair AS (a integer, b text, c date);
CREATE TYPE spans AS RANGE (subtype = float8);
CREATE DOMAIN price AS numeric(12, 3);
CREATE DOMAIN paid AS price;
CREATE DOMAIN positive AS integer CHECK (value > 0);
CREATE DOMAIN moment AS timestamp;
CREATE DOMAIN list AS integer[];
"""

VALUES: dict[str, tuple[str, ...]] = {
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9007199254740993"),
    "numeric": ("0.00", "'-Infinity'", "repeat('9', 200)::numeric", "'1e-100'", "'NaN'", "1e20"),
    "numeric(12, 2)": ("-9999999999.99", "100", "0"),
    "numeric(38, 10)": ("1234567890123456789012345678.0123456789", "0.1"),
    "numeric(60, 5)": ("repeat('9', 55)::numeric", "1.5"),
    "numeric(5, -2)": ("1234567", "0"),
    "numeric(3, 5)": ("-0.00999",),
    "real": ("'-0'", "'NaN'", "'-Infinity'", "1.17549435e-38", "1e-45", "3.4028235e38", "16777217"),
    "double precision": ("'-0'", "'NaN'", "'Infinity'", "5e-324", "1.7976931348623157e308", "0.30000000000000004"),
    "text": (PLANES, "''", "'null'", LARGE),
    "char(5)": ("'é'", "''"),
    "varchar(10)": ("'ab  '",),
    '"char"': ("'x'",),
    "name": ("'ab'",),
    "citext": ("'AbÉ'",),
    "bytea": ("'\\x00ff10'", "''", f"decode({LARGE}, 'hex')"),
    "boolean": ("true", "false"),
    "date": (
        *("'2024-02-29'", "'0001-12-31 BC'", "'4713-01-01 BC'", "'1500-03-01'", "'5874897-12-31'"),
        *("'infinity'", "'-infinity'"),
    ),
    "time": ("'23:59:59.999999'", "'24:00:00'", "'12:34:56.7'"),
    "time(3)": ("'23:59:59.999'",),
    "timetz": ("'23:59:59.999999-12:30'", "'12:00:00+02:30:15'", "'24:00:00+00'"),
    "timestamp": (
        *("'2024-02-29 12:34:56.123456'", "'0001-12-31 23:59:59.999999 BC'", "'1500-03-01 01:02:03'"),
        *("'10000-01-01 00:00:00.000001'", "'294276-12-31 23:59:59.999999'", "'infinity'", "'-infinity'"),
    ),
    "timestamp(3)": ("'0044-03-15 12:00:00.5 BC'",),
    "timestamptz": (
        *("'2024-02-29 12:34:56.123456+02'", "'4713-01-01 00:00:00+00 BC'", "'1969-12-31 23:59:59.999999+00'"),
        *("'10000-01-01 00:00:00.1+00'", "'294276-12-31 23:59:59.999999+00'", "'infinity'", "'-infinity'"),
    ),
    "interval": (
        *("'0'", "'1 year 2 mons 3 days 04:05:06.789012'", "'-1 year +3 days -04:05:06.789012'"),
        *("'1 mon -1 day 0.000001 seconds'", "'2562047788:00:54.775807'", "'infinity'", "'-infinity'"),
    ),
    "uuid": ("'123e4567-e89b-12d3-a456-426614174000'",),
    "json": ("""'{"b":1,  "a":2,"a":3, "n":12345678901234567890.123456789}'""", "'null'"),
    "jsonb": ("""'{"b":1, "a":[2.50, 1e40]}'""", f"to_jsonb({LARGE})"),
    "xml": ("""'<a b="1">é</a>'""",),
    "mood": ("""'sad, and "so"'""", "'ok'"),
    "price": ("12.345",),
    "paid": ("1.5",),
    "positive": ("5",),
    "moment": ("'2024-02-29 12:34:56.123456'", "'infinity'"),
    "pair": ("row(1, 'a \"b\", c', null)",),
    "int4range": ("'[1,5)'", "'empty'", "'(,)'"),
    "tstzrange": ("'[2024-01-01 00:00:00+02,)'",),
    "spans": ("'[0.1,2.5)'",),
    "int4multirange": ("'{[1,5),[7,9)}'", "'{}'"),
    "inet": ("'192.168.0.1/24'", "'::1'"),
    "macaddr8": ("'08:00:2b:01:02:03:04:05'",),
    "bit(1)": ("B'1'", "B'0'"),
    "bit(9)": ("B'000000001'",),
    "varbit": ("B''", "B'0001'"),
    "money": ("'-92233720368547758.08'", "'1,234.50'"),
    "point": ("'(NaN,1e300)'", "'(0.1,-2)'"),
    "box": ("'((2,3),(0.1,1))'",),
    "polygon": ("'((0.1,1),(2,3),(1e20,0))'",),
    "tsvector": ("'a:1A ''q w'':2'",),
    "tsquery": ("'a & !b'",),
    "oid": ("4294967295",),
    "pg_lsn": ("'16/B374D848'",),
    "xid8": ("'18446744073709551615'",),
    "jsonpath": ("'$.a[*] ? (@ > 2)'",),
    "ltree": ("'a.b.c'",),
    "integer[]": ("'{1,NULL,-3}'", "'{}'"),
    "text[]": (f"array['a', NULL, 'NULL', '', ' sp ', 'q\"\\,{{}}', {PLANES}]", f"array[{LARGE}]"),
    "numeric(8, 2)[]": ("'{1.10,NULL,3}'",),
    "numeric[]": ("'{1.10,NaN,1e30,-Infinity}'",),
    "real[]": ("'{0.1,NULL,-0,NaN,-Infinity}'",),
    "boolean[]": ("'{t,NULL,f}'",),
    "date[]": ("'{2024-02-29,NULL,0044-03-15 BC,infinity}'",),
    "time[]": ("'{12:34:56.123456,24:00:00}'",),
    "timetz[]": ("'{12:34:56.123456+02,NULL}'",),
    "timestamp[]": ("'{2024-02-29 12:34:56.123456,NULL,0044-03-15 12:00:00.000001 BC,-infinity}'",),
    "timestamptz[]": ("'{2024-02-29 12:34:56.1+02,NULL,1500-03-01 00:00:00+00,infinity}'",),
    "interval[]": ("'{1 day,NULL,infinity}'",),
    "uuid[]": ("'{123e4567-e89b-12d3-a456-426614174000,NULL}'",),
    "bytea[]": ("array['\\x00ff'::bytea, NULL, '']",),
    "jsonb[]": ("""array['{"b": 1}'::jsonb, NULL]""",),
    "mood[]": ("""array['sad, and "so"'::mood, NULL]""",),
    "list": ("'{1,NULL}'",),
    "positive[]": ("'{1,NULL}'",),
    "pair[]": ("array[row(1, 'a,b', null)::pair, NULL]",),
    "int4multirange[]": ("array['{[1,5)}'::int4multirange, NULL]",),
    "bit(3)[]": ("array[B'101', NULL]",),
    "money[]": ("'{12.34,NULL}'",),
    "box[]": ("'{(1,1),(0,0);(2,2),(1,1)}'",),
    "xml[]": ("array['<a/>'::xml, NULL]",),
    # More dimensions than Spark's arrays have, or counted from elsewhere: what was declared so is shown as text.
    "integer[][]": ("'{{1,2},{3,NULL}}'", "'[5:6]={1,2}'", "'{7}'"),
    "text[][]": ("""'{{"a,b",c},{"\\\\",NULL}}'""",),
}

COLUMNS = {f"c{number}": name for number, name in enumerate(VALUES)}
TABLE = "CREATE TABLE every (id integer PRIMARY KEY, " + ", ".join(f"{c} {t}" for c, t in COLUMNS.items()) + ")"


def inserts() -> list[str]:
    """Rows in which every value comes once, and one of nothing but nulls."""
    rows = max(len(values) for values in VALUES.values())
    made = []
    for number in range(rows):
        held = {c: VALUES[t][number] for c, t in COLUMNS.items() if number < len(VALUES[t])}
        made.append(f"INSERT INTO every (id, {', '.join(held)}) VALUES ({number}, {', '.join(held.values())})")
    return [*made, f"INSERT INTO every (id) VALUES ({rows})"]
