"""Redis or Valkey: one hash or JSON text for each key, or one sorted set; written by comparing versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from millrace import durations
from millrace.config import Settings
from millrace.errors import OptionInvalid, SinkColumnUnfit, Where, caller
from millrace.sinks.contract import Feed, Guarantee, Sink, Writer, sink_name
from millrace.sinks.keys import check_columns, check_versions, names_of
from millrace.sinks.servers import url_of

if TYPE_CHECKING:
    from millrace.sinks.rebuilding import Rebuilding, Site

SERVER = "valkey"
FORMS = ("hash", "json")
Form = Literal["hash", "json"]


def redis(
    prefix: str,
    *,
    key: str | Sequence[str] | None = None,
    ttl: str | timedelta | None = None,
    form: Form = "hash",
    server: str | None = None,
    name: str | None = None,
) -> Redis:
    """Holds the last row of each key as `prefix:KEY` (`customer:42`, or `customer:eu:42`): a hash of texts, or with
    `form="json"` one JSON text. `server` is a name in millrace.toml ([sinks.NAME]); without one it is the project's
    own.

    With a `ttl` a row is gone so long after its last change. A row that is deleted leaves its version for an hour.

    Guarantee: exactly once per key. One script compares versions and writes: a row that comes again changes nothing,
    and an older one never takes the place of a newer, or of one that was deleted. A reader may see some keys of an
    epoch before others.
    """
    where = caller()
    _check_name("mr.redis", "prefix", prefix, where)
    keys = names_of("mr.redis", "key", key, where)
    if form not in FORMS:
        remedy = f"choose from {', '.join(FORMS)}"
        raise OptionInvalid(name="mr.redis", option="form", given=form, remedy=remedy, where=where)
    ttl_ms = None if ttl is None else durations.milliseconds(ttl)
    if ttl_ms == 0:
        remedy = "give a time above 0, or leave it out to keep rows for ever"
        raise OptionInvalid(name="mr.redis", option="ttl", given=ttl, remedy=remedy, where=where)
    called = sink_name("redis", prefix, name)
    return Redis(called, where, keys, prefix=prefix, form=form, ttl_ms=ttl_ms, server=server)


def redis_ranking(
    ranking: str, *, member: str, score: str, server: str | None = None, name: str | None = None
) -> RedisRanking:
    """Keeps one sorted set with the last score of each member: `ZREVRANGE scores 0 9 WITHSCORES` are the ten best.
    Scores are doubles there. A member whose score is null is not in the ranking.

    Guarantee: exactly once per member, as of `mr.redis`.
    """
    where = caller()
    for option, given in (("ranking", ranking), ("member", member), ("score", score)):
        _check_name("mr.redis_ranking", option, given, where)
    called = sink_name("redis", ranking, name)
    return RedisRanking(called, where, (member,), ranking=ranking, score=score, server=server)


def _check_name(function: str, option: str, given: object, where: Where) -> None:
    if not isinstance(given, str) or not given:
        raise OptionInvalid(name=function, option=option, given=given, remedy="give its name as a text", where=where)


@dataclass(frozen=True, eq=False)
class _OnRedis(Sink):
    guarantee: ClassVar[Guarantee] = "exactly once per key"
    wants: ClassVar[Literal["keys", "rows", "either"]] = "keys"

    server: str | None = field(kw_only=True)

    def keyed(self, table: Sequence[str], stream: Sequence[str]) -> tuple[str, ...]:
        check_versions(self, table)
        return super().keyed(table, stream)

    def servers(self, settings: Settings) -> tuple[str, ...]:
        return () if self.server is not None or SERVER in settings.sinks else (SERVER,)

    def url(self, settings: Settings) -> str:
        return url_of(settings, self.server, SERVER)


@dataclass(frozen=True, eq=False)
class Redis(_OnRedis):
    kind: ClassVar[str] = "redis"

    prefix: str = field(kw_only=True)
    form: Form = field(kw_only=True)
    ttl_ms: int | None = field(kw_only=True)

    def check(self, feed: Feed) -> None:
        check_columns(self, feed, feed.key)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        from millrace.sinks.redis_writer import RedisWriter

        return RedisWriter(self, self.url(settings), flow, feed, folder)

    def rebuilding(self, site: Site) -> Rebuilding:
        from millrace.sinks.redis_rebuild import RowsRebuilding

        return RowsRebuilding(self, self.url(site.settings), site)


@dataclass(frozen=True, eq=False)
class RedisRanking(_OnRedis):
    kind: ClassVar[str] = "redis ranking"

    ranking: str = field(kw_only=True)
    score: str = field(kw_only=True)

    def check(self, feed: Feed) -> None:
        from pyspark.sql.types import NumericType

        check_columns(self, feed, (*feed.key, self.score))
        if not isinstance(feed.columns[self.score].dataType, NumericType):
            kind = feed.columns[self.score].dataType.simpleString()
            reason, remedy = f"a score is a number, and it is a {kind}", "name another column, or cast it to double"
            raise SinkColumnUnfit(sink=self.name, column=self.score, reason=reason, remedy=remedy, where=self.where)

    def open(self, settings: Settings, flow: str, feed: Feed, folder: Path) -> Writer:
        from millrace.sinks.redis_writer import RankingWriter

        return RankingWriter(self, self.url(settings), flow, feed, folder)

    def rebuilding(self, site: Site) -> Rebuilding:
        from millrace.sinks.redis_rebuild import RankingRebuilding

        return RankingRebuilding(self, self.url(site.settings), site)
