package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;

/**
 * What a join is told. Of several streams the first is in the middle: a row of another one fits from its `firstUs` to
 * its `lastUs` after one of the first, both included. (Those of the first stream itself are zeros.)
 */
record JoinSettings(int keys, long[] firstUs, long[] lastUs, int mostInline, int mostTogether) implements Serializable {
  JoinSettings(JsonNode told) {
    this(
        told.get("keys").asInt(), numbers(told.get("firstUs")), numbers(told.get("lastUs")),
        told.get("mostInline").asInt(), told.get("mostTogether").asInt());
  }

  int streams() {
    return firstUs.length;
  }

  /** The last time of a row, of whatever stream, that can still make something new of this one. */
  long untilUs(int stream, long timeUs) {
    if (stream == 0) return timeUs + lastOfOthersUs(0);
    long middleUs = timeUs - firstUs[stream];
    return streams() == 2 ? middleUs : middleUs + Math.max(0, lastOfOthersUs(stream));
  }

  /** For how long the row that counts longest does. */
  long rememberedUs() {
    long most = 0;
    for (int stream = 0; stream < streams(); stream++) most = Math.max(most, untilUs(stream, 0));
    return most;
  }

  /** By how much a row of what is told may be behind the watermark under which it is told. */
  long behindUs() {
    long most = 0;
    for (int stream = 1; stream < streams(); stream++) {
      most = Math.max(most, Math.max(lastUs[stream], -firstUs[stream]));
      for (int other = 1; other < streams(); other++) {
        if (other != stream) most = Math.max(most, lastUs[stream] - firstUs[other]);
      }
    }
    return most;
  }

  private long lastOfOthersUs(int stream) {
    long last = Long.MIN_VALUE;
    for (int other = 1; other < streams(); other++) if (other != stream) last = Math.max(last, lastUs[other]);
    return last;
  }

  private static long[] numbers(JsonNode array) {
    long[] found = new long[array.size()];
    for (int place = 0; place < found.length; place++) found[place] = array.get(place).asLong();
    return found;
  }
}
