package millrace.capture;

import static io.debezium.connector.postgresql.PostgresValueConverter.NEGATIVE_INFINITY_INSTANT;
import static io.debezium.connector.postgresql.PostgresValueConverter.NEGATIVE_INFINITY_LOCAL_DATE;
import static io.debezium.connector.postgresql.PostgresValueConverter.NEGATIVE_INFINITY_OFFSET_DATE_TIME;
import static io.debezium.connector.postgresql.PostgresValueConverter.POSITIVE_INFINITY_INSTANT;
import static io.debezium.connector.postgresql.PostgresValueConverter.POSITIVE_INFINITY_LOCAL_DATE;
import static io.debezium.connector.postgresql.PostgresValueConverter.POSITIVE_INFINITY_OFFSET_DATE_TIME;

import io.debezium.connector.postgresql.PgOid;
import io.debezium.connector.postgresql.UnchangedToastedReplicationMessageColumn;
import io.debezium.data.SpecialValueDecimal;
import io.debezium.spi.converter.CustomConverter;
import io.debezium.spi.converter.RelationalColumn;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.SQLException;
import java.sql.SQLXML;
import java.sql.Types;
import java.time.Instant;
import java.time.LocalDate;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.function.UnaryOperator;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;
import org.postgresql.PGStatement;
import org.postgresql.util.PGobject;

/**
 * Every value as PostgreSQL holds it, the same in snapshots and in the stream; docs/design/0008 says what Debezium's own
 * conversions lose. Numbers and booleans stay what they are, bytes too; all else is text, an array a list of texts.
 *
 * <p>What holds: null means that there is no value, or that it was not logged (columns of `before` outside of the key); a
 * value of a Java class that its type never has is refused.
 */
public final class Exact implements CustomConverter<SchemaBuilder, RelationalColumn> {
    /** Begins the only element of an array that is no plain list; PostgreSQL's texts never hold this character. */
    private static final String WHOLE = "\u0000";
    private static final String UNAVAILABLE = "__debezium_unavailable_value";
    // Debezium's own, which is exact: a map as JSON.
    private static final Set<String> LEFT_ALONE = Set.of("hstore", "_hstore");

    private String placeholder;

    @Override
    public void configure(Properties properties) {
        placeholder = properties.getProperty("placeholder", UNAVAILABLE);
    }

    @Override
    public void converterFor(RelationalColumn column, ConverterRegistration<SchemaBuilder> registration) {
        if (LEFT_ALONE.contains(column.typeName())) {
            return;
        }
        switch (column.nativeType()) {
            case PgOid.INT2, PgOid.INT4, PgOid.INT8, PgOid.OID ->
                register(column, registration, SchemaBuilder.int64(), value -> ((Number) value).longValue());
            case PgOid.FLOAT4 ->
                register(column, registration, SchemaBuilder.float32(), value -> ((Number) value).floatValue());
            case PgOid.FLOAT8 ->
                register(column, registration, SchemaBuilder.float64(), value -> ((Number) value).doubleValue());
            case PgOid.BOOL -> register(column, registration, SchemaBuilder.bool(), value -> (Boolean) value);
            case PgOid.BYTEA -> register(column, registration, SchemaBuilder.bytes(), this::bytes);
            case PgOid.NUMERIC, PgOid.MONEY -> register(column, registration, SchemaBuilder.string(), this::number);
            case PgOid.DATE -> register(column, registration, SchemaBuilder.string(), this::date);
            case PgOid.TIMESTAMP, PgOid.TIMESTAMPTZ -> register(column, registration, SchemaBuilder.string(), this::moment);
            default -> {
                if (column.jdbcType() == Types.ARRAY) {
                    var list = SchemaBuilder.array(SchemaBuilder.string().optional().build());
                    register(column, registration, list, array(column.nativeType()));
                } else {
                    register(column, registration, SchemaBuilder.string(), this::text);
                }
            }
        }
    }

    private void register(RelationalColumn column, ConverterRegistration<SchemaBuilder> registration, SchemaBuilder schema,
            Converter converter) {
        // Also of columns that are never null: `before` holds nothing but the key, and is to say so.
        SchemaBuilder built = column.isOptional() ? schema : schema.optional();
        // A column's default comes here too, already converted by Debezium. It is in no record, so none is as good.
        Object initial = column.defaultValue();
        registration.register(built, value -> {
            try {
                return value == null ? null : converter.convert(value);
            } catch (RuntimeException error) {
                if (value == initial) {
                    return null;
                }
                throw new DataException(column.dataCollection() + "." + column.name() + " of type " + column.typeName()
                        + " came as a " + value.getClass().getName() + " that cannot be read", error);
            }
        });
    }

    private Object bytes(Object value) {
        return unlogged(value) ? placeholder.getBytes(StandardCharsets.UTF_8) : (byte[]) value;
    }

    private Object text(Object value) {
        if (unlogged(value)) {
            return placeholder;
        }
        if (value instanceof PGobject object) {
            return object.getValue();
        }
        if (value instanceof SQLXML xml) {
            try {
                return xml.getString();
            } catch (SQLException error) {
                throw new DataException(error);
            }
        }
        // An int2vector is an array to the driver, and prints itself.
        return value instanceof UUID || value instanceof Array ? value.toString() : (String) value;
    }

    private Object number(Object value) {
        if (value instanceof SpecialValueDecimal decimal) {
            return decimal.getDecimalValue().map(BigDecimal::toPlainString).orElseGet(() -> String.valueOf(decimal.toDouble()));
        }
        return value instanceof BigDecimal decimal ? decimal.toPlainString() : text(value);
    }

    private Object date(Object value) {
        if (value instanceof LocalDate day) {
            return POSITIVE_INFINITY_LOCAL_DATE.equals(day) ? "infinity"
                    : NEGATIVE_INFINITY_LOCAL_DATE.equals(day) ? "-infinity" : day.toString();
        }
        return value instanceof java.sql.Date day ? date(day) : iso((String) text(value));
    }

    /**
     * The driver's dates are in the calendar that changes in 1582, PostgreSQL's are Gregorian throughout: the same year,
     * month and day are meant. The ten days that the change left out cannot be told from those ten days later.
     */
    private static String date(java.sql.Date day) {
        if (day.getTime() == PGStatement.DATE_POSITIVE_INFINITY || day.getTime() == PGStatement.DATE_NEGATIVE_INFINITY) {
            return day.getTime() > 0 ? "infinity" : "-infinity";
        }
        var calendar = new java.util.GregorianCalendar();
        calendar.setTime(day);
        int year = calendar.get(java.util.Calendar.YEAR);
        boolean before = calendar.get(java.util.Calendar.ERA) == java.util.GregorianCalendar.BC;
        return LocalDate.of(before ? 1 - year : year, calendar.get(java.util.Calendar.MONTH) + 1,
                calendar.get(java.util.Calendar.DAY_OF_MONTH)).toString();
    }

    private Object moment(Object value) {
        if (value instanceof Instant instant) {
            return POSITIVE_INFINITY_INSTANT.equals(instant) ? "infinity"
                    : NEGATIVE_INFINITY_INSTANT.equals(instant) ? "-infinity"
                    : iso(instant.atOffset(ZoneOffset.UTC));
        }
        if (value instanceof OffsetDateTime time) {
            return POSITIVE_INFINITY_OFFSET_DATE_TIME.equals(time) ? "infinity"
                    : NEGATIVE_INFINITY_OFFSET_DATE_TIME.equals(time) ? "-infinity" : zoned(time);
        }
        return iso((String) text(value));
    }

    private static String zoned(OffsetDateTime time) {
        return iso(time.withOffsetSameInstant(ZoneOffset.UTC)) + "Z";
    }

    /** Date and time with as many digits of a second as there are. */
    private static String iso(OffsetDateTime time) {
        String clock = String.format("%02d:%02d:%02d", time.getHour(), time.getMinute(), time.getSecond());
        String fraction = time.getNano() == 0 ? "" : String.format(".%06d", time.getNano() / 1000).replaceFirst("0+$", "");
        return time.toLocalDate() + "T" + clock + fraction;
    }

    /** ISO 8601 of what PostgreSQL prints of a date or a moment: a year before Christ is a number below 1. */
    static String iso(String printed) {
        int dash = printed.indexOf('-', 1);
        if (dash < 0 || !Character.isDigit(printed.charAt(0))) {
            return printed; // infinity
        }
        boolean before = printed.endsWith(" BC");
        String rest = before ? printed.substring(dash, printed.length() - 3) : printed.substring(dash);
        int year = Integer.parseInt(printed.substring(0, dash));
        String signed = LocalDate.of(before ? 1 - year : year, 1, 1).toString();
        String date = signed.substring(0, signed.length() - "-01-01".length()) + rest.replace(' ', 'T');
        int zone = Math.max(date.indexOf('+', 1), date.indexOf('-', date.indexOf('T') + 1));
        return date.indexOf('T') < 0 || zone < 0 ? date : zoned(OffsetDateTime.parse(full(date, zone)));
    }

    /** With all of minutes and hours in the zone, which PostgreSQL leaves out where they are zero. */
    private static String full(String date, int zone) {
        return date.length() - zone == 3 ? date + ":00" : date;
    }

    private Converter array(int type) {
        UnaryOperator<String> element = switch (type) {
            case PgOid.BOOL_ARRAY -> text -> "t".equals(text) ? "true" : "false";
            case PgOid.BYTEA_ARRAY -> text ->
                Base64.getEncoder().encodeToString(HexFormat.of().parseHex(text, 2, text.length()));
            case PgOid.DATE_ARRAY, PgOid.TIMESTAMP_ARRAY, PgOid.TIMESTAMPTZ_ARRAY -> Exact::iso;
            case PgOid.MONEY_ARRAY -> text -> text.replaceAll("[^0-9.-]", "");
            default -> UnaryOperator.identity();
        };
        char delimiter = type == PgOid.BOX_ARRAY ? ';' : ',';
        return value -> {
            if (unlogged(value)) {
                return List.of(placeholder);
            }
            String printed = ((Array) value).toString();
            return printed.startsWith("[") || printed.startsWith("{{") ? List.of(WHOLE + printed)
                    : Arrays.elements(printed, delimiter, element);
        };
    }

    private static boolean unlogged(Object value) {
        return UnchangedToastedReplicationMessageColumn.isUnchangedToastedValue(value);
    }
}
