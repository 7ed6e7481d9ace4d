package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * What `top` is told. `windowed`: a key's rows belong to a window, which ends; `closed`: they come when it has, all in
 * one epoch. `updates`: changes are told as signed rows, otherwise the best when the window has closed. `replacing`: a
 * row takes the place of the one with the same `of`, the later one if they are `timed`. `ttlUs`: how long after its
 * time a row counts; 0 is for ever.
 */
record TopSettings(
    int n, int keys, boolean windowed, boolean closed, boolean updates, boolean replacing, boolean timed, long graceUs,
    long ttlUs) implements Serializable {
  /** How exact the time to live is: a row ends with the part of it in which it would. */
  private static final int PARTS = 16;

  TopSettings(JsonNode told) {
    this(
        told.get("n").asInt(), told.get("keys").asInt(), told.get("windowed").asBoolean(),
        told.get("closed").asBoolean(), told.get("updates").asBoolean(), told.get("replacing").asBoolean(),
        told.get("timed").asBoolean(), told.get("graceUs").asLong(), told.get("ttlUs").asLong());
  }

  boolean ends() {
    return windowed || ttlUs > 0;
  }

  /** When a row of this time no longer counts. */
  long overUs(long timeUs) {
    long partUs = Math.max(1, ttlUs / 1_000 / PARTS) * 1_000;
    return -Math.floorDiv(-(timeUs + ttlUs), partUs) * partUs;
  }

  /** How many rows are held in order. Those behind the best take the place of best ones that fall. */
  int held() {
    return replacing ? 2 * n + 100 : n;
  }
}
