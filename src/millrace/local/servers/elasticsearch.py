"""Elasticsearch 7.17: one node, made of its published jars. They are under the Elastic License 2.0 and the SSPL, and
fetched by who asks for this server; what Millrace needs of it, OpenSearch does as well."""

from __future__ import annotations

from functools import partial

from millrace.local import jars
from millrace.local.declare import HOST, Command, Server, Site, identity
from millrace.local.servers import janino, jvm, opensearch

HEAP_MB = 512

# What its own start does beside this is of no use to one node of a developer: checks, a security manager, modules from
# folders. The modules that an index needs are plugins of the class path.
_MAIN = """
public class Main {
    static class Single extends org.elasticsearch.node.Node {
        Single(org.elasticsearch.env.Environment environment, java.util.Collection plugins) {
            super(environment, plugins, false);
        }
    }

    public static void main(String[] args) throws Exception {
        org.elasticsearch.common.settings.Settings.Builder values =
            org.elasticsearch.common.settings.Settings.builder();
        for (int place = 0; place < args.length; place += 2) { values.put(args[place], args[place + 1]); }
        java.util.List plugins = new java.util.ArrayList();
        plugins.add(org.elasticsearch.transport.Netty4Plugin.class);
        plugins.add(org.elasticsearch.index.mapper.MapperExtrasPlugin.class);
        java.util.function.Supplier name = new java.util.function.Supplier() {
            public Object get() { return "millrace"; }
        };
        org.elasticsearch.env.Environment environment = org.elasticsearch.node.InternalSettingsPreparer
            .prepareEnvironment(values.build(), java.util.Collections.emptyMap(), null, name);
        final Single node = new Single(environment, plugins);
        Runtime.getRuntime().addShutdownHook(new Thread() {
            public void run() {
                try { node.close(); } catch (java.io.IOException failure) { failure.printStackTrace(); }
            }
        });
        try { node.start(); } catch (Throwable failure) { failure.printStackTrace(); System.exit(1); }
        Thread.currentThread().join();  // for ever: the threads of the node do not keep a JVM alive
    }
}
"""


def _command(site: Site) -> Command:
    temporary = jvm.temporary(site)
    values = {
        "path.home": site.folder / "home",
        "path.data": site.data,
        "path.logs": temporary,
        "cluster.name": identity(site),
        "network.host": HOST,
        "http.port": site.port,
        "http.type": "netty4",
        "transport.port": site.ports["transport"],
        "transport.type": "netty4",
        "discovery.type": "single-node",
        # On a disk that is 95 % full, indexes would silently become read-only.
        "cluster.routing.allocation.disk.threshold_enabled": "false",
    }
    arguments = [word for name, value in values.items() for word in (name, str(value))]
    return janino.run(site, "elasticsearch", _MAIN, arguments, HEAP_MB, (f"-Djava.io.tmpdir={temporary}",))


SERVER = Server(
    name="elasticsearch",
    about="Elasticsearch, a search index",
    ports={"http": 19201, "transport": 19301},
    fetch=partial(jars.paths, "elasticsearch"),
    command=_command,
    ready=opensearch.ready,
    address=opensearch.address,
    start_limit_s=180,
)
