package millrace.capture;

import io.debezium.DebeziumException;
import io.debezium.bean.StandardBeanNames;
import io.debezium.bean.spi.BeanRegistry;
import io.debezium.bean.spi.BeanRegistryAware;
import io.debezium.connector.postgresql.PostgresConnectorConfig;
import io.debezium.connector.postgresql.PostgresSchema;
import io.debezium.connector.postgresql.connection.PostgresConnection;
import io.debezium.processors.spi.PostProcessor;
import io.debezium.relational.Column;
import io.debezium.relational.CustomConverterRegistry;
import io.debezium.relational.Table;
import io.debezium.relational.TableId;
import io.debezium.relational.ValueConverter;
import io.debezium.relational.ValueConverterProvider;
import io.debezium.service.spi.ServiceRegistry;
import io.debezium.service.spi.ServiceRegistryAware;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Types;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Reads large values that an update left alone, and PostgreSQL therefore did not log, from the table. A row that is gone
 * by then keeps the placeholder: its delete follows in the log, and readers wait for that. Whatever else goes wrong stops
 * the task.
 *
 * <p>A transaction is in the log a moment before others see it, with a synchronous standby a long one. Read in between,
 * the table has what was there before it. So the answer counts only if its snapshot sees the transaction.
 *
 * <p>Debezium's own (ReselectColumnsPostProcessor) does not quote the names of key columns.
 */
public final class Unlogged implements PostProcessor, BeanRegistryAware, ServiceRegistryAware {
    private static final Logger LOG = LoggerFactory.getLogger(Unlogged.class);
    private static final long PAUSE_MS = 2;
    private static final long SAID_AFTER_MS = 10_000;

    private PostgresConnection connection;
    private PostgresSchema tables;
    private PostgresConnectorConfig config;
    private ValueConverterProvider stock;
    private CustomConverterRegistry ours;
    private String placeholder;

    @Override
    public void configure(Map<String, ?> properties) {}

    @Override
    public void close() {}

    @Override
    public void injectBeanRegistry(BeanRegistry beans) {
        config = beans.lookupByName(StandardBeanNames.CONNECTOR_CONFIG, PostgresConnectorConfig.class);
        connection = beans.lookupByName(StandardBeanNames.JDBC_CONNECTION, PostgresConnection.class);
        tables = beans.lookupByName(StandardBeanNames.DATABASE_SCHEMA, PostgresSchema.class);
        stock = beans.lookupByName(StandardBeanNames.VALUE_CONVERTER, ValueConverterProvider.class);
        placeholder = new String(config.getUnavailableValuePlaceholder(), StandardCharsets.UTF_8);
    }

    @Override
    public void injectServiceRegistry(ServiceRegistry services) {
        ours = services.tryGetService(CustomConverterRegistry.class);
    }

    @Override
    public void apply(Object key, Struct value) {
        if (!(key instanceof Struct keys) || value == null || value.schema().field("after") == null) {
            return;
        }
        Struct after = value.getStruct("after");
        if (after == null || "r".equals(value.getString("op"))) {
            return;
        }
        List<Field> unlogged = after.schema().fields().stream().filter(field -> isUnlogged(after.get(field))).toList();
        if (unlogged.isEmpty()) {
            return;
        }
        Struct source = value.getStruct("source");
        var name = new TableId(null, source.getString("schema"), source.getString("table"));
        Table table = tables.tableFor(name);
        if (table == null) {
            throw new DebeziumException("the columns of " + name + " are not known");
        }
        try {
            Long transaction = source.getInt64("txId");
            long begun = System.currentTimeMillis();
            boolean said = false;
            while (!filled(after, unlogged, keys, table, transaction)) {
                if (!said && System.currentTimeMillis() - begun > SAID_AFTER_MS) {
                    LOG.warn("transaction {} on {} is logged but not visible: a synchronous standby may be away", transaction, name);
                    said = true;
                }
                Thread.sleep(PAUSE_MS);
            }
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new DebeziumException("the task was stopped while large values of " + name + " were read", error);
        } catch (SQLException error) {
            throw new DebeziumException("large values of " + name + " that were not logged could not be read from it", error);
        }
    }

    /** False if the transaction that wrote the row is not visible yet. */
    private boolean filled(Struct after, List<Field> unlogged, Struct keys, Table table, Long transaction)
            throws SQLException {
        String columns = unlogged.stream().map(field -> ", held." + quoted(field.name())).collect(Collectors.joining());
        String condition = keys.schema().fields().stream().map(field -> "held." + quoted(field.name()) + " = ?")
                .collect(Collectors.joining(" AND "));
        // The statement's own snapshot, also where the row is gone.
        String query = "SELECT now.snapshot, held.tableoid IS NOT NULL" + columns
                + " FROM (SELECT pg_current_snapshot()::text AS snapshot) now LEFT JOIN "
                + quoted(table.id().schema()) + "." + quoted(table.id().table()) + " held ON " + condition;
        boolean[] seen = {false};
        connection.prepareQuery(query, statement -> bind(statement, keys), row -> {
            row.next();
            seen[0] = transaction == null || isSeen(row.getString(1), transaction);
            if (seen[0] && row.getBoolean(2)) {
                for (int at = 0; at < unlogged.size(); at++) {
                    Field field = unlogged.get(at);
                    after.put(field, converted(row, at + 3, field, table));
                }
            }
        });
        return seen[0];
    }

    /** Of a snapshot "xmin:xmax:running,…" and a committed transaction, of whose number the log has the lower 32 bits. */
    private static boolean isSeen(String snapshot, long transaction) {
        String[] parts = snapshot.split(":", -1);
        int number = (int) transaction;
        if ((int) Long.parseLong(parts[1]) - number <= 0) {
            return false;
        }
        return parts[2].isEmpty()
                || Stream.of(parts[2].split(",")).noneMatch(running -> (int) Long.parseLong(running) == number);
    }

    /** As texts without a type, so that PostgreSQL reads them as what the column is. */
    private static void bind(PreparedStatement statement, Struct keys) throws SQLException {
        int at = 1;
        for (Field field : keys.schema().fields()) {
            Object value = keys.get(field);
            Object text = value instanceof byte[] bytes ? "\\x" + HexFormat.of().formatHex(bytes)
                    : value instanceof ByteBuffer bytes ? "\\x" + HexFormat.of().formatHex(bytes.array())
                    : value;
            statement.setObject(at++, text.toString(), Types.OTHER);
        }
    }

    private Object converted(ResultSet row, int at, Field field, Table table) throws SQLException {
        Column column = table.columnWithName(field.name());
        Object value = connection.getColumnValue(row, at, column, table);
        ValueConverter converter = ours.getValueConverter(table.id(), column).orElseGet(() -> stock.converter(column, field));
        return converter.convert(value);
    }

    private boolean isUnlogged(Object value) {
        if (value instanceof byte[] bytes) {
            return isUnlogged(new String(bytes, StandardCharsets.UTF_8));
        }
        if (value instanceof ByteBuffer bytes) {
            return isUnlogged(StandardCharsets.UTF_8.decode(bytes.duplicate()).toString());
        }
        if (value instanceof List<?> list) {
            return list.size() == 1 && isUnlogged(list.get(0));
        }
        return value instanceof String text && text.contains(placeholder)
                && (text.equals(placeholder) || text.equals("{\"" + placeholder + "\":\"" + placeholder + "\"}"));
    }

    private static String quoted(String name) {
        return '"' + name.replace("\"", "\"\"") + '"';
    }
}
