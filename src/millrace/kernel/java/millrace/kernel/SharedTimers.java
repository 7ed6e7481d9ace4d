package millrace.kernel;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.statefulprocessor.ImplicitGroupingKeyTracker;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Timers that keys share, of a processor whose timers only forget. Of keys that may forget at about the same time the first
 * leads: it has the timer, and a list of those that follow it. Spark keeps a timer by its key and by its time, and asks
 * whether it is there before it sets and before it removes it: with one for each key, two thirds of what a key of `dedup`
 * cost, from its row to when it was forgotten, were its timer's.
 *
 * What holds: a key that has something to forget leads or follows, for the slot of what it forgets first. Who leads is
 * chance, and each task begins with new lists; so a key may follow several, and is looked at for each.
 */
final class SharedTimers {
  /** A list is written anew for each that joins it: with more, a key would cost the others' bytes. */
  private static final int FOLLOWERS = 7;
  /** Lists that a task goes on with: rows of an epoch may forget at many times. */
  private static final int OPEN = 1_000;
  /** In the time for which a key remembers. Nothing is forgotten later than by one. */
  private static final int SLOTS = 32;

  private record Group(Row leader, List<Row> followers) {}

  private final StatefulProcessorHandle handle;
  private final Forgetting forgetting;
  private final long slotMs;
  /** Of a leader, by slot. */
  private final MapState<Long, Row> lists;
  private final Map<Long, Group> open = new HashMap<>();

  SharedTimers(StatefulProcessorHandle handle, Forgetting forgetting, StructType key, long rememberedMs) {
    this.handle = handle;
    this.forgetting = forgetting;
    slotMs = Math.max(rememberedMs / SLOTS, 1);
    StructType list = new StructType().add("keys", DataTypes.createArrayType(key));
    lists = handle.getMapState("followers", BoundOnce.LONG, Lookup.exact(list), TTLConfig.NONE());
  }

  /** Lets the key at hand, `key`, be looked at when the watermark is there, or a slot later: by a timer of this time. */
  long join(Row key, long neededMs) {
    long slot = slot(neededMs);
    Group group = open.get(slot);
    if (group == null || group.followers().size() >= FOLLOWERS) {
      if (open.size() == OPEN) open.clear();
      open.put(slot, new Group(key, followers(slot)));
      handle.registerTimer(forgetting.timerMs(slot));
    } else if (!group.leader().equals(key)) {
      group.followers().add(key);
      Row list = RowFactory.create((Object) group.followers().toArray(Row[]::new));
      as(group.leader(), key, () -> lists.updateValue(slot, list));
    }
    return forgetting.timerMs(slot);
  }

  /** Whether a timer of this time is the one of a key that may forget then. Those of keys that did not share are too. */
  boolean isFor(long timerMs, long neededMs) {
    return timerMs == slot(neededMs) || timerMs == neededMs;
  }

  /** To be called when a timer of the key at hand has fired. `look` is given those that follow it, each as the key at hand. */
  void fired(Row leader, long timerMs, Consumer<Row> look) {
    for (long slot : Forgetting.neededMs(timerMs)) {
      open.remove(slot); // whoever joined now would have no timer
      List<Row> followers = followers(slot);
      if (followers.isEmpty()) continue;
      lists.removeKey(slot);
      for (Row key : followers) as(key, leader, () -> look.accept(key));
      forgetting.alsoDid(followers.size());
    }
  }

  private List<Row> followers(long slot) {
    Row list = lists.getValue(slot);
    return list == null ? new ArrayList<>() : new ArrayList<>(list.getList(0));
  }

  private long slot(long neededMs) {
    return -Math.floorDiv(-neededMs, slotMs) * slotMs; // upwards
  }

  /** With another key at hand than the one that is, which it is again afterwards. */
  private static void as(Row key, Row atHand, Runnable work) {
    ImplicitGroupingKeyTracker.removeImplicitKey();
    ImplicitGroupingKeyTracker.setImplicitKey(key);
    try {
      work.run();
    } finally {
      ImplicitGroupingKeyTracker.removeImplicitKey();
      ImplicitGroupingKeyTracker.setImplicitKey(atHand);
    }
  }
}
