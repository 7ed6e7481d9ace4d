package millrace.kernel;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/** A small file for each epoch, beside the checkpoint and written as it is; the last ones are kept. */
final class EpochFiles {
  private static final int KEPT = 100;

  private final Path folder;
  private final CheckpointFileManager files;

  EpochFiles(Path folder) {
    this.folder = folder;
    files = CheckpointFileManager.create(folder, SparkSession.active().sessionState().newHadoopConf());
  }

  void keep(long epoch, byte[] what) throws IOException {
    try (OutputStream out = files.createAtomic(of(epoch), true)) {
      out.write(what);
    }
    files.delete(of(epoch - KEPT));
  }

  /** What was kept with an epoch; null if nothing was. */
  byte[] kept(long epoch) throws IOException {
    if (!files.exists(of(epoch))) return null;
    try (InputStream in = files.open(of(epoch))) {
      return in.readAllBytes();
    }
  }

  /** The last epoch up to this one with which something was kept; -1 if there is none. */
  long last(long epoch) {
    if (!files.exists(folder)) return -1;
    return Arrays.stream(files.list(folder))
        .map(FileStatus::getPath)
        .map(Path::getName)
        .filter(name -> name.matches("\\d+"))
        .mapToLong(Long::parseLong)
        .filter(each -> each <= epoch)
        .max()
        .orElse(-1);
  }

  private Path of(long epoch) {
    return new Path(folder, String.valueOf(epoch));
  }
}
