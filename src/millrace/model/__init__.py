"""The kernel's operators in plain Python: the specification that Spark is compared with. To be read, not fast.

An operator takes one epoch's input after the other and gives what comes out of each; it imports nothing of Spark.
"""

from millrace.model.latest import Change, LatestByKey, Signed

__all__ = ["Change", "LatestByKey", "Signed"]
