package millrace.kernel;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * How many there are, from how many more or fewer there were with each epoch. Kept beside the checkpoint by epoch, so
 * that one that is done again adds to what it first added to. Not known, and not kept, from an epoch on whose former one
 * did not go through here.
 */
final class EpochCount {
  private static final int KEPT = 100;

  private final Path folder;
  private Long epoch;
  private long count;

  EpochCount(Path folder) {
    this.folder = folder;
  }

  void add(long number, long more) {
    try {
      FileSystem files = folder.getFileSystem(new Configuration());
      if (number == 0) count = 0;
      else if ((epoch == null || epoch != number - 1) && !load(files, number - 1)) return;
      count += more;
      epoch = number;
      keep(files);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private boolean load(FileSystem files, long number) throws IOException {
    try (InputStream in = files.open(new Path(folder, String.valueOf(number)))) {
      count = Long.parseLong(new String(in.readAllBytes(), StandardCharsets.UTF_8).trim());
      return true;
    } catch (FileNotFoundException none) {
      return false;
    }
  }

  private void keep(FileSystem files) throws IOException {
    Path draft = new Path(folder, "." + epoch + ".new");
    try (OutputStream out = files.create(draft, true)) {
      out.write(String.valueOf(count).getBytes(StandardCharsets.UTF_8));
    }
    Path place = new Path(folder, String.valueOf(epoch));
    files.delete(place, false);
    files.rename(draft, place);
    files.delete(new Path(folder, String.valueOf(epoch - KEPT)), false);
  }
}
