"""What each estimator honours and what it refuses."""

import numpy as np
import pytest

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
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
UNKNOWN = {
    EmpiricalBayesLearner: {*OBJECTIVE_ARGUMENTS, *SOLVER_ARGUMENTS},
    ConditionalLearner: {*SOLVER_ARGUMENTS},
    UnconditionalLearner: {*SOLVER_ARGUMENTS, "feature_map", "rank", "scale_features"},
    IndependentLearner: {
        *SOLVER_ARGUMENTS,
        "feature_map",
        "rank",
        "solver",
        "tune_scale",
    },
}


@pytest.mark.parametrize("kind", UNKNOWN, ids=lambda kind: kind.__name__)
def test_arguments_of_other_algorithms_are_refused(kind):
    """Nothing is ignored, and no argument changes the algorithm."""
    for name in UNKNOWN[kind]:
        with pytest.raises(TypeError, match=name):
            kind(**{name: 1.0})
        with pytest.raises(ValueError, match=name):
            kind().set_params(**{name: 1.0})


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


@pytest.mark.parametrize("rank", [1, 32, None])
def test_rank_does_not_change_the_algorithm(rank, clusters):
    """A rank is a rank: at its default, above it, and with every direction kept."""
    solver = ProjectedSGD(step_sizes=(0.3,))
    default = ConditionalLearner("mean", solver=solver, fit_intercept=False).fit(clusters)
    learner = ConditionalLearner("mean", solver=solver, rank=rank, fit_intercept=False).fit(
        clusters
    )
    assert learner.prior_.loss == Absolute()
    fields_of = [{key for key in entry if key != "error"} for entry in learner.search_results_]
    assert fields_of == [
        {key for key in entry if key != "error"} for entry in default.search_results_
    ]
    found = np.linalg.matrix_rank(learner.H_)
    if rank == 32:
        np.testing.assert_array_equal(
            learner.adapt_many(clusters).weights_, default.adapt_many(clusters).weights_
        )
    elif rank is None:
        assert found >= np.linalg.matrix_rank(default.H_)
    else:
        assert found <= rank


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
