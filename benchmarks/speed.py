"""Speed ratios against the literal reference and scikit-learn, all measured in one run on one thread.

    python benchmarks/speed.py

Machines are noisy: read the ratios, not the times.  Nothing here is a test.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import Ridge

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import reference
from tailored import ConditionalLearner, EmpiricalBayesLearner
from tailored.datasets import make_clusters
from tailored.feature_maps import MeanEmbedding
from tailored.losses import get_loss
from tailored.representation.factored import Factored
from tailored.solvers import ProjectedSGD
from tailored.solvers.objectives import Surrogate
from tailored.tasks.rows import Rows
from tailored.within.solving import solve_many

D, N = 20, 40


def best_of(repeats, function, *args):
    """Shortest wall time of several calls, the usual remedy against a noisy machine."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function(*args)
        times.append(time.perf_counter() - start)
    return min(times)


def training_step(rank, inner, warm_up=120):
    """One step of Algorithm 1 and the error of 400 tasks under the new iterate (d = 20, k = 40, n = 40)."""
    tasks = make_clusters(401 + warm_up, n_clusters=6, n_rows=N, n_features=D, random_state=0)
    phis = MeanEmbedding().transform(tasks)
    phis /= np.sqrt(np.mean(np.sum(phis**2, axis=1)))
    loss = get_loss("absolute")
    objective = Surrogate(loss, 1.0, inner)
    conditioning = Factored.zero(np.eye(D), phis.shape[1], rank)

    def step(t):
        task = tasks[t]
        rows = Rows(task.X, task.y, np.array([0, N]))
        result = objective(rows, None, conditioning(phis[t])[None], None)
        conditioning.step(result.theta(0, task.X), phis[t], 1.0, 1.0)

    for t in range(warm_up):
        step(t)
    held_out = tasks[warm_up + 1 :]
    phis_held_out = phis[warm_up + 1 :]

    def fast():
        step(warm_up)
        taus = conditioning.evaluate(phis_held_out)
        weights = solve_many(held_out.X, held_out.y, held_out.offsets, taus, loss, inner=inner).coef
        prediction = np.einsum("ij,ij->i", held_out.X, np.repeat(weights, N, axis=0))
        return np.abs(prediction - held_out.y).reshape(400, N).mean(axis=1)

    H, C = conditioning.dense_H(), conditioning.C.copy()
    pairs = [(task.X, task.y, task.X, task.y) for task in held_out]
    literal_loss = reference.absolute()

    def literal():
        task = tasks[warm_up]
        run = reference.algorithm_1(
            [(task.X, task.y)], [phis[warm_up]], 1.0, 1.0, C, inner, literal_loss, 1.0, H0=H
        )
        return reference.evaluate(run.H[-1], run.C[-1], pairs, phis_held_out, inner, literal_loss)

    start = time.perf_counter()
    expected = literal()
    slow = time.perf_counter() - start
    errors = fast()
    difference = np.abs(errors - expected).max()
    quick = best_of(15, fast)
    print(
        f"training step + 400 tasks, {inner}, rank {rank}: literal {slow:.3f} s, "
        f"here {1e3 * quick:.2f} ms, ratio {slow / quick:.0f} (largest difference in error {difference:.1e})"
    )


def adapting():
    """`adapt` and `adapt_many` against `Ridge().fit` on the same rows, validation included in all of them."""
    tasks = make_clusters(2100, n_clusters=6, n_rows=N, n_features=D, random_state=1)
    train, new = tasks[:100], tasks[100:]
    X, y = np.array(new[0].X), np.array(new[0].y)
    pairs = [(np.array(task.X), np.array(task.y)) for task in new]
    fixed = ProjectedSGD(step=10.0)
    for name, learner in (
        ("empirical Bayes", EmpiricalBayesLearner()),
        ("Algorithm 1, exact", ConditionalLearner(solver=fixed, fit_intercept=False)),
        ("Algorithm 1, online", ConditionalLearner(solver=fixed, inner="online", fit_intercept=False)),
    ):
        learner.fit(train)
        learner.adapt(X, y)
        Ridge().fit(X, y)
        ridge = best_of(7, lambda: [Ridge().fit(X, y) for _ in range(100)]) / 100
        adapt = best_of(7, lambda m: [m.adapt(X, y) for _ in range(100)], learner) / 100
        learner.adapt_many(new)
        many = best_of(5, learner.adapt_many, new) / len(new)
        loop = best_of(1, lambda: [Ridge().fit(*pair) for pair in pairs]) / len(new)
        print(
            f"adapt, {name}: Ridge().fit {1e6 * ridge:.0f} µs, adapt {1e6 * adapt:.0f} µs, ratio {ridge / adapt:.1f}; "
            f"loop of Ridge {1e6 * loop:.0f} µs per task, adapt_many {1e6 * many:.1f} µs, ratio {loop / many:.0f}"
        )


def importing():
    """Import time of the package against what it stands on."""

    def seconds(statement):
        return min(
            float(
                subprocess.run(
                    [
                        sys.executable,
                        "-c",
                        f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)",
                    ],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
            )
            for _ in range(7)
        )

    base = seconds("import sklearn.base, numba")
    ours = seconds("import tailored")
    print(f"import: sklearn.base + numba {base:.2f} s, tailored {ours:.2f} s, ratio {ours / base:.2f}")


if __name__ == "__main__":
    for rank in (32, 64):
        training_step(rank, "online")
    training_step(32, "exact")
    adapting()
    importing()
