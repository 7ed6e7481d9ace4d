package millrace.testing;

import java.io.Serializable;
import java.util.List;

/** A record to be appended to a log in a folder. */
record LogLine(String topic, byte[] key, byte[] value, List<Header> headers) implements Serializable {
  record Header(String name, byte[] value) implements Serializable {}
}
