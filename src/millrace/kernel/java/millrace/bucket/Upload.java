package millrace.bucket;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** An object that comes in parts: it is there when `complete` has said so. Parts can be sent again without harm. */
final class Upload {
  private final Bucket bucket;
  private final String key;
  private final String id;
  private final List<String> tags = new ArrayList<>();

  Upload(Bucket bucket, String key) throws IOException {
    this.bucket = bucket;
    this.key = key;
    id = element(bucket.told("POST", key, Map.of("uploads", ""), Map.of(), Body.NONE).text(), "UploadId");
  }

  void part(Path file) throws IOException {
    Bucket.Told told = bucket.told("PUT", key, next(), Map.of(), Body.of(file));
    if (told.tag() == null) throw new IOException("s3 gave no tag for a part of " + key);
    tags.add(told.tag());
  }

  /** A part that is a piece of another object of the bucket, the last byte included; the server copies it. */
  void part(String from, long first, long last) throws IOException {
    Map<String, String> more = Map.of("x-amz-copy-source", bucket.source(from), "x-amz-copy-source-range", "bytes=" + first + "-" + last);
    tags.add(element(bucket.told("PUT", key, next(), more, Body.NONE).text(), "ETag").replace("&quot;", "\""));
  }

  void complete() throws IOException {
    StringBuilder words = new StringBuilder("<CompleteMultipartUpload>");
    for (int number = 1; number <= tags.size(); number++) {
      String tag = tags.get(number - 1).replace("\"", "&quot;");
      words.append("<Part><PartNumber>").append(number).append("</PartNumber><ETag>").append(tag).append("</ETag></Part>");
    }
    byte[] text = words.append("</CompleteMultipartUpload>").toString().getBytes(StandardCharsets.UTF_8);
    try {
      bucket.told("POST", key, Map.of("uploadId", id), Map.of("content-type", "application/xml"), Body.of(text));
    } catch (FileNotFoundException error) {
      // The second try of what the first did, whose answer was lost.
      if (bucket.head(key) == null) throw error;
    }
  }

  /** Lets go of the parts, if S3 is there to be told; also of a task that is being interrupted: nothing could be asked with the flag up. */
  void abort(Exception because) {
    boolean interrupted = Thread.interrupted();
    try {
      bucket.delete(key, Map.of("uploadId", id), Bucket.Patience.ONCE);
    } catch (IOException error) {
      because.addSuppressed(error);
    } finally {
      if (interrupted) Thread.currentThread().interrupt();
    }
  }

  private Map<String, String> next() {
    return Map.of("partNumber", Integer.toString(tags.size() + 1), "uploadId", id);
  }

  private String element(String text, String name) throws IOException {
    int from = text.indexOf("<" + name + ">");
    int to = text.indexOf("</" + name + ">");
    if (from < 0 || to < from) throw new IOException("s3 answered without " + name + " for " + key);
    return text.substring(from + name.length() + 2, to);
  }
}
