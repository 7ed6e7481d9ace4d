package millrace.kernel;

import java.io.BufferedOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.SparkEnv;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The files of a checkpoint, on a mounted file system. Hadoop's would start a `chmod` process for every file and folder
 * that it makes, and write a second file with checksums beside it: most of what an epoch's end costs.
 */
public final class CheckpointFiles implements CheckpointFileManager {
  private final RawLocalFileSystem reading = new RawLocalFileSystem();
  private final Path root;

  public CheckpointFiles(Path root, Configuration options) throws IOException {
    reading.initialize(java.net.URI.create("file:///"), options);
    this.root = reading.makeQualified(root); // refuses any other kind of file system
    SparkEnv here = SparkEnv.get();
    if (here != null && !here.executorId().equals("driver")) {
      refuseUnshared(local(this.root), here.blockManager().blockManagerId().host());
    }
  }

  /** An executor that sees nothing of the driver's checkpoint would write its state where nobody finds it again. */
  static void refuseUnshared(java.nio.file.Path root, String host) throws IOException {
    for (java.nio.file.Path folder = root; folder != null; folder = folder.getParent()) {
      if (Files.isRegularFile(folder.resolve("metadata"))) return; // of the query, written before there are tasks
    }
    throw new IOException("MR-CHECKPOINTS-UNSHARED " + host + " [" + root + "]");
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwrite) {
    java.nio.file.Path whole = local(path);
    if (FailPoint.ON) FilePoint.BEFORE.reached(whole);
    java.nio.file.Path part = whole.resolveSibling("." + whole.getFileName() + "." + UUID.randomUUID() + ".tmp");
    return told(() -> new Written(made(part), part, whole, overwrite));
  }

  private static OutputStream made(java.nio.file.Path file) throws IOException {
    try {
      return Files.newOutputStream(file);
    } catch (NoSuchFileException absent) {
      Files.createDirectories(file.getParent());
      return Files.newOutputStream(file);
    }
  }

  /** Is there as a whole when it has been closed, or not at all. */
  private static final class Written extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final OutputStream stream;
    private final java.nio.file.Path part;
    private final java.nio.file.Path whole;
    private final boolean overwrite;
    private boolean ended;

    Written(OutputStream stream, java.nio.file.Path part, java.nio.file.Path whole, boolean overwrite) {
      super(new BufferedOutputStream(stream));
      this.stream = stream;
      this.part = part;
      this.whole = whole;
      this.overwrite = overwrite;
    }

    @Override
    public synchronized void close() throws IOException {
      if (ended) return;
      ended = true;
      super.close();
      if (FailPoint.ON) FilePoint.WRITTEN.reached(whole);
      if (overwrite) replace();
      else add();
      if (FailPoint.ON) FilePoint.AFTER.reached(whole);
    }

    private void replace() throws IOException {
      Files.move(part, whole, StandardCopyOption.ATOMIC_MOVE);
      // Of the file that was there before, if Hadoop wrote it; it would take this one for a damaged one.
      Files.deleteIfExists(whole.resolveSibling("." + whole.getFileName() + ".crc"));
    }

    /** A link cannot be made over a file that is there, not even by two at once; a move could. */
    private void add() throws IOException {
      try {
        Files.createLink(whole, part);
        if (FailPoint.ON) FilePoint.LINKED.reached(whole);
      } catch (java.nio.file.FileAlreadyExistsException there) {
        throw new FileAlreadyExistsException(whole + " is there already");
      } catch (UnsupportedOperationException | FileSystemException noLinks) {
        if (Files.exists(whole)) throw new FileAlreadyExistsException(whole + " is there already");
        Files.move(part, whole, StandardCopyOption.ATOMIC_MOVE);
      } finally {
        Files.deleteIfExists(part);
      }
    }

    @Override
    public synchronized void cancel() {
      if (ended) return;
      ended = true;
      try (stream) {
        Files.deleteIfExists(part);
      } catch (IOException left) {
        // A file that nobody reads stays behind.
      }
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    return told(() -> reading.open(path));
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return told(() -> {
      List<FileStatus> found = new ArrayList<>();
      try (Stream<java.nio.file.Path> files = Files.list(local(path))) {
        for (java.nio.file.Path file : (Iterable<java.nio.file.Path>) files::iterator) {
          Path each = new Path(path, file.getFileName().toString());
          if (!isChecksum(each.getName()) && filter.accept(each)) add(found, each, file);
        }
      } catch (NoSuchFileException absent) {
        throw new FileNotFoundException(path + " is not there");
      }
      return found.toArray(new FileStatus[0]);
    });
  }

  private void add(List<FileStatus> found, Path path, java.nio.file.Path file) throws IOException {
    try {
      BasicFileAttributes of = Files.readAttributes(file, BasicFileAttributes.class);
      long changedMs = of.lastModifiedTime().toMillis();
      found.add(new FileStatus(of.size(), of.isDirectory(), 1, 1, changedMs, reading.makeQualified(path)));
    } catch (NoSuchFileException gone) {
      // Between the two looks.
    }
  }

  /** Of Hadoop, in a checkpoint that was begun by it. */
  private static boolean isChecksum(String name) {
    return name.startsWith(".") && name.endsWith(".crc");
  }

  @Override
  public void mkdirs(Path path) {
    told(() -> Files.createDirectories(local(path)));
  }

  @Override
  public boolean exists(Path path) {
    return Files.exists(local(path));
  }

  @Override
  public void delete(Path path) {
    if (FailPoint.ON) FilePoint.DELETED.reached(local(path));
    told(() -> {
      try (Stream<java.nio.file.Path> files = Files.walk(local(path))) {
        for (java.nio.file.Path each : files.sorted(Comparator.reverseOrder()).toList()) Files.deleteIfExists(each);
      } catch (NoSuchFileException absent) {
        // As wanted.
      }
      return null;
    });
  }

  @Override
  public boolean isLocal() {
    return true;
  }

  @Override
  public Path createCheckpointDirectory() {
    mkdirs(root);
    return root;
  }

  private static java.nio.file.Path local(Path path) {
    return java.nio.file.Path.of(path.toUri().getPath());
  }

  private interface Action<T> {
    T run() throws IOException;
  }

  /** What Scala's methods throw is not declared, and they are expected to throw it as it is. */
  @SuppressWarnings("unchecked")
  private static <T, E extends Throwable> T told(Action<T> action) throws E {
    try {
      return action.run();
    } catch (IOException failure) {
      throw (E) failure;
    } catch (UncheckedIOException failure) {
      throw (E) failure.getCause();
    }
  }
}
