package millrace.capture;

import io.debezium.connector.postgresql.PgOid;
import io.debezium.connector.postgresql.PostgresType;
import io.debezium.connector.postgresql.TypeRegistry;
import java.lang.reflect.Field;
import org.apache.kafka.connect.errors.ConnectException;

/**
 * Types that the stream is to give as PostgreSQL prints them. Debezium would read them into objects that cannot hold them:
 * a time loses its zone, an interval that is infinite or long becomes nothing or an error. It does so by the type's name,
 * and hands on the text of types whose names it does not know: here they get a name that only PostgreSQL knows.
 */
final class Printed {
    private static final int[] TYPES = {
        PgOid.INTERVAL, PgOid.TIMETZ, PgOid.POINT, PgOid.LINE, PgOid.LSEG, PgOid.BOX, PgOid.PATH, PgOid.POLYGON, PgOid.CIRCLE
    };
    private static final String SCHEMA = "pg_catalog.";

    private Printed() {}

    static void in(TypeRegistry registry) {
        try {
            Field name = PostgresType.class.getDeclaredField("name");
            name.setAccessible(true);
            for (int oid : TYPES) {
                PostgresType type = registry.get(oid);
                if (!type.getName().startsWith(SCHEMA)) {
                    name.set(type, SCHEMA + type.getName());
                }
            }
        } catch (ReflectiveOperationException error) {
            throw new ConnectException("this is not the Debezium that Millrace was made for", error);
        }
    }
}
