package millrace.kernel;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonFactoryBuilder;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.JsonToken;
import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Debezium's envelope, read in one pass. The row's text is kept as it was written, by its place in the value: its
 * numbers are never parsed, so none is rounded. One object serves many records: `read` and `tombstone` set it anew.
 */
final class Envelope {
  static final String TOMBSTONE = "tombstone";

  // Text is bounded by the broker's largest record; Jackson's own limit is less than that may be.
  private static final JsonFactory JSON = new JsonFactoryBuilder()
      .streamReadConstraints(StreamReadConstraints.builder()
          .maxStringLength(Integer.MAX_VALUE).maxNumberLength(Integer.MAX_VALUE).build())
      .disable(JsonFactory.Feature.INTERN_FIELD_NAMES)
      .build();

  private static final VarHandle LONGS = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.nativeOrder());

  /** A column whose value the database left out: its name and the place of the placeholder in the image. */
  static final class Gap {
    final String column;
    final int start;
    final int end;

    Gap(String column, int start, int end) {
      this.column = column;
      this.start = start;
      this.end = end;
    }
  }

  private final Unavailable unavailable;

  /** Debezium's letter, or `tombstone`; null where the value has none. */
  String op;
  /** What is wrong with it; null when it can be applied. */
  String error;
  /** What has the row after the change: the value, or what was taken from it without some columns. */
  byte[] image;
  /** The row's place in the image; 0 and 0 where there is none. */
  int afterStart;
  int afterEnd;
  /** In the order in which they stand in the image; mostly empty. */
  final List<Gap> gaps = new ArrayList<>();
  /** When the database changed the row, and its log sequence number; null where the source does not say. */
  Long changedAtUs;
  Long lsn;

  private boolean hasImage;
  private boolean isStrange;
  private LeftOut.Columns leftOut = LeftOut.Columns.NONE;
  private final List<String> shape = new ArrayList<>();
  private byte[] value;
  private final ByteArrayOutputStream chosen = new ByteArrayOutputStream();

  Envelope(Unavailable unavailable) {
    this.unavailable = unavailable;
  }

  /**
   * Columns of the rows to come that nobody asks for: their rows are without them. Whoever reads those cannot see
   * any more whether a row had others than are known, so that is looked at here.
   */
  void leaveOut(LeftOut.Columns columns) {
    leftOut = columns;
  }

  void tombstone() {
    clear();
    op = TOMBSTONE;
  }

  void read(byte[] given) {
    clear();
    value = image = given;
    if (!looksLikeAnObject(value) || !(isAscii(value) || UTF8String.fromBytes(value).isValid())) {
      refuse();
      return;
    }
    try (JsonParser parser = JSON.createParser(value)) {
      parser.nextToken();
      members(parser, true);
      if (parser.nextToken() == null) error = fault();
      else refuse();
    } catch (JsonProcessingException broken) {
      refuse();
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
  }

  private void refuse() {
    clear();
    error = Refusals.NOT_JSON;
  }

  private void clear() {
    op = error = null;
    afterStart = afterEnd = 0;
    gaps.clear();
    changedAtUs = lsn = null;
    hasImage = isStrange = false;
  }

  /** Jackson would take other encodings than UTF-8, and a byte order mark, and could then not tell places in bytes. */
  private static boolean looksLikeAnObject(byte[] value) {
    int place = 0;
    while (place < value.length && " \n\r\t".indexOf(value[place]) >= 0) place++;
    return place + 1 < value.length && value[place] == '{' && value[place + 1] != 0;
  }

  /** Most values are, and eight bytes at a time is ten times faster than looking at each character. */
  private static boolean isAscii(byte[] value) {
    int place = 0;
    for (; place + Long.BYTES <= value.length; place += Long.BYTES) {
      if (((long) LONGS.get(value, place) & 0x8080808080808080L) != 0) return false;
    }
    for (; place < value.length; place++) if (value[place] < 0) return false;
    return true;
  }

  private String fault() {
    if (op == null) return Refusals.NO_ENVELOPE;
    switch (op) {
      case "t": return Refusals.TRUNCATION;
      case "m": return Refusals.MESSAGE;
      case "d": return hasImage ? null : Refusals.NO_ENVELOPE;
      case "c": case "r": case "u":
        if (isStrange) return Refusals.strange(shape);
        return afterEnd > 0 ? null : hasImage ? Refusals.noAfter(op) : Refusals.NO_ENVELOPE;
      default: return Refusals.unknown(op);
    }
  }

  /** Reads the object that the parser has entered to its end. The outermost may be a wrapping of schema and payload. */
  private void members(JsonParser parser, boolean outermost) throws IOException {
    boolean schemaFirst = false;
    boolean wrapped = false;
    int count = 0;
    for (String name; (name = parser.nextFieldName()) != null; count++) {
      JsonToken token = parser.nextToken();
      if (count == 0) schemaFirst = outermost && name.equals("schema");
      if (schemaFirst && count == 1 && name.equals("payload") && token == JsonToken.START_OBJECT) {
        wrapped = true;
        members(parser, false);
      } else if (wrapped) {
        parser.skipChildren();
      } else {
        member(parser, name, token);
      }
    }
  }

  private void member(JsonParser parser, String name, JsonToken token) throws IOException {
    switch (name) {
      case "op":
        op = token == JsonToken.VALUE_STRING ? parser.getText() : null;
        parser.skipChildren();
        break;
      case "after":
        hasImage = true;
        after(parser, token);
        break;
      case "before":
        hasImage = true;
        parser.skipChildren();
        break;
      case "source":
        source(parser, token);
        break;
      default:
        parser.skipChildren();
    }
  }

  private void after(JsonParser parser, JsonToken token) throws IOException {
    gaps.clear();
    afterStart = afterEnd = 0;
    isStrange = false;
    if (token != JsonToken.START_OBJECT) {
      parser.skipChildren();
      return;
    }
    if (!leftOut.names.isEmpty()) {
      without(parser);
      return;
    }
    int start = tokenStart(parser);
    for (String column; (column = parser.nextFieldName()) != null;) {
      gap(parser, column, 0);
    }
    image = value;
    afterStart = start;
    afterEnd = place(parser);
  }

  /** The row of the columns that are asked for, each as it was written. */
  private void without(JsonParser parser) throws IOException {
    shape.clear();
    chosen.reset();
    chosen.write('{');
    for (String column; (column = parser.nextFieldName()) != null;) {
      int start = tokenStart(parser);
      shape.add(column);
      if (leftOut.names.contains(column)) {
        parser.nextToken();
        parser.skipChildren();
      } else {
        if (chosen.size() > 1) chosen.write(',');
        gap(parser, column, chosen.size() - start);
        parser.finishToken();
        chosen.write(value, start, place(parser) - start);
      }
    }
    chosen.write('}');
    image = chosen.toByteArray();
    afterEnd = image.length;
    isStrange = !leftOut.know(shape);
  }

  /** Reads a column's value to its end, and notes it if the database left it out; by so much its place is another. */
  private void gap(JsonParser parser, String column, int shift) throws IOException {
    JsonToken token = parser.nextToken();
    if (token == JsonToken.VALUE_STRING || token == JsonToken.START_ARRAY || token == JsonToken.START_OBJECT) {
      int start = tokenStart(parser);
      if (unavailable.at(parser)) gaps.add(new Gap(column, start + shift, place(parser) + shift));
    }
  }

  private void source(JsonParser parser, JsonToken token) throws IOException {
    if (token != JsonToken.START_OBJECT) {
      parser.skipChildren();
      return;
    }
    boolean exact = false;
    for (String name; (name = parser.nextFieldName()) != null;) {
      token = parser.nextToken();
      if (token != JsonToken.VALUE_NUMBER_INT) {
        parser.skipChildren();
      } else if (name.equals("ts_us")) {
        changedAtUs = whole(parser);
        exact = changedAtUs != null;
      } else if (name.equals("ts_ms") && !exact) {
        Long ms = whole(parser);
        changedAtUs = ms == null ? null : Long.valueOf(ms * 1_000);
      } else if (name.equals("lsn")) {
        lsn = whole(parser);
      }
    }
  }

  private static Long whole(JsonParser parser) throws IOException {
    return parser.getNumberType() == JsonParser.NumberType.BIG_INTEGER ? null : Long.valueOf(parser.getLongValue());
  }

  private static int tokenStart(JsonParser parser) {
    return (int) parser.currentTokenLocation().getByteOffset();
  }

  private static int place(JsonParser parser) {
    return (int) parser.currentLocation().getByteOffset();
  }

  /** The text of a column of a row that was read before, null if it has none. Only gaps need it. */
  static byte[] columnOf(byte[] row, String column) {
    try (JsonParser parser = JSON.createParser(row)) {
      parser.nextToken();
      byte[] found = null;
      for (String name; (name = parser.nextFieldName()) != null;) {
        parser.nextToken();
        int start = tokenStart(parser);
        if (name.equals(column)) {
          parser.finishToken();
          parser.skipChildren();
          found = Arrays.copyOfRange(row, start, place(parser));
        } else {
          parser.skipChildren();
        }
      }
      return found;
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
  }
}
