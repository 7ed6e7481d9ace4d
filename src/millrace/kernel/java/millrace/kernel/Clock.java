package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.fs.Path;

/**
 * How far event time has come in one source of a query, worked out on the driver at each epoch's end; its twin is
 * `model/clock.py`.
 *
 * What holds: the watermark is the least over the partitions of their greatest times, less the lag, and never goes
 * back. A partition that was read to its end and has been silent for the idle time is not waited for; when none is left
 * to wait for, everything was heard, and the greatest counts. A partition of which nothing is known yet is waited for.
 * Each epoch's state is kept beside the checkpoint, so that one that is done again begins where it first began.
 */
final class Clock {
  /** The name of the observation's field with what was seen. */
  static final String SEEN = "seen";

  private static final ObjectMapper JSON = new ObjectMapper();

  private static final class Partition {
    Long greatestUs;
    long heardMs;
  }

  private final JsonNode settings;
  private final Path folder;
  private EpochFiles files;
  private final Map<Integer, Partition> partitions = new TreeMap<>();
  private final Reach reach;
  private boolean waits = true;
  private Delays delays = new Delays();
  private Long watermarkMs;
  private Long epoch;

  /** `reach` is null for a source that is no topic: its partitions are those of its rows, and always read to the end. */
  Clock(String text, Reach reach) {
    this.reach = reach;
    try {
      settings = JSON.readTree(text);
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    folder = settings.hasNonNull("folder") ? new Path(settings.get("folder").asText()) : null;
  }

  /** Where other things are kept that go with epochs; null if nothing is. */
  Path beside(String name) {
    return folder == null ? null : new Path(folder.getParent(), name);
  }

  Long watermarkMs() {
    return watermarkMs;
  }

  /** Takes in what an epoch saw. */
  void advance(long number, String seen) {
    try {
      if (epoch == null || number != epoch + 1) load(number - 1);
      epoch = number;
      take(JSON.readTree(seen), now());
      move(now(), true);
      keep();
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Some more time has passed without an epoch. */
  void tick() {
    if (epoch != null) move(now(), false);
  }

  private long now() {
    return Times.now(settings.path("time").asText(null));
  }

  private void take(JsonNode seen, long nowMs) {
    Map<Integer, Long> more = new TreeMap<>();
    seen.fields().forEachRemaining(each -> {
      Partition partition = partitions.computeIfAbsent(Integer.parseInt(each.getKey()), unused -> new Partition());
      JsonNode greatest = each.getValue().get(0);
      partition.heardMs = nowMs;
      if (greatest.isNull()) return;
      long before = partition.greatestUs == null ? Long.MIN_VALUE : partition.greatestUs;
      partition.greatestUs = Math.max(greatest.asLong(), before);
      counts(each.getValue().get(1)).forEach((bucket, count) -> more.merge(bucket, count, Long::sum));
    });
    delays.add(more);
  }

  /** Whether a partition is still waited for; one that nobody has heard of yet is known from now on. */
  private Map<Integer, Boolean> awaited(long nowMs, boolean atEpochEnd) {
    boolean once = settings.path("once").asBoolean();
    Map<Integer, Boolean> ended = reach == null ? Map.of() : reach.ended(atEpochEnd);
    for (int number : ended.keySet()) {
      Partition partition = partitions.computeIfAbsent(number, unused -> new Partition());
      // A run that reads what is there and stops does not wait for the first record of a partition that has none.
      if (partition.heardMs == 0 && !once) partition.heardMs = nowMs;
    }
    Map<Integer, Boolean> awaited = new TreeMap<>();
    partitions.forEach((number, partition) -> {
      boolean silent = nowMs - partition.heardMs >= settings.get("idleMs").asLong();
      awaited.put(number, !(silent && ended.getOrDefault(number, reach == null)));
    });
    return awaited;
  }

  /** Whether anything of this source is waited for: if not, event time may go on without it. */
  boolean waits() {
    return waits;
  }

  private void move(long nowMs, boolean atEpochEnd) {
    Map<Integer, Boolean> awaited = awaited(nowMs, atEpochEnd);
    waits = awaited.isEmpty() || awaited.containsValue(true);
    Long least = null;
    Long most = null;
    boolean unknown = false;
    for (Map.Entry<Integer, Partition> each : partitions.entrySet()) {
      Partition partition = each.getValue();
      boolean idle = !awaited.get(each.getKey());
      if (!idle && partition.greatestUs == null) unknown = true;
      if (partition.greatestUs == null) continue;
      most = most == null ? partition.greatestUs : Math.max(most, partition.greatestUs);
      if (!idle) least = least == null ? partition.greatestUs : Math.min(least, partition.greatestUs);
    }
    Long reached = least == null ? most : least;
    if (unknown || reached == null) return;
    long candidate = Math.floorDiv(reached, 1_000L) - lagMs();
    // Spark takes zero for "no event yet".
    if (candidate > 0 && (watermarkMs == null || candidate > watermarkMs)) watermarkMs = candidate;
  }

  /** Fixed, or as the events' delays of late ask for, within bounds. */
  private long lagMs() {
    if (!settings.hasNonNull("quantile")) return settings.get("lagMs").asLong();
    long most = settings.get("mostMs").asLong();
    Long delay = delays.quantileMs(settings.get("quantile").asDouble());
    if (delay == null) return most;
    return Math.min(most, Math.max(settings.get("leastMs").asLong(), delay + settings.get("marginMs").asLong()));
  }

  private static Map<Integer, Long> counts(JsonNode node) {
    Map<Integer, Long> found = new TreeMap<>();
    node.fields().forEachRemaining(each -> found.put(Integer.parseInt(each.getKey()), each.getValue().asLong()));
    return found;
  }

  private void keep() throws IOException {
    if (folder == null) return;
    ObjectNode state = JSON.createObjectNode().put("watermarkMs", watermarkMs).put("lagMs", lagMs());
    ObjectNode parts = state.putObject("partitions");
    partitions.forEach((number, each) -> parts.putArray(String.valueOf(number)).add(each.greatestUs).add(each.heardMs));
    ObjectNode counted = state.putObject("delays");
    delays.counts().forEach((bucket, count) -> counted.put(String.valueOf(bucket), count));
    files().keep(epoch, JSON.writeValueAsBytes(state));
  }

  /** The state after this epoch; after the last one before it, if it did not go through here. */
  private void load(long number) throws IOException {
    partitions.clear();
    delays = new Delays();
    watermarkMs = null;
    if (folder == null) return;
    long last = files().last(number);
    if (last < 0) return;
    JsonNode state = JSON.readTree(files().kept(last));
    watermarkMs = state.hasNonNull("watermarkMs") ? state.get("watermarkMs").asLong() : null;
    delays.add(counts(state.get("delays")));
    state.get("partitions").fields().forEachRemaining(each -> {
      Partition partition = new Partition();
      JsonNode greatest = each.getValue().get(0);
      partition.greatestUs = greatest.isNull() ? null : greatest.asLong();
      partition.heardMs = each.getValue().get(1).asLong();
      partitions.put(Integer.parseInt(each.getKey()), partition);
    });
  }

  private EpochFiles files() {
    if (files == null) files = new EpochFiles(folder);
    return files;
  }
}
