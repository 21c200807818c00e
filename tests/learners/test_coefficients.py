"""Coefficients of contexts, and the effects that all tasks share."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from studies.curves import make_circle
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet


@pytest.fixture(scope="module")
def circle():
    return EmpiricalBayesLearner().fit(make_circle(120, random_state=0))


def test_coefficients_are_those_of_one_context_after_the_other(circle):
    side = make_circle(8, random_state=1).side_info
    found = circle.coefficients(side)
    models = [circle.adapt(side_info=row) for row in side]
    np.testing.assert_allclose(
        found[:, :-1], [model.coef_ for model in models], rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        found[:, -1], [model.intercept_ for model in models], rtol=1e-9, atol=1e-12
    )
    named = circle.coefficients(dict(zip("abcdefgh", side, strict=True)))
    np.testing.assert_array_equal(named, found)


def linear_effect(n_tasks, seed):
    """Return tasks whose slope is 1 + 2 s plus noise, with a frame of side information that has a
    category.
    """
    rng = np.random.default_rng(seed)
    side = pd.DataFrame({"s": rng.normal(size=n_tasks), "kind": rng.choice(["a", "b"], n_tasks)})
    groups = np.repeat(np.arange(n_tasks), 8)
    x = 10.0 * rng.normal(size=len(groups)) + 40.0
    slopes = 1.0 + 2.0 * side["s"] + 3.0 * (side["kind"] == "b") + 0.3 * rng.normal(size=n_tasks)
    y = slopes.to_numpy()[groups] * x + rng.normal(size=len(groups))
    return TaskSet(x[:, None], y, groups, side), side


def test_standard_errors_cover_the_expected_coefficients():
    new = pd.DataFrame(
        {"s": [-1.0, 0.0, 1.0, 1.0], "kind": ["a", "a", "a", "b"]}, index=list("wxyz")
    )
    z = []
    for seed in range(6):
        learner = EmpiricalBayesLearner().fit(linear_effect(60, seed)[0])
        weights, errors = learner.coefficients(new, return_std=True)
        assert weights.shape == errors.shape == (4, 2)
        z.append((weights[:, 0] - [-1.0, 1.0, 3.0, 6.0]) / errors[:, 0])
    assert 0.75 < np.sqrt(np.mean(np.square(z))) < 1.3


def test_what_is_missing_is_named(circle):
    with pytest.raises(ValueError, match="side_info: there are no rows"):
        circle.coefficients(np.zeros((0, 2)))
    tasks = make_circle(10, random_state=2)
    learner = IndependentLearner().fit(tasks)
    message = "return_std: the prior of this learner has no standard errors"
    with pytest.raises(ValueError, match=message):
        learner.coefficients(tasks.side_info, return_std=True)
    learner.fit(tasks.X, tasks.y, groups=np.repeat(tasks.labels, tasks.sizes))
    for call in (
        learner.coefficients,
        lambda side: learner.adapt_many(tasks.X, tasks.y, side_info=side),
    ):
        message = "side_info: this learner was fitted without side information"
        with pytest.raises(ValueError, match=message):
            call(np.zeros((len(tasks.y), 2)))
