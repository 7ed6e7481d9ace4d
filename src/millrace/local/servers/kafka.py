"""Kafka in KRaft mode: one node, or three that replicate to each other. Each node is broker and controller."""

from __future__ import annotations

import base64
import uuid
from functools import partial
from pathlib import Path

from millrace.config import Settings
from millrace.errors import BrokersFixed, FolderUnfit, PortLost
from millrace.local import jars, java
from millrace.local.declare import HOST, Command, Memory, Server, Site, fill
from millrace.local.servers import fence, jvm

HEAP_MB = 512
FORMAT_LIMIT_S = 120
# Prepared transactions of a stopped flow must outlive a long weekend; Kafka's own maximum is 15 minutes.
TRANSACTION_MAX_MS = 7 * 24 * 3600 * 1000
# One node that is its own controller gains nothing from taking itself for dead; but a start tries no longer than 60 s.
SINGLE_SESSION_MS = 45_000


def servers(settings: Settings, wanted: int | None) -> list[Server]:
    """The broker `kafka`, and `kafka-2`, `kafka-3` in a project that was made with three."""
    folder = settings.state_folder / "servers" / "kafka"
    found = _remembered(folder)
    if wanted and found and wanted != found:
        raise BrokersFixed(found=found, wanted=wanted)
    count = wanted or found or 1
    return [_server(node, count) for node in range(1, count + 1)]


def _server(node: int, count: int) -> Server:
    return Server(
        name="kafka" if node == 1 else f"kafka-{node}",
        about="the log" if node == 1 else "another broker of it",
        ports={"broker": 19092 + 100 * (node - 1), "controller": 19093 + 100 * (node - 1)},
        fetch=partial(jars.paths, "kafka"),
        prepare=partial(_format, count=count, node=node),
        command=partial(_command, node=node, count=count),
        ready=partial(_ready, count=count),
        address=partial(_address, count=count),
        # Three that end together cannot hand over their partitions: they would wait for each other.
        stop_limit_s=60 if count == 1 else 10,
    )


def _remembered(folder: Path) -> int | None:
    try:
        return int((folder / "brokers").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _first_folder(site: Site) -> Path:
    return site.settings.state_folder / "servers" / "kafka"


def _cluster_id(site: Site) -> str:
    """One id for all nodes, made once: by it we know our own Kafka from a stranger's."""
    path = _first_folder(site) / "cluster_id"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="), encoding="utf-8")
    return path.read_text(encoding="utf-8").strip()


def _format(site: Site, count: int, node: int) -> None:
    if "," in str(site.data):  # Kafka takes its data folders as a list
        raise FolderUnfit(server=site.server.name, folder=site.settings.folder, reason="has a comma in its name")
    config = _config(site, node, count)
    (_first_folder(site) / "brokers").write_text(str(count), encoding="utf-8")
    argv = [
        *[str(java.find()), "-Xmx256m", "-cp", jvm.classpath("kafka"), "kafka.tools.StorageTool"],
        # In one word: an id may begin with -, and would then be taken for an option.
        *["format", f"--cluster-id={_cluster_id(site)}", "--config", str(config), "--ignore-formatted"],
    ]
    fill(site, argv, FORMAT_LIMIT_S)


def _config(site: Site, node: int, count: int) -> Path:
    return jvm.write_properties(site.folder / "server.properties", _values(site, node, count))


def _values(site: Site, node: int, count: int) -> dict[str, object]:
    copies, in_sync = (3, 2) if count == 3 else (1, 1)
    values: dict[str, object] = {
        "process.roles": "broker,controller",
        "node.id": node,
        "controller.quorum.voters": ",".join(f"{n}@{HOST}:{_controller(site, n)}" for n in range(1, count + 1)),
        "listeners": f"PLAINTEXT://{HOST}:{site.ports['broker']},CONTROLLER://{HOST}:{site.ports['controller']}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{site.ports['broker']}",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "log.dirs": site.data,
        "num.partitions": 4,
        "auto.create.topics.enable": "false",
        "default.replication.factor": copies,
        "min.insync.replicas": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "transaction.max.timeout.ms": TRANSACTION_MAX_MS,
        "offsets.topic.replication.factor": copies,
        "offsets.topic.num.partitions": 8,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 8,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": 8,
    }
    return values if count > 1 else {**values, "broker.session.timeout.ms": SINGLE_SESSION_MS}


def _controller(site: Site, node: int) -> int:
    """The controller port of a node; all are chosen before the first node starts (see `supervisor`)."""
    name = "kafka" if node == 1 else f"kafka-{node}"
    if name == site.server.name:
        return site.ports["controller"]
    return Memory.read(site.settings.state_folder / "servers" / name).ports["controller"]


def _command(site: Site, node: int, count: int) -> Command:
    config = _config(site, node, count)
    if count == 1 and fence.was_killed(site):
        fence.fence(site, _values(site, node, count), HEAP_MB)
    return jvm.command(site, "kafka", ["kafka.Kafka", str(config)], HEAP_MB)


def _address(site: Site, count: int) -> str:
    ports = [site.ports["broker"]]
    for node in range(1, count + 1):
        name = "kafka" if node == 1 else f"kafka-{node}"
        if name != site.server.name:
            ports.append(Memory.read(site.settings.state_folder / "servers" / name).ports["broker"])
    return ",".join(f"{HOST}:{port}" for port in ports)


def _ready(site: Site, count: int) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": f"{HOST}:{site.ports['broker']}", "log_level": 0})
    cluster = admin.describe_cluster(request_timeout=5).result()
    if cluster.cluster_id != _cluster_id(site):
        raise PortLost(port=site.ports["broker"], server=site.server.name)
    if len(cluster.nodes) < count:
        raise ConnectionError(f"{len(cluster.nodes)} of {count} brokers have joined")
