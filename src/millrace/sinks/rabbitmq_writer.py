"""One epoch to RabbitMQ: so many tasks publish rows and wait for the server's confirmations, and the ledger follows
them. The ledger is a file: what a queue holds is gone when a worker has it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from millrace.errors import SinkTargetUnfit, SinkUnreachable
from millrace.failpoint import FailPoint
from millrace.queues.connection import FORBIDDEN, LOCKED, MISSING, UNLIKE, client, code_of, connect, reason_of
from millrace.sinks.contract import Feed, Refuse, Writer
from millrace.sinks.ledger import Epoch, FileLedger, due
from millrace.sinks.messages import messages
from millrace.sinks.rabbitmq import RabbitMQ
from millrace.sinks.rabbitmq_publishing import Publishing, told
from millrace.sinks.tasks import refused_in_tasks

# RabbitMQ writes down up to a second later which files are a new quorum queue's. Killed before that, it has forgotten
# what it confirmed, and the queue never answers again.
WRITTEN_DOWN_S = 1.5
_REMEDIES = {
    UNLIKE: "name its arguments (arguments={…}), or another queue; it must be durable",
    FORBIDDEN: "let the user configure and write it",
    LOCKED: "name another queue: this one is exclusive to somebody's connection",
}


class RabbitMQWriter(Writer):
    def __init__(self, sink: RabbitMQ, url: str, flow: str, feed: Feed, folder: Path) -> None:
        self._sink, self._url, self._flow, self._feed = sink, url, flow, feed
        self._ledger = FileLedger(folder)
        self._declare()

    def write(self, epoch: Epoch, rows: DataFrame, refuse: Refuse) -> None:
        if not due(self._sink.name, epoch, self._ledger.held(), self._sink.where):
            return
        told_rows = messages(rows, self._feed, self._flow, epoch, self._sink.concurrency)
        task = Publishing(self._sink, self._url, self._sink.queue, self._flow, once=epoch.once)
        if refused := refused_in_tasks(told_rows, self._sink, task):
            refuse(refused)
        FailPoint.SINK_BEFORE_LEDGER.reached(self._sink.name)
        self._ledger.write(epoch)

    def _declare(self) -> None:
        """Makes the queue, unless it is there just like that."""
        sink = self._sink
        with told(sink):
            connection = connect(self._url)
            try:
                is_new = not _is_there(connection, sink.queue)
                connection.channel().queue_declare(sink.queue, durable=True, arguments=dict(sink.arguments))
                if is_new:
                    time.sleep(WRITTEN_DOWN_S)
            except client().exceptions.ChannelClosedByBroker as error:
                reason, remedy = reason_of(error), _REMEDIES.get(code_of(error) or 0)
                if remedy is None:
                    raise SinkUnreachable(sink=sink.name, reason=reason, where=sink.where) from None
                raise SinkTargetUnfit(
                    sink=sink.name, target=sink.queue, reason=reason, remedy=remedy, where=sink.where
                ) from None
            finally:
                if connection.is_open:
                    connection.close()


def _is_there(connection: Any, queue: str) -> bool:
    try:
        connection.channel().queue_declare(queue, passive=True)
    except client().exceptions.ChannelClosedByBroker as error:
        if code_of(error) == MISSING:
            return False
        raise
    return True
