"""Compiled code is stored once, and read by other processes, also where package and home directory
are read-only.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tailored

KERNEL = """
from tailored._utils.compiling import njit

@njit(cache=True)
def double(x):
    return 2 * x
"""
PROGRAM = """
from kernel import double
assert double(3) == 6
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""


@pytest.fixture
def read_only(tmp_path):
    """The environment of a process that can write to temporary files only; a file in the way stops
    even root.
    """
    site, package = tmp_path / "site", Path(tailored.__file__).parent
    shutil.copytree(package / "_utils", site / "tailored/_utils", ignore=lambda *_: ["__pycache__"])
    for name in ("__init__.py", "_version.py"):
        shutil.copy(package / name, site / "tailored")
    (site / "kernel.py").write_text(KERNEL)
    for folder in (site, site / "tailored", site / "tailored/_utils"):
        (folder / "__pycache__").touch()
    (tmp_path / "temporary").mkdir()
    unset = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    return {
        **environment,
        "PYTHONPATH": str(site),
        "HOME": os.devnull,
        "TMPDIR": str(tmp_path / "temporary"),
    }


def hits_and_misses(environment):
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="users have no numbers")
def test_a_second_process_does_not_compile(read_only, tmp_path):
    assert hits_and_misses(read_only) == ["0", "1"]
    assert hits_and_misses(read_only) == ["1", "0"]
    # Code in a folder that others can write to is not executed.
    (folder,) = (tmp_path / "temporary").iterdir()
    folder.chmod(0o777)
    assert hits_and_misses(read_only) == ["0", "1"]
    shutil.rmtree(folder)
    folder.touch()
    assert hits_and_misses(read_only) == ["0", "1"]
