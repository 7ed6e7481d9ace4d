package millrace.kernel;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.time.LocalDate;
import java.time.YearMonth;
import java.util.Arrays;
import org.apache.spark.unsafe.types.UTF8String;

/** The tokens of one JSON value after the other. Whatever is not plainly right is a Doubt. */
final class JsonText {
  static final Doubt DOUBT = new Doubt();
  private static final int DEEPEST = 64;
  /** So many digits a long surely holds. */
  static final int LONGEST_WHOLE = 18;

  private static final VarHandle EIGHT = MethodHandles.byteArrayViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final VarHandle TWO = MethodHandles.byteArrayViewVarHandle(short[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long EACH = 0x0101010101010101L;
  private static final long HIGH = EACH << 7;

  private byte[] bytes;
  private int at;
  private int from;
  private int to;
  /** Whether the text last read holds escapes. */
  boolean escaped;

  private long lastDate;
  private short lastDay;
  private long lastDays;

  /** Not an error, and too frequent for a stack trace. */
  static final class Doubt extends RuntimeException {
    private Doubt() {
      super(null, null, false, false);
    }
  }

  /** Begins with another value. */
  void of(byte[] value) {
    bytes = value;
    at = 0;
  }

  void expect(char sign) {
    if (!found(sign)) throw DOUBT;
  }

  boolean found(char sign) {
    if (peek() != sign) return false;
    at++;
    return true;
  }

  boolean foundNull() {
    return peek() == 'n' && word("null");
  }

  void expectEnd() {
    if (peek() != -1) throw DOUBT;
  }

  boolean atQuote() {
    return peek() == '"';
  }

  boolean truth() {
    return peek() == 't' ? word("true") : !word("false");
  }

  /** Whether these bytes, quotes included, come next. */
  boolean foundQuoted(byte[] name) {
    if (peek() != '"' || at + name.length > bytes.length) return false;
    if (!Arrays.equals(bytes, at, at + name.length, name, 0, name.length)) return false;
    at += name.length;
    return true;
  }

  /** Reads a text; where it is, is kept. */
  void text() {
    expect('"');
    from = at;
    escaped = false;
    while (true) {
      skipPlain();
      if (at >= bytes.length) throw DOUBT;
      byte each = bytes[at++];
      if (each == '"') break;
      if (each >= 0 && each < ' ') throw DOUBT;
      if (each == '\\') {
        escaped = true;
        if (at >= bytes.length || "\"\\/bfnrt".indexOf(bytes[at++]) < 0) throw DOUBT;
      }
    }
    to = at - 1;
  }

  /** To the next quote, backslash or control character, or to a few bytes before the end: eight bytes at a time. */
  private void skipPlain() {
    for (; at <= bytes.length - Long.BYTES; at += Long.BYTES) {
      long each = (long) EIGHT.get(bytes, at);
      // The lowest bit that is set is of the first such byte; those above it may be of others.
      long found = (below(each ^ '"' * EACH, 1) | below(each ^ '\\' * EACH, 1) | below(each, ' ')) & HIGH;
      if (found == 0) continue;
      at += Long.numberOfTrailingZeros(found) / Byte.SIZE;
      return;
    }
  }

  private static long below(long each, long bound) {
    return each - bound * EACH & ~each;
  }

  /** Whether the text last read is this one. */
  boolean is(byte[] name) {
    return Arrays.equals(bytes, from, to, name, 0, name.length);
  }

  /** A text, in the bytes that it was read from unless something in it is escaped. */
  UTF8String value() {
    text();
    if (!escaped) return UTF8String.fromBytes(bytes, from, to - from);
    return UTF8String.fromBytes(unescaped(Arrays.copyOfRange(bytes, from, to)));
  }

  private static byte[] unescaped(byte[] text) {
    int length = 0;
    for (int place = 0; place < text.length; place++) {
      byte each = text[place];
      if (each == '\\') {
        each = text[++place];
        if (each == 'b') each = '\b';
        else if (each == 'f') each = '\f';
        else if (each == 'n') each = '\n';
        else if (each == 'r') each = '\r';
        else if (each == 't') each = '\t';
      }
      text[length++] = each;
    }
    return Arrays.copyOf(text, length);
  }

  /** A whole number that a long surely holds. */
  long whole() {
    boolean negative = found('-');
    int first = at;
    long value = 0;
    while (at < bytes.length && bytes[at] >= '0' && bytes[at] <= '9') value = value * 10 + bytes[at++] - '0';
    int digits = at - first;
    if (digits == 0 || digits > LONGEST_WHOLE || (digits > 1 && bytes[first] == '0')) throw DOUBT;
    if (at < bytes.length && (bytes[at] == '.' || (bytes[at] | 0x20) == 'e')) throw DOUBT;
    return negative ? -value : value;
  }

  /** A number as it is written. */
  String number() {
    peek();
    int first = at;
    if (at < bytes.length && bytes[at] == '-') at++;
    int whole = digits();
    if (whole == 0 || (whole > 1 && bytes[at - whole] == '0')) throw DOUBT;
    if (at < bytes.length && bytes[at] == '.') {
      at++;
      if (digits() == 0) throw DOUBT;
    }
    if (at < bytes.length && (bytes[at] | 0x20) == 'e') throw DOUBT;
    return new String(bytes, first, at - first, StandardCharsets.ISO_8859_1);
  }

  private int digits() {
    int first = at;
    while (at < bytes.length && bytes[at] >= '0' && bytes[at] <= '9') at++;
    return at - first;
  }

  /** "2026-01-31T23:59:59", with up to six digits behind a point, and Z or +02:00; `utc`: that may be left out. */
  long timeUs(boolean utc) {
    text();
    int length = to - from;
    if (escaped || length < 19) throw DOUBT;
    byte between = bytes[from + 10];
    if ((between != 'T' && between != ' ') || bytes[from + 13] != ':' || bytes[from + 16] != ':') throw DOUBT;
    long days = days();
    long hour = two(from + 11, 23);
    long minute = two(from + 14, 59);
    long second = two(from + 17, 59);
    int place = from + 19;
    long us = 0;
    if (place < to && bytes[place] == '.') {
      long unit = 100_000;
      int first = ++place;
      for (; place < to && bytes[place] >= '0' && bytes[place] <= '9'; place++, unit /= 10) us += unit * (bytes[place] - '0');
      if (place == first || place > first + 6) throw DOUBT;
    }
    return ((days * 24 + hour) * 60 + minute - offsetMinutes(place, utc)) * 60_000_000L + second * 1_000_000L + us;
  }

  /** Of a time's end. */
  private int offsetMinutes(int place, boolean utc) {
    if (place == to && utc || place + 1 == to && bytes[place] == 'Z') return 0;
    if (place + 6 != to || bytes[place + 3] != ':') throw DOUBT;
    int minutes = two(place + 1, 17) * 60 + two(place + 4, 59);
    if (bytes[place] == '+') return minutes;
    if (bytes[place] == '-') return -minutes;
    throw DOUBT;
  }

  int date() {
    text();
    if (escaped || to - from != 10) throw DOUBT;
    return (int) days();
  }

  /** Since 1970. Most events are of the same day as those before them. */
  private long days() {
    long first = (long) EIGHT.get(bytes, from);
    short rest = (short) TWO.get(bytes, from + Long.BYTES);
    if (first != lastDate || rest != lastDay) {
      lastDays = daysOf();
      lastDate = first;
      lastDay = rest;
    }
    return lastDays;
  }

  private long daysOf() {
    if (bytes[from + 4] != '-' || bytes[from + 7] != '-') throw DOUBT;
    int year = two(from, 99) * 100 + two(from + 2, 99);
    int month = two(from + 5, 12);
    int day = two(from + 8, 31);
    if (year < 1900 || month < 1 || day < 1 || (day > 28 && day > YearMonth.of(year, month).lengthOfMonth())) throw DOUBT;
    return LocalDate.of(year, month, day).toEpochDay();
  }

  private int two(int place, int greatest) {
    int tens = bytes[place] - '0';
    int ones = bytes[place + 1] - '0';
    if (tens < 0 || tens > 9 || ones < 0 || ones > 9 || tens * 10 + ones > greatest) throw DOUBT;
    return tens * 10 + ones;
  }

  /** Whatever value comes next, if it is plainly right. */
  void skip() {
    skip(0);
  }

  private void skip(int depth) {
    if (depth > DEEPEST) throw DOUBT;
    switch (peek()) {
      case '"': text(); break;
      case '{':
        at++;
        if (found('}')) return;
        do {
          text();
          expect(':');
          skip(depth + 1);
        } while (found(','));
        expect('}');
        break;
      case '[':
        at++;
        if (found(']')) return;
        do skip(depth + 1); while (found(','));
        expect(']');
        break;
      case 't': word("true"); break;
      case 'f': word("false"); break;
      case 'n': word("null"); break;
      default: number();
    }
  }

  /** The next sign that is not white; -1 at the end. */
  private int peek() {
    while (at < bytes.length) {
      byte each = bytes[at];
      if (each != ' ' && each != '\n' && each != '\r' && each != '\t') return each;
      at++;
    }
    return -1;
  }

  private boolean word(String word) {
    if (at + word.length() > bytes.length) throw DOUBT;
    for (int place = 0; place < word.length(); place++) if (bytes[at + place] != word.charAt(place)) throw DOUBT;
    at += word.length();
    return true;
  }
}
