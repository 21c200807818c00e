"""The compiled loops as plain Python, where an index beyond the end of an array is an error and not
a place in memory.
"""

import subprocess
import sys

PROGRAM = """
import numba
numba.config.DISABLE_JIT = 1
import warnings
import numpy as np
from tailored.losses import LOSSES
from tailored.paper.within_task import WithinTask
from tailored.paper.kernels import exact
from tailored.tasks.rows import Rows
assert not hasattr(exact, "signatures")

warnings.simplefilter("ignore")  # Python's numbers warn where compiled ones do not
rng = np.random.default_rng(0)
for d, sizes in ((7, (1, 0, 3, 2, 9)), (1, (1, 2, 0)), (4, (1, 5))):
    X, offsets = rng.normal(size=(sum(sizes), d)), np.concatenate([[0], np.cumsum(sizes)])
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=len(X)) > 0, 1.0, -1.0)
    roots = rng.normal(size=(len(sizes), d, 3))
    thetas = roots @ roots.transpose(0, 2, 1)
    for kind in LOSSES.values():
        for inner in ("exact", "online"):
            many = WithinTask(kind(), inner).solve(Rows(X, y, offsets), thetas)
            if inner == "exact":
                for t in np.flatnonzero(np.array(sizes)):
                    here = slice(*offsets[t : t + 2])
                    zero = kind().value(np.zeros(len(y[here])), y[here]).mean()
                    assert 0.0 <= many.gap[t] <= 1e-6 * zero, (d, kind, t)
                    # w = -theta X'a/n, by its definition
                    w = -thetas[t] @ X[here].T @ many.alpha[here] / len(y[here])
                    assert np.allclose(w, many.coef[t], atol=1e-3 * (1 + np.abs(w).max())), (d, kind, t)
print("inside")
"""


def test_no_loop_leaves_its_arrays():
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "inside", done.stderr[-2000:]
