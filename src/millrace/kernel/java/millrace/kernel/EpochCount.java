package millrace.kernel;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.fs.Path;

/**
 * How many there are, from how many more or fewer there were with each epoch. Kept beside the checkpoint by epoch, so
 * that one that is done again adds to what it first added to. Not known, and not kept, from an epoch on whose former one
 * did not go through here.
 */
final class EpochCount {
  private final EpochFiles files;
  private Long epoch;
  private long count;

  EpochCount(Path folder) {
    files = new EpochFiles(folder);
  }

  void add(long number, long more) {
    try {
      if (number == 0) count = 0;
      else if ((epoch == null || epoch != number - 1) && !load(number - 1)) return;
      count += more;
      epoch = number;
      files.keep(epoch, String.valueOf(count).getBytes(StandardCharsets.UTF_8));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private boolean load(long number) throws IOException {
    byte[] kept = files.kept(number);
    if (kept == null) return false;
    count = Long.parseLong(new String(kept, StandardCharsets.UTF_8).trim());
    return true;
  }
}
