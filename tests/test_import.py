"""Importing the package imports nothing that belongs to an extra; help texts and misuse need no
numerical package.
"""

import subprocess
import sys

import pytest

import tailored

EXTRAS = {
    *("matplotlib", "torch", "rich", "typer", "pandas", "polars", "pyarrow"),
    *("pooch", "dask", "requests", "xlrd", "skops"),
}
NUMERICAL = {"numpy", "scipy", "sklearn", "numba", "llvmlite", "joblib", "narwhals"}
PROGRAM = """
import sys, numba, sklearn.calibration, sklearn.ensemble, sklearn.linear_model
before = set(sys.modules)
import tailored, tailored.datasets, tailored.tasks
from tailored import *
print(*{name.partition(".")[0] for name in set(sys.modules) - before})
"""
COMMAND = """
import sys
from tailored.cli import app
try:
    app(sys.argv[1:])
except SystemExit as done:
    print("code", done.code)
print(*{name.partition(".")[0] for name in sys.modules})
"""


def words(program, *arguments):
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def test_no_extra_is_imported():
    # scikit-learn itself imports pandas where it is installed, so only the difference is ours
    found = set(words(PROGRAM))
    assert not found & EXTRAS
    assert "tailored" in found


def test_names_are_imported_on_first_use():
    program = "import sys, tailored; before = set(sys.modules); tailored.TaskSet; print(*before, '|', *sys.modules)"
    before, after = " ".join(words(program)).split("|")
    assert not {name.partition(".")[0] for name in before.split()} & (NUMERICAL | EXTRAS)
    assert "numba" not in after.split()
    assert set(tailored.__all__) | {"datasets", "paper"} <= set(dir(tailored))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tailored.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("--help",), "0"),
        (("fit", "--help"), "0"),
        (("fit", "--nothing"), "2"),
        (("fit", "missing.csv", "--task", "t", "--target", "y"), "2"),
        (("predict", "missing.tailored", "missing.csv"), "2"),
        (("summary", "missing.tailored"), "2"),
    ],
)
def test_help_and_misuse_need_no_numerical_package(arguments, code):
    found = words(COMMAND, *arguments)
    assert found[found.index("code") + 1] == code
    assert not set(found) & (NUMERICAL | EXTRAS - {"rich", "typer"})
