package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * A pattern as places at which a partial match waits for its next row (`flow/places.py` makes it). A place is of a kind
 * and looks at some flags of a row; `follow` says which places come after it, the preferred one first, MET if the
 * pattern is met then.
 */
record Pattern(int[] kinds, long[] masks, int[] variables, int[] first, int[][] follow) implements Serializable {
  /** Waits for a row that is its variable. */
  static final int ROW = 0;
  /** Waits for a row that is none of the absent. */
  static final int GAP = 1;
  /** Waits until the time is up; a row that is one of the absent ends it. */
  static final int GUARD = 2;
  static final int MET = -1;

  static Pattern of(JsonNode json) {
    JsonNode places = json.get("places");
    int count = places.size();
    Pattern pattern =
        new Pattern(new int[count], new long[count], new int[count], numbers(json.get("first")), new int[count][]);
    for (int place = 0; place < count; place++) {
      pattern.kinds[place] = places.get(place).get(0).asInt();
      pattern.masks[place] = places.get(place).get(1).asLong();
      pattern.variables[place] = places.get(place).get(2).asInt();
      pattern.follow[place] = numbers(json.get("follow").get(place));
    }
    return pattern;
  }

  /** Whether a partial match that waits here goes on with such a row. */
  boolean takes(int place, long flags) {
    return ((flags & masks[place]) == 0) != (kinds[place] == ROW);
  }

  boolean isGuard(int place) {
    return kinds[place] == GUARD;
  }

  private static int[] numbers(JsonNode array) {
    int[] found = new int[array.size()];
    for (int place = 0; place < found.length; place++) found[place] = array.get(place).asInt();
    return found;
  }
}
