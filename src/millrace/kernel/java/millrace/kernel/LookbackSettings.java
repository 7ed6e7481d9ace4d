package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.Serializable;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/**
 * What is asked for each event. In the rows that come, `time` stands behind the key's columns (`keys` many), then the
 * event's whole `row`, then the slots. `closed`: they are windows' results, whose time is when their window ended; they
 * come in the epoch whose watermark reached it, and none is late.
 */
record LookbackSettings(
    int keys, HistoryShape shape, Question[] questions, long longestUs, long graceUs, boolean closed, StructType event)
    implements Serializable {
  /** A measure over the events since so long before each. */
  record Question(int measure, long overUs) implements Serializable {}

  static LookbackSettings of(JsonNode json, StructType rows) {
    JsonNode types = json.get("slots");
    DataType[] slots = new DataType[types.size()];
    Carrier[] carriers = new Carrier[slots.length];
    for (int place = 0; place < slots.length; place++) {
      slots[place] = DataType.fromJson(types.get(place).asText());
      carriers[place] = Carrier.of(slots[place]);
    }
    HistoryShape.Measure[] measures = new HistoryShape.Measure[json.get("measures").size()];
    for (int place = 0; place < measures.length; place++) {
      JsonNode told = json.get("measures").get(place);
      int slot = told.get("slot").asInt();
      int most = told.get("most").asInt();
      if (most == 0) most = json.get("mostValues").asInt();
      Aggregate aggregate = Trailing.of(told.get("kind").asText(), slots[slot], most);
      measures[place] = new HistoryShape.Measure(aggregate, slot);
    }
    Question[] questions = new Question[json.get("questions").size()];
    long longestUs = 0;
    for (int place = 0; place < questions.length; place++) {
      JsonNode told = json.get("questions").get(place);
      questions[place] = new Question(told.get("measure").asInt(), told.get("overUs").asLong());
      longestUs = Math.max(longestUs, questions[place].overUs);
    }
    boolean corrects = json.get("corrects").asBoolean();
    int mostEvents = json.get("mostEvents").asInt();
    HistoryShape shape = new HistoryShape(carriers, measures, corrects, mostEvents, json.get("mostParts").asInt());
    StructType event = (StructType) rows.apply("row").dataType();
    return new LookbackSettings(
        json.get("keys").asInt(), shape, questions, longestUs, json.get("graceUs").asLong(),
        json.get("closed").asBoolean(), event);
  }

  /** Later results are corrected: then rows are kept for as long as an event can still come before them. */
  boolean corrects() {
    return shape.keepsRows();
  }

  Aggregate aggregate(Question question) {
    return shape.measures()[question.measure].aggregate();
  }

  Object[] answers(History history, PastEvent event) {
    Object[] found = new Object[questions.length];
    for (int place = 0; place < found.length; place++) found[place] = answer(history, event, questions[place]);
    return found;
  }

  private Object answer(History history, PastEvent event, Question question) {
    long afterUs = event.timeUs() - question.overUs;
    if (!(aggregate(question) instanceof Trailing.Speed speed)) {
      return aggregate(question).result(history.ask(question.measure, afterUs, event.timeUs()));
    }
    Object position = event.values()[shape.measures()[question.measure].slot()];
    return speed.result(history.ask(question.measure, afterUs, event.timeUs() - 1), event.timeUs(), position);
  }
}
