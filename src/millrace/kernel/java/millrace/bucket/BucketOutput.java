package millrace.bucket;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * Collects an object in a file of this machine. What is larger than a part goes there part by part, so that this machine
 * has room for one part and not for the object.
 *
 * What holds: the object is there as a whole once it is closed, and not at all before. What failed leaves no parts; of
 * what was killed they stay until the table is swept (`uploads.py`).
 */
final class BucketOutput extends OutputStream {
  private static final int BUFFER_BYTES = 1 << 16;

  private final Bucket bucket;
  private final String key;
  private final long partBytes;
  private final Path file;
  private OutputStream out;
  private long collectedBytes;
  private Upload upload;
  private boolean closed;

  BucketOutput(Bucket bucket, String key, long partBytes) throws IOException {
    this.bucket = bucket;
    this.key = key;
    this.partBytes = partBytes;
    file = Files.createTempFile("millrace-", ".part");
    out = collecting();
  }

  @Override
  public void write(int each) throws IOException {
    write(new byte[] {(byte) each}, 0, 1);
  }

  @Override
  public void write(byte[] bytes, int offset, int count) throws IOException {
    if (closed) throw new IOException("nothing more can be written to s3 object " + key);
    try {
      for (int from = offset; from < offset + count; ) {
        if (collectedBytes == partBytes) send();
        int taken = (int) Math.min(offset + count - from, partBytes - collectedBytes);
        out.write(bytes, from, taken);
        collectedBytes += taken;
        from += taken;
      }
    } catch (IOException | RuntimeException error) {
      fail(error);
      throw error;
    }
  }

  @Override
  public void flush() throws IOException {
    if (closed) return;
    try {
      out.flush();
    } catch (IOException | RuntimeException error) {
      fail(error);
      throw error;
    }
  }

  @Override
  public void close() throws IOException {
    if (closed) return;
    try {
      out.close();
      if (upload == null) {
        bucket.put(key, file);
      } else {
        upload.part(file);
        upload.complete();
      }
      closed = true;
    } catch (IOException | RuntimeException error) {
      fail(error);
      throw error;
    } finally {
      Files.deleteIfExists(file);
    }
  }

  /** The next part; there is more to come. */
  private void send() throws IOException {
    out.close();
    if (upload == null) upload = new Upload(bucket, key);
    upload.part(file);
    out = collecting();
    collectedBytes = 0;
  }

  /** Whoever closes it then must not make an object of what is there. */
  private void fail(Exception because) {
    closed = true;
    try {
      out.close();
    } catch (IOException error) {
      because.addSuppressed(error);
    }
    try {
      Files.deleteIfExists(file);
    } catch (IOException error) {
      because.addSuppressed(error);
    }
    if (upload != null) upload.abort(because);
  }

  private OutputStream collecting() throws IOException {
    return new BufferedOutputStream(Files.newOutputStream(file), BUFFER_BYTES);
  }
}
