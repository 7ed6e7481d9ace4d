package millrace.kernel;

import java.nio.file.Path;

/** How far a file of a checkpoint has come, and which fail point that is: of offsets, commits and state. */
enum FilePoint {
  BEFORE(FailPoint.OFFSETS_BEFORE, FailPoint.COMMITS_BEFORE, FailPoint.STATE_BEFORE, null),
  WRITTEN(FailPoint.OFFSETS_WRITTEN, FailPoint.COMMITS_WRITTEN, FailPoint.STATE_WRITTEN, FailPoint.SNAPSHOT_WRITTEN),
  LINKED(null, FailPoint.COMMITS_LINKED, null, null),
  AFTER(FailPoint.OFFSETS_AFTER, FailPoint.COMMITS_AFTER, FailPoint.STATE_AFTER, FailPoint.SNAPSHOT_AFTER),
  DELETED(FailPoint.LOG_PURGE, FailPoint.LOG_PURGE, FailPoint.STATE_PURGE, FailPoint.STATE_PURGE);

  private final FailPoint offsets;
  private final FailPoint commits;
  private final FailPoint changes;
  private final FailPoint snapshot;

  FilePoint(FailPoint offsets, FailPoint commits, FailPoint changes, FailPoint snapshot) {
    this.offsets = offsets;
    this.commits = commits;
    this.changes = changes;
    this.snapshot = snapshot;
  }

  void reached(Path file) {
    FailPoint point = of(file);
    if (point != null) point.reached(file.toString());
  }

  private FailPoint of(Path file) {
    String name = file.getFileName().toString();
    String folder = file.getParent().getFileName().toString();
    if (folder.equals("offsets") && isNumber(name)) return offsets;
    if (folder.equals("commits") && isNumber(name)) return commits;
    if (name.endsWith(".changelog")) return changes;
    return name.endsWith(".zip") ? snapshot : null;
  }

  private static boolean isNumber(String name) {
    return !name.isEmpty() && name.chars().allMatch(Character::isDigit);
  }
}
