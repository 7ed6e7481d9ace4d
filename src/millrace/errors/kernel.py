"""The operators in Java."""

from __future__ import annotations

from millrace.errors.base import UserError


class KernelAbsent(UserError):
    code = "MR-KERNEL-ABSENT"
    text = "the Spark session that runs in this process was started without Millrace's kernel"
    fix = "let Millrace start the session, or add {jar} to its `spark.jars` before it starts"
