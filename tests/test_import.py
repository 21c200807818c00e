"""Importing the package brings in nothing that belongs to an extra."""

import subprocess
import sys

EXTRAS = ["matplotlib", "torch", "rich", "typer", "pandas", "polars", "pyarrow", "pooch", "dask", "requests"]


def modules_after(statement):
    code = f"{statement}; import sys; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_no_extra_is_imported():
    # scikit-learn itself imports pandas where it is installed, so only the difference is ours
    ours = modules_after("import tailored") - modules_after("import sklearn.base, sklearn.utils, numba")
    assert not ours & set(EXTRAS)
    assert "tailored" in ours
