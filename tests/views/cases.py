"""Expressions in which Spark and PostgreSQL differ, or might, over a few awkward rows: all of them in one view."""

from __future__ import annotations

import re
from typing import Any

from tests.views.worlds import Made, moods

TABLE = Made(
    "x",
    {
        "id": "integer", "i": "integer", "j": "integer", "s": "smallint", "l": "bigint", "n": "numeric(12,2)",
        "m": "numeric(20,6)", "w": "numeric", "f": "double precision", "r": "real", "t": "text", "v": "varchar(8)",
        "c": "char(4)", "b": "boolean", "d": "date", "a": "timestamp", "z": "timestamptz", "o": "time", "e": "mood",
    },
)  # fmt: skip


def _listed(text: str) -> tuple[str, ...]:
    """What stands between semicolons."""
    return tuple(re.sub(r"\s*\n\s*", " ", each).strip() for each in text.split(" ;"))


ROWS = _listed("""
    1, 7, 2, 3, 9000000000, 1.25, 0.000001, 1.50, 0.5, 0.1, 'abc', 'ab ', 'ab', true, '2024-02-29',
        '2024-01-31 23:59:59.5', '2024-03-31 01:30+00', '12:00', 'sad' ;
    2, -7, 2, -3, -9000000000, -1.25, 12345678901234.5, 0.000000123, 2.5, 2.5, '', '', '', false,
        '2023-12-31', '2024-03-31 00:00', '1969-12-31 23:59:59.999999+00', '12:00:00.5', 'ok' ;
    3, 7, -2, 0, 1, 0.01, 3, 12345678901234567890.5, -0.0, -1.5, ' Zoë ', 'x', 'x y ', null,
        '1900-01-01', '1900-03-01 12:00:00.000001', '2024-07-01 00:00+02', '12:00:00.45', 'so so' ;
    4, 0, 1, 100, 0, 99.99, -3, 10, 1e10, 1e10, '🐉a%b', 'ÄÖ', 'a', true, '2024-12-30', '2023-01-01',
        '2000-01-01 00:00+00', '24:00', 'sad' ;
    5, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null ;
    6, 3, 3, 1, 3, 1000000.00, 1, 3, 'NaN', 'Infinity', 'a', 'a', 'b', false, '2021-01-03',
        '2021-01-03 10:30', '2021-01-03 10:30+00', '00:00', null ;
    7, 2147400000, 1, 32766, 9007199254740993, 0.99, 0.000007, 0.3, 3.5, -0.5, 'NULL', 'null', ' ', true,
        '0044-03-15', '9990-12-31 23:59:59', '0001-01-02 00:00+00', '09:05:30.000001', 'ok'
""")

EXPRESSIONS = (
    # whole numbers
    *_listed("""
    i / j ; i % j ; -i / j ; i / 2 ; 7 / 2 ; -7 / 2 ; i + s ; l * 2 ; s * 2 ; abs(i) ; - s ; i + 1 ; l - i
    """),
    # numerics
    *_listed("""
    n / 3 ; 3.1 / 3 ; 7.0005 / 7 ;
    n / nullif(m, 0) ; m / 7 ; 1 / 3.0 ; 2 / 3.0 ; 10000 / 3.0 ; 100000000 / 3.0 ; 1 / 30000.0 ; n * m ;
    n + m ; n - i ; m * n ; n * n * n ; n % 0.3 ; w / 3 ; w * w ; w + n ; w - w ; (n / 3) / 7 ; (n / 3) * 3 ;
    (1 / 3.0) + n ; w % 7 ; - w ; abs(w) ; round(n, 1) ; round(m, 3) ; round(w, 2) ; round(n / 3, 4) ;
    trunc(n, 1) ; ceil(n) ; floor(n) ; ceil(w) ; round(n) ; trunc(- n / 3, 2) ; coalesce(n, 0) / 3 ;
    n::numeric(12,1) ; (n * 10)::integer ; w::numeric(30,2) ; n::double precision ; i::numeric / 3 ; n = 1.25 ;
    w = 1.5 ; w > 1 ; w IS NOT DISTINCT FROM 1.500 ; n > i ; w < n ; greatest(n, i) ; least(n, m, 0) ;
    l::numeric(19,0) * 99999999 ; m::numeric ; n * 0.333333333 ; m * 0.123456 * 12.345678 ; n::text ;
    (n + 0)::text ; (n * 2.50)::text
    """),
    # literals without a type
    *_listed("""
    n > '1.245' ; n + '0.005' ; coalesce(n, '1.2345') ; '1.255'::numeric(5,2) ; '-1.255'::numeric(5,2) ;
    r = '0.1' ; i = '7' ; '0.1'::real ; i + '1' ; d - '2024-01-01' ; greatest(n, '0.995') ; n IN ('1.25', '0.0100') ;
    '1e3'::numeric / 3 ; w = '1.5'
    """),
    # floating numbers
    *_listed("""
    f + 1 ; f * f ; f / 3 ; r + r ; r / 3 ; r * 2 ; (CASE WHEN f < 1e9 THEN f END)::integer ;
    (CASE WHEN r < 100 THEN r END)::smallint ; round(f) ; ceil(f) ; floor(f) ; trunc(f) ; f = 'NaN' ; f > 1 ;
    f = 0 ; r = 0.1 ; r::double precision ; f::real ; f < n ; round(i) ; greatest(f, 1) ;
    f IS NOT DISTINCT FROM 'NaN' ; coalesce(r, n) ; coalesce(i, r) ; CASE WHEN b THEN r ELSE 0.1 END
    """),
    # texts
    *_listed("""
    t || v ; t || i ; c || t ; c ; c = 'ab' ; c = 'ab   ' ; c::text || '.' ; length(c) ; length(t) ;
    substring(t, 0, 3) ; substring(t, -1, 3) ; substring(t from 2) ; substring(t, 2, 1) ; left(t, 2) ; trim(t) ;
    trim(leading from t) ; trim(trailing from t) ; replace(t, 'a', 'bb') ; replace(t, '', 'x') ;
    position('b' in t) ; strpos(t, '') ; lower(t COLLATE "C") ; upper(t COLLATE "C") ; concat(t, null, v) ;
    t LIKE 'a%' ; t LIKE '_' ; t LIKE '%🐉%' ; t LIKE '_a%' ; v::varchar(1) ; t::char(2) ; t::char ; i::text ;
    i::varchar(2) ; b::text ; t < 'b' COLLATE "C" ; greatest(t COLLATE "C", v) ; v = 'ab' ; '12'::integer + i ;
    coalesce(v, 'none') ; t = v
    """),
    # booleans
    *_listed("""
    b AND n > 1 ; b OR n > 1 ; NOT b ; b IS TRUE ; b IS NOT FALSE ; b IS UNKNOWN ; b::integer ; i::boolean ;
    i IN (7, null) ; i NOT IN (7, 0) ; b OR i = 7 OR (i = 3 OR s = 1) ; b AND i = 7 AND (j = 2 OR b) ;
    i IN (1, 2, 3, 7, 0) ; i BETWEEN 0 AND 7 ; i NOT BETWEEN 0 AND 7 ; CASE WHEN b THEN n ELSE i END ;
    CASE i WHEN 7 THEN 'seven' WHEN 0 THEN 'none' END ; nullif(i, 7) ; nullif(i, 7.0) ; nullif(c, 'ab')
    """),
    # days and moments
    *_listed("""
    d + 1 ; d - 31 ; d - date '2024-01-01' ; d + interval '1 month' ; a + interval '1 month' ;
    a - interval '1 month 1 day 01:00' ; a + interval '1 year' ; a + interval '1 day 12:00' ;
    a - interval '-1 day +12:00' ; a + interval '1.5 days -2 hours' ; a + interval '2 mons 3 days ago' ;
    date '2024-01-05'::timestamp ; z + interval '36 hours' ; a::date ;
    d::timestamp ; z AT TIME ZONE 'UTC' ; a AT TIME ZONE 'UTC' ; extract(year FROM d) ; extract(quarter FROM d) ;
    extract(month FROM a) ; extract(week FROM d) ; extract(day FROM a) ; extract(doy FROM d) ;
    extract(dow FROM d) ; extract(isodow FROM a) ; extract(hour FROM a) ; extract(minute FROM a) ;
    extract(second FROM a) ; extract(epoch FROM a) ; extract(epoch FROM z) ;
    extract(epoch FROM (a - timestamp '2024-01-01 00:00')) ;
    extract(epoch FROM (z - timestamptz '2024-01-01 00:00+00')) ; extract(hour FROM z AT TIME ZONE 'UTC') ;
    date_trunc('year', a) ; date_trunc('quarter', a) ; date_trunc('month', a) ; date_trunc('week', a) ;
    date_trunc('day', a) ; date_trunc('hour', a) ; date_trunc('minute', a) ; date_trunc('second', a) ; d < a ;
    d = date '2024-02-29' ; a > '2024-01-01 00:00' ; z > '2024-01-01 00:00+01' ; greatest(d, date '2024-01-01') ;
    coalesce(d, date '2024-01-01') ; o = '12:00' ; o < time '12:00:00.5' ; o BETWEEN '12:00:00.450' AND '24:00' ;
    o IN ('9:05:30.000001', '00:00:00.0') ; o::text ; greatest(o, '12:00') ; coalesce(o, '07:00')::text
    """),
    # enums
    *_listed("""
    e = 'sad' ; e <> 'sad' ; e IN ('sad', 'so so') ; e NOT IN ('ok', 'sad') ; e IS DISTINCT FROM 'ok' ; e::text ;
    coalesce(e, 'ok')::text ; nullif(e, 'sad')::text ; CASE e WHEN 'sad' THEN 1 WHEN 'ok' THEN 2 END
    """),
)

AGGREGATES = _listed("""
    count(*) ; count(i) ; count(DISTINCT i) ; count(DISTINCT w) ; count(DISTINCT c) ; sum(i) ; sum(l) ; sum(s) ;
    sum(n) ; sum(m) ; sum(n * i) ; sum(coalesce(n, 0)) ; avg(i) ; avg(l) ; avg(s) ; avg(n) ; avg(m) ;
    avg(CASE WHEN f < 10 THEN f END) ; sum(CASE WHEN f < 10 THEN f END) ; sum(CASE WHEN r < 10 THEN r END) ;
    max(f) ; min(f) ; max(r) ; min(n) ; max(d) ; min(a) ; max(z) ; max(t COLLATE "C") ; min(t COLLATE "C") ;
    max(c COLLATE "C") ; bool_and(b) ; bool_or(b) ; every(b) ; stddev(i) ; stddev_pop(i) ; variance(i) ;
    var_pop(i) ; stddev(n) ; var_pop(n) ; variance(s) ; stddev_samp(n * 2) ; count(*) FILTER (WHERE b) ;
    sum(n) FILTER (WHERE b) ; max(i) FILTER (WHERE NOT b) ; count(*) * 100 / 7 ; sum(n) / count(*) ; avg(n) * 2 ;
    sum(i) / nullif(count(i), 0) ; min(o)::text ; max(o)::text ; count(DISTINCT o) ; count(DISTINCT e)
""")


# The first rows of groups, and what is among the rows of a subquery; nulls on either side.
FIRST_ROWS = _listed("""
    SELECT DISTINCT ON (1) i, id FROM x ORDER BY i, id ;
    SELECT DISTINCT ON (i) i AS id, id AS i FROM x ORDER BY i, x.id ;
    SELECT DISTINCT ON (i) i, id, n FROM x ORDER BY i, n, i DESC, n DESC, id ;
    SELECT DISTINCT ON (r) i AS r, id FROM x ORDER BY 1, id ;
    SELECT DISTINCT ON (i) i, id, n FROM x ORDER BY i, id DESC ;
    SELECT DISTINCT ON (t) t, id FROM x ORDER BY t DESC NULLS LAST, id DESC ;
    SELECT DISTINCT ON (e, t) e, t, id FROM x ORDER BY t, e, id ;
    SELECT DISTINCT ON (i, b) i, b, id, t FROM x ORDER BY i DESC NULLS LAST, b, n DESC, id ;
    SELECT DISTINCT ON (i % 2) id, i FROM x WHERE i IS NOT NULL ORDER BY i % 2, i, id ;
    SELECT DISTINCT ON (s % 3) s % 3 AS r, d, id FROM x ORDER BY 1, d DESC NULLS LAST, id ;
    SELECT count(*) AS firsts, sum(id) AS ids FROM (SELECT DISTINCT ON (b) b, id FROM x ORDER BY b, f, id) AS first ;
    SELECT id, rn FROM (SELECT id, row_number() OVER (PARTITION BY b ORDER BY i, id) AS rn FROM x) AS o
        WHERE rn BETWEEN 1 AND 2 ;
    WITH o AS (SELECT id, row_number() OVER (PARTITION BY b ORDER BY i, id) AS rn FROM x)
        SELECT id, rn FROM o WHERE rn <= 2 ;
    SELECT id, rn FROM (SELECT id, row_number() OVER (PARTITION BY b ORDER BY i, id) AS rn FROM x) AS o
        WHERE rn BETWEEN 2 AND 3 AND id > 1
""")
AMONG = _listed("""
    SELECT id FROM x WHERE i IN (SELECT DISTINCT ON (b) j + 5 FROM x ORDER BY b, id) ;
    SELECT id FROM x WHERE EXISTS (SELECT count(*) FROM x WHERE i = 99) ;
    SELECT id FROM x WHERE EXISTS (SELECT FROM x AS y WHERE y.i = x.j) ;
    SELECT id FROM x WHERE NOT EXISTS (SELECT y.t FROM x AS y WHERE y.i = x.j ORDER BY y.t, y.id LIMIT 1) ;
    SELECT id FROM x WHERE i IN (SELECT j FROM x ORDER BY id) ;
    SELECT id FROM x WHERE r IN (0.1::real, 2.5::real) OR r IN (0.1) OR r IN (0.1, -1.5::double precision) ;
    SELECT id FROM x WHERE n < 12345678901234567890123456789012.12 AND z > '2000-01-01 00:00:00 +00:00' ;
    SELECT id, CASE WHEN b THEN true ELSE i IN (3, 7) END FROM x ;
    SELECT id FROM x WHERE NOT EXISTS (SELECT max(i) FROM x WHERE i = 99) ;
    SELECT id FROM x WHERE EXISTS (SELECT count(*) FROM x WHERE id > 99 GROUP BY b) ;
    SELECT id FROM x WHERE EXISTS (SELECT y.*, x.i, (SELECT max(id) FROM x) FROM x AS y WHERE y.i = x.j) ;
    SELECT id FROM x WHERE i = ANY (SELECT j FROM x) ;
    SELECT id FROM x WHERE i = ANY (SELECT y.j FROM x AS y WHERE y.id <> x.id) ;
    SELECT id FROM x WHERE i = SOME (SELECT s FROM x) AND NOT b ;
    SELECT id FROM x WHERE n * 4 = ANY (SELECT m FROM x) ;
    SELECT id, c FROM x WHERE id = ANY (SELECT sum(j) FROM x GROUP BY b) ;
    SELECT i, count(*) AS n FROM x WHERE i = ANY (SELECT s + 10 FROM x) GROUP BY i ;
    SELECT x.id, y.id AS other FROM x JOIN x AS y ON x.b = y.b AND x.i > (SELECT min(j) FROM x) ;
    SELECT x.id, z.id AS other FROM x JOIN x AS y ON x.id = y.id AND y.j <= (SELECT max(s) FROM x WHERE b)
        LEFT JOIN x AS z ON z.id = y.j ;
    SELECT b, array_agg(i ORDER BY id) FILTER (WHERE id > 2) AS a, array_agg(t ORDER BY id DESC) AS t, count(*) AS n,
        array_agg(d ORDER BY id) FILTER (WHERE n > 1) AS d FROM x GROUP BY b HAVING count(*) > 1 ;
    SELECT array_agg(i ORDER BY id) FILTER (WHERE NOT b) AS a FROM x ;
    SELECT array_agg(i ORDER BY id) FILTER (WHERE id > 9) AS a, sum(i) AS s FROM x WHERE id > 1
""")


def every_expression() -> str:
    return f"SELECT id, {', '.join(f'{each} AS e{place}' for place, each in enumerate(EXPRESSIONS))} FROM x"


def every_aggregate(by: str) -> str:
    listed = ", ".join(f"{each} AS e{place}" for place, each in enumerate(AGGREGATES))
    return f"SELECT {listed} FROM x" if not by else f"SELECT {by} AS g, {listed} FROM x GROUP BY {by}"


def fill(connection: Any) -> list[tuple[Any, ...]]:
    """The table, and its rows as PostgreSQL keeps them."""
    listed = ", ".join(f"{name} {type_}" for name, type_ in TABLE.columns.items())
    connection.execute("DROP SCHEMA IF EXISTS fuzz CASCADE")
    connection.execute("CREATE SCHEMA fuzz")
    connection.execute("SET search_path = fuzz")
    moods(connection)
    connection.execute(f"CREATE TABLE x ({listed}, PRIMARY KEY (id))")
    for row in ROWS:
        connection.execute(f"INSERT INTO x VALUES ({row})")
    connection.commit()
    found: list[tuple[Any, ...]] = connection.execute("SELECT * FROM x", binary=True).fetchall()
    return found
