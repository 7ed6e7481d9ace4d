"""A broker that demands TLS and a password, as brokers of one's own do."""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from millrace.local import java
from millrace.local.declare import HOST, choose_ports
from millrace.local.servers import jvm

USER = "shop"
STORE = "keystore-password"  # of the broker's own key file: nobody else's secret


@contextlib.contextmanager
def broker(folder: Path, password: str) -> Iterator[tuple[str, Path]]:
    """Its address and the certificate to trust. `USER` may do everything with `password`."""
    folder.mkdir(parents=True)
    certificate = _certificate(folder)
    ports = choose_ports({"broker": 19492, "controller": 19493}, {}, set())
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    config = jvm.write_properties(
        folder / "server.properties",
        {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{ports['controller']}",
            "listeners": f"SAFE://{HOST}:{ports['broker']},CONTROLLER://{HOST}:{ports['controller']}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "SAFE:SASL_SSL,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "SAFE",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.safe.plain.sasl.jaas.config": (
                f'{login} username="{USER}" password="{password}" user_{USER}="{password}";'
            ),
            "ssl.keystore.location": folder / "key.p12",
            "ssl.keystore.password": STORE,
            "ssl.truststore.location": folder / "key.p12",
            "ssl.truststore.password": STORE,
            "log.dirs": folder / "data",
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        },
    )
    kafka = [str(java.find()), "-Xmx512m", "-cp", jvm.classpath("kafka")]
    cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
    format_it = [*kafka, "kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "--config", str(config)]
    subprocess.run(format_it, check=True, capture_output=True)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*kafka, "kafka.Kafka", str(config)], stdout=log, stderr=log)
    try:
        yield f"{HOST}:{ports['broker']}", certificate
    finally:
        process.kill()
        process.wait()


def _certificate(folder: Path) -> Path:
    keytool = java.find().resolve().parent / "keytool"
    store = ["-keystore", str(folder / "key.p12"), "-storepass", STORE, "-alias", "broker"]
    made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=broker", "-ext", f"san=ip:{HOST}", "-validity", "2"]
    subprocess.run([str(keytool), *made, *store], check=True, capture_output=True)
    pem = folder / "ca.pem"
    with pem.open("wb") as file:
        subprocess.run([str(keytool), "-exportcert", "-rfc", *store], check=True, stdout=file, stderr=subprocess.PIPE)
    return pem
