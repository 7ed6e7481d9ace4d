package millrace.bucket;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpHeaders;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.time.Instant;
import java.time.ZonedDateTime;
import java.time.format.DateTimeFormatter;
import java.util.Map;
import java.util.TreeMap;

/**
 * A bucket of S3: objects by their keys, each there as a whole or not at all.
 *
 * What holds: every request can be made again without harm, and is, where a server was too busy or hung up.
 */
final class Bucket {
  record Seen(long sizeBytes, long modifiedMs) {}

  /** An answer that was read to its end, and the tag of what it is about, if it has one. */
  record Told(String text, String tag) {}

  /** How often a request is made, and how long each waits until its answer begins. */
  record Patience(int tries, Duration answer) {
    static final Patience USUAL = new Patience(5, Duration.ofMinutes(5));
    /** Of what is only tidiness, by a task that may be at its end: what stays is found later (`uploads.py`). */
    static final Patience ONCE = new Patience(1, Duration.ofSeconds(10));
  }

  /** Makes something of a good answer; an exception says that it did not come whole, and that it is to be asked again. */
  private interface Reading<T> {
    T of(HttpHeaders headers, InputStream body) throws IOException;
  }

  private static final HttpClient CLIENT =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(10)).build();
  private static final long FIRST_WAIT_MS = 200;
  private static final int CODE_CHARACTERS = 100;
  private static final int MOST_TOLD_BYTES = 1 << 20;
  private static final String PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

  private final String name;
  private final String root;
  private final Signature signature;

  /** Without an endpoint it is Amazon's own. */
  Bucket(String name, String endpoint, String region) throws IOException {
    this.name = name;
    root = endpoint == null ? "https://" + name + ".s3." + region + ".amazonaws.com/" : endpoint.replaceAll("/+$", "") + "/" + name + "/";
    signature = Signature.ofEnvironment(region);
  }

  /** Null if there is no such object. */
  Seen head(String key) throws IOException {
    try {
      return asked("HEAD", key, Map.of(), Map.of(), Body.NONE, Patience.USUAL, (headers, body) -> {
        String modified = headers.firstValue("last-modified").orElse(null);
        long at = modified == null ? 0 : ZonedDateTime.parse(modified, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant().toEpochMilli();
        return new Seen(headers.firstValueAsLong("content-length").orElse(0), at);
      });
    } catch (FileNotFoundException gone) {
      return null;
    }
  }

  /** So many bytes from there on. */
  byte[] get(String key, long from, int count) throws IOException {
    Map<String, String> range = Map.of("range", "bytes=" + from + "-" + (from + count - 1));
    return asked("GET", key, Map.of(), range, Body.NONE, Patience.USUAL, (headers, body) -> {
      byte[] found = body.readNBytes(count);
      if (found.length < count) throw new IOException("s3 object " + key + " ended after " + found.length + " of " + count + " bytes");
      return found;
    });
  }

  void put(String key, Path file) throws IOException {
    told("PUT", key, Map.of(), Map.of(), Body.of(file));
  }

  /** The server copies; more than it takes at once, piece by piece. */
  void copy(String from, String to, long sizeBytes, long atOnceBytes) throws IOException {
    if (sizeBytes <= atOnceBytes) {
      told("PUT", to, Map.of(), Map.of("x-amz-copy-source", source(from)), Body.NONE);
      return;
    }
    Upload upload = new Upload(this, to);
    try {
      for (long first = 0; first < sizeBytes; first += atOnceBytes) {
        upload.part(from, first, Math.min(first + atOnceBytes, sizeBytes) - 1);
      }
      upload.complete();
    } catch (IOException | RuntimeException error) {
      upload.abort(error);
      throw error;
    }
  }

  /** How a request calls what it copies. */
  String source(String key) {
    return "/" + name + "/" + encoded(key, true);
  }

  void delete(String key) throws IOException {
    delete(key, Map.of(), Patience.USUAL);
  }

  void delete(String key, Map<String, String> query, Patience patience) throws IOException {
    try {
      asked("DELETE", key, query, Map.of(), Body.NONE, patience, (headers, body) -> null);
    } catch (FileNotFoundException gone) {
      // That is what was wanted.
    }
  }

  Told told(String method, String key, Map<String, String> query, Map<String, String> more, Body body) throws IOException {
    return asked(method, key, query, more, body, Patience.USUAL, (headers, said) -> {
      String text = words(said);
      // S3 begins its answer before it knows, and may say 200 to a copy, or the end of an upload, that then failed.
      if (text.contains("<Error>")) throw refused(200, key, text);
      return new Told(text, headers.firstValue("etag").orElse(null));
    });
  }

  /** One page of the keys that begin so, and where the next begins. With `flat`, what is below a further `/` is one. */
  Listing list(String prefix, boolean flat, String next) throws IOException {
    TreeMap<String, String> query = new TreeMap<>(Map.of("list-type", "2", "prefix", prefix));
    if (flat) query.put("delimiter", "/");
    if (next != null) query.put("continuation-token", next);
    return asked("GET", "", query, Map.of(), Body.NONE, Patience.USUAL, (headers, body) -> Listing.of(body));
  }

  /** Asks until there is an answer that `reading` takes, or one that will not change: no such key, or not for us. */
  private <T> T asked(
      String method, String key, Map<String, String> query, Map<String, String> more, Body body, Patience patience, Reading<T> reading)
      throws IOException {
    StringBuilder words = new StringBuilder();
    new TreeMap<>(query).forEach(
        (name, value) -> words.append(words.length() == 0 ? "" : "&").append(encoded(name, false)).append('=').append(encoded(value, false)));
    URI uri = URI.create(root + encoded(key, true) + (words.length() == 0 ? "" : "?" + words));
    IOException last = null;
    for (int number = 0; number < patience.tries(); number++) {
      if (number > 0) wait(number);
      HttpRequest.Builder request = HttpRequest.newBuilder(uri).method(method, body.publisher()).timeout(patience.answer());
      signature.headers(method, uri, body.hash(), more, Instant.now()).forEach(request::header);
      try {
        HttpResponse<InputStream> answer = CLIENT.send(request.build(), BodyHandlers.ofInputStream());
        int status = answer.statusCode();
        try (InputStream said = answer.body()) {
          if (status / 100 == 2) return reading.of(answer.headers(), said);
          last = status == 404 ? new FileNotFoundException("there is no s3 object " + key) : refused(status, key, words(said));
        }
        if (status < 500 && status != 429) break;
      } catch (InterruptedException error) {
        throw interrupted(error);
      } catch (IOException error) {
        last = error;
      }
    }
    throw last;
  }

  private static String words(InputStream said) throws IOException {
    return new String(said.readNBytes(MOST_TOLD_BYTES), StandardCharsets.UTF_8);
  }

  /** By S3's own code alone: the rest of what it says may name keys. */
  private static IOException refused(int status, String key, String said) {
    int from = said.indexOf("<Code>");
    int to = said.indexOf("</Code>");
    String code = from >= 0 && to > from ? " " + said.substring(from + 6, Math.min(to, from + 6 + CODE_CHARACTERS)) : "";
    return new IOException("s3 answered " + status + code + " for " + key);
  }

  private static void wait(int number) throws IOException {
    try {
      Thread.sleep(FIRST_WAIT_MS << (number - 1));
    } catch (InterruptedException error) {
      throw interrupted(error);
    }
  }

  private static InterruptedIOException interrupted(InterruptedException error) {
    Thread.currentThread().interrupt();
    InterruptedIOException found = new InterruptedIOException("interrupted while s3 was asked");
    found.initCause(error);
    return found;
  }

  /** As S3 spells keys in addresses and signatures: everything but letters, digits and -._~ by its bytes. */
  static String encoded(String text, boolean path) {
    StringBuilder found = new StringBuilder();
    for (byte each : text.getBytes(StandardCharsets.UTF_8)) {
      char character = (char) (each & 0xff);
      if (PLAIN.indexOf(character) >= 0 || path && character == '/') found.append(character);
      else found.append(String.format("%%%02X", each & 0xff));
    }
    return found.toString();
  }
}
