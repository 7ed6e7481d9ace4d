package millrace.sink;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * What a flow has delivered, in its checkpoint:
 *
 *     delivery/prepared-17    the transactions of epoch 17, which are to be committed
 *     delivery/delivered-16   the last epochs all of which are committed
 *     delivery/partitions     how many tasks an epoch ever had, and so which ids there can be
 *     delivery/owner          the driver that began last
 *
 * What holds: as long as a prepared epoch stands here, its transactions are to be committed and nothing else is done.
 * Only one driver can write an epoch down as prepared. It is delivered before it ceases to be prepared. No file is ever
 * replaced by what a driver knew that has been replaced itself.
 */
final class Ledger {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String FOLDER = "delivery";
  private static final String OWNER = "owner";
  private static final String PREPARED = "prepared-";
  private static final String DELIVERED = "delivered-";
  private static final int KEPT = 2;

  /** An epoch with a fingerprint of its input: the same number with another input is another epoch. */
  record Epoch(long epoch, String inputs) {}

  record Prepared(long epoch, String inputs, List<Transaction> transactions) {}

  private final Path folder;
  private final CheckpointFileManager files;

  Ledger(Path checkpoint, CheckpointFileManager files) {
    this.folder = new Path(checkpoint, FOLDER);
    this.files = files;
  }

  /** Writes an epoch down. Says false if somebody has done so already. */
  boolean prepare(Prepared epoch) throws IOException {
    try {
      write(of(PREPARED, epoch.epoch()), epoch, false);
      return true;
    } catch (FileAlreadyExistsException another) {
      return false;
    }
  }

  List<Prepared> prepared() throws IOException {
    List<Prepared> found = new ArrayList<>();
    for (long epoch : epochs(PREPARED)) found.add(read(of(PREPARED, epoch), Prepared.class));
    return found;
  }

  boolean isPrepared(long epoch) {
    return files.exists(of(PREPARED, epoch));
  }

  void delivered(long epoch, String inputs) throws IOException {
    write(of(DELIVERED, epoch), new Epoch(epoch, inputs), true);
    files.delete(of(PREPARED, epoch));
    long[] all = epochs(DELIVERED);
    for (int place = 0; place < all.length - KEPT; place++) files.delete(of(DELIVERED, all[place]));
  }

  /** None of its transactions was or will be committed. */
  void forget(long epoch) {
    files.delete(of(PREPARED, epoch));
  }

  /** The last epoch that was delivered; null when none was yet. */
  Epoch last() throws IOException {
    long[] all = epochs(DELIVERED);
    return all.length == 0 ? null : read(of(DELIVERED, all[all.length - 1]), Epoch.class);
  }

  /** From now on this driver is the one: whoever was before it finds so out before it commits. */
  void own(String driver) throws IOException {
    write(new Path(folder, OWNER), driver, true);
  }

  /** For a task, which has no driver to ask. A folder that it cannot see says nothing. */
  static void refuseReplaced(String checkpoint, String driver) throws IOException {
    Path owner = new Path(new Path(checkpoint, FOLDER), OWNER);
    try (InputStream in = owner.getFileSystem(SparkHadoopUtil.get().conf()).open(owner)) {
      if (!JSON.readValue(in, String.class).equals(driver)) throw Refused.takenOver();
    } catch (FileNotFoundException elsewhere) {
      // A checkpoint that only the driver has.
    }
  }

  String owner() throws IOException {
    return read(new Path(folder, OWNER), String.class);
  }

  int partitions() throws IOException {
    Path partitions = new Path(folder, "partitions");
    return files.exists(partitions) ? read(partitions, Integer.class) : 0;
  }

  void partitions(int count) throws IOException {
    write(new Path(folder, "partitions"), count, true);
  }

  private Path of(String kind, long epoch) {
    return new Path(folder, kind + epoch);
  }

  private long[] epochs(String kind) {
    if (!files.exists(folder)) return new long[0];
    return Arrays.stream(files.list(folder))
        .map(FileStatus::getPath)
        .map(Path::getName)
        .filter(name -> name.matches(kind + "\\d+"))
        .mapToLong(name -> Long.parseLong(name.substring(kind.length())))
        .sorted()
        .toArray();
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
