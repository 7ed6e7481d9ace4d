package millrace.bucket;

import java.io.EOFException;
import java.io.IOException;
import org.apache.hadoop.fs.FSInputStream;

/** An object that is read piece by piece; a piece is asked for when it is needed, and some bytes more. */
final class BucketInput extends FSInputStream {
  private static final int AHEAD_BYTES = 1 << 18;

  private final Bucket bucket;
  private final String key;
  private final long sizeBytes;
  private long position;
  private long heldFrom;
  private byte[] held = new byte[0];

  BucketInput(Bucket bucket, String key, long sizeBytes) {
    this.bucket = bucket;
    this.key = key;
    this.sizeBytes = sizeBytes;
  }

  @Override
  public void seek(long to) throws IOException {
    if (to < 0 || to > sizeBytes) throw new EOFException("there is no byte " + to + " in an s3 object of " + sizeBytes);
    position = to;
  }

  @Override
  public long getPos() {
    return position;
  }

  @Override
  public boolean seekToNewSource(long to) {
    return false;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public int read(byte[] into, int offset, int count) throws IOException {
    if (count == 0) return 0;
    if (position >= sizeBytes) return -1;
    if (position < heldFrom || position >= heldFrom + held.length) {
      held = bucket.get(key, position, (int) Math.min(Math.max(count, AHEAD_BYTES), sizeBytes - position));
      heldFrom = position;
    }
    int from = (int) (position - heldFrom);
    int given = Math.min(count, held.length - from);
    System.arraycopy(held, from, into, offset, given);
    position += given;
    return given;
  }

  /** Of a place that is named, exactly what is asked for: readers of Parquet know how much they need. */
  @Override
  public int read(long at, byte[] into, int offset, int count) throws IOException {
    if (count == 0) return 0;
    if (at >= sizeBytes) return -1;
    byte[] found = bucket.get(key, at, (int) Math.min(count, sizeBytes - at));
    System.arraycopy(found, 0, into, offset, found.length);
    return found.length;
  }

  @Override
  public int available() {
    return (int) Math.min(Integer.MAX_VALUE, sizeBytes - position);
  }
}
