"""The test of Gaussian coefficients, compared with explicit Hermite tensors and by simulation."""

import numpy as np
import pytest

from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import fit_mixed_model
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.normality import non_normality
from tailored.tasks.rows import Scaling


def statistics(tasks):
    return Moments.of(tasks, Scaling.raw(tasks.n_features))


def ragged(seed, sizes=tuple(range(13)), n_tasks=80):
    """Gaussian coefficients of three columns; the number of rows of each task is drawn from
    ``sizes``.
    """
    rng = np.random.default_rng(seed)
    root, b = (
        np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [0.0, 0.3, 0.2]]),
        np.array([1.0, -1.0, 0.5]),
    )
    entries = []
    for n in rng.choice(sizes, n_tasks):
        X = rng.normal(size=(n, 3))
        entries.append((X, X @ (b + root @ rng.normal(size=3)) + 0.7 * rng.normal(size=n)))
    return statistics(TaskSet.from_tasks(entries)), Mixture(
        np.ones(1), b[None], (root @ root.T)[None], 0.49
    )


@pytest.mark.parametrize("sizes", [tuple(range(13)), (0, 8), (2,), (20,)])
def test_gaussian_coefficients_rarely_exceed_two_standard_errors(sizes):
    found = np.array([non_normality([ragged(seed, sizes)]) for seed in range(40)])
    assert abs(found.mean()) < 0.5
    assert (found > 2.0).sum() <= 4


def test_clusters_are_far_from_gaussian():
    tasks = make_clusters(160, n_clusters=2, n_rows=15, n_features=4, rank=1, random_state=0)
    train, new = statistics(tasks[:80]), statistics(tasks[80:])
    assert non_normality([(new, fit_mixed_model(train))]) > 10.0


def test_without_rows_or_variance_there_is_no_evidence():
    tasks, model = ragged(0)
    none = tasks.take(np.flatnonzero(tasks.sizes == 0))
    assert len(none) > 1
    assert non_normality([(none, model)]) == 0.0
    flat = Mixture(np.ones(1), model.means, np.zeros((1, 3, 3)), model.noise)
    assert non_normality([(tasks, flat)]) == 0.0
