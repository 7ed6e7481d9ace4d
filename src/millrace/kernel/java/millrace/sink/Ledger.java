package millrace.sink;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * What a flow has delivered, in its checkpoint:
 *
 *     delivery/prepared-17   the transactions of epoch 17, which are to be committed
 *     delivery/last          the last epoch all of which is committed
 *     delivery/partitions    how many tasks an epoch ever had, and so which ids there can be
 *
 * What holds: as long as a prepared epoch stands here, its transactions are to be committed and nothing else is done.
 * Only one driver can write an epoch down as prepared. What was delivered is `last` before it ceases to be prepared.
 */
final class Ledger {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String PREPARED = "prepared-";

  /** An epoch with a fingerprint of its input: the same number with another input is another epoch. */
  record Epoch(long epoch, String inputs) {}

  record Prepared(long epoch, String inputs, List<Transaction> transactions) {}

  private final Path folder;
  private final CheckpointFileManager files;

  Ledger(Path checkpoint, CheckpointFileManager files) {
    this.folder = new Path(checkpoint, "delivery");
    this.files = files;
  }

  /** Writes an epoch down. Says false if somebody has done so already. */
  boolean prepare(Prepared epoch) throws IOException {
    try {
      write(of(epoch.epoch()), epoch, false);
      return true;
    } catch (FileAlreadyExistsException another) {
      return false;
    }
  }

  List<Prepared> prepared() throws IOException {
    if (!files.exists(folder)) return List.of();
    long[] epochs = Arrays.stream(files.list(folder))
        .map(FileStatus::getPath)
        .map(Path::getName)
        .filter(name -> name.matches(PREPARED + "\\d+"))
        .mapToLong(name -> Long.parseLong(name.substring(PREPARED.length())))
        .sorted()
        .toArray();
    Prepared[] found = new Prepared[epochs.length];
    for (int place = 0; place < epochs.length; place++) found[place] = read(of(epochs[place]), Prepared.class);
    return List.of(found);
  }

  boolean isPrepared(long epoch) {
    return files.exists(of(epoch));
  }

  void delivered(long epoch, String inputs) throws IOException {
    write(new Path(folder, "last"), new Epoch(epoch, inputs), true);
    files.delete(of(epoch));
  }

  /** None of its transactions was or will be committed. */
  void forget(long epoch) {
    files.delete(of(epoch));
  }

  /** Null when nothing was delivered yet. */
  Epoch last() throws IOException {
    Path last = new Path(folder, "last");
    return files.exists(last) ? read(last, Epoch.class) : null;
  }

  int partitions() throws IOException {
    Path partitions = new Path(folder, "partitions");
    return files.exists(partitions) ? read(partitions, Integer.class) : 0;
  }

  void partitions(int count) throws IOException {
    write(new Path(folder, "partitions"), count, true);
  }

  private Path of(long epoch) {
    return new Path(folder, PREPARED + epoch);
  }

  private void write(Path path, Object what, boolean over) throws IOException {
    try (OutputStream out = files.createAtomic(path, over)) {
      out.write(JSON.writeValueAsBytes(what));
    }
  }

  private <T> T read(Path path, Class<T> kind) throws IOException {
    try (InputStream in = files.open(path)) {
      return JSON.readValue(in, kind);
    }
  }
}
