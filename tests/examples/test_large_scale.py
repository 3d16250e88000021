"""The script for many rows, on few of them, here and on a local cluster."""

import re
import subprocess
import sys

import pytest
from running import EXAMPLES

# The peak that Linux tells of a process includes that of the one that started it, here of all tests before this one.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"


@pytest.mark.slow
@pytest.mark.parametrize("backend", [[], ["--dask"]], ids=["here", "dask"])
def test_large_scale(backend):
    script = [sys.executable, "-W", "ignore", str(EXAMPLES / "large_scale.py"), "--rows", "4000", *backend]
    command = [sys.executable, "-c", BETWEEN, *script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    head, *rows = [line.split() for line in done.stdout.split("\n\n")[0].splitlines()]
    assert head == ["rank", "rows", "lower", "upper", "gap", "seconds"]
    assert float(rows[-1][4]) <= 1e-3
    assert "optimal after" in done.stdout and "full kernel" in done.stdout
    assert float(re.search(r"new rows: ([0-9.]+)%", done.stdout)[1]) > 75
    assert float(re.search(r"process: ([0-9.]+) GB", done.stdout)[1]) < 2
