"""From `Settings` to clients of Kafka: their options, where their complaints go, and errors that a person can read."""

from __future__ import annotations

import contextlib
import logging
import re
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from millrace import local
from millrace.config import Secret, Settings
from millrace.errors import KafkaOptionInvalid, KafkaRefused, KafkaUnreachable, MillraceError

ANSWER_S = 30.0  # how long one request to a broker that is there may take
REACH_S = 10.0  # how long a broker may take to answer for the first time
REFUSED_S = 2.0  # how long every broker may refuse to be connected to: one that is just starting does
_LOOK_S = 0.25
_NOISE = re.compile(r"^\S+/(bootstrap|\d+): |Connect to \S+ failed: |Local: |Broker: ")

# These will not mend themselves by waiting: the address, a certificate or a password is wrong.
_HOPELESS = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError.SASL_AUTHENTICATION_FAILED, KafkaError._RESOLVE)
_ABSENT = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE)

# librdkafka would print to the terminal. A program that wants to hear it adds a handler of its own.
complaints = logging.getLogger("millrace.kafka")
complaints.addHandler(logging.NullHandler())


class _Discreet(logging.Filter):
    """Blots out every secret that was ever handed to a client, whatever line of the log it turns up in."""

    def __init__(self) -> None:
        super().__init__()
        self.secrets: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if any(secret in text for secret in self.secrets):
            for secret in self.secrets:
                text = text.replace(secret, "***")
            record.msg, record.args = text, ()
        return True


_discreet = _Discreet()
complaints.addFilter(_discreet)


def revealed(options: Mapping[str, str | Secret]) -> dict[str, str]:
    """The options with their secrets, for the moment of handing them to a client."""
    plain = {}
    for name, value in options.items():
        if isinstance(value, Secret):
            secret = value.reveal()
            if secret:
                _discreet.secrets.add(secret)
            plain[name] = secret
        else:
            plain[name] = value
    return plain


class Connection:
    """What every part of the log shares: the address, the clients and the reading of their errors."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._trouble: KafkaError | None = None

    @cached_property
    def address(self) -> str:
        return local.address(self.settings, "kafka")

    @cached_property
    def admin(self) -> Any:
        """A client that has reached a broker once."""
        client = self._client(AdminClient, {"error_cb": self._noticed})
        self._reach(client)
        return client

    def producer(self, options: Mapping[str, Any]) -> Any:
        return self._client(Producer, options)

    def consumer(self, options: Mapping[str, Any]) -> Any:
        """Every reader of Millrace sees committed records alone."""
        return self._client(Consumer, {**options, "isolation.level": "read_committed"})

    def answer(self, future: Any, action: str) -> Any:
        """What a request of the admin client came to. `action` completes "Kafka could not …"."""
        try:
            return future.result()
        except KafkaException as error:
            raise self.trouble(error.args[0], action) from None

    def trouble(self, error: KafkaError, action: str) -> MillraceError:
        """The error for causes that nobody foresaw more precisely."""
        if error.code() in _ABSENT or error.code() in _HOPELESS:
            return KafkaUnreachable(address=self.address, reason=reason(error))
        return KafkaRefused(address=self.address, action=action, reason=reason(error))

    def _client(self, kind: Any, options: Mapping[str, Any]) -> Any:
        own = revealed(self.settings.kafka.options)
        try:
            return kind(
                {"client.id": "millrace", **own, **options, "bootstrap.servers": self.address}, logger=complaints
            )
        except KafkaException as error:
            raise KafkaOptionInvalid(reason=reason(error.args[0])) from None

    def _noticed(self, error: KafkaError) -> None:
        # "All brokers down" follows the true cause and says less.
        if self._trouble is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
            self._trouble = error

    def _reach(self, client: AdminClient) -> None:
        started = time.monotonic()
        while True:
            with contextlib.suppress(KafkaException):
                client.cluster_id(timeout=_LOOK_S)
                return
            client.poll(0)  # `_noticed` is called from here
            waited_s = time.monotonic() - started
            trouble = self._trouble or KafkaError(KafkaError._TIMED_OUT, f"no answer in {REACH_S:.0f} s")
            refused = "refused" in trouble.str() and waited_s > REFUSED_S
            if trouble.code() in _HOPELESS or refused or waited_s > REACH_S:
                raise KafkaUnreachable(address=self.address, reason=reason(trouble))


def reason(error: KafkaError) -> str:
    """librdkafka's own words without its prefixes, states and thread names."""
    text = _NOISE.sub("", error.str().partition(" (after ")[0])
    return text.strip().rstrip(".:") or error.name()
