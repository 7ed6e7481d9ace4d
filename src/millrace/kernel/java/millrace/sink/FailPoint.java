package millrace.sink;

/**
 * Named places at which a test lets the process end as kill -9 would, or an epoch fail. Nobody else sets them:
 * TESTS_FAIL_POINT in the environment ends the process, the property `millrace.fail.point` throws.
 */
enum FailPoint {
  BEFORE_PREPARE,
  AFTER_PREPARE,
  AFTER_SOME_COMMITS,
  AFTER_ALL_COMMITS;

  private static final String KILLED = System.getenv("TESTS_FAIL_POINT");
  private static final int KILL_CODE = 137;

  boolean awaited() {
    return name().equals(KILLED) || name().equals(System.getProperty("millrace.fail.point"));
  }

  void reached() {
    if (name().equals(KILLED)) Runtime.getRuntime().halt(KILL_CODE);
    if (awaited()) throw new IllegalStateException("a test stops here: " + name());
  }
}
