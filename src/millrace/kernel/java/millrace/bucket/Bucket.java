package millrace.bucket;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.InterruptedIOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
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

  private static final HttpClient CLIENT =
      HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).connectTimeout(Duration.ofSeconds(10)).build();
  private static final Duration ANSWER = Duration.ofMinutes(5);
  private static final int TRIES = 5;
  private static final long FIRST_WAIT_MS = 200;
  private static final int TOLD_CHARACTERS = 300;
  private static final String PLAIN = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";

  private final String root;
  private final Signature signature;

  /** Without an endpoint it is Amazon's own. */
  Bucket(String name, String endpoint, String region) throws IOException {
    root = endpoint == null ? "https://" + name + ".s3." + region + ".amazonaws.com/" : endpoint.replaceAll("/+$", "") + "/" + name + "/";
    signature = Signature.ofEnvironment(region);
  }

  /** Null if there is no such object. */
  Seen head(String key) throws IOException {
    HttpResponse<InputStream> answer = asked("HEAD", key, Map.of(), Map.of(), null);
    if (answer.statusCode() == 404) return null;
    checked(answer, key).close();
    long size = answer.headers().firstValueAsLong("content-length").orElse(0);
    String modified = answer.headers().firstValue("last-modified").orElse(null);
    return new Seen(size, modified == null ? 0 : ZonedDateTime.parse(modified, DateTimeFormatter.RFC_1123_DATE_TIME).toInstant().toEpochMilli());
  }

  /** So many bytes from there on. */
  byte[] get(String key, long from, int count) throws IOException {
    IOException last = null;
    for (int number = 0; number < TRIES; number++) {
      if (number > 0) wait(number);
      HttpResponse<InputStream> answer =
          asked("GET", key, Map.of(), Map.of("range", "bytes=" + from + "-" + (from + count - 1)), null);
      try (InputStream body = checked(answer, key)) {
        byte[] found = body.readNBytes(count);
        if (found.length == count) return found;
        last = new IOException("s3 object " + key + " ended after " + found.length + " of " + count + " bytes");
      } catch (FileNotFoundException gone) {
        throw gone;
      } catch (IOException error) {
        last = error; // hung up in the middle
      }
    }
    throw last;
  }

  void put(String key, Path file) throws IOException {
    checked(asked("PUT", key, Map.of(), Map.of(), file), key).close();
  }

  void copy(String from, String to, String bucket) throws IOException {
    checked(asked("PUT", to, Map.of(), Map.of("x-amz-copy-source", "/" + bucket + "/" + encoded(from, true)), null), from).close();
  }

  void delete(String key) throws IOException {
    HttpResponse<InputStream> answer = asked("DELETE", key, Map.of(), Map.of(), null);
    if (answer.statusCode() != 404) checked(answer, key).close();
  }

  /** One page of the keys that begin so, and where the next begins. With `flat`, what is below a further `/` is one. */
  Listing list(String prefix, boolean flat, String next) throws IOException {
    TreeMap<String, String> query = new TreeMap<>(Map.of("list-type", "2", "prefix", prefix));
    if (flat) query.put("delimiter", "/");
    if (next != null) query.put("continuation-token", next);
    try (InputStream body = checked(asked("GET", "", query, Map.of(), null), prefix)) {
      return Listing.of(body);
    }
  }

  private HttpResponse<InputStream> asked(
      String method, String key, Map<String, String> query, Map<String, String> more, Path body) throws IOException {
    StringBuilder words = new StringBuilder();
    new TreeMap<>(query).forEach(
        (name, value) -> words.append(words.length() == 0 ? "" : "&").append(encoded(name, false)).append('=').append(encoded(value, false)));
    URI uri = URI.create(root + encoded(key, true) + (words.length() == 0 ? "" : "?" + words));
    String hash = body == null ? Signature.EMPTY : Signature.hash(body);
    IOException last = null;
    for (int number = 0; number < TRIES; number++) {
      if (number > 0) wait(number);
      BodyPublisher sent = body == null ? BodyPublishers.noBody() : BodyPublishers.ofFile(body);
      HttpRequest.Builder request = HttpRequest.newBuilder(uri).method(method, sent).timeout(ANSWER);
      signature.headers(method, uri, hash, more, Instant.now()).forEach(request::header);
      try {
        HttpResponse<InputStream> answer = CLIENT.send(request.build(), BodyHandlers.ofInputStream());
        if (answer.statusCode() < 500 && answer.statusCode() != 429) return answer;
        try (InputStream told = answer.body()) {
          last = refused(answer.statusCode(), key, told);
        }
      } catch (InterruptedException error) {
        throw interrupted(error);
      } catch (IOException error) {
        last = error;
      }
    }
    throw last;
  }

  private static InputStream checked(HttpResponse<InputStream> answer, String key) throws IOException {
    if (answer.statusCode() / 100 == 2) return answer.body();
    try (InputStream told = answer.body()) {
      if (answer.statusCode() == 404) throw new FileNotFoundException("there is no s3 object " + key);
      throw refused(answer.statusCode(), key, told);
    }
  }

  private static IOException refused(int status, String key, InputStream told) throws IOException {
    String text = new String(told.readNBytes(TOLD_CHARACTERS), StandardCharsets.UTF_8);
    int from = text.indexOf("<Code>");
    int to = text.indexOf("</Code>");
    String code = from >= 0 && to > from ? " " + text.substring(from + 6, to) : "";
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
