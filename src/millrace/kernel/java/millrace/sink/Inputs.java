package millrace.sink;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/** What Spark's checkpoint says of its epochs: which input each of them has, and which query it is of. */
final class Inputs {
  /** Before the offsets stand the format's version and the epoch's metadata. */
  private static final int FIRST_SOURCE = 2;
  private static final int HASH_BYTES = 16;

  private final Path checkpoint;
  private final CheckpointFileManager files;

  Inputs(Path checkpoint, CheckpointFileManager files) {
    this.checkpoint = checkpoint;
    this.files = files;
  }

  /** The offsets that an epoch begins and ends with, of all its sources, as one short text. */
  String of(long epoch) throws IOException {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      if (epoch > 0) digest.update(sources(epoch - 1));
      digest.update((byte) 0);
      digest.update(sources(epoch));
      return HexFormat.of().formatHex(digest.digest(), 0, HASH_BYTES);
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }

  private byte[] sources(long epoch) throws IOException {
    String[] lines = read(new Path(new Path(checkpoint, "offsets"), String.valueOf(epoch))).split("\n");
    String sources = String.join("\n", Arrays.copyOfRange(lines, Math.min(FIRST_SOURCE, lines.length), lines.length));
    return sources.getBytes(StandardCharsets.UTF_8);
  }

  /** The last epoch that was begun; -1 before the first. */
  long last() {
    return newest("offsets");
  }

  /** The last epoch that Spark committed; -1 before the first. */
  long lastCommitted() {
    return newest("commits");
  }

  private long newest(String log) {
    Path folder = new Path(checkpoint, log);
    if (!files.exists(folder)) return -1;
    return Arrays.stream(files.list(folder))
        .map(FileStatus::getPath)
        .map(Path::getName)
        .filter(name -> name.matches("\\d+"))
        .mapToLong(Long::parseLong)
        .max()
        .orElse(-1);
  }

  /** The query's id, which an older copy of the checkpoint shares and a new beginning does not; null before it. */
  String query() throws IOException {
    Path metadata = new Path(checkpoint, "metadata");
    return files.exists(metadata) ? new ObjectMapper().readTree(read(metadata)).path("id").asText(null) : null;
  }

  private String read(Path path) throws IOException {
    try (InputStream in = files.open(path)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }
}
