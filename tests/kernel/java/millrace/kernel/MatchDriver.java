package millrace.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/**
 * Patterns without Spark, for tests: a line of JSON with settings and the rows of one key, epoch by epoch, gives a line
 * with the matches of each. After every epoch all that is held is written and read again.
 */
public final class MatchDriver {
  public static void main(String[] arguments) throws Exception {
    ObjectMapper mapper = new ObjectMapper();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      System.out.println(mapper.writeValueAsString(told(mapper.readTree(line))));
    }
  }

  private static List<List<Object>> told(JsonNode example) {
    MatchSettings settings = MatchSettings.of(example.get("settings"));
    Map<Long, byte[]> pieces = new HashMap<>();
    MatchRows.Shelf shelf = new MatchRows.Shelf() {
      @Override public byte[] get(long id) { return pieces.get(id); }
      @Override public void put(long id, byte[] piece) { pieces.put(id, piece); }
      @Override public void remove(long id) { pieces.remove(id); }
    };
    byte[] state = null;
    List<List<Object>> out = new ArrayList<>();
    for (JsonNode epoch : example.get("epochs")) {
      Matching matching = new Matching(settings, shelf);
      if (state != null) Stored.read(state, 1, (body, form) -> {
        matching.read(body);
        return null;
      });
      for (JsonNode each : epoch.get("rows")) {
        Object[] values = {each.get(2).asLong()};
        MatchRow row = new MatchRow(each.get(0).asLong(), each.get(1).asLong(), values);
        if (settings.arrival()) matching.rows.append(row);
        else matching.rows.insert(row);
      }
      List<Matching.Found> found = new ArrayList<>();
      matching.advance(epoch.get("watermark").asLong(), found);
      boolean nothing = matching.nextUs() == Long.MAX_VALUE;
      state = nothing ? null : Stored.write(1, matching::write);
      if (nothing && !pieces.isEmpty()) throw new IllegalStateException("pieces stay: " + pieces.keySet());
      List<Object> matches = new ArrayList<>();
      for (Matching.Found match : found) matches.add(List.of(match.startUs(), match.endUs(), match.results()));
      out.add(matches);
    }
    return out;
  }
}
