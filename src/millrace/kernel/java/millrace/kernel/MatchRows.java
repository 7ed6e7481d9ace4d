package millrace.kernel;

import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Comparator;
import java.util.List;

/**
 * The rows of one key, in order and numbered: those that were taken, as long as a match may need them, then those that
 * wait for their time. They are kept in pieces, of which only the newest is with the key's own bytes, so that one more
 * row does not rewrite them all and old ones are read only when a match is found.
 *
 * What holds: only rows that wait are put in front of others, so that the number of a taken row stays what it is.
 */
final class MatchRows {
  /** Where the pieces are that are not the newest. */
  interface Shelf {
    byte[] get(long id);

    void put(long id, byte[] piece);

    void remove(long id);
  }

  /** A piece is written again with each row that comes into it; more pieces make the key's own bytes longer. */
  private static final int PIECE_ROWS = 128;
  private static final int FORM = 1;

  private static final class Piece {
    final long id;
    long firstUs;
    int count;
    List<MatchRow> rows;
    boolean changed;

    Piece(long id, List<MatchRow> rows) {
      this.id = id;
      this.rows = rows;
      count = rows.size();
      changed = true;
    }

    Piece(long id, long firstUs, int count) {
      this.id = id;
      this.firstUs = firstUs;
      this.count = count;
    }
  }

  private final Carrier[] carriers;
  private final Comparator<MatchRow> order;
  private final Shelf shelf;
  private final List<Piece> pieces = new ArrayList<>();
  private long nextId;
  private long first;
  private long taken;
  private long end;
  /** The piece of the row that was asked for last, and the number of its first row: the next is mostly near. */
  private int found;
  private long foundBegin;

  MatchRows(Carrier[] carriers, Shelf shelf) {
    this.carriers = carriers;
    this.shelf = shelf;
    order = MatchRow.order(carriers);
  }

  /** The number of the row that is taken next. */
  long taken() {
    return taken;
  }

  /** The row that is taken next; null if none waits. */
  MatchRow waiting() {
    return taken < end ? get(taken) : null;
  }

  void take() {
    taken++;
  }

  MatchRow get(long number) {
    while (number < foundBegin) foundBegin -= pieces.get(--found).count;
    while (number >= foundBegin + pieces.get(found).count) foundBegin += pieces.get(found++).count;
    return loaded(found).get((int) (number - foundBegin));
  }

  private void startOver() {
    found = 0;
    foundBegin = first;
  }

  /** Behind all others. */
  void append(MatchRow row) {
    if (pieces.isEmpty() || pieces.get(pieces.size() - 1).count >= PIECE_ROWS) {
      pieces.add(new Piece(nextId++, new ArrayList<>()));
    }
    put(pieces.size() - 1, pieces.get(pieces.size() - 1).count, row);
  }

  /** Where it belongs among those that wait. */
  void insert(MatchRow row) {
    int place = pieces.size() - 1;
    while (place >= 0 && isBefore(row, place)) place--;
    if (place == pieces.size() - 1) {
      MatchRow last = place < 0 ? null : loaded(place).get(pieces.get(place).count - 1);
      if (last == null || order.compare(last, row) <= 0) {
        append(row);
        return;
      }
    }
    place = Math.max(place, 0);
    int at = Collections.binarySearch(loaded(place), row, order);
    put(place, at < 0 ? -at - 1 : at, row);
    startOver();
    if (pieces.get(place).count > 2 * PIECE_ROWS) split(place);
  }

  private boolean isBefore(MatchRow row, int place) {
    Piece piece = pieces.get(place);
    if (row.timeUs() != piece.firstUs) return row.timeUs() < piece.firstUs;
    return order.compare(row, loaded(place).get(0)) < 0;
  }

  private void put(int place, int at, MatchRow row) {
    Piece piece = pieces.get(place);
    loaded(place).add(at, row);
    piece.count++;
    piece.firstUs = piece.rows.get(0).timeUs();
    piece.changed = true;
    end++;
  }

  private void split(int place) {
    Piece piece = pieces.get(place);
    List<MatchRow> later = piece.rows.subList(PIECE_ROWS, piece.count);
    Piece second = new Piece(nextId++, new ArrayList<>(later));
    second.firstUs = later.get(0).timeUs();
    later.clear();
    piece.count = PIECE_ROWS;
    pieces.add(place + 1, second);
  }

  /** No match needs those before this number any more. */
  void forget(long number) {
    while (!pieces.isEmpty() && first + pieces.get(0).count <= number) {
      Piece gone = pieces.remove(0);
      first += gone.count;
      if (!pieces.isEmpty()) shelf.remove(gone.id); // the newest was never there
    }
    if (pieces.size() == 1 && first < number) {
      Piece only = pieces.get(0);
      loaded(0).subList(0, (int) (number - first)).clear();
      only.count = only.rows.size();
      only.firstUs = only.rows.get(0).timeUs();
      first = number;
    }
    startOver();
  }

  private List<MatchRow> loaded(int place) {
    Piece piece = pieces.get(place);
    if (piece.rows == null) {
      piece.rows = Stored.read(shelf.get(piece.id), FORM, (in, form) -> rows(in, piece.count));
    }
    return piece.rows;
  }

  void show(ArrayNode out) {
    for (long number = first; number < end; number++) {
      MatchRow row = get(number);
      ObjectNode shown = out.addObject().put("time", row.timeUs()).put("flags", row.flags()).put("taken", number < taken);
      ArrayNode values = shown.putArray("values");
      for (Object value : row.values()) values.add(Kept.node(value));
    }
  }

  void write(DataOutputStream out) throws IOException {
    VarLong.write(nextId, out);
    VarLong.write(first, out);
    VarLong.write(taken - first, out);
    VarLong.write(pieces.size(), out);
    for (int place = 0; place < pieces.size(); place++) {
      Piece piece = pieces.get(place);
      VarLong.write(piece.id, out);
      VarLong.write(piece.count, out);
      boolean newest = place == pieces.size() - 1;
      if (newest) {
        for (MatchRow row : loaded(place)) row.write(out, carriers);
      } else {
        out.writeLong(piece.firstUs);
        if (piece.changed) shelf.put(piece.id, Stored.write(FORM, body -> {
          for (MatchRow row : piece.rows) row.write(body, carriers);
        }));
      }
    }
  }

  void read(DataInputStream in) throws IOException {
    nextId = VarLong.read(in);
    first = VarLong.read(in);
    taken = first + VarLong.read(in);
    end = first;
    int count = (int) VarLong.read(in);
    for (int place = 0; place < count; place++) {
      long id = VarLong.read(in);
      int rows = (int) VarLong.read(in);
      if (place == count - 1) {
        Piece newest = new Piece(id, rows(in, rows));
        newest.firstUs = newest.rows.get(0).timeUs();
        pieces.add(newest);
      } else {
        pieces.add(new Piece(id, in.readLong(), rows));
      }
      end += rows;
    }
    startOver();
  }

  private List<MatchRow> rows(DataInputStream in, int count) throws IOException {
    List<MatchRow> rows = new ArrayList<>(count + 1);
    for (int number = 0; number < count; number++) rows.add(MatchRow.read(in, carriers));
    return rows;
  }
}
