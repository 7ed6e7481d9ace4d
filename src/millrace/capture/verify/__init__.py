"""Is a captured table true? Its rows in the database against its topic, at one moment, without stopping writers.

Both sides hash every row; hashes are compared bucket by bucket of hashed keys, differing buckets are cut finer, and
single rows are looked at only of the keys that are left. What differs is looked at again, at a later moment, before it
is told: a large value that the connector had to read from the table may be newer than the change that it came with.
"""

from __future__ import annotations

from millrace.capture.verify.comparing import REPAIRED, Comparison, Difference, Verified, verify

__all__ = ["REPAIRED", "Comparison", "Difference", "Verified", "verify"]
