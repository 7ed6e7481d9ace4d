"""Kafka Connect: a distributed worker with exactly-once source support, on which captures run."""

from __future__ import annotations

import json
import urllib.request
from functools import partial

from millrace.errors import ConnectNeedsOpenKafka, PortLost
from millrace.local import jars
from millrace.local.declare import HOST, Command, Server, Site
from millrace.local.servers import jvm

HEAP_MB = 512
ANSWER_LIMIT_S = 5


def _command(site: Site) -> Command:
    if site.settings.kafka.options:
        raise ConnectNeedsOpenKafka()
    plugins = site.folder / "plugins"
    plugins.mkdir(parents=True, exist_ok=True)
    replication = 3 if "," in site.neighbour("kafka") else 1
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    values: dict[str, object] = {
        "bootstrap.servers": site.neighbour("kafka"),
        "group.id": site.settings.named("millrace-connect"),
        "listeners": f"http://{HOST}:{site.port}",
        "rest.advertised.host.name": HOST,
        "rest.advertised.port": site.port,
        "plugin.path": plugins,
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 1000,
        "key.converter": json_converter,
        "value.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }
    for kind in ("config", "offset", "status"):
        values[f"{kind}.storage.topic"] = site.settings.named(f"_connect-{kind}")
        values[f"{kind}.storage.replication.factor"] = replication
    config = jvm.write_properties(site.folder / "connect.properties", values)
    return jvm.command(site, "kafka", ["org.apache.kafka.connect.cli.ConnectDistributed", str(config)], HEAP_MB)


def _address(site: Site) -> str:
    return f"http://{HOST}:{site.port}"


def _ready(site: Site) -> None:
    from confluent_kafka.admin import AdminClient

    with urllib.request.urlopen(_address(site), timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - our own http address
        told = json.load(answer)
    admin = AdminClient({"bootstrap.servers": site.neighbour("kafka"), "log_level": 0})
    if told["kafka_cluster_id"] != admin.describe_cluster(request_timeout=5).result().cluster_id:
        raise PortLost(port=site.port, server="connect")
    # The root answers before the worker has joined its group; this one only afterwards.
    with urllib.request.urlopen(f"{_address(site)}/connectors", timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310
        json.load(answer)


SERVER = Server(
    name="connect",
    about="Kafka Connect, which runs captures",
    ports={"rest": 18083},
    needs=("kafka",),
    fetch=partial(jars.paths, "kafka"),
    command=_command,
    ready=_ready,
    address=_address,
)
