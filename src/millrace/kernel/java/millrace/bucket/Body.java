package millrace.bucket;

import java.io.IOException;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.nio.file.Path;

/** What is sent with a request, and its hash, which is signed. It can be sent again. */
record Body(BodyPublisher publisher, String hash) {
  static final Body NONE = new Body(BodyPublishers.noBody(), Signature.EMPTY);

  static Body of(Path file) throws IOException {
    return new Body(BodyPublishers.ofFile(file), Signature.hash(file));
  }

  static Body of(byte[] bytes) {
    return new Body(BodyPublishers.ofByteArray(bytes), Signature.hash(bytes));
  }
}
