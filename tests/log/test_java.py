"""The user's options in the words of Kafka's Java client: all of them, or an error that names the one."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import Kafka, Secret, Settings
from millrace.errors import KafkaOptionUntranslated
from millrace.log import java_options

PKCS8 = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"


def translated(options: dict[str, str | Secret]) -> dict[str, str]:
    return java_options(Settings(Path(), kafka=Kafka("broker:9092", options)))


def test_nothing_stays_nothing() -> None:
    assert translated({}) == {}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "plain.PlainLoginModule"),
        ("scram-sha-256", "scram.ScramLoginModule"),
        ("SCRAM-SHA-512", "scram.ScramLoginModule"),
    ],
)
def test_a_login_becomes_jaas(mechanism: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", 'say "a\\b"; x')
    password = Secret("kafka.options.sasl.password", "env:KAFKA_PASSWORD")
    options = translated(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": mechanism,
            "sasl.username": "ann",
            "sasl.password": password,
        }
    )
    assert options == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism.upper(),
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required "
        'username="ann" password="say \\"a\\\\b\\"; x";',
    }


def test_certificates_become_pem_stores(tmp_path: Path) -> None:
    for name, text in (("ca", "CA"), ("cert", "CERT"), ("key", PKCS8)):
        (tmp_path / name).write_text(text)
    options = translated(
        {
            "security.protocol": "ssl",
            "ssl.ca.location": str(tmp_path / "ca"),
            "ssl.certificate.location": str(tmp_path / "cert"),
            "ssl.key.location": str(tmp_path / "key"),
            "ssl.key.password": "x",
            "ssl.endpoint.identification.algorithm": "none",
        }
    )
    assert options == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "CA",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "CERT",
        "ssl.keystore.key": PKCS8,
        "ssl.key.password": "x",
        "ssl.endpoint.identification.algorithm": "",
    }


def test_kerberos_by_keytab() -> None:
    options = translated(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.keytab": "k.keytab",
            "sasl.kerberos.principal": "ann@HOME",
        }
    )
    assert options["sasl.jaas.config"].startswith(
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true"
    )
    assert 'principal="ann@HOME"' in options["sasl.jaas.config"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"enable.ssl.certificate.verification": "false"}, "enable.ssl.certificate.verification"),
        ({"ssl.cipher.suites": "X"}, "ssl.cipher.suites"),
        ({"broker.address.family": "v4"}, "broker.address.family"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "No such file"),
        ({"ssl.key.pem": "-----BEGIN RSA PRIVATE KEY-----"}, "PKCS #8"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanisms": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"sasl.username": "ann"}, "security.protocol does not name SASL"),
    ],
)
def test_what_cannot_be_said_is_an_error(options: dict[str, str | Secret], named: str) -> None:
    with pytest.raises(KafkaOptionUntranslated, match=named):
        translated(options)


def test_what_librdkafka_says_of_itself_is_left_out() -> None:
    assert translated({"debug": "broker", "client.id": "me", "socket.timeout.ms": "5000"}) == {
        "client.id": "me",
        "request.timeout.ms": "5000",
    }
