package millrace.sink;

/** Why a flow may not go on, as a code that Python makes a sentence of (`engine/failures.py`), and its facts. */
final class Refused extends IllegalStateException {
  private Refused(String code, Object... facts) {
    super(told(code, facts));
  }

  private static String told(String code, Object... facts) {
    StringBuilder text = new StringBuilder(code);
    for (Object fact : facts) text.append(' ').append(fact);
    return text.toString();
  }

  static Refused torn(long epoch, int committed, int lost) {
    return new Refused("MR-EPOCH-TORN", epoch, committed, lost);
  }

  static Refused older(long held, long found) {
    return new Refused("MR-CHECKPOINT-OLDER", held, found);
  }

  static Refused takenOver() {
    return new Refused("MR-FLOW-TAKEN-OVER");
  }

  static Refused speculation() {
    return new Refused("MR-SPECULATION-REFUSED");
  }

  static Refused timeout(long wantedMs, long mostMs) {
    return new Refused("MR-TRANSACTION-TIMEOUT", wantedMs, mostMs);
  }
}
