"""The events of Nexmark's model, as a function of a seed and an event's number, written to Kafka by Spark.

Of fifty events in a row the first is a new person, the next three are new auctions, the other forty-six are bids. Half
of the bids go to a hot auction (every hundredth one, while it is the newest such), the others to one of the last
hundred; three of four bidders and sellers are hot persons likewise, the others are among the last thousand. Now and
then somebody bids for an auction, or sells, who is only about to appear. An auction lasts so long that a hundred are
open on average. Prices are 100 × 10^(0…6), evenly in the exponent.

Each partition ends with a record an hour later that has nothing but its time: all windows before it close.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from string import ascii_lowercase

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

PERSONS, AUCTIONS, BIDS = "persons", "auctions", "bids"
# Of fifty events in a row: where the first of a kind stands, and how many there are.
_ROUND = 50
PLACES = {PERSONS: (0, 1), AUCTIONS: (1, 3), BIDS: (4, 46)}

_START_MS = 1_767_225_590_000  # ten seconds before the first of January 2026: queries by the day see two
_AFTER_S = 3_600
_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSXXX"}
_FIRST_ID, _FIRST_CATEGORY = 1_000, 10
_CATEGORIES = 5
_HOT_EVERY, _OPEN_AUCTIONS, _ACTIVE_PERSONS, _LEAD = 100, 100, 1_000, 10
_HOT_BIDS, _HOT_PERSONS = 2, 4  # one in so many is not hot

_TEXT_LENGTH, _LONGEST_WORD = 1_000, 400
_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
_FIRST_NAMES = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter")
_LAST_NAMES = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")


@dataclass(frozen=True)
class Model:
    """`events` in all, of which `rate` happen in a second of event time: at least 350, or auctions would last longer
    than the ten seconds that q4 counts on."""

    events: int
    rate: int = 10_000
    seed: int = 1

    def count(self, table: str) -> int:
        first, many = PLACES[table]
        rounds, rest = divmod(self.events, _ROUND)
        return rounds * many + min(max(rest - first, 0), many)

    def rows(self, spark: SparkSession, table: str, partitions: int = 1) -> DataFrame:
        """The events of a topic, those of each partition in the order in which they happen and by one task."""
        first, many = PLACES[table]
        each = -(-self.count(table) // partitions)
        own = spark.range(0, each * partitions, 1, partitions)
        partition = F.floor(F.col("id") / each)
        dealt = own.select(
            partition.cast("int").alias("partition"), (F.col("id") % each * partitions + partition).alias("nth")
        )
        nth = F.col("nth")
        numbered = dealt.where(nth < self.count(table)).select(
            "*", (F.floor(nth / many) * _ROUND + first + nth % many).alias("n")
        )
        columns = {PERSONS: self._person, AUCTIONS: self._auction, BIDS: self._bid}[table]()
        event = F.struct(*(column.alias(name) for name, column in columns.items()))
        return numbered.select("partition", event.alias("event"))

    def write(
        self, spark: SparkSession, kafka: Mapping[str, str], topics: Mapping[str, str], partitions: int = 2
    ) -> None:
        """`topics` names those of persons, auctions and bids, which have so many partitions."""
        events = [
            self.rows(spark, table, partitions).withColumn("topic", F.lit(topic)) for table, topic in topics.items()
        ]
        for rows in (*events, self._last_records(spark, list(topics.values()), partitions)):
            records = rows.select("topic", "partition", F.to_json("event", _TIMES).alias("value"))
            records.write.format("kafka").options(**kafka).option("kafka.compression.type", "lz4").save()

    def _last_records(self, spark: SparkSession, topics: list[str], partitions: int) -> DataFrame:
        number = F.lit(self.events + _AFTER_S * self.rate).cast("long").alias("n")
        every = F.explode(F.array(*map(F.lit, topics))).alias("topic")
        numbered = spark.range(partitions).select(F.col("id").cast("int").alias("partition"), every, number)
        return numbered.select("topic", "partition", F.struct(self._time().alias("dateTime")).alias("event"))

    def _person(self) -> dict[str, Column]:
        name = F.concat_ws(" ", self._one(_FIRST_NAMES, "first"), self._one(_LAST_NAMES, "last"))
        return {
            "id": F.col("nth") + _FIRST_ID,
            "name": name,
            "emailAddress": F.concat(self._word(7, "mailbox"), F.lit("@"), self._word(5, "host"), F.lit(".com")),
            "creditCard": F.concat_ws(" ", *(F.lpad(self._below(10_000, f"card{i}"), 4, "0") for i in range(4))),
            "city": self._one(_CITIES, "city"),
            "state": self._one(_STATES, "state"),
            "dateTime": self._time(),
            "extra": self._extra(100),
        }

    def _auction(self) -> dict[str, Column]:
        hot = F.floor(self._last(PERSONS) / _HOT_EVERY) * _HOT_EVERY
        seller = F.when(self._below(_HOT_PERSONS, "hot") > 0, hot).otherwise(self._some_person())
        least = self._price("least")
        # Twice the time in which as many auctions begin as are to be open, on average half of it.
        horizon_ms = _OPEN_AUCTIONS * _ROUND // PLACES[AUCTIONS][1] * 1_000 * 2 // self.rate
        return {
            "id": F.col("nth") + _FIRST_ID,
            "itemName": self._word(20, "item"),
            "description": self._word(100, "description"),
            "initialBid": least,
            "reserve": least + self._price("reserve"),
            "dateTime": self._time(),
            "expires": F.timestamp_millis(self._time_ms() + 1 + self._below(max(horizon_ms, 1), "length")),
            "seller": seller + _FIRST_ID,
            "category": self._below(_CATEGORIES, "category") + _FIRST_CATEGORY,
            "extra": self._extra(300),
        }

    def _bid(self) -> dict[str, Column]:
        newest = self._last(AUCTIONS)
        oldest = F.greatest(newest - _OPEN_AUCTIONS, F.lit(0))
        some = oldest + self._below(newest - oldest + 1 + _LEAD, "auction")
        hot = F.floor(newest / _HOT_EVERY) * _HOT_EVERY
        auction = F.when(self._below(_HOT_BIDS, "hot") > 0, hot).otherwise(some)
        hot_bidder = F.floor(self._last(PERSONS) / _HOT_EVERY) * _HOT_EVERY + 1
        bidder = F.when(self._below(_HOT_PERSONS, "hot bidder") > 0, hot_bidder).otherwise(self._some_person())
        number = self._below(10_000, "channel")
        known = self._below(2, "known channel") > 0
        path = F.concat_ws("/", *(self._word(5, f"folder{i}") for i in range(3)))
        page = F.concat(F.lit("https://www.nexmark.com/"), path, F.lit("/item.htm?query=1"))
        return {
            "auction": auction + _FIRST_ID,
            "bidder": bidder + _FIRST_ID,
            "price": self._price("price"),
            "channel": F.when(known, self._one(_CHANNELS, "name")).otherwise(F.concat(F.lit("channel-"), number)),
            "url": F.when(known, page).otherwise(F.concat(page, F.lit("&channel_id="), number)),
            "dateTime": self._time(),
            "extra": self._extra(68),
        }

    def _last(self, table: str) -> Column:
        """How many of a kind there were before this event, less one: the newest one's number."""
        first, many = PLACES[table]
        place = F.col("n") % _ROUND
        so_far = F.least(F.greatest(place - first, F.lit(0)), F.lit(many))
        return F.greatest(F.floor(F.col("n") / _ROUND) * many + so_far - 1, F.lit(0))

    def _some_person(self) -> Column:
        many = self._last(PERSONS) + 1
        active = F.least(many, F.lit(_ACTIVE_PERSONS))
        return many - active + self._below(active + _LEAD, "person")

    def _time_ms(self) -> Column:
        return F.floor(F.col("n") * 1_000 / self.rate) + _START_MS

    def _time(self) -> Column:
        return F.timestamp_millis(self._time_ms())

    def _draw(self, what: str) -> Column:
        return F.xxhash64(F.lit(f"{self.seed} {what}"), F.col("n"))

    def _below(self, bound: int | Column, what: str) -> Column:
        return F.pmod(self._draw(what), F.lit(bound) if isinstance(bound, int) else bound)

    def _one(self, words: tuple[str, ...], what: str) -> Column:
        return F.element_at(F.array(*map(F.lit, words)), (self._below(len(words), what) + 1).cast("int"))

    def _price(self, what: str) -> Column:
        return F.round(F.pow(F.lit(10.0), self._below(1 << 30, what) * 6 / (1 << 30)) * 100).cast("long")

    def _word(self, length: int | Column, what: str) -> Column:
        """Letters, so many, from somewhere in a text of letters: quicker to take than to make."""
        begin = (self._below(_TEXT_LENGTH, what) + 1).cast("int")
        return F.substring(F.lit(self._text()), begin, F.lit(length) if isinstance(length, int) else length)

    def _text(self) -> str:
        return "".join(Random(self.seed).choices(ascii_lowercase, k=_TEXT_LENGTH + _LONGEST_WORD))

    def _extra(self, mean: int) -> Column:
        """What makes an event as long as the model wants it: within a fifth of the mean."""
        spread = mean // 5
        length = (self._below(2 * spread + 1, "length of extra") + mean - spread).cast("int")
        return self._word(length, "extra")
