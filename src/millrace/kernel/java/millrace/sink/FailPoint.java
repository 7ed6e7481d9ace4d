package millrace.sink;

/**
 * Named places at which a test lets the process end as kill -9 would, an epoch fail, or a driver pause. Nobody else sets
 * them: TESTS_FAIL_POINT in the environment ends the process, the property `millrace.fail.point` throws, and
 * `millrace.fail.pause` holds whoever comes there, and says so in `millrace.fail.paused`, for as long as it is set.
 */
enum FailPoint {
  BEFORE_FENCE,
  BEFORE_PREPARE,
  AFTER_PREPARE,
  AFTER_SOME_COMMITS,
  AFTER_ALL_COMMITS;

  private static final String KILLED = System.getenv("TESTS_FAIL_POINT");
  private static final int KILL_CODE = 137;
  private static final long LOOK_MS = 5;

  boolean awaited() {
    return name().equals(KILLED) || name().equals(System.getProperty("millrace.fail.point"));
  }

  void reached() {
    if (name().equals(KILLED)) Runtime.getRuntime().halt(KILL_CODE);
    while (System.getProperty("millrace.fail.pause", "").contains(name())) pause();
    if (awaited()) throw new IllegalStateException("a test stops here: " + name());
  }

  private void pause() {
    System.setProperty("millrace.fail.paused", name());
    try {
      Thread.sleep(LOOK_MS);
    } catch (InterruptedException stopped) {
      throw new IllegalStateException(stopped);
    }
  }
}
