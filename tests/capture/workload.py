"""A random workload on a real database, and the truth about it: every committed change, written down by triggers in the
same transaction. A key's changes are in order of `seq` there, since whoever changes a row holds its lock."""

from __future__ import annotations

import contextlib
import io
import random
import threading
import time
from collections.abc import Callable

import psycopg

SCHEMA = """
CREATE SEQUENCE version;
CREATE TABLE audit (seq bigserial PRIMARY KEY, tbl text, op text, id bigint, v bigint);
CREATE TABLE plain (
    id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT nextval('version'), name text, amount numeric(20, 4),
    at timestamptz NOT NULL DEFAULT clock_timestamp());
CREATE TABLE large (
    id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT nextval('version'), note text, tags text[], doc jsonb);
CREATE FUNCTION note_change() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'DELETE' OR (TG_OP = 'UPDATE' AND OLD.id <> NEW.id) THEN
        INSERT INTO audit (tbl, op, id, v) VALUES (TG_TABLE_NAME, 'd', OLD.id, OLD.v); END IF;
    IF TG_OP = 'INSERT' OR (TG_OP = 'UPDATE' AND OLD.id <> NEW.id) THEN
        INSERT INTO audit (tbl, op, id, v) VALUES (TG_TABLE_NAME, 'c', NEW.id, NEW.v);
    ELSIF TG_OP = 'UPDATE' THEN
        INSERT INTO audit (tbl, op, id, v) VALUES (TG_TABLE_NAME, 'u', NEW.id, NEW.v); END IF;
    RETURN NULL; END $$;
CREATE TRIGGER note_plain AFTER INSERT OR UPDATE OR DELETE ON plain FOR EACH ROW EXECUTE FUNCTION note_change();
CREATE TRIGGER note_large AFTER INSERT OR UPDATE OR DELETE ON large FOR EACH ROW EXECUTE FUNCTION note_change();
"""
TABLES = ("plain", "large")
KEYS = 400
# A seed is to end: what is written in its seconds has to be captured in about as many.
PAUSE_S = 0.05


def fill(connection: psycopg.Connection[tuple[object, ...]], rows: int) -> None:
    """What the snapshot finds."""
    connection.execute(SCHEMA)
    connection.execute(
        "INSERT INTO plain (id, name, amount) SELECT n, 'name ' || n, n / 7.0 FROM generate_series(1, %s) n", (rows,)
    )
    connection.execute(
        "INSERT INTO large (id, note, tags) SELECT n, repeat(md5(n::text), 200), ARRAY[n::text, 'x'] "
        "FROM generate_series(1, %s) n",
        (rows // 10,),
    )


class Writer(threading.Thread):
    """Commits random transactions until told to stop. The server may go away at any time; it tries again."""

    def __init__(self, url: str, seed: int, ddl: bool) -> None:
        super().__init__(daemon=True, name=f"writer {seed}")
        self._url, self._random, self._ddl = url, random.Random(seed), ddl
        self._ended = threading.Event()
        self._columns = 0
        self.transactions = 0
        self.failure: BaseException | None = None

    def stop(self) -> None:
        self._ended.set()
        self.join()
        if self.failure is not None:
            raise self.failure

    def run(self) -> None:
        while not self._ended.is_set():
            try:
                with psycopg.connect(self._url, connect_timeout=5) as connection:
                    while not self._ended.is_set():
                        self._transaction(connection)
                        self.transactions += 1
                        time.sleep(PAUSE_S)
            except (psycopg.OperationalError, psycopg.InterfaceError, psycopg.Rollback):
                time.sleep(0.2)  # killed: it comes back (a rollback comes out here if it was killed during that)
            except BaseException as error:
                self.failure = error
                return

    def _transaction(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        steps: list[Callable[[psycopg.Connection[tuple[object, ...]]], None]] = [
            self._do_insert, self._do_insert, self._do_update, self._do_update, self._do_update, self._do_delete,
            self._do_move, self._do_copy, self._do_many, self._do_touch_large,
        ]  # fmt: skip
        with (
            contextlib.suppress(psycopg.errors.IntegrityError, psycopg.errors.TransactionRollback),
            connection.transaction(),
        ):
            for _ in range(self._random.choice((1, 1, 1, 2, 5))):
                with contextlib.suppress(psycopg.errors.IntegrityError), connection.transaction():
                    self._random.choice(steps)(connection)
            if self._ddl and self._random.random() < 0.02:
                self._do_alter(connection)
            if self._random.random() < 0.1:
                raise psycopg.Rollback
            if self._random.random() < 0.05:
                time.sleep(0.3)  # a transaction that others overtake

    def _key(self) -> int:
        return self._random.randrange(1, KEYS)

    def _do_insert(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        row = (self._key(), f"né {self._random.random()} \U0001f409", self._random.randrange(10**9) / 10_000)
        connection.execute("INSERT INTO plain (id, name, amount) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING", row)

    def _do_update(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.execute("UPDATE plain SET amount = amount + 1, v = nextval('version') WHERE id = %s", (self._key(),))

    def _do_delete(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        table = self._random.choice(("plain", "plain", "large"))
        connection.execute(f"DELETE FROM {table} WHERE id = %s", (self._key(),))

    def _do_move(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        change = "UPDATE plain SET id = %s, v = nextval('version') WHERE id = %s"
        connection.execute(change, (self._key(), self._key()))

    def _do_copy(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Rows of one COPY share an LSN. Keys of their own, so that none of them is there already."""
        first = self._random.randrange(10**6, 10**12)
        lines = io.StringIO("".join(f"{first + n}\tcopied {n}\t{n}.5\n" for n in range(self._random.choice((3, 40)))))
        with connection.cursor() as cursor, cursor.copy("COPY plain (id, name, amount) FROM STDIN") as copy:
            copy.write(lines.read())

    def _do_many(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        first, count = self._random.randrange(10**6, 10**12), self._random.choice((5, 20))
        connection.execute(
            "INSERT INTO plain (id, name) SELECT n, 'many' FROM generate_series(%s::bigint, %s) n",
            (first, first + count),
        )

    def _do_touch_large(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """Leaves the large value alone as often as not: then it is not in the log."""
        key = self._key()
        note = "".join(self._random.choice("abcdefgh") for _ in range(9_000))
        if self._random.random() < 0.4:
            insert = "INSERT INTO large (id, note, tags) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
            connection.execute(insert, (key, note, ["a", None, "b"]))
        elif self._random.random() < 0.3:
            connection.execute("UPDATE large SET note = %s, v = nextval('version') WHERE id = %s", (note, key))
        else:
            connection.execute(
                "UPDATE large SET tags = tags || 'x'::text, v = nextval('version') WHERE id = %s", (key,)
            )

    def _do_alter(self, connection: psycopg.Connection[tuple[object, ...]]) -> None:
        """A column comes, gets another name, goes."""
        rows = connection.execute(
            "SELECT attname FROM pg_attribute "
            "WHERE attrelid = 'plain'::regclass AND attname ~ '^more_' AND NOT attisdropped"
        ).fetchall()
        self._columns += 1
        if not rows:
            connection.execute(f"ALTER TABLE plain ADD COLUMN more_{self._columns} int DEFAULT {self._columns}")
        elif self._random.random() < 0.5:
            connection.execute(f"ALTER TABLE plain RENAME COLUMN {rows[0][0]} TO more_{self._columns}_again")
        else:
            connection.execute(f"ALTER TABLE plain DROP COLUMN {rows[0][0]}")
