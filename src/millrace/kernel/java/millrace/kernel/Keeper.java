package millrace.kernel;

import org.apache.spark.sql.streaming.StatefulProcessor;

/** A processor that remembers what it was told: by that, what it keeps can be read again without it (see Kept). */
abstract class Keeper<K, I, O> extends StatefulProcessor<K, I, O> {
  private final String told;

  Keeper(String told) {
    this.told = told;
  }

  String told() {
    return told;
  }
}
