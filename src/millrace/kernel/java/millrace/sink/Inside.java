package millrace.sink;

import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import org.apache.kafka.clients.producer.KafkaProducer;

/**
 * What Kafka's client (3.9) does not offer: to end a transaction that another producer began, and to go on with a
 * producer whose transaction somebody else ended. Both are states of its transaction manager, set from outside.
 * Clients from 4.0 on change a producer's epoch at each commit, and would need another way.
 */
final class Inside {
  private static final String MANAGER = "org.apache.kafka.clients.producer.internals.TransactionManager";
  private static final String IDENTITY = "org.apache.kafka.common.utils.ProducerIdAndEpoch";

  private final Object manager;

  Inside(KafkaProducer<?, ?> producer) {
    manager = of(producer, "transactionManager");
  }

  /** Who this producer is, in its present transaction. */
  Transaction transaction(String id) {
    Object identity = of(manager, "producerIdAndEpoch");
    return new Transaction(id, (long) of(identity, "producerId"), (short) of(identity, "epoch"));
  }

  /** A producer that was never used is in the middle of that transaction then. */
  void enter(Transaction transaction) {
    told(() -> {
      Constructor<?> identity = Class.forName(IDENTITY, true, loader()).getDeclaredConstructor(long.class, short.class);
      identity.setAccessible(true);
      synchronized (manager) {
        become("INITIALIZING");
        set("producerIdAndEpoch", identity.newInstance(transaction.producer(), transaction.epoch()));
        become("READY");
      }
      return null;
    });
    enterAgain();
  }

  /** The next transaction of the same producer, which it had entered and committed before. */
  void enterAgain() {
    told(() -> {
      synchronized (manager) {
        become("IN_TRANSACTION");
        set("transactionStarted", true);
      }
      return null;
    });
  }

  /** The transaction that this producer is in was committed by another one: it can begin the next. */
  void leave() {
    told(() -> {
      Method complete = manager.getClass().getDeclaredMethod("completeTransaction");
      complete.setAccessible(true);
      synchronized (manager) {
        become("COMMITTING_TRANSACTION");
        complete.invoke(manager);
      }
      return null;
    });
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  private void become(String name) throws ReflectiveOperationException {
    Class state = Class.forName(MANAGER + "$State", true, loader());
    Method to = manager.getClass().getDeclaredMethod("transitionTo", state);
    to.setAccessible(true);
    to.invoke(manager, Enum.valueOf(state, name));
  }

  private void set(String name, Object value) throws ReflectiveOperationException {
    Field field = manager.getClass().getDeclaredField(name);
    field.setAccessible(true);
    field.set(manager, value);
  }

  private ClassLoader loader() {
    return manager.getClass().getClassLoader();
  }

  private static Object of(Object from, String name) {
    return told(() -> {
      Field field = from.getClass().getDeclaredField(name);
      field.setAccessible(true);
      return field.get(from);
    });
  }

  private interface Action<T> {
    T run() throws ReflectiveOperationException;
  }

  private static <T> T told(Action<T> action) {
    try {
      return action.run();
    } catch (ReflectiveOperationException other) {
      throw new IllegalStateException("this is not the Kafka client that Millrace knows (3.9)", other);
    }
  }
}
