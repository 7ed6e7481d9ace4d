import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Iceberg's own REST catalog, as its tests have it, over a PostgreSQL; on this machine alone. Says its port. */
public final class RestCatalog {
  public static void main(String[] given) throws Exception {
    Map<String, String> options = new HashMap<>();
    options.put("uri", given[0]);
    options.put("jdbc.user", given[1]);
    options.put("jdbc.password", given[2]);
    options.put("warehouse", given[3]);
    options.put("jdbc.schema-version", "V1");
    Catalog catalog = CatalogUtil.loadCatalog(JdbcCatalog.class.getName(), "rest", options, new Configuration());
    Server server = new Server(new InetSocketAddress("127.0.0.1", 0));
    ServletContextHandler handler = new ServletContextHandler();
    handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    server.setHandler(handler);
    server.start();
    System.out.println("port " + ((ServerConnector) server.getConnectors()[0]).getLocalPort());
    System.out.flush();
    System.in.read(); // ends with whoever started it
    System.exit(0);
  }
}
