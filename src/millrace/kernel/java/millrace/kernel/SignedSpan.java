package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of a table that are in by the time that is: from µs to µs, which each row comes with. Rows are spread over a
 * few keys, and each of them is told every time (`side` TIME), so that rows come and go when no row does.
 *
 * What holds: after a call, the rows told add up to those that are in at the greatest time told so far. A key keeps this
 * time, and of the rows those that are still to come or to go, in the order in which they are due: what happens next
 * reads the first nodes, and whatever was due while nobody ran is due at once. A row that is over is not kept: it cannot
 * come again, because time never goes back here.
 *
 * Spark's own timers are not used: by the clock, a query with them never rests (SPARK-50180), and a watermark moves with
 * rows alone. And the time is the view's own, told with it, and the same when an epoch is done again.
 */
final class SignedSpan extends SignedStep {
  private static final int FORM = 1;
  private static final int TIME = 1;
  private static final int PARTS = 3;

  private final int tag;
  private transient ValueState<byte[]> held;
  private transient MapState<Long, byte[]> nodes;

  SignedSpan(String settings, JsonNode told) {
    super(settings);
    tag = told.get("tag").asInt();
  }

  /** A row that comes or goes at `dueUs`; when it goes, that is `untilUs`. In the order of what is due. */
  private record Due(long dueUs, long untilUs, byte[] row) {
    static Due of(byte[] bytes) {
      ByteBuffer in = ByteBuffer.wrap(bytes);
      long dueUs = in.getLong() ^ Long.MIN_VALUE;
      long untilUs = in.getLong();
      byte[] row = new byte[in.remaining()];
      in.get(row);
      return new Due(dueUs, untilUs, row);
    }

    byte[] bytes() {
      return ByteBuffer.allocate(2 * Long.BYTES + row.length)
          .putLong(dueUs ^ Long.MIN_VALUE).putLong(untilUs).put(row).array();
    }

    boolean goes() {
      return dueUs == untilUs;
    }
  }

  /** What a key keeps. */
  private static final class Waiting {
    final Multiset due;
    long nowUs = Long.MIN_VALUE;

    Waiting(byte[] held, History.Nodes nodes) {
      due = new Multiset(nodes);
      if (held == null) return;
      Stored.read(held, FORM, (in, form) -> {
        nowUs = in.readLong();
        due.restore(in);
        return null;
      });
    }

    byte[] written() {
      return Stored.write(FORM, out -> {
        out.writeLong(nowUs);
        due.write(out);
      });
    }

    /** What happens to so many rows that are in from one µs to the other. */
    void add(long sinceUs, long untilUs, byte[] row, long diff, Net told) {
      if (nowUs >= untilUs) return;
      if (nowUs < sinceUs) {
        due.add(new Due(sinceUs, untilUs, row).bytes(), diff);
        return;
      }
      told.add(row, diff);
      if (untilUs != Long.MAX_VALUE) due.add(new Due(untilUs, untilUs, row).bytes(), diff);
    }

    void advance(long toUs, Net told) {
      if (toUs <= nowUs) return;
      nowUs = toUs;
      while (due.size() > 0) {
        byte[] first = due.first();
        Due next = Due.of(first);
        if (next.dueUs() > nowUs) return;
        long count = due.firstCount();
        due.add(first, -count);
        if (next.goes()) told.add(next.row(), -count);
        else add(next.dueUs(), next.untilUs(), next.row(), count, told);
      }
    }
  }

  @Override
  public void init(OutputMode mode, TimeMode time) {
    held = getHandle().getValueState("due", BoundOnce.BYTES, TTLConfig.NONE());
    nodes = getHandle().getMapState("nodes", BoundOnce.LONG, BoundOnce.BYTES, TTLConfig.NONE());
  }

  /** For people: see Kept. */
  static void show(JsonNode json, byte[] held, Map<Long, byte[]> nodes, ObjectNode out) {
    Waiting waiting = new Waiting(held, History.Nodes.read(nodes));
    out.put("now", waiting.nowUs).put("rows", waiting.due.size());
    if (waiting.due.size() == 0) return;
    Due next = Due.of(waiting.due.first());
    out.put("next", next.dueUs()).put("goes", next.goes()).put("row", Kept.row(next.row(), json.get("schema").toString()));
  }

  @Override
  Iterator<Row> own(byte[] key, Iterator<Row> rows) {
    Net net = new Net();
    UnsafeRow time = new UnsafeRow(1);
    long nowUs = Long.MIN_VALUE;
    while (rows.hasNext()) {
      Row row = rows.next();
      byte[] bytes = row(row);
      if (side(row) == TIME) {
        time.pointTo(bytes, bytes.length);
        nowUs = Math.max(nowUs, time.getLong(0));
      } else {
        net.add(bytes, diff(row));
      }
    }
    Waiting waiting = new Waiting(held.get(), History.Nodes.in(nodes));
    Net told = new Net();
    waiting.advance(nowUs, told);
    if (waiting.nowUs == Long.MIN_VALUE) throw new IllegalStateException("rows of a span before any time");
    UnsafeRow parts = new UnsafeRow(PARTS);
    net.each((bytes, diff) -> {
      parts.pointTo(bytes, bytes.length);
      waiting.add(parts.getLong(0), parts.getLong(1), parts.getBinary(2), diff, told);
    });
    held.update(waiting.written());
    List<Row> out = new ArrayList<>();
    told.each((row, diff) -> out.add(told(tag, row, diff)));
    return CollectionConverters.asScala(out.iterator());
  }
}
