"""Importing the package imports nothing that belongs to an extra."""

import subprocess
import sys

EXTRAS = {
    *("matplotlib", "torch", "rich", "typer", "pandas", "polars", "pyarrow"),
    *("pooch", "dask", "requests", "xlrd"),
}
PROGRAM = """
import sys, numba, sklearn.base, sklearn.utils
before = set(sys.modules)
import tailored, tailored.datasets, tailored.tasks
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""


def test_no_extra_is_imported():
    # scikit-learn itself imports pandas where it is installed, so only the difference is ours
    command = [sys.executable, "-c", PROGRAM]
    found = set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())
    assert not found & EXTRAS
    assert "tailored" in found
