"""One epoch into OpenSearch: the tasks send documents by `_bulk`, and the ledger follows them.

The version of a document is the row's place in the log, of type `external_gte`. A stale one is answered with 409 and is
as good as written: something newer is there. `external` would answer so to an epoch that is written again, too; but
then half of it would be from the attempt that failed, whose rows need not be the same (a time of day, a lookup).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.kernel.calling import quoted
from millrace.kernel.pieces import pieces
from millrace.sinks.contract import DIFF, VERSION, Feed, Refuse, Writer
from millrace.sinks.http import Caller
from millrace.sinks.ledger import Epoch
from millrace.sinks.opensearch_bulk import ANSWER_S, Bulks
from millrace.sinks.opensearch_index import Indexes, Ledger, as_text
from millrace.sinks.tasks import refused_in_tasks
from millrace.sinks.texts import document, joined_key, key_text
from millrace.sinks.witness import WitnessedLedger

if TYPE_CHECKING:
    from millrace.sinks.opensearch import OpenSearch

# Larger bulks are no quicker, and cost the server memory; a row that is larger goes alone.
BULK_BYTES = 2 * 1024 * 1024
_LONGEST_ID_BYTES = 512
_UNFIT_KEY = f"its key is null, empty, or longer than {_LONGEST_ID_BYTES} bytes"


class OpenSearchWriter(Writer):
    def __init__(self, sink: OpenSearch, url: str, flow: str, feed: Feed, folder: Path) -> None:
        self._sink, self._url, self._feed = sink, url, feed
        self._caller = Caller(sink, url, ANSWER_S)
        try:
            ledger = Ledger(sink, self._caller, flow)
            self._ledger = WitnessedLedger(sink, flow, folder, ledger.held, ledger.write)
            # One that somebody deleted is not made again without its documents.
            self._index = Indexes(sink, self._caller, sink.index, feed).ready(self._ledger.check_empty)
        except BaseException:
            self.close()
            raise

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        if not self._ledger.due(epoch):
            return
        lines = pieces(self._lines(rows), BULK_BYTES)
        if refused := refused_in_tasks(lines, self._sink, Bulks(self._sink, self._url, self._index)):
            refuse(refused)
        self._ledger.write(epoch)

    def _lines(self, rows: DataFrame) -> DataFrame:
        """Of each row the line that says what is to be done and the document; one that can have none, beside them."""
        key, whole = joined_key(self._feed), document(self._feed)
        about = F.struct(key.alias("_id"), F.col(VERSION).alias("version"), F.lit("external_gte").alias("version_type"))
        told = F.concat(F.to_json(about), F.lit("}"))
        index, delete = F.concat(F.lit('{"index":'), told, F.lit("\n"), whole), F.concat(F.lit('{"delete":'), told)
        fits = F.coalesce((F.octet_length(key) <= _LONGEST_ID_BYTES) & (F.length(key) > 0), F.lit(False))
        return texts(rows, self._feed).select(
            F.when(fits, F.when(F.col(DIFF) > 0, index).otherwise(delete).cast("binary")).alias("lines"),
            F.when(~fits, F.lit(_UNFIT_KEY)).alias("reason"),
            F.when(~fits, key_text(self._feed)).alias("key"),
            F.when(~fits, whole).alias("row"),
        )

    def close(self) -> None:
        self._caller.close()


def texts(rows: DataFrame, feed: Feed) -> DataFrame:
    """The rows with numbers as texts where a document has them so."""
    wide = [each.name for each in feed.columns.fields if as_text(each.dataType)]
    return rows.withColumns({name: F.col(quoted(name)).cast("string") for name in wide})
