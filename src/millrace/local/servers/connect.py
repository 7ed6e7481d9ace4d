"""Kafka Connect: a distributed worker with exactly-once source support and Debezium, on which captures run.

Secrets of captures lie in a folder that only its owner may read, one file each; connectors name them by reference
(`${dir:FOLDER:FILE}`), so that neither Connect's answers nor its topics hold them.
"""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path

from millrace.config import Settings
from millrace.errors import ConnectNeedsOpenKafka, PortLost
from millrace.local import jars
from millrace.local.compile import compiled
from millrace.local.declare import HOST, Command, Server, Site
from millrace.local.servers import jvm

HEAP_MB = 512
ANSWER_LIMIT_S = 5


def _command(site: Site) -> Command:
    if site.settings.kafka.options:
        raise ConnectNeedsOpenKafka()
    secrets = secrets_folder(site.settings)
    replication = 3 if "," in site.neighbour("kafka") else 1
    json_converter = "org.apache.kafka.connect.json.JsonConverter"
    values: dict[str, object] = {
        "bootstrap.servers": site.neighbour("kafka"),
        "group.id": site.settings.named("millrace-connect"),
        "listeners": f"http://{HOST}:{site.port}",
        "rest.advertised.host.name": HOST,
        "rest.advertised.port": site.port,
        "plugin.path": _plugins(site),
        "plugin.discovery": "service_load",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": 1000,
        # A killed worker is missed soon, and there is no other to wait for.
        "session.timeout.ms": 6000,
        "heartbeat.interval.ms": 1500,
        "scheduled.rebalance.max.delay.ms": 0,
        "key.converter": json_converter,
        "value.converter": json_converter,
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
        "config.providers": "dir",
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": secrets,
    }
    for kind in ("config", "offset", "status"):
        values[f"{kind}.storage.topic"] = site.settings.named(f"_connect-{kind}")
        values[f"{kind}.storage.replication.factor"] = replication
    config = jvm.write_properties(site.folder / "connect.properties", values)
    main = ["org.apache.kafka.connect.cli.ConnectDistributed", str(config)]
    # Debezium reads some times of day through Java classes that know one zone only: the process's own.
    return jvm.command(site, "kafka", main, HEAP_MB, ("-Duser.timezone=UTC",))


def secrets_folder(settings: Settings) -> Path:
    """Where the local worker looks up the secrets of captures."""
    folder = settings.state_folder / "secrets"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _plugins(site: Site) -> Path:
    """The plugin path, made anew: one folder for Debezium, so that its jars share a class loader."""
    plugins = site.folder / "plugins"
    shutil.rmtree(plugins, ignore_errors=True)
    debezium = plugins / "debezium"
    debezium.mkdir(parents=True)
    for jar in (*jars.paths("debezium"), compiled("capture")):
        (debezium / jar.name).symlink_to(jar)
    return plugins


def _fetch() -> None:
    jars.paths("kafka")
    jars.paths("debezium")
    compiled("capture")


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
    fetch=_fetch,
    command=_command,
    ready=_ready,
    address=_address,
)
