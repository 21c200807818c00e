"""`Mixture.weights` is what `adapt` makes of the prior of each task, whether the components are averaged or not."""

from dataclasses import replace

import numpy as np
import pytest

from tailored import TaskSet
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.tasks import Scaling


@pytest.mark.parametrize("averaged", [True, False])
def test_weights_of_two_components(averaged):
    rng = np.random.default_rng(0)
    d, K = 2, 2
    roots = rng.normal(size=(K, d, d))
    mixture = Mixture(np.array([0.4, 0.6]), rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1), 0.5)
    mixture = replace(mixture, averaged=averaged)
    tasks = TaskSet.from_tasks([(rng.normal(size=(n, d)), rng.normal(size=n)) for n in (1, 4, 6)])
    statistics = Moments.of(tasks, Scaling.raw(d))
    found = mixture.weights(statistics)
    priors = mixture.prior(statistics)
    for t, task in enumerate(tasks):
        posterior = []
        for k in range(K):
            # the Gaussian posterior mean by its definition: b + W X' (X W X' + noise I)⁻¹ (y - X b)
            W, b = mixture.covariances[k], mixture.means[k]
            S = task.X @ W @ task.X.T + mixture.noise * np.eye(len(task.y))
            posterior.append(b + W @ task.X.T @ np.linalg.solve(S, task.y - task.X @ b))
        mean = priors.responsibilities[t] @ np.array(posterior)
        W, b = priors.tau[t] * mixture.noise, priors.b[t]
        S = task.X @ W @ task.X.T + mixture.noise * np.eye(len(task.y))
        mixed = b + W @ task.X.T @ np.linalg.solve(S, task.y - task.X @ b)
        np.testing.assert_allclose(found[t], mean if averaged else mixed, rtol=1e-9)
