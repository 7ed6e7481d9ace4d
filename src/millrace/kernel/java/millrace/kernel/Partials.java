package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.IntBuffer;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;

/**
 * The partial matches of one key: one for each row that a match may still begin with, and those that are decided and
 * wait for an earlier one.
 *
 * What holds: starts that wait at the same places, in the same order of preference, and met the pattern last with the
 * same row, have the same future until their time is up. So they are one group, and a row costs as much as there are
 * groups, not starts. The starts of a group are in order.
 */
final class Partials {
  private static final long NOT_MET = -1;
  /** In place of the last row of a decided match: an absence at its end held. */
  static final long GUARDED = -2;

  private record Start(long number, long timeUs) {}

  private record Wait(IntBuffer places, long met) {}

  private final Pattern pattern;
  private final long withinUs;
  private final int most;
  private Map<Wait, ArrayDeque<Start>> groups = new HashMap<>();
  private final TreeMap<Long, Long> decided = new TreeMap<>();
  private int count;

  Partials(Pattern pattern, long withinUs, int most) {
    this.pattern = pattern;
    this.withinUs = withinUs;
    this.most = most;
  }

  /** All go one row on, and one more begins with it. */
  void step(long number, MatchRow row) {
    Map<Wait, ArrayDeque<Start>> next = new HashMap<>();
    for (Map.Entry<Wait, ArrayDeque<Start>> group : groups.entrySet()) {
      move(group.getKey().places.array(), group.getKey().met, group.getValue(), number, row, next);
    }
    ArrayDeque<Start> begun = new ArrayDeque<>(1);
    begun.add(new Start(number, row.timeUs()));
    count++;
    move(pattern.first(), NOT_MET, begun, number, row, next);
    groups = next;
    if (count > most) throw new IllegalStateException("MR-MATCH-CROWDED " + most);
  }

  private void move(
      int[] places, long met, ArrayDeque<Start> starts, long number, MatchRow row, Map<Wait, ArrayDeque<Start>> next) {
    Step step = Step.of(pattern, places, row.flags());
    long last = step.met >= 0 ? number : met;
    if (step.places.length == 0) {
      starts.forEach(start -> decide(start, last));
    } else {
      next.merge(new Wait(IntBuffer.wrap(step.places), last), starts, Partials::merged);
    }
  }

  private void decide(Start start, long last) {
    count--;
    if (last != NOT_MET) decided.put(start.number, last);
  }

  private static ArrayDeque<Start> merged(ArrayDeque<Start> one, ArrayDeque<Start> two) {
    if (two.peekFirst().number > one.peekLast().number) {
      one.addAll(two);
      return one;
    }
    if (one.peekFirst().number > two.peekLast().number) return merged(two, one);
    ArrayDeque<Start> both = new ArrayDeque<>(one.size() + two.size());
    while (!one.isEmpty() && !two.isEmpty()) {
      both.add(one.peekFirst().number < two.peekFirst().number ? one.pollFirst() : two.pollFirst());
    }
    both.addAll(one);
    both.addAll(two);
    return both;
  }

  /** No row before this time is to come: decides those whose time is up. */
  void expire(long timeUs) {
    if (firstDeadlineUs() > timeUs) return;
    groups.entrySet().removeIf(group -> {
      ArrayDeque<Start> starts = group.getValue();
      long last = guarded(group.getKey().places.array()) ? GUARDED : group.getKey().met;
      while (!starts.isEmpty() && starts.peekFirst().timeUs + withinUs <= timeUs) decide(starts.pollFirst(), last);
      return starts.isEmpty();
    });
  }

  private boolean guarded(int[] places) {
    for (int place : places) if (pattern.isGuard(place)) return true;
    return false;
  }

  /** Of the decided: the first whose start no undecided one is before; null if there is none. */
  Map.Entry<Long, Long> firstTellable() {
    Map.Entry<Long, Long> found = decided.firstEntry();
    return found == null || found.getKey() > firstUndecided() ? null : found;
  }

  Map.Entry<Long, Long> firstDecided() {
    return decided.firstEntry();
  }

  void forget(Map.Entry<Long, Long> told) {
    decided.remove(told.getKey());
  }

  /** Matches no longer begin before this row. */
  void forgetBefore(long number) {
    decided.headMap(number).clear();
    groups.values().removeIf(starts -> {
      while (!starts.isEmpty() && starts.peekFirst().number < number) {
        starts.pollFirst();
        count--;
      }
      return starts.isEmpty();
    });
  }

  /** How many are not decided. */
  int count() {
    return count;
  }

  /** The first row that one of them begins with; MAX_VALUE if there is none. */
  long first() {
    return Math.min(firstUndecided(), decided.isEmpty() ? Long.MAX_VALUE : decided.firstKey());
  }

  private long firstUndecided() {
    long found = Long.MAX_VALUE;
    for (ArrayDeque<Start> starts : groups.values()) found = Math.min(found, starts.peekFirst().number);
    return found;
  }

  /** When the time of the first is up; MAX_VALUE if there is none. */
  long firstDeadlineUs() {
    long found = Long.MAX_VALUE;
    for (ArrayDeque<Start> starts : groups.values()) found = Math.min(found, starts.peekFirst().timeUs + withinUs);
    return found;
  }

  /** Those that are not decided, by where they wait; of the decided ones how many. */
  void show(ObjectNode out) {
    ArrayNode shown = out.putArray("partial");
    groups.forEach((wait, starts) -> {
      for (Start start : starts) {
        ObjectNode each = shown.addObject().put("start", start.timeUs).put("met", wait.met != NOT_MET);
        ArrayNode places = each.putArray("places");
        for (int place : wait.places.array()) places.add(place);
      }
    });
    out.put("decided", decided.size());
  }

  void write(DataOutputStream out) throws IOException {
    VarLong.write(groups.size(), out);
    for (Map.Entry<Wait, ArrayDeque<Start>> group : groups.entrySet()) {
      int[] places = group.getKey().places.array();
      VarLong.write(places.length, out);
      for (int place : places) VarLong.write(place, out);
      VarLong.write(group.getKey().met + 1, out);
      VarLong.write(group.getValue().size(), out);
      Start before = new Start(0, 0);
      for (Start start : group.getValue()) {
        VarLong.write(start.number - before.number, out);
        VarLong.write(start.timeUs - before.timeUs, out);
        before = start;
      }
    }
    VarLong.write(decided.size(), out);
    for (Map.Entry<Long, Long> each : decided.entrySet()) {
      VarLong.write(each.getKey(), out);
      VarLong.write(each.getValue() - GUARDED, out);
    }
  }

  void read(DataInputStream in) throws IOException {
    for (long group = VarLong.read(in); group > 0; group--) {
      int[] places = new int[(int) VarLong.read(in)];
      for (int place = 0; place < places.length; place++) places[place] = (int) VarLong.read(in);
      Wait wait = new Wait(IntBuffer.wrap(places), VarLong.read(in) - 1);
      int size = (int) VarLong.read(in);
      ArrayDeque<Start> starts = new ArrayDeque<>(size + 1);
      long number = 0;
      long timeUs = 0;
      for (int place = 0; place < size; place++) {
        number += VarLong.read(in);
        timeUs += VarLong.read(in);
        starts.add(new Start(number, timeUs));
      }
      groups.put(wait, starts);
      count += size;
    }
    for (long each = VarLong.read(in); each > 0; each--) {
      decided.put(VarLong.read(in), VarLong.read(in) + GUARDED);
    }
  }
}
