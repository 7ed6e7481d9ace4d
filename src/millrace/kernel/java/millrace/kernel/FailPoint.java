package millrace.kernel;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Named places at which a test stops a process, to kill it, or a server, right there (`tests/crash`). Those of Python are
 * in `failpoint.py`, by the same rule: the variable TESTS_FAIL_POINTS names a folder, and in it a file called like the
 * point says who is to stop there ("copied", a part of the name that the place gives) and how many pass before. Whoever
 * comes writes NAME.reached and goes on when that is gone. Without the variable, which nobody else sets, a place is one
 * look at a constant; without the file nobody stops.
 *
 * Within one process, tests of deliveries use properties: `millrace.fail.point` throws at that place, and
 * `millrace.fail.pause` holds whoever comes there, and says so in `millrace.fail.paused`, for as long as it is set.
 */
public enum FailPoint {
  OFFSETS_BEFORE,
  OFFSETS_WRITTEN,
  OFFSETS_AFTER,
  COMMITS_BEFORE,
  COMMITS_WRITTEN,
  COMMITS_LINKED,
  COMMITS_AFTER,
  STATE_BEFORE,
  STATE_WRITTEN,
  STATE_AFTER,
  SNAPSHOT_WRITTEN,
  SNAPSHOT_AFTER,
  LOG_PURGE,
  STATE_PURGE,
  TASK_ROW,
  TASK_WRITTEN,
  BEFORE_FENCE,
  BEFORE_PREPARE,
  AFTER_PREPARE,
  AFTER_SOME_COMMITS,
  AFTER_ALL_COMMITS,
  AFTER_DELIVERED;

  private static final String FOLDER = System.getenv("TESTS_FAIL_POINTS");
  private static final long LOOK_MS = 5;
  private static final Map<FailPoint, Integer> PASSED = new ConcurrentHashMap<>();

  /** Whether a test is there at all: for places that are passed often. */
  public static final boolean ON = FOLDER != null;

  /** Whether whoever comes here will be stopped. */
  public boolean awaited(String who) {
    return isArmed(who) || name().equals(System.getProperty("millrace.fail.point"));
  }

  public void reached(String who) {
    if (isArmed(who)) stop(who);
    while (System.getProperty("millrace.fail.pause", "").contains(name())) pause("millrace.fail.paused");
    if (name().equals(System.getProperty("millrace.fail.point"))) {
      throw new IllegalStateException("a test stops here: " + name());
    }
  }

  private Path file(String ending) {
    return Path.of(FOLDER, name() + ending);
  }

  private boolean isArmed(String who) {
    if (!ON || !Files.exists(file(""))) return false;
    try {
      return who.contains(Files.readString(file("")).split("\n")[0]);
    } catch (IOException another) {
      return false; // was quicker
    }
  }

  private void stop(String who) {
    try {
      int before = Integer.parseInt(Files.readString(file("")).split("\n")[1]);
      if (PASSED.merge(this, 1, Integer::sum) <= before) return;
      Files.move(file(""), file(".taken"), StandardCopyOption.ATOMIC_MOVE);
      Files.writeString(file(".new"), ProcessHandle.current().pid() + "\n" + who);
      Files.move(file(".new"), file(".reached"), StandardCopyOption.ATOMIC_MOVE);
    } catch (NoSuchFileException another) {
      return; // was quicker
    } catch (IOException failure) {
      throw new UncheckedIOException(failure);
    }
    while (Files.exists(file(".reached"))) pause(null);
    PASSED.remove(this);
  }

  private void pause(String property) {
    if (property != null) System.setProperty(property, name());
    try {
      Thread.sleep(LOOK_MS);
    } catch (InterruptedException stopped) {
      throw new IllegalStateException(stopped);
    }
  }
}
