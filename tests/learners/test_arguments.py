"""What each estimator honours and what it refuses."""

import numpy as np
import pytest

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    TaskSet,
)
from tailored.losses import Absolute
from tailored.paper import ProjectedSGD

OBJECTIVE_ARGUMENTS = {
    "inner": "online",
    "rank": None,
    "solver": ProjectedSGD(step_sizes=(0.01,)),
    "initial_representation": 2.0,
    "lipschitz": 0.5,
    "scale_features": False,
    "support": 0.3,
}
SOLVER_ARGUMENTS = {"step": 0.3, "step_sizes": (1.0,), "step_ratios": (1.0,)}


@pytest.mark.parametrize("name", OBJECTIVE_ARGUMENTS)
def test_arguments_of_the_objective_are_honoured(name, clusters):
    """Each of them reaches what is learned, and the algorithm stays the paper's."""
    clusters = clusters[:30]
    options = {
        "feature_map": "mean",
        "solver": ProjectedSGD(step_sizes=(0.3, 3.0)),
    }
    if name == "rank":
        options["rank"] = 1
    given = options | {name: OBJECTIVE_ARGUMENTS[name]}
    plain, given = (
        ConditionalLearner(fit_intercept=False, **each).fit(clusters) for each in (options, given)
    )
    assert plain.prior_.loss == given.prior_.loss == Absolute()
    if name == "support":  # only what is judged on held-out tasks depends on it
        assert plain.search_results_ != given.search_results_
    else:
        assert not np.allclose(plain.task_weights_, given.task_weights_, atol=1e-6)


@pytest.mark.parametrize("name", SOLVER_ARGUMENTS)
def test_arguments_of_solvers_are_honoured(name, clusters):
    clusters, value = clusters[:30], SOLVER_ARGUMENTS[name]
    learners = [
        ConditionalLearner("mean", solver=ProjectedSGD(), fit_intercept=False),
        ConditionalLearner("mean", solver=ProjectedSGD(**{name: value}), fit_intercept=False),
        ConditionalLearner("mean", fit_intercept=False).set_params(**{f"solver__{name}": value}),
    ]
    plain, given, again = (learner.fit(clusters) for learner in learners)
    if name.startswith("step_"):
        assert len(given.search_results_) < len(plain.search_results_)
    else:
        assert not np.allclose(plain.task_weights_, given.task_weights_, atol=1e-6)
    np.testing.assert_array_equal(again.task_weights_, given.task_weights_)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_losses_that_empirical_bayes_cannot_honour(loss, clusters):
    signs = TaskSet(clusters.X, np.sign(clusters.y), np.repeat(clusters.labels, clusters.sizes))
    with pytest.raises(ValueError, match=rf"loss: .*{loss}.*ConditionalLearner\(loss='{loss}'\)"):
        EmpiricalBayesLearner(loss=loss).fit(signs)
    learner = ConditionalLearner(
        loss=loss, solver=ProjectedSGD(step_sizes=(1.0,)), fit_intercept=False
    ).fit(signs)
    assert learner.prior_.loss == learner.loss_
    assert learner.loss_.name == loss
    agreement = np.sign(learner.predict(signs.X, np.repeat(signs.labels, signs.sizes))) == signs.y
    assert agreement.mean() > 0.8


@pytest.mark.parametrize("loss", ["squared", "huber", "epsilon_insensitive"])
def test_other_losses(loss, few_steps, clusters):
    learner = EmpiricalBayesLearner(loss=loss).fit(clusters[:20])
    assert learner.score(clusters) > 0.5
