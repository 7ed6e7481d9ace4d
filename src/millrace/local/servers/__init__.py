"""The servers that Millrace can start, one file each. A new one is a declaration here and a line in `catalogue`."""

from __future__ import annotations

from millrace.config import Settings
from millrace.local.declare import Server
from millrace.local.servers import (
    apicurio,
    connect,
    elasticsearch,
    kafka,
    mariadb,
    opensearch,
    postgres,
    rabbitmq,
    s3proxy,
    valkey,
)


def catalogue(settings: Settings, brokers: int | None = None) -> dict[str, Server]:
    """All servers by name. Kafka's further brokers are there when the project has them (or is about to: `brokers`)."""
    search = [opensearch.SERVER, elasticsearch.SERVER]
    further = [apicurio.SERVER, mariadb.SERVER, *search, rabbitmq.SERVER, valkey.SERVER, s3proxy.SERVER]
    servers = [*kafka.servers(settings, brokers), connect.SERVER, postgres.SERVER, *further]
    return {server.name: server for server in servers}
