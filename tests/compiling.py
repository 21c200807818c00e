"""Compile the kernels into Numba's cache, which all workers read: `python tests/compiling.py`.

Each call here has the argument types of the calls in the library; another signature is compiled
where a test needs it.
"""

import warnings

import numpy as np


def compile_kernels():
    """Call every kernel that Python calls, by the functions of the library that use it."""
    from tailored import EmpiricalBayesLearner, TaskSet
    from tailored.gaussian.em import fit_mixed_model
    from tailored.gaussian.kernels import invert_all
    from tailored.gaussian.responses import RESPONSES
    from tailored.gaussian.sites import ResponseRows
    from tailored.losses import get_loss
    from tailored.paper.within_task import WithinTask
    from tailored.tasks.rows import Rows

    rng = np.random.default_rng(0)
    X, y, starts = rng.normal(size=(24, 2)), rng.normal(size=24), np.arange(0, 25, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = EmpiricalBayesLearner().fit(X, y, groups=np.repeat(np.arange(6), 4))
        learner.adapt(X[:3], y[:3]).predict_interval(X)
        learner.sample(TaskSet(X, y, np.full(24, 99)), n_draws=2)
        for inner in ("exact", "online"):
            WithinTask(get_loss("absolute"), inner).solve(Rows(X, y, starts), np.eye(2)[None])
    invert_all(np.eye(2)[None], 0.0)
    binary = ResponseRows(
        X, (y > 0) * 1.0, starts, RESPONSES["bernoulli"](), np.zeros(24), np.ones(24)
    )
    fit_mixed_model(binary, max_iter=1)  # writes posteriors and scores


if __name__ == "__main__":
    compile_kernels()
