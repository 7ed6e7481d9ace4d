"""A broker that is not there is one sentence; a secret is nowhere."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.config import Kafka, Secret, Settings
from millrace.errors import KafkaOptionInvalid, KafkaUnreachable, SecretMissing, TopicUnknown
from millrace.log import Log
from millrace.log.connection import complaints
from millrace.log.topics import Topics

CANARY = "canary-7f3a"


def log_at(bootstrap: str, options: dict[str, str | Secret] | None = None) -> Log:
    return Log(Settings(Path(), kafka=Kafka(bootstrap, options or {})))


def test_nothing_is_connected_to_before_it_is_used() -> None:
    log_at("127.0.0.1:1").topics  # noqa: B018


@pytest.mark.parametrize(
    ("bootstrap", "reason"), [("127.0.0.1:1", "Connection refused"), ("no-such-host.invalid:9092", "resolve")]
)
def test_an_absent_broker_is_one_sentence_and_nothing_on_the_terminal(bootstrap: str, reason: str) -> None:
    code = f"""
from pathlib import Path
from millrace.config import Kafka, Settings
from millrace.log import Log
try:
    Log(Settings(Path(), kafka=Kafka({bootstrap!r}))).topics.list()
except Exception as error:
    print(type(error).__name__, error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.startswith(KafkaUnreachable.__name__)
    assert reason in done.stdout
    assert bootstrap in done.stdout
    assert done.stdout.count("\n") == 1


class _Metadata:
    def __init__(self, *topics: str) -> None:
        self.topics = dict.fromkeys(topics)


def test_a_broker_that_starts_and_knows_no_topics_yet_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [_Metadata(), _Metadata(), _Metadata("__consumer_offsets", "events")]
    monkeypatch.setattr(Topics, "_metadata", lambda _: answers.pop(0) if len(answers) > 1 else answers[0])
    monkeypatch.setattr(Topics, "list", lambda _: ())
    topics = log_at("127.0.0.1:1").topics
    assert topics.known("events") is None  # as the broker describes it here
    with pytest.raises(TopicUnknown):
        topics.known("others")
    answers[0] = _Metadata()
    monkeypatch.setattr("millrace.log.topics._STARTS_S", 0.1)
    with pytest.raises(TopicUnknown):
        topics.known("events")


def test_an_unknown_option_is_the_users_error() -> None:
    with pytest.raises(KafkaOptionInvalid, match=r"no\.such\.option"):
        log_at("127.0.0.1:1", {"no.such.option": "1"}).topics.list()


def test_a_missing_secret_is_told_at_the_moment_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    log = log_at("127.0.0.1:1", {"sasl.password": Secret("kafka.options.sasl.password", "env:NOT_SET")})
    with pytest.raises(SecretMissing, match="NOT_SET"):
        log.topics.list()


def test_a_secret_reaches_no_log_and_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    options: dict[str, str | Secret] = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": Secret("kafka.options.sasl.password", "env:KAFKA_PASSWORD"),
        "debug": "all",
    }
    log = log_at("127.0.0.1:1", options)
    with caplog.at_level(logging.DEBUG, logger=complaints.name), pytest.raises(KafkaUnreachable) as caught:
        log.topics.list()
    complaints.error("a library that says %s", CANARY)
    assert "librdkafka" in caplog.text.lower() or "connect" in caplog.text.lower()  # the log was really listened to
    assert "a library that says ***" in caplog.text
    assert CANARY not in caplog.text + str(caught.value) + repr(log.settings) + str(caught.value.facts)
