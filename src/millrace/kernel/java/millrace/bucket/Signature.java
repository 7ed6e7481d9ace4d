package millrace.bucket;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.MessageDigest;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.HexFormat;
import java.util.Map;
import java.util.TreeMap;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Signs requests as Amazon's "Signature Version 4" wants them, with the keys that the environment has. */
public record Signature(String key, String secret, String token, String region) {
  public static final String EMPTY = hex(hashing().digest());
  private static final DateTimeFormatter TIME = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'").withZone(ZoneOffset.UTC);
  private static final int BLOCK_BYTES = 1 << 16;

  static Signature ofEnvironment(String region) throws IOException {
    String key = System.getenv("AWS_ACCESS_KEY_ID");
    String secret = System.getenv("AWS_SECRET_ACCESS_KEY");
    if (key == null || secret == null)
      throw new IOException("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not in the environment of this process");
    return new Signature(key, secret, System.getenv("AWS_SESSION_TOKEN"), region);
  }

  @Override
  public String toString() {
    return "Signature(***)";
  }

  /** The headers of a request that is signed; `more` are those of its own that are signed too, in lower case. */
  public Map<String, String> headers(String method, URI uri, String hash, Map<String, String> more, Instant now) {
    String time = TIME.format(now);
    TreeMap<String, String> signed = new TreeMap<>(more);
    signed.put("host", uri.getRawAuthority());
    signed.put("x-amz-content-sha256", hash);
    signed.put("x-amz-date", time);
    if (token != null) signed.put("x-amz-security-token", token);
    String names = String.join(";", signed.keySet());
    StringBuilder request = new StringBuilder(method).append('\n').append(uri.getRawPath()).append('\n');
    request.append(uri.getRawQuery() == null ? "" : uri.getRawQuery()).append('\n');
    signed.forEach((name, value) -> request.append(name).append(':').append(value.strip()).append('\n'));
    request.append('\n').append(names).append('\n').append(hash);
    String day = time.substring(0, 8);
    String scope = day + "/" + region + "/s3/aws4_request";
    String text = "AWS4-HMAC-SHA256\n" + time + "\n" + scope + "\n" + hash(bytes(request.toString()));
    byte[] with = bytes("AWS4" + secret);
    for (String part : new String[] {day, region, "s3", "aws4_request", text}) with = sealed(with, part);
    signed.remove("host"); // the client's own to say
    signed.put(
        "authorization",
        "AWS4-HMAC-SHA256 Credential=" + key + "/" + scope + ", SignedHeaders=" + names + ", Signature=" + hex(with));
    return signed;
  }

  static String hash(Path file) throws IOException {
    MessageDigest digest = hashing();
    byte[] block = new byte[BLOCK_BYTES];
    try (InputStream in = Files.newInputStream(file)) {
      for (int count = in.read(block); count >= 0; count = in.read(block)) digest.update(block, 0, count);
    }
    return hex(digest.digest());
  }

  static String hash(byte[] bytes) {
    return hex(hashing().digest(bytes));
  }

  private static byte[] sealed(byte[] with, String text) {
    try {
      Mac mac = Mac.getInstance("HmacSHA256");
      mac.init(new SecretKeySpec(with, "HmacSHA256"));
      return mac.doFinal(bytes(text));
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);
    }
  }

  private static MessageDigest hashing() {
    try {
      return MessageDigest.getInstance("SHA-256");
    } catch (GeneralSecurityException error) {
      throw new IllegalStateException(error);
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static String hex(byte[] bytes) {
    return HexFormat.of().formatHex(bytes);
  }
}
