"""The keyed operators in Java, on Spark's transformWithState, and how Python calls them. No flow, no server, no topic.

Every operator takes and gives DataFrames, works in a plain PySpark job whose session has `jar()` in its `spark.jars`,
and has its twin in `model/`, which says what it must do.
"""

from millrace.kernel.calling import jar
from millrace.kernel.latest import STRANGE, UNAVAILABLE, UNFILLED, latest_by_key, latest_held, latest_rows

__all__ = ["STRANGE", "UNAVAILABLE", "UNFILLED", "jar", "latest_by_key", "latest_held", "latest_rows"]
