package millrace.bucket;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Files;
import java.nio.file.Path;

/** Collects an object in a file of this machine, and puts it there as a whole when it is closed. */
final class BucketOutput extends OutputStream {
  private static final int BUFFER_BYTES = 1 << 16;

  private final Bucket bucket;
  private final String key;
  private final Path file;
  private final OutputStream out;
  private boolean closed;

  BucketOutput(Bucket bucket, String key) throws IOException {
    this.bucket = bucket;
    this.key = key;
    file = Files.createTempFile("millrace-", ".part");
    out = new BufferedOutputStream(Files.newOutputStream(file), BUFFER_BYTES);
  }

  @Override
  public void write(int each) throws IOException {
    out.write(each);
  }

  @Override
  public void write(byte[] bytes, int offset, int count) throws IOException {
    out.write(bytes, offset, count);
  }

  @Override
  public void flush() throws IOException {
    out.flush();
  }

  @Override
  public void close() throws IOException {
    if (closed) return;
    closed = true;
    try {
      out.close();
      bucket.put(key, file);
    } finally {
      Files.deleteIfExists(file);
    }
  }
}
