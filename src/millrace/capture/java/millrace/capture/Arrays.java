package millrace.capture;

import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;

/** PostgreSQL's text of an array of one dimension, taken apart. */
final class Arrays {
    private Arrays() {}

    static List<String> elements(String printed, char delimiter, UnaryOperator<String> element) {
        var found = new ArrayList<String>();
        var text = new StringBuilder();
        int at = 1;
        while (at < printed.length() - 1) {
            boolean quoted = printed.charAt(at) == '"';
            at = quoted ? quoted(printed, at + 1, text) : bare(printed, at, delimiter, text);
            found.add(!quoted && text.toString().equals("NULL") ? null : element.apply(text.toString()));
            text.setLength(0);
            at++; // the delimiter, or the brace that ends it all
        }
        return found;
    }

    private static int quoted(String printed, int from, StringBuilder text) {
        int at = from;
        for (; printed.charAt(at) != '"'; at++) {
            if (printed.charAt(at) == '\\') {
                at++;
            }
            text.append(printed.charAt(at));
        }
        return at + 1;
    }

    private static int bare(String printed, int from, char delimiter, StringBuilder text) {
        int at = from;
        while (at < printed.length() - 1 && printed.charAt(at) != delimiter) {
            text.append(printed.charAt(at++));
        }
        return at;
    }
}
