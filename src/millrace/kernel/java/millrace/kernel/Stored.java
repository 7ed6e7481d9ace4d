package millrace.kernel;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;

/** What is held of a key, as bytes: the first one says in which form the others are. */
final class Stored {
  interface Writing {
    void to(DataOutputStream out) throws IOException;
  }

  interface Reading<T> {
    T from(DataInputStream in, int form) throws IOException;
  }

  static byte[] write(int form, Writing body) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream(64);
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      out.writeByte(form);
      body.to(out);
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
    return bytes.toByteArray();
  }

  /** A form that this kernel does not know was written by a newer one. */
  static void known(int form, int newest) {
    if (form > newest) throw new IllegalStateException("MR-STATE-NEWER " + form + " " + newest);
  }

  static <T> T read(byte[] state, int newest, Reading<T> body) {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(state))) {
      int form = in.readUnsignedByte();
      known(form, newest);
      return body.from(in, form);
    } catch (IOException impossible) {
      throw new UncheckedIOException(impossible);
    }
  }

  private Stored() {}
}
