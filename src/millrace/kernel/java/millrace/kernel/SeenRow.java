package millrace.kernel;

/** What the clock wants to know of a row. Spark fills the fields in the order of their names. */
public final class SeenRow {
  private Long arrivalUs;
  private Integer partition;
  private Long timeUs;

  public Long getArrivalUs() { return arrivalUs; }
  public void setArrivalUs(Long arrivalUs) { this.arrivalUs = arrivalUs; }

  public Integer getPartition() { return partition; }
  public void setPartition(Integer partition) { this.partition = partition; }

  /** Null for a record that is no event. */
  public Long getTimeUs() { return timeUs; }
  public void setTimeUs(Long timeUs) { this.timeUs = timeUs; }
}
