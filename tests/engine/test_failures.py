"""What Spark says when a query ends by itself, as the error that a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from millrace.engine.failures import run_failed
from millrace.errors import CheckpointsUnshared, FlowFailed, MatchCrowded, MillraceError, RecordsGone, StateNewer
from millrace.flow import App, Stream

LOG = Path("spark.log")


def stream() -> Stream:
    app = App("shop")

    @app.stream(app.topic("views", "url string"))
    def seen(views: DataFrame) -> DataFrame:
        return views

    return seen


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        (
            "Job aborted: java.lang.IllegalStateException: MR-STATE-NEWER 3 1\n\tat millrace.kernel.Stored.read",
            StateNewer,
            "its state has form 3, and this one knows up to 1",
        ),
        (
            "Job aborted: java.lang.IllegalStateException: MR-MATCH-CROWDED 10000\n\tat millrace.kernel.Partials.check",
            MatchCrowded,
            "a pattern has more than 10000 partial matches for one key: let a match span less",
        ),
        (
            "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic",
            RecordsGone,
            "a topic that it reads is gone",
        ),
        (
            "msg=java.io.IOException: MR-CHECKPOINTS-UNSHARED node-2 [/mnt/shop/seen/state/0]. SQLSTATE: 58030\n\tat x",
            CheckpointsUnshared,
            "the executor on node-2 does not see the checkpoint of flow 'seen', in /mnt/shop/seen/state/0: mount",
        ),
        (
            "An error occurred while calling z:millrace.sink.Delivery.begin.\n: org.apache.kafka.KafkaException: no\n"
            "\tat x\nCaused by: org.apache.kafka.common.errors.TimeoutException: no answer within 60 s\n\tat y\n",
            FlowFailed,
            "flow 'seen' stopped: TimeoutException: no answer within 60 s",
        ),
    ],
)
def test_causes_are_told_apart(text: str, kind: type[MillraceError], words: str) -> None:
    error = run_failed(stream(), RuntimeError(text), LOG)
    assert type(error) is kind
    assert words in str(error)
    assert "java" not in str(error)
