"""Standard errors of fixed effects and of coefficients of tasks, compared with equations written
out in NumPy.
"""

from dataclasses import replace

import numpy as np
import pytest

from tailored import TaskSet
from tailored.gaussian.errors import mean_covariance
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.side import Effect, SideFit, Term
from tailored.tasks.rows import Scaling


def draw(n_tasks, side=0):
    """Return tasks with one column, 4 to 8 rows, and ``side`` columns of side information."""
    rng = np.random.default_rng(0)
    task = np.repeat(np.arange(n_tasks), rng.integers(4, 9, n_tasks))
    x, w = 3.0 + 2.0 * rng.normal(size=len(task)), rng.normal([2.0, -1.0], 1.0, (n_tasks, 2))
    y = w[task, 0] * x + w[task, 1] + 0.7 * rng.normal(size=len(task))
    return TaskSet(x[:, None], y, task, rng.normal(size=(n_tasks, side))[task] if side else None)


def blocks(tasks):
    return [(np.column_stack([task.X, np.ones(len(task.y))]), task.y) for task in tasks]


MODEL = Mixture(np.ones(1), np.array([[0.3, -0.2]]), np.array([[[0.5, 0.2], [0.2, 0.8]]]), 0.4)


@pytest.mark.parametrize("intercept_only", [False, True])
def test_covariance_of_side_effects_with_their_prior(intercept_only):
    """Γ is random: the mixed model's equations for b and Γ together, written out."""
    tasks = draw(25, side=2)
    S = tasks.side_info.astype(float)
    statistics = Moments.of(tasks, Scaling.raw(1, True), S)
    model, L = replace(MODEL, side=np.zeros((2, 2))), np.array([[0.8, 0.0], [0.3, 0.5]])
    L = L[:, :1] * [[0.0], [1.0]] if intercept_only else L
    terms = [
        Term(Effect(j, False, intercept_only, 0.2), L, 0.5 * np.eye(2)[:, [j]]) for j in range(2)
    ]
    found = mean_covariance(model, statistics, side=SideFit(model.side, model, terms))
    W, information = MODEL.covariances[0], 0.0
    for (X, _), s in zip(blocks(tasks), S, strict=True):
        D = X @ np.hstack([np.eye(2), s[0] * np.eye(2), s[1] * np.eye(2)])
        information = information + D.T @ np.linalg.inv(X @ W @ X.T + 0.4 * np.eye(len(X))) @ D
    prior = np.zeros((6, 6))
    if intercept_only:
        prior[3, 3] = prior[5, 5] = 1.0 / (0.2 * 0.25 * L[1, 0] ** 2)
    else:
        prior[2:4, 2:4] = prior[4:, 4:] = np.linalg.inv(0.2 * 0.25 * L @ L.T)
    kept = [0, 1, 3, 5] if intercept_only else range(6)
    want = np.linalg.inv((information + prior)[np.ix_(kept, kept)])
    np.testing.assert_allclose(found.covariance, want, rtol=1e-6)
    # The variance of a difference of two effects.
    difference = np.zeros((6, 6))
    difference[np.ix_(kept, kept)] = want
    D = np.hstack([np.zeros((2, 2)), -0.5 * np.eye(2), 2.0 * np.eye(2)])
    np.testing.assert_allclose(
        found.of(2, {1: -0.5, 2: 2.0}), D @ difference @ D.T, rtol=1e-6, atol=1e-12
    )


@pytest.mark.parametrize(("factor", "unknown"), [(0.0, []), (2.0, [0, 1])])
def test_collinear_columns_have_no_standard_error_and_columns_of_zeros_are_left_out(
    factor, unknown
):
    tasks = draw(20)
    X = np.hstack([tasks.X, factor * tasks.X])
    wide = TaskSet.from_arrays(X, tasks.y, tasks.offsets, tasks.labels, None)
    model = Mixture(np.ones(1), np.zeros((1, 3)), np.eye(3)[None], 1.0)
    found = mean_covariance(model, Moments.of(wide, Scaling.raw(2, True))).of(3, {0: 1.0})
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(found.diagonal())), unknown)
    if not unknown:
        unit = Mixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None], 1.0)
        narrow = mean_covariance(unit, Moments.of(tasks, Scaling.raw(1, True)))
        np.testing.assert_allclose(found[np.ix_([0, 2], [0, 2])], narrow.of(2, {0: 1.0}), rtol=1e-9)
        assert not found[1].any()
