package millrace.bucket;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * A bucket of S3 as Hadoop's file systems are, as far as Spark needs that to read and write files of a lake: `s3://…`.
 *
 * Folders are the beginnings of keys: nothing makes one, and one is there as long as something is in it. A rename is a
 * copy of each object and not one step, which suffices here: files count when a commit of the table names them.
 */
public final class BucketFileSystem extends FileSystem {
  public static final String ENDPOINT = "millrace.s3.endpoint";
  public static final String REGION = "millrace.s3.region";
  public static final String PART_BYTES = "millrace.s3.part.bytes";
  public static final String COPY_BYTES = "millrace.s3.copy.bytes";
  private static final long BLOCK_BYTES = 128L << 20;
  // Of an object: what is larger goes in parts, of at least 5 MB each, and is copied in parts beyond 5 GB.
  private static final long USUAL_PART_BYTES = 32L << 20;
  private static final long MOST_COPIED_BYTES = 5L << 30;

  private URI uri;
  private Bucket bucket;
  private long partBytes;
  private long copyBytes;
  private Path working;

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setConf(conf);
    uri = URI.create(name.getScheme() + "://" + name.getAuthority());
    working = new Path(uri + "/");
    bucket = new Bucket(name.getAuthority(), conf.get(ENDPOINT), conf.get(REGION, "us-east-1"));
    partBytes = conf.getLong(PART_BYTES, USUAL_PART_BYTES);
    copyBytes = conf.getLong(COPY_BYTES, MOST_COPIED_BYTES);
  }

  @Override
  public String getScheme() {
    return "s3";
  }

  @Override
  public URI getUri() {
    return uri;
  }

  @Override
  public FSDataInputStream open(Path path, int bufferBytes) throws IOException {
    Bucket.Seen seen = bucket.head(key(path));
    if (seen == null) throw new FileNotFoundException("there is no " + path);
    return new FSDataInputStream(new BucketInput(bucket, key(path), seen.sizeBytes()));
  }

  @Override
  public FSDataOutputStream create(
      Path path, FsPermission permission, boolean overwrite, int bufferBytes, short replicas, long blockBytes, Progressable progress)
      throws IOException {
    if (!overwrite && bucket.head(key(path)) != null) throw new FileAlreadyExistsException(path + " is there already");
    return new FSDataOutputStream(new BucketOutput(bucket, key(path), partBytes), statistics);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferBytes, Progressable progress) {
    throw new UnsupportedOperationException("nothing is appended to objects of s3");
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    List<Listing.Entry> moved = below(from);
    Bucket.Seen seen = bucket.head(key(from));
    if (seen != null) moved.add(new Listing.Entry(key(from), seen));
    if (moved.isEmpty()) return false;
    for (Listing.Entry each : moved) {
      String named = key(to) + each.key().substring(key(from).length());
      bucket.copy(each.key(), named, each.seen().sizeBytes(), copyBytes);
    }
    for (Listing.Entry each : moved) bucket.delete(each.key());
    return true;
  }

  @Override
  public boolean delete(Path path, boolean recursive) throws IOException {
    List<Listing.Entry> found = below(path);
    if (!found.isEmpty() && !recursive) throw new IOException(path + " is not empty");
    boolean alone = bucket.head(key(path)) != null;
    if (alone) bucket.delete(key(path));
    for (Listing.Entry each : found) bucket.delete(each.key());
    return alone || !found.isEmpty();
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    List<FileStatus> found = new ArrayList<>();
    String next = null;
    do {
      Listing page = bucket.list(folderKey(path), true, next);
      for (Listing.Entry each : page.objects()) {
        if (!each.key().equals(folderKey(path))) found.add(file(at(each.key()), each.seen()));
      }
      for (String each : page.folders()) found.add(folder(at(each)));
      next = page.next();
    } while (next != null);
    if (!found.isEmpty()) return found.toArray(FileStatus[]::new);
    FileStatus itself = getFileStatus(path);
    return itself.isFile() ? new FileStatus[] {itself} : new FileStatus[0];
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    if (key(path).isEmpty()) return folder(path);
    Bucket.Seen seen = bucket.head(key(path));
    if (seen != null) return file(path, seen);
    Listing page = bucket.list(folderKey(path), true, null);
    if (page.objects().isEmpty() && page.folders().isEmpty()) throw new FileNotFoundException("there is no " + path);
    return folder(path);
  }

  @Override
  public boolean mkdirs(Path path, FsPermission permission) {
    return true;
  }

  @Override
  public void setWorkingDirectory(Path path) {
    working = path;
  }

  @Override
  public Path getWorkingDirectory() {
    return working;
  }

  private List<Listing.Entry> below(Path path) throws IOException {
    List<Listing.Entry> found = new ArrayList<>();
    String next = null;
    do {
      Listing page = bucket.list(folderKey(path), false, next);
      found.addAll(page.objects());
      next = page.next();
    } while (next != null);
    return found;
  }

  private FileStatus file(Path path, Bucket.Seen seen) {
    return new FileStatus(seen.sizeBytes(), false, 1, BLOCK_BYTES, seen.modifiedMs(), qualified(path));
  }

  private FileStatus folder(Path path) {
    return new FileStatus(0, true, 1, BLOCK_BYTES, 0, qualified(path));
  }

  private Path qualified(Path path) {
    return path.makeQualified(uri, working);
  }

  private Path at(String key) {
    return new Path(uri + "/" + (key.endsWith("/") ? key.substring(0, key.length() - 1) : key));
  }

  private String key(Path path) {
    String text = qualified(path).toUri().getPath();
    return text.startsWith("/") ? text.substring(1) : text;
  }

  private String folderKey(Path path) {
    return key(path).isEmpty() ? "" : key(path) + "/";
  }
}
