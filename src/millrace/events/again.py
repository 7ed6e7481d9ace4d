"""What is tried again when somebody else was faster."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from millrace.errors import ConflictFound, ConflictLasting

Result = TypeVar("Result")

# Whoever loses so often in a row has many rivals for one aggregate; then it is too large, and waiting does not help.
ATTEMPTS = 10
_LONGEST_S = 0.2


def again(act: Callable[[], Result]) -> Result:
    """Does it until there is no conflict: at once the second time, then after waits that grow, of a random length, so
    that rivals do not meet again."""
    for attempt in range(1, ATTEMPTS):
        try:
            return act()
        except ConflictFound:
            if attempt > 1:
                time.sleep(random.uniform(0, min(_LONGEST_S, 0.001 * 2**attempt)))  # noqa: S311 -- no secret
    try:
        return act()
    except ConflictFound as error:
        raise ConflictLasting(attempts=ATTEMPTS, where=error.where, **error.facts) from error
