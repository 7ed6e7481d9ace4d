package millrace.testing;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * A log in a folder: for each topic a folder with a file of JSON lines a partition, one line a record, and `ends.json`,
 * which says how many of each count. `testing/folder.py` is the same from Python.
 *
 * What holds: what was appended together becomes visible together, when `ends.json` gets its new content.
 */
final class LogFolder {
  static final ObjectMapper JSON = new ObjectMapper();

  /** Appends of all queries of this process, one after the other. */
  private static final Object APPENDING = new Object();

  private final Path root;

  LogFolder(String root) {
    this.root = Path.of(root);
  }

  Map<Integer, Long> ends(String topic) {
    try {
      Map<Integer, Long> ends = JSON.readValue(root.resolve(topic).resolve("ends.json").toFile(), new TypeReference<>() {});
      return new TreeMap<>(ends);
    } catch (IOException error) {
      throw new IllegalStateException("there is no topic " + topic, error);
    }
  }

  /** The lines of a partition from one offset on, and before another. */
  List<String> lines(String topic, int partition, long from, long to) throws IOException {
    List<String> found = new ArrayList<>();
    if (from >= to) return found;
    try (BufferedReader reader = Files.newBufferedReader(file(topic, partition))) {
      for (long offset = 0; offset < to; offset++) {
        String line = reader.readLine();
        if (offset >= from) found.add(line);
      }
    }
    return found;
  }

  /** Appends records, each to the partition of its key; without a key, to each in turn. */
  void append(List<LogLine> records, long nowMs) {
    synchronized (APPENDING) {
      Map<String, List<LogLine>> byTopic = new TreeMap<>();
      for (LogLine record : records) byTopic.computeIfAbsent(record.topic(), unused -> new ArrayList<>()).add(record);
      byTopic.forEach((topic, all) -> append(topic, all, nowMs));
    }
  }

  private void append(String topic, List<LogLine> records, long nowMs) {
    Map<Integer, Long> ends = ends(topic);
    Map<Integer, StringBuilder> added = new TreeMap<>();
    long turn = ends.values().stream().mapToLong(Long::longValue).sum();
    for (LogLine record : records) {
      byte[] key = record.key();
      int partition = (int) ((key == null ? turn++ : Arrays.hashCode(key) & Integer.MAX_VALUE) % ends.size());
      added.computeIfAbsent(partition, unused -> new StringBuilder()).append(line(record, nowMs)).append('\n');
      ends.merge(partition, 1L, Long::sum);
    }
    try {
      for (Map.Entry<Integer, StringBuilder> each : added.entrySet()) {
        String text = each.getValue().toString();
        Files.writeString(
            file(topic, each.getKey()), text, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
      }
      Path draft = root.resolve(topic).resolve("ends.new");
      Files.write(draft, JSON.writeValueAsBytes(ends));
      Files.move(draft, draft.resolveSibling("ends.json"), StandardCopyOption.ATOMIC_MOVE);
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }

  private static String line(LogLine record, long nowMs) {
    ObjectNode line = JSON.createObjectNode().put("time", nowMs);
    line.put("key", record.key());
    line.put("value", record.value());
    ArrayNode headers = line.putArray("headers");
    for (LogLine.Header header : record.headers()) headers.addArray().add(header.name()).add(header.value());
    return line.toString();
  }

  private Path file(String topic, int partition) {
    return root.resolve(topic).resolve(partition + ".jsonl");
  }

  /** The fault that a test has put in the way of all writes, if any. */
  String fault() {
    try {
      return Files.readString(root.resolve("fault"));
    } catch (NoSuchFileException none) {
      return "";
    } catch (IOException error) {
      throw new IllegalStateException(error);
    }
  }
}
