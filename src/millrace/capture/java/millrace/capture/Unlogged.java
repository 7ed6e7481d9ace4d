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
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Struct;

/**
 * Reads large values that an update left alone, and PostgreSQL therefore did not log, from the table. A row that is gone
 * by then keeps the placeholder: its delete follows in the log, and readers wait for that. Whatever else goes wrong stops
 * the task.
 *
 * <p>Debezium's own (ReselectColumnsPostProcessor) does not quote the names of key columns.
 */
public final class Unlogged implements PostProcessor, BeanRegistryAware, ServiceRegistryAware {
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
            fill(after, unlogged, keys, table);
        } catch (SQLException error) {
            throw new DebeziumException("large values of " + name + " that were not logged could not be read from it", error);
        }
    }

    private void fill(Struct after, List<Field> unlogged, Struct keys, Table table) throws SQLException {
        String columns = unlogged.stream().map(field -> quoted(field.name())).collect(Collectors.joining(", "));
        String condition = keys.schema().fields().stream().map(field -> quoted(field.name()) + " = ?")
                .collect(Collectors.joining(" AND "));
        String query = "SELECT " + columns + " FROM " + quoted(table.id().schema()) + "." + quoted(table.id().table())
                + " WHERE " + condition;
        connection.prepareQuery(query, statement -> bind(statement, keys), row -> {
            if (row.next()) {
                for (int at = 0; at < unlogged.size(); at++) {
                    Field field = unlogged.get(at);
                    after.put(field, converted(row, at + 1, field, table));
                }
            }
        });
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
