package millrace.sink;

import java.io.Serializable;

/** A transaction that some task began: who its producer is. Whoever knows these three can commit it. */
public record Transaction(String id, long producer, short epoch) implements Serializable {}
