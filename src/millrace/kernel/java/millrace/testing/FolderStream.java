package millrace.testing;

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/** One topic of a log in a folder, read as a stream or as a batch. */
final class FolderStream implements Batch, MicroBatchStream, SupportsTriggerAvailableNow {
  private final String folder;
  private final String topic;
  private final CaseInsensitiveStringMap options;
  private Places end;

  FolderStream(CaseInsensitiveStringMap options) {
    folder = options.get("folder");
    topic = options.get("subscribe");
    this.options = options;
  }

  /** Offsets as Kafka's source writes them: {"topic":{"0":17}}. */
  private static final class Places extends Offset {
    final String topic;
    final Map<Integer, Long> offsets;

    Places(String topic, Map<Integer, Long> offsets) {
      this.topic = topic;
      this.offsets = offsets;
    }

    @Override
    public String json() {
      return LogFolder.JSON.valueToTree(Map.of(topic, offsets)).toString();
    }
  }

  private record Split(String folder, String topic, int partition, long from, long to, boolean headers)
      implements InputPartition {}

  private Places told(String option, String fallback) {
    String given = options.getOrDefault(option, fallback);
    Map<Integer, Long> ends = new LogFolder(folder).ends(topic);
    if (given.equals("latest")) return new Places(topic, ends);
    if (given.equals("earliest")) {
      ends.replaceAll((partition, unused) -> 0L);
      return new Places(topic, ends);
    }
    return (Places) deserializeOffset(given);
  }

  @Override
  public Offset initialOffset() {
    return told("startingOffsets", "earliest");
  }

  @Override
  public Offset deserializeOffset(String json) {
    try {
      Map<String, TreeMap<Integer, Long>> told = LogFolder.JSON.readValue(json, new TypeReference<>() {});
      return new Places(topic, told.get(topic));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a limit");
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    String most = options.get("maxOffsetsPerTrigger");
    return most == null ? ReadLimit.allAvailable() : ReadLimit.maxRows(Long.parseLong(most));
  }

  /** Up to the limit, the partitions one after the other. */
  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Places latest = end == null ? told("endingOffsets", "latest") : end;
    if (!(limit instanceof ReadMaxRows most)) return latest;
    long left = most.maxRows();
    Map<Integer, Long> reached = new TreeMap<>(((Places) start).offsets);
    for (Map.Entry<Integer, Long> each : latest.offsets.entrySet()) {
      long from = reached.getOrDefault(each.getKey(), 0L);
      long to = Math.min(each.getValue(), from + left);
      left -= Math.max(0, to - from);
      reached.put(each.getKey(), Math.max(from, to));
    }
    return new Places(topic, reached);
  }

  @Override
  public Offset reportLatestOffset() {
    return told("endingOffsets", "latest");
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    end = told("endingOffsets", "latest");
  }

  @Override
  public InputPartition[] planInputPartitions() {
    return planInputPartitions(initialOffset(), told("endingOffsets", "latest"));
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    boolean headers = options.getBoolean("includeHeaders", false);
    Map<Integer, Long> begin = ((Places) start).offsets;
    List<Split> splits = new ArrayList<>();
    ((Places) end).offsets.forEach((partition, to) -> {
      long from = Math.max(0, begin.getOrDefault(partition, 0L));
      if (from < to) splits.add(new Split(folder, topic, partition, from, to, headers));
    });
    return splits.toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return split -> new Reader((Split) split);
  }

  /** What Spark calls it in its reports. */
  @Override
  public String toString() {
    return "FolderLog[" + topic + "]";
  }

  @Override
  public void commit(Offset offset) {}

  @Override
  public void stop() {}

  private static final class Reader implements PartitionReader<InternalRow> {
    private final Split split;
    private final List<String> lines;
    private int place = -1;

    Reader(Split split) {
      this.split = split;
      try {
        lines = new LogFolder(split.folder()).lines(split.topic(), split.partition(), split.from(), split.to());
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    @Override
    public boolean next() {
      return ++place < lines.size();
    }

    @Override
    public InternalRow get() {
      JsonNode line;
      try {
        line = LogFolder.JSON.readTree(lines.get(place));
        List<Object> row = new ArrayList<>();
        row.add(line.path("key").binaryValue());
        row.add(line.path("value").binaryValue());
        row.add(UTF8String.fromString(split.topic()));
        row.add(split.partition());
        row.add(split.from() + place);
        row.add(line.get("time").asLong() * 1_000);
        row.add(0);
        if (split.headers()) row.add(headers(line.path("headers")));
        return new GenericInternalRow(row.toArray());
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }

    private static Object headers(JsonNode told) throws IOException {
      if (told.isEmpty()) return null;
      List<Object> headers = new ArrayList<>();
      for (JsonNode each : told) {
        UTF8String name = UTF8String.fromString(each.get(0).asText());
        headers.add(new GenericInternalRow(new Object[] {name, each.get(1).binaryValue()}));
      }
      return new GenericArrayData(headers.toArray());
    }

    @Override
    public void close() {}
  }
}
