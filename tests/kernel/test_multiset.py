"""The ordered multiset of min, max and distinct, by the kernel's own code without Spark: tens of thousands of steps,
each kept and loaded again, through growth and decline."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.kernel.drivers import driver


def test_a_multiset_is_a_sorted_map_whatever_comes_and_goes(tmp_path: Path) -> None:
    done = subprocess.run(driver("MultisetDriver", tmp_path), capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
