package millrace.capture;

import io.debezium.spi.converter.CustomConverter;
import io.debezium.spi.converter.RelationalColumn;
import io.debezium.time.Year;
import java.sql.Timestamp;
import java.time.Duration;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.OffsetDateTime;
import java.time.ZoneOffset;
import java.time.ZonedDateTime;
import java.util.BitSet;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.errors.DataException;

/**
 * Values of MySQL and MariaDB in the same words as those of PostgreSQL (see {@link Exact}), the same in snapshots and
 * in the stream: dates and moments as ISO text, bits as binary digits, highest first. What else there is stays as
 * Debezium has it.
 *
 * <p>A zero date has no counterpart and becomes null, also in a column that is NOT NULL, where Debezium would write
 * 1970-01-01. The year 0000 is 0, not 1900 or 2000.
 */
public final class BinlogValues implements CustomConverter<SchemaBuilder, RelationalColumn> {
    /** What the binlog has for the year 0000: it counts from 1900, and a year is 1901 to 2155 otherwise. */
    private static final int YEAR_ZERO = 1900;

    @Override
    public void configure(Properties options) {
        // nothing to choose
    }

    @Override
    public void converterFor(RelationalColumn column, ConverterRegistration<SchemaBuilder> registration) {
        int length = column.length().orElse(0);
        switch (column.typeName().toUpperCase()) {
            case "DATE" -> text(column, registration, BinlogValues::date);
            case "DATETIME" -> text(column, registration, BinlogValues::datetime);
            case "TIMESTAMP" -> text(column, registration, BinlogValues::timestamp);
            case "TIME" -> text(column, registration, value -> time((Duration) value, length));
            case "BIT" -> {
                if (length > 1) {
                    text(column, registration, value -> bits(value, length));
                }
            }
            case "YEAR" -> registration.register(Year.builder(), value -> value == null ? null : year(value));
            default -> {
                // as Debezium has it
            }
        }
    }

    private static void text(
            RelationalColumn column,
            ConverterRegistration<SchemaBuilder> registration,
            Function<Object, String> words) {
        registration.register(SchemaBuilder.string().optional(), value -> {
            try {
                // A number or a text is the column's default, which Debezium has converted before and nobody reads.
                boolean given = value == null || value instanceof Number || value instanceof String;
                return !given ? words.apply(value) : value == null ? null : value.toString();
            } catch (ClassCastException error) {
                throw new DataException(column.dataCollection() + "." + column.name() + " of type " + column.typeName()
                        + " came as a " + value.getClass().getName(), error);
            }
        });
    }

    private static String date(Object value) {
        return (value instanceof java.sql.Date day ? day.toLocalDate() : (LocalDate) value).toString();
    }

    private static String datetime(Object value) {
        return iso(value instanceof Timestamp time ? time.toLocalDateTime() : (LocalDateTime) value);
    }

    private static String timestamp(Object value) {
        OffsetDateTime time = value instanceof Timestamp moment ? moment.toInstant().atOffset(ZoneOffset.UTC)
                : value instanceof ZonedDateTime moment ? moment.toOffsetDateTime()
                : (OffsetDateTime) value;
        return iso(time.withOffsetSameInstant(ZoneOffset.UTC).toLocalDateTime()) + "Z";
    }

    /** With as many digits of a second as there are. */
    private static String iso(LocalDateTime time) {
        String clock = String.format("%02d:%02d:%02d", time.getHour(), time.getMinute(), time.getSecond());
        int micros = time.getNano() / 1000;
        String fraction = micros == 0 ? "" : String.format(".%06d", micros).replaceFirst("0+$", "");
        return time.toLocalDate() + "T" + clock + fraction;
    }

    /** As the server shows it: it may be longer than a day, and negative. */
    private static String time(Duration time, int digits) {
        Duration size = time.abs();
        String clock = String.format("%02d:%02d:%02d", size.toHours(), size.toMinutesPart(), size.toSecondsPart());
        String fraction = digits == 0 ? "" : "." + String.format("%09d", size.toNanosPart()).substring(0, digits);
        return (time.isNegative() ? "-" : "") + clock + fraction;
    }

    private static int year(Object value) {
        boolean dated = value instanceof java.sql.Date;
        int year = dated ? ((java.sql.Date) value).toLocalDate().getYear() : Integer.parseInt(value.toString());
        return year == YEAR_ZERO ? 0 : year;
    }

    private static String bits(Object value, int width) {
        BitSet set = value instanceof BitSet given ? given : set((byte[]) value);
        var digits = new StringBuilder(width);
        for (int place = width - 1; place >= 0; place--) {
            digits.append(set.get(place) ? '1' : '0');
        }
        return digits.toString();
    }

    /** The driver gives bytes, highest first. */
    private static BitSet set(byte[] bytes) {
        byte[] lowestFirst = new byte[bytes.length];
        for (int place = 0; place < bytes.length; place++) {
            lowestFirst[place] = bytes[bytes.length - 1 - place];
        }
        return BitSet.valueOf(lowestFirst);
    }
}
