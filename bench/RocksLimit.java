import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;
import org.rocksdb.WriteOptions;

/** How fast RocksDB alone gets and puts, on one core: `java -cp rocksdbjni.jar RocksLimit.java ROWS KEYS BYTES FOLDER`. */
public final class RocksLimit {
  public static void main(String[] given) throws Exception {
    int rows = Integer.parseInt(given[0]);
    int keys = Integer.parseInt(given[1]);
    byte[] value = new byte[Integer.parseInt(given[2])];
    Random draw = new Random(1);
    try (Options options = new Options().setCreateIfMissing(true);
        WriteOptions unlogged = new WriteOptions().setDisableWAL(true); // as Spark has it
        RocksDB store = RocksDB.open(options, Files.createTempDirectory(Path.of(given[3]), "limit").toString())) {
      for (int round = 0; round < 2; round++) { // the first one warms up
        long began = System.nanoTime();
        for (int row = 0; row < rows; row++) {
          byte[] key = ByteBuffer.allocate(16).putLong(8, draw.nextInt(keys)).array();
          store.get(key);
          store.put(unlogged, key, value);
        }
        if (round == 1) System.out.println(rows * 1_000_000_000L / (System.nanoTime() - began));
      }
    }
  }
}
