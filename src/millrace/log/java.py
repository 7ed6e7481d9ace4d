"""The options of [kafka.options], which have librdkafka's names, in the words of Kafka's Java client.

Spark reads and writes through that one. An option that means something to a connection and cannot be said in its words
is an error: a flow that silently connected with less protection than configured would be worse than one that does not
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace.config import Settings
from millrace.errors import KafkaOptionUntranslated
from millrace.log.connection import revealed

_SAME = {
    "client.id",
    "client.dns.lookup",
    "client.rack",
    "connections.max.idle.ms",
    "metadata.max.age.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "sasl.kerberos.service.name",
    "socket.connection.setup.timeout.ms",
    "ssl.key.password",
    "ssl.keystore.password",
    "transaction.timeout.ms",
}
_RENAMED = {
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "security.protocol": "security.protocol",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
    "socket.send.buffer.bytes": "send.buffer.bytes",
    "socket.timeout.ms": "request.timeout.ms",
}
_UPPER = {"security.protocol", "sasl.mechanism", "sasl.mechanisms"}
# What librdkafka says of itself, and how: of no meaning to a connection.
_ITS_OWN = {"debug", "log_level", "log.connection.close", "log.queue", "log.thread.name", "statistics.interval.ms"}
_LOGIN = {"sasl.username", "sasl.password", "sasl.kerberos.keytab", "sasl.kerberos.principal"}
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def java_options(settings: Settings) -> dict[str, str]:
    """`settings.kafka.options` for the Java client, secrets revealed: hand them over, print them never."""
    own = revealed(settings.kafka.options)
    java = {}
    for option, value in own.items():
        if option in _SAME:
            java[option] = value
        elif option in _RENAMED:
            java[_RENAMED[option]] = value.upper() if option in _UPPER else value
        elif option.startswith("ssl."):
            java |= _tls(option, value)
        elif option not in _LOGIN and option not in _ITS_OWN:
            raise _untranslated(option, "it has no counterpart there")
    return java | _login(own)


def _login(own: Mapping[str, str]) -> dict[str, str]:
    if "SASL" not in own.get("security.protocol", "").upper():
        for option in _LOGIN & set(own):
            raise _untranslated(option, "security.protocol does not name SASL", "set security.protocol to SASL_SSL")
        return {}
    mechanism = own.get("sasl.mechanisms", own.get("sasl.mechanism", "GSSAPI")).upper()
    if mechanism in _MODULES:
        facts = {"username": own.get("sasl.username", ""), "password": own.get("sasl.password", "")}
        return {"sasl.jaas.config": _jaas(_MODULES[mechanism], facts)}
    if mechanism == "GSSAPI" and "sasl.kerberos.keytab" in own:
        facts = {"keyTab": own["sasl.kerberos.keytab"], "principal": own.get("sasl.kerberos.principal", "")}
        return {"sasl.jaas.config": _jaas(_KERBEROS, facts, "useKeyTab=true storeKey=true ")}
    remedy = "use PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or GSSAPI with sasl.kerberos.keytab"
    raise _untranslated("sasl.mechanisms", f"logging in by {mechanism} is not translated", remedy)


def _jaas(module: str, facts: Mapping[str, str], flags: str = "") -> str:
    said = " ".join(f"{name}={_quoted(value)}" for name, value in facts.items())
    return f"{module} required {flags}{said};"


def _quoted(value: str) -> str:
    """In a JAAS file a backslash and a quote stand behind a backslash."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _tls(option: str, value: str) -> dict[str, str]:
    match option:
        case "ssl.ca.location":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": _pem(option, value)}
        case "ssl.ca.pem":
            return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": value}
        case "ssl.certificate.location":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": _pem(option, value)}
        case "ssl.certificate.pem":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": value}
        case "ssl.key.location":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.key": _key(option, _pem(option, value))}
        case "ssl.key.pem":
            return {"ssl.keystore.type": "PEM", "ssl.keystore.key": _key(option, value)}
        case "ssl.keystore.location":
            return {"ssl.keystore.type": "PKCS12", "ssl.keystore.location": str(Path(value).expanduser())}
        case "ssl.endpoint.identification.algorithm":
            return {option: "" if value.lower() == "none" else value}
    raise _untranslated(option, "it has no counterpart there")


def _pem(option: str, value: str) -> str:
    path = Path(value).expanduser()
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        remedy = "name a file of PEM certificates that can be read"
        raise _untranslated(option, f"{value} cannot be read: {error.strerror}", remedy) from None


def _key(option: str, pem: str) -> str:
    if "BEGIN PRIVATE KEY" in pem or "BEGIN ENCRYPTED PRIVATE KEY" in pem:
        return pem
    remedy = "convert it: `openssl pkcs8 -topk8 -in OLD.pem -out NEW.pem` (add -nocrypt if it has no password)"
    raise _untranslated(option, "Java reads private keys in PKCS #8 only", remedy)


def _untranslated(option: str, reason: str, remedy: str = "remove it, or use one that both know") -> Exception:
    return KafkaOptionUntranslated(option=option, reason=reason, remedy=remedy)
