package millrace.kernel;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;

/** Of each topic the columns that nobody asks for. One task's records mostly are of the topic that the last one had. */
final class LeftOut implements Serializable {
  /** One topic's. `shapes` are the lists of columns that its rows are known to have; without any, they may be any. */
  static final class Columns implements Serializable {
    static final Columns NONE = new Columns(List.of(), List.of());

    final HashSet<String> names;
    private final HashSet<List<String>> shapes = new HashSet<>();

    Columns(List<String> names, List<List<String>> shapes) {
      this.names = new HashSet<>(names);
      for (List<String> shape : shapes) this.shapes.add(new ArrayList<>(shape));
    }

    boolean know(List<String> shape) {
      return shapes.isEmpty() || shapes.contains(shape);
    }
  }

  private final HashMap<String, Columns> byTopic = new HashMap<>();
  private transient byte[] lastTopic;
  private transient Columns last;

  LeftOut(Map<String, List<String>> names, Map<String, List<List<String>>> shapes) {
    names.forEach((topic, own) -> byTopic.put(topic, new Columns(own, shapes.getOrDefault(topic, List.of()))));
  }

  Columns of(RecordKey key) {
    if (byTopic.isEmpty() || key.getTopic() == null) return Columns.NONE;
    if (last == null || !Arrays.equals(lastTopic, key.getTopic())) {
      lastTopic = key.getTopic();
      last = byTopic.getOrDefault(new String(lastTopic, StandardCharsets.UTF_8), Columns.NONE);
    }
    return last;
  }
}
