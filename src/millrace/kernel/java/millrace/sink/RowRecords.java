package millrace.sink;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.BinaryType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;

/** Rows as records, by the columns of Spark's Kafka sink: `value`, and `key`, `topic`, `partition`, `headers`. */
final class RowRecords implements Serializable {
  private final String topic;
  private final int key;
  private final int value;
  private final int topicColumn;
  private final int partition;
  private final int headers;
  private final boolean keyIsText;
  private final boolean valueIsText;

  RowRecords(StructType schema, String topic) {
    this.topic = topic;
    key = place(schema, "key");
    value = place(schema, "value");
    topicColumn = place(schema, "topic");
    partition = place(schema, "partition");
    headers = place(schema, "headers");
    if (value < 0) throw new IllegalArgumentException("records need a column `value`");
    if (topic == null && topicColumn < 0) throw new IllegalArgumentException("records need a topic");
    if (partition >= 0 && !(schema.apply(partition).dataType() instanceof IntegerType)) {
      throw new IllegalArgumentException("the column `partition` has to be an integer");
    }
    keyIsText = key >= 0 && isText(schema, key);
    valueIsText = isText(schema, value);
  }

  private static int place(StructType schema, String name) {
    return List.of(schema.fieldNames()).indexOf(name);
  }

  private static boolean isText(StructType schema, int place) {
    DataType type = schema.apply(place).dataType();
    if (type instanceof StringType) return true;
    if (type instanceof BinaryType) return false;
    throw new IllegalArgumentException("the column `" + schema.apply(place).name() + "` has to be text or bytes");
  }

  ProducerRecord<byte[], byte[]> of(InternalRow row) {
    String to = topic != null ? topic : row.isNullAt(topicColumn) ? null : row.getUTF8String(topicColumn).toString();
    if (to == null) throw new IllegalArgumentException("a record has no topic");
    Integer number = partition < 0 || row.isNullAt(partition) ? null : row.getInt(partition);
    return new ProducerRecord<>(to, number, bytes(row, key, keyIsText), bytes(row, value, valueIsText), headers(row));
  }

  private static byte[] bytes(InternalRow row, int place, boolean text) {
    if (place < 0 || row.isNullAt(place)) return null;
    return text ? row.getUTF8String(place).getBytes() : row.getBinary(place);
  }

  private List<Header> headers(InternalRow row) {
    if (headers < 0 || row.isNullAt(headers)) return null;
    ArrayData all = row.getArray(headers);
    List<Header> found = new ArrayList<>(all.numElements());
    for (int number = 0; number < all.numElements(); number++) {
      InternalRow header = all.getStruct(number, 2);
      found.add(new RecordHeader(header.getUTF8String(0).toString(), header.isNullAt(1) ? null : header.getBinary(1)));
    }
    return found;
  }
}
