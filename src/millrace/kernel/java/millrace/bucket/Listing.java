package millrace.bucket;

import java.io.IOException;
import java.io.InputStream;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import javax.xml.stream.XMLInputFactory;
import javax.xml.stream.XMLStreamConstants;
import javax.xml.stream.XMLStreamException;
import javax.xml.stream.XMLStreamReader;

/** One page of what a bucket holds: objects, what lies below further folders, and where the next page begins. */
record Listing(List<Listing.Entry> objects, List<String> folders, String next) {
  record Entry(String key, Bucket.Seen seen) {}

  static Listing of(InputStream body) throws IOException {
    List<Entry> objects = new ArrayList<>();
    List<String> folders = new ArrayList<>();
    String key = "";
    String next = null;
    long size = 0;
    long modified = 0;
    boolean folder = false;
    try {
      XMLStreamReader reader = factory().createXMLStreamReader(body);
      while (reader.hasNext()) {
        int event = reader.next();
        if (event == XMLStreamConstants.END_ELEMENT) {
          if (reader.getLocalName().equals("Contents")) objects.add(new Entry(key, new Bucket.Seen(size, modified)));
          if (reader.getLocalName().equals("CommonPrefixes")) folder = false;
        }
        if (event != XMLStreamConstants.START_ELEMENT) continue;
        switch (reader.getLocalName()) {
          case "Key" -> key = reader.getElementText();
          case "Size" -> size = Long.parseLong(reader.getElementText());
          case "LastModified" -> modified = Instant.parse(reader.getElementText()).toEpochMilli();
          case "NextContinuationToken" -> next = reader.getElementText();
          case "CommonPrefixes" -> folder = true;
          case "Prefix" -> {
            String text = reader.getElementText();
            if (folder) folders.add(text);
          }
          default -> {}
        }
      }
    } catch (XMLStreamException error) {
      throw new IOException("s3 answered with something that is no list", error);
    }
    return new Listing(objects, folders, next);
  }

  private static XMLInputFactory factory() {
    XMLInputFactory factory = XMLInputFactory.newDefaultFactory();
    factory.setProperty(XMLInputFactory.SUPPORT_DTD, false);
    factory.setProperty(XMLInputFactory.IS_SUPPORTING_EXTERNAL_ENTITIES, false);
    return factory;
  }
}
