"""The prior of many columns, compared with dense algebra; no matrix of all columns is formed where
there are many.
"""

import numpy as np
import pytest
import scipy.sparse as sp

from tailored.gaussian.factors import Factors
from tailored.priors.base import calibrate
from tailored.priors.factors import FactorPrior
from tailored.tasks.episodes import SupportSampling
from tailored.tasks.rows import Scaling
from tailored.tasks.task_set import TaskSet


def made_prior(d, *, shift=0.0, rank=2, seed=0):
    """Return a prior of d columns and an intercept."""
    rng = np.random.default_rng(seed)
    scaling = Scaling(
        np.append(rng.uniform(0.5, 2.0, size=d), 1.0),
        1.5,
        np.append(np.full(d, shift), 0.0),
        0.7,
        True,
    )
    model = Factors(
        rng.normal(size=d + 1),
        rng.normal(size=(d + 1, rank)),
        np.append(rng.uniform(size=d), 0.0),
        1.0,
        np.zeros((d + 1, 0)),
    )
    return FactorPrior(scaling=scaling, model=model)


def some_tasks(d, sizes, seed=1):
    rng = np.random.default_rng(seed)
    return TaskSet.from_tasks(
        [
            (sp.csr_array(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.2)), rng.normal(size=n))
            for n in sizes
        ]
    )


@pytest.mark.parametrize("shift", [0.0, 0.3])
def test_representation_and_weights_are_those_of_dense_algebra(shift):
    prior, tasks = made_prior(6, shift=shift), some_tasks(6, [0, 3, 9])
    F, D = prior.model.factors, prior.model.diagonal
    tau = F @ F.T + np.diag(D)
    raw = prior.scaling.raw_representation(tau)
    np.testing.assert_allclose(prior.representation(tasks)[0], raw)
    np.testing.assert_allclose(prior.representation(tasks)[1], 3 * raw)
    np.testing.assert_allclose(
        prior.representation(tasks, [6, 2])[2], 9 * raw[np.ix_([6, 2], [6, 2])]
    )
    found = prior.posterior(tasks)
    for t in range(3):
        X, y = prior.scaling.dense(tasks[t].X), prior.scaling.targets(tasks[t].y)
        gain = tau @ X.T @ np.linalg.inv(X @ tau @ X.T + np.eye(len(y)))
        expected = prior.model.mean + gain @ (y - X @ prior.model.mean)
        np.testing.assert_allclose(found.weights[t], prior.scaling.raw_weights(expected), atol=1e-9)


def test_many_columns_are_calibrated_and_represented_without_their_matrix():
    d = 3000
    prior, tasks = made_prior(d), some_tasks(d, [6] * 30)
    found = calibrate([(tasks, prior)], [0], SupportSampling())
    assert np.isfinite(found.interval(2, 0.8)).all()
    assert prior.posterior(tasks).covariances.shape == (30, 2, 2)
    F, D, at = prior.model.factors, prior.model.diagonal, [2, 2999, 3000]
    scale = 1.0 / prior.scaling.columns[at]
    expected = (F[at] @ F[at].T + np.diag(D[at])) * np.outer(scale, scale)
    np.testing.assert_allclose(prior.representation(tasks[:1], at)[0], 6 * expected)
