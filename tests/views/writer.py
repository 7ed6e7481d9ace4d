"""Random queries of the grammar that views support, as text, with the productions that each is made of."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from tests.views.expressing import COMPARED, Expressions, Form, Query, Source
from tests.views.families import AGGREGATES, FAMILY
from tests.views.worlds import Made

__all__ = ["Form", "Query", "Shape", "Source", "Writer"]

Shape: TypeAlias = "Callable[[Writer, int], tuple[str, list[tuple[str, str]]]]"


class Writer(Expressions):
    """Writes one query. `forms` are expressions by family, `shapes` the kinds of SELECT."""

    def __init__(
        self, draw: random.Random, tables: list[Made], forms: Mapping[str, Sequence[Form]], shapes: Sequence[Shape]
    ) -> None:
        super().__init__(draw, tables, forms)
        self.shapes = shapes
        self._aliases = 0

    # relations

    def alias(self) -> str:
        self._aliases += 1
        return f"r{self._aliases}"

    def table(self) -> Source:
        made, alias = self.draw.choice(self.tables), self.alias()
        columns = [(f"{alias}.{name}", name, FAMILY[type_]) for name, type_ in made.columns.items()]
        if len(made.key) > 1:
            self.used.add("key of two columns")
        return Source(f"{made.name} {alias}", columns, [f"{alias}.{name}" for name in made.key])

    def source(self, depth: int) -> Source:
        if depth <= 0:
            return self.table()
        return self.draw.choice(
            (self.table, lambda: self.subquery(depth - 1), lambda: self.join(depth - 1), lambda: self.join(depth - 1))
        )()

    def subquery(self, depth: int) -> Source:
        self.used.add("subquery in from")
        sql, names = self.select(depth)
        alias = self.alias()
        return Source(f"({sql}) {alias}", [(f"{alias}.{name}", name, family) for name, family in names], [])

    def join(self, depth: int) -> Source:
        left, right = self.source(depth), self.source(0 if self.draw.random() < 0.7 else depth)
        how = self.draw.choice(("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", ",", "CROSS JOIN"))
        both = Source("", [*left.columns, *right.columns], [*left.ids, *right.ids] if left.ids and right.ids else [])
        self.used.add(how.lower())
        if how == "CROSS JOIN":
            both.sql = f"{left.sql} CROSS JOIN {right.sql}"
            return both
        if how == ",":
            both.sql = f"{left.sql}, {right.sql}"
            alias = self.alias()
            return self._wrapped(both, f"SELECT {{}} FROM {both.sql} WHERE {self._equal(left, right)}", alias)
        rest = ""
        draw = self.draw.random()
        if draw < 0.2:
            rest = self._use(f"{how.lower()} with a condition over the left", f" AND {self.test(left)}")
        elif draw < 0.4:
            rest = self._use(f"{how.lower()} with a condition over the right", f" AND {self.test(right)}")
        elif draw < 0.6:
            kind = self.draw.choice("inf")
            over = f"{self.of(kind, left, 0)} {self.draw.choice(COMPARED)} {self.of(kind, right, 0)}"
            # PostgreSQL itself makes full joins of equalities only.
            if how != "FULL JOIN":
                rest = self._use(f"{how.lower()} with a condition over both", f" AND {over}")
        if " JOIN " in right.sql and not right.sql.startswith("("):
            self.used.add("join inside a join")
        equal = self._equal(left, right, nulls=how != "FULL JOIN")
        both.sql = f"{left.sql} {how} {right.sql} ON {equal}{rest}"
        return both

    def _wrapped(self, both: Source, template: str, alias: str) -> Source:
        names = [(reference, f"x{place}", family) for place, (reference, _, family) in enumerate(both.columns)]
        sql = template.format(", ".join(f"{reference} AS {name}" for reference, name, _ in names))
        ids = [f"{alias}.{name}" for reference, name, _ in names if reference in both.ids]
        return Source(f"({sql}) {alias}", [(f"{alias}.{name}", name, family) for _, name, family in names], ids)

    def _equal(self, left: Source, right: Source, *, nulls: bool = True) -> str:
        equal = "="
        if nulls and self.draw.random() < 0.15:
            equal = self._use("join of nulls", "IS NOT DISTINCT FROM")
        for family in self.draw.sample("iiiisdbnc" + "".join(sorted(self._more - {"j"})), 9):
            mine = [reference for reference, _, kind in left.columns if kind == family]
            theirs = [reference for reference, _, kind in right.columns if kind == family]
            if mine and theirs:
                ks = (
                    [each for each in mine if each.endswith(".k")] or mine,
                    [each for each in theirs if each.endswith((".k", ".id"))] or theirs,
                )
                return f"{self.draw.choice(ks[0])} {equal} {self.draw.choice(ks[1])}"
        return "1 = 1"

    # queries

    def select(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """A SELECT, and its columns by name and family."""
        shape = self.draw.choice(self.shapes)
        return shape(self, depth)

    def plain(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        source = self.source(depth)
        listed, names = self._listed(source)
        distinct = self._use("distinct", "DISTINCT ") if self.draw.random() < 0.25 else ""
        return f"SELECT {distinct}{listed} FROM {source.sql}{self._where(source, depth)}", names

    def grouped(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        source = self.source(depth)
        keys = []
        for place in range(self.draw.choice((0, 1, 1, 1, 2))):
            family = self.family("iisbdncm", "teuy", source)
            keys.append((self._key(family, source), f"g{place}", family))
        measures = [(*self.aggregate(source), f"v{place}") for place in range(self.draw.randint(1, 3))]
        listed = [f"{sql} AS {name}" for sql, name, _ in keys] + [f"{sql} AS {name}" for sql, _, name in measures]
        by = ""
        if keys:
            written = [sql if self.draw.random() < 0.6 else str(place + 1) for place, (sql, _, _) in enumerate(keys)]
            by = self._use("group by", f" GROUP BY {', '.join(written)}")
        else:
            self.used.add("one group")
        having = ""
        if self.draw.random() < 0.3:
            least = f"min({self.of('i', source, 0)}) > 0"
            having = self._use(
                "having",
                f" HAVING {self.draw.choice(('count(*) > 1', 'count(*) = 2', least))}",
            )
            if self.draw.random() < 0.3:
                lately = f"max({self.of('z', source, 0)}) > now() - INTERVAL '700 hours'"
                having += self._use("groups that go", f" AND {lately}")
        names = [(name, family) for _, name, family in keys] + [(name, family) for _, family, name in measures]
        return f"SELECT {', '.join(listed)} FROM {source.sql}{self._where(source, depth)}{by}{having}", names

    def of_keys(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """By a table's whole key, so that its other columns can be shown."""
        source = self.table()
        listed, names = self._listed(source)
        self.used.add("group by the key")
        by = f" GROUP BY {', '.join(source.ids)}"
        return f"SELECT {listed}, count(*) AS n FROM {source.sql}{self._where(source, 0)}{by}", [*names, ("n", "i")]

    def _key(self, family: str, source: Source) -> str:
        found = self.of(family, source, self.draw.choice((0, 0, 1)))
        own = [reference for reference, _, _ in source.columns]
        # A constant in GROUP BY is a position, or nothing at all.
        return found if any(reference in found for reference in own) else self.draw.choice(own[:2])

    def aggregate(self, source: Source) -> tuple[str, str]:
        name = self.draw.choice(AGGREGATES)
        only = f" FILTER (WHERE {self.condition(source, 1)})" if self.draw.random() < 0.2 else ""
        if only:
            self.used.add("filter")
        usual = {"min": "infdms", "max": "infdms", "sum": "infi", "avg": "infi"}.get(name, "in")
        family = self.family(usual, "t" if name in ("min", "max") else "", source)
        of = self.of(family, source, self.draw.choice((0, 1)))
        if name == "count(*)":
            return self._use(name, f"count(*){only}"), "i"
        if name in ("count", "count distinct"):
            of = self.of(self.family("insbdfcw", "teuy", source), source, 0)
            return self._use(name, f"count({'DISTINCT ' if name != 'count' else ''}{of}){only}"), "i"
        if name in ("bool_and", "bool_or"):
            return self._use(name, f"{name}({self.condition(source, 1)}){only}"), "b"
        if name == "array_agg":
            if not source.ids:
                return self._use("count(*)", "count(*)"), "i"
            of = self.of(self.draw.choice("insbdfmz"), source, 0)
            if self.draw.random() < 0.3:
                only = f" FILTER (WHERE {self.test(source)})"
                self.used.add("array_agg with filter")
            return self._use(name, f"array_agg({of} ORDER BY {self._order(source)}){only}"), "A"
        if name in ("min", "max"):
            of = f'{of} COLLATE "C"' if family == "s" else of
            return self._use(f"{name}", f"{name}({of}){only}"), family
        if name in ("sum", "avg"):
            kind = {"i": "whole", "n": "numeric", "f": "double"}[family]
            result = "f" if family == "f" else "w" if name == "avg" else "n"
            return self._use(f"{name} of {kind}", f"{name}({of}){only}"), result
        return self._use(name, f"{name}({of}){only}"), "w"

    def united(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        word = self.draw.choice(("UNION ALL", "UNION", "EXCEPT", "INTERSECT"))
        families = self.draw.choices("isbdncfmw" + "".join(sorted(self._more & set("tu"))), k=self.draw.randint(1, 2))
        parts = []
        for _ in range(2):
            source = self.source(depth)
            listed = ", ".join(f"{self.of(family, source, 1)} AS u{place}" for place, family in enumerate(families))
            parts.append(f"SELECT {listed} FROM {source.sql}{self._where(source, depth)}")
        self.used.add(word.lower())
        return f" {word} ".join(parts), [(f"u{place}", family) for place, family in enumerate(families)]

    def topmost(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        source = self.table() if self.draw.random() < 0.5 else self.join(0)
        if not source.ids:
            source = self.table()
        listed, names = self._listed(source)
        order = self._order(source)
        self.used.add("limit")
        count = self.draw.randint(1, 4)
        return (
            f"SELECT {listed} FROM {source.sql}{self._where(source, 0)} ORDER BY {order} LIMIT {count}",
            names,
        )

    def first_of(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """One row of each: PostgreSQL wants the order to begin with what they are told apart by."""
        source = self.table() if self.draw.random() < 0.5 else self.join(0)
        if not source.ids:
            source = self.table()
        listed, names = self._listed(source)
        on = self.draw.choice([reference for reference, _, kind in source.columns if kind in "inbdm"])
        self.used.add("distinct on")
        way = self.draw.choice(("", " DESC", " NULLS FIRST"))
        order = f"{on}{way}, {self._order(source)}"
        return f"SELECT DISTINCT ON ({on}) {listed} FROM {source.sql}{self._where(source, 0)} ORDER BY {order}", names

    def above(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        left, right, inner = self.table(), self.table(), self.table()
        both = Source("", [*left.columns, *right.columns], [])
        listed, names = self._listed(both)
        kind = self.draw.choice(("avg", "max", "count"))
        value = f"(SELECT {kind}({self.of('i', inner, 0)}) FROM {inner.sql}{self._where(inner, 0)})"
        self.used.add("scalar subquery in on")
        more = f"{self.of('i', both, 0)} {self.draw.choice(COMPARED)} {value}"
        on = f"{self._equal(left, right)} AND {more}"
        return f"SELECT {listed} FROM {left.sql} JOIN {right.sql} ON {on}{self._where(both, 0)}", names

    def numbered(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        source = self.table() if self.draw.random() < 0.5 else self.join(0)
        if not source.ids:
            source = self.table()
        listed, names = self._listed(source)
        family = self.draw.choice("bbs")
        part = f"PARTITION BY {self.of(family, source, 0)} " if self.draw.random() < 0.8 else ""
        alias = self.alias()
        over = f"row_number() OVER ({part}ORDER BY {self._order(source)}) AS rn"
        sql = f"SELECT {listed}, {over} FROM {source.sql}{self._where(source, 0)}"
        self.used.add("row_number")
        limit = self._use(
            *self.draw.choice(
                (
                    ("rn <= n", "rn <= 2"),
                    ("rn = 1", "rn = 1"),
                    ("rn < n", "rn < 3"),
                    ("rn between", f"rn BETWEEN {self.draw.choice((1, 2))} AND 3"),
                )
            )
        )
        shown = [name for name, _ in names] + (["rn"] if self.draw.random() < 0.5 else [])
        if "rn" in shown:
            names = [*names, ("rn", "i")]
        return f"SELECT {', '.join(shown)} FROM ({sql}) {alias} WHERE {limit}", names

    def _order(self, source: Source) -> str:
        first = []
        for _ in range(self.draw.choice((0, 1, 1, 2))):
            family = self.draw.choice("infdmbs")
            way = self.draw.choice(("", " DESC", " ASC", " DESC NULLS LAST", " NULLS FIRST"))
            collate = ' COLLATE "C"' if family == "s" else ""
            own = [reference for reference, _, kind in source.columns if kind == family]
            if own:
                first.append(f"{self.draw.choice(own)}{collate}{way}")
                self.used.add(f"order by{way.lower()}")
        return ", ".join([*first, *source.ids])

    def with_(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        inner, names = self.select(0)
        self.used.add("with")
        one, other = self.alias(), self.alias()
        columns = [(f"{one}.{name}", name, family) for name, family in names]
        others = [(f"{other}.{name}", name, family) for name, family in names]
        left, right = Source("", columns, []), Source("", others, [])
        shown, result = self._listed(Source("", [*columns, *others], []))
        if self.draw.random() < 0.5:
            listed, result = self._listed(left)
            return f"WITH q AS ({inner}) SELECT {listed} FROM q {one}{self._where(left, 0)}", result
        self.used.add("with, twice")
        return f"WITH q AS ({inner}) SELECT {shown} FROM q {one} JOIN q {other} ON {self._equal(left, right)}", result

    def shadowed(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        """A query of WITH that has the name of the table that it reads."""
        made, alias = self.draw.choice(self.tables), self.alias()
        columns = [(f"{alias}.{name}", name, FAMILY[type_]) for name, type_ in made.columns.items()]
        outer = Source(f"{made.name} {alias}", columns, [f"{alias}.{name}" for name in made.key])
        inner = Source(made.name, [(name, name, family) for _, name, family in columns], list(made.key))
        listed, names = self._listed(outer)
        self.used.add("with, of a table's name")
        where = self._where(outer, depth) if self.draw.random() < 0.5 else ""
        rows = f"SELECT * FROM {made.name} WHERE {self.test(inner)}"
        return f"WITH {made.name} AS ({rows}) SELECT {listed} FROM {outer.sql}{where}", names

    def scalar(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        source, inner = self.source(depth), self.table()
        listed, names = self._listed(source)
        kind = self.draw.choice(("avg", "max", "count", "sum"))
        value = f"(SELECT {kind}({self.of('i', inner, 0)}) FROM {inner.sql}{self._where(inner, 0)})"
        self.used.add("scalar subquery")
        if self.draw.random() < 0.5:
            return f"SELECT {listed}, {value} AS s FROM {source.sql}{self._where(source, 0)}", [
                *names,
                ("s", "w" if kind == "avg" else "n"),
            ]
        return (
            f"SELECT {listed} FROM {source.sql} WHERE {self.of('i', source, 0)} {self.draw.choice(COMPARED)} {value}",
            names,
        )

    def self_join(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        made, one, other = self.draw.choice(self.tables), self.alias(), self.alias()
        sources = []
        for alias in (one, other):
            sources.append(
                Source(
                    f"{made.name} {alias}",
                    [(f"{alias}.{name}", name, FAMILY[type_]) for name, type_ in made.columns.items()],
                    [],
                )
            )
        both = Source("", [*sources[0].columns, *sources[1].columns], [])
        listed, names = self._listed(both)
        how = self.draw.choice(("JOIN", "LEFT JOIN"))
        self.used.add("self-join")
        on = f"{one}.k = {other}.k AND {one}.id <> {other}.id"
        return (
            f"SELECT {listed} FROM {made.name} {one} {how} {made.name} {other} ON {on}",
            names,
        )

    def filtered_join(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        left, right = self.table(), self.table()
        how = self.draw.choice(("LEFT", "RIGHT", "FULL"))
        both = Source("", [*left.columns, *right.columns], [])
        listed, names = self._listed(both)
        side = self.draw.choice((left, right))
        self.used.add(f"where over one side of a {how.lower()} join")
        join = f"{left.sql} {how} JOIN {right.sql} ON {left.columns[1][0]} = {right.columns[1][0]}"
        ids = f"{left.ids[0]} AS i, {right.ids[0]} AS j"
        return f"SELECT {listed}, {ids} FROM {join} WHERE {self.test(side)}", [*names, ("i", "i"), ("j", "i")]

    def using(self, depth: int) -> tuple[str, list[tuple[str, str]]]:
        left, right = self.table(), self.table()
        how = self.draw.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        self.used.add("using")
        return f"SELECT k, {left.ids[0]} AS i, {right.ids[0]} AS j FROM {left.sql} {how} {right.sql} USING (k)", [
            ("k", "i"),
            ("i", "i"),
            ("j", "i"),
        ]

    def _listed(self, source: Source) -> tuple[str, list[tuple[str, str]]]:
        found, names = [], []
        for place in range(self.draw.randint(1, 4)):
            family = self.family("iinsbdfmzcw", "teuy", source)
            found.append(f"{self.of(family, source, self.draw.choice((0, 0, 1, 2)))} AS o{place}")
            names.append((f"o{place}", family))
        return ", ".join(found), names

    def _where(self, source: Source, depth: int) -> str:
        parts = []
        if self.draw.random() < 0.5:
            parts.append(self._use("where", self.test(source)))
        if self.draw.random() < 0.25:
            parts.append(self._exists(source))
        times = [(reference, kind) for reference, _, kind in source.columns if kind in "zm"]
        if times and self.draw.random() < 0.3:
            parts.append(self._spanned(source, *self.draw.choice(times)))
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def _spanned(self, source: Source, own: str, family: str) -> str:
        """While which rows are in."""
        now, hours = "now()", self.draw.choice(("00:00", "36 hours", "700 hours"))
        if family == "m":
            now, hours = "(now() AT TIME ZONE 'UTC')", self.draw.choice(("00:00", "1 day", "700:00"))
            self.used.add("now() at time zone")
        moment = own if self.draw.random() < 0.7 else self.of(family, source, 1)
        kind = self.draw.choice(("rows that go", "rows that come", "rows that come and go", "now() on the left"))
        self.used.add(kind)
        if kind == "rows that come and go":
            return f"({moment} BETWEEN {now} - INTERVAL '{hours}' AND {now})"
        if kind == "now() on the left":
            later = f"{moment} + INTERVAL '{hours}'"
            return f"{now} {self.draw.choice(('<', '<=', '>', '>='))} {later}"
        operator = self.draw.choice((">", ">=") if kind == "rows that go" else ("<", "<="))
        return f"{moment} {operator} {now} {self.draw.choice('+-')} INTERVAL '{hours}'"

    def _exists(self, source: Source) -> str:
        inner = self.table()
        equal = self._equal(source, inner)
        kind = self.draw.choice(
            (
                "exists",
                "not exists",
                "in",
                "= any",
                "exists with a condition over both",
                "not exists with a condition over both",
                "in, of groups",
                "in, of first rows",
                "exists, of one group",
                "not exists, of groups",
            )
        )
        self.used.add(kind)
        if kind in ("in", "= any"):
            word = "IN" if kind == "in" else "= ANY"
            where = f" WHERE {self.condition(inner, 1)}" if self.draw.random() < 0.5 else ""
            return f"{self.of('i', source, 0)} {word} (SELECT {self.of('i', inner, 0)} FROM {inner.sql}{where})"
        if kind == "in, of groups":
            groups = f"SELECT max({self.of('i', inner, 0)}) FROM {inner.sql} GROUP BY {inner.columns[1][0]}"
            return f"{self.of('i', source, 0)} IN ({groups})"
        if kind == "in, of first rows":
            on, value = inner.columns[1][0], self.of("i", inner, 0)
            firsts = f"SELECT DISTINCT ON ({on}) {value} FROM {inner.sql} ORDER BY {on}, {', '.join(inner.ids)}"
            return f"{self.of('i', source, 0)} IN ({firsts})"
        if "group" in kind:  # one of nothing is there, groups of nothing are not
            by = f" GROUP BY {inner.columns[1][0]}" if kind.endswith("groups") else ""
            no = "NOT " if kind.startswith("not") else ""
            return f"{no}EXISTS (SELECT count(*) FROM {inner.sql} WHERE {self.test(inner)}{by})"
        rest = ""
        if "both" in kind:
            rest = f" AND {self.of('i', source, 0)} {self.draw.choice(COMPARED)} {self.of('i', inner, 0)}"
        elif self.draw.random() < 0.5:
            rest = f" AND {self.test(inner)}"
        no = "NOT " if kind.startswith("not") else ""
        shown = self.draw.choice(("1", "*", inner.columns[0][0]))
        return f"{no}EXISTS (SELECT {shown} FROM {inner.sql} WHERE {equal}{rest})"
