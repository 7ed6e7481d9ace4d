package millrace.kernel;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

/** Of each topic the columns that nobody asks for. One task's records mostly are of the topic that the last one had. */
final class LeftOut implements Serializable {
  private final HashMap<String, HashSet<String>> byTopic = new HashMap<>();
  private transient byte[] lastTopic;
  private transient Set<String> last;

  LeftOut(Map<String, List<String>> given) {
    given.forEach((topic, columns) -> byTopic.put(topic, new HashSet<>(columns)));
  }

  Set<String> of(RecordKey key) {
    if (byTopic.isEmpty() || key.getTopic() == null) return Set.of();
    if (last == null || !Arrays.equals(lastTopic, key.getTopic())) {
      lastTopic = key.getTopic();
      HashSet<String> found = byTopic.get(new String(lastTopic, StandardCharsets.UTF_8));
      last = found == null ? Set.of() : found;
    }
    return last;
  }
}
