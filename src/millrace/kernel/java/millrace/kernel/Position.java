package millrace.kernel;

/** A place on the earth in degrees, and how far it is from another. */
record Position(double latitude, double longitude) {
  /** The mean radius; the earth is not a ball, so distances are off by up to half a percent. */
  private static final double RADIUS_KM = 6371.0088;

  /** Along the great circle, by the haversine formula. */
  double kilometresTo(Position other) {
    double north = Math.toRadians(other.latitude - latitude) / 2;
    double east = Math.toRadians(other.longitude - longitude) / 2;
    double chord = square(Math.sin(north))
        + Math.cos(Math.toRadians(latitude)) * Math.cos(Math.toRadians(other.latitude)) * square(Math.sin(east));
    return 2 * RADIUS_KM * Math.asin(Math.min(1, Math.sqrt(chord)));
  }

  private static double square(double value) {
    return value * value;
  }
}
