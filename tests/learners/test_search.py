"""The learners: search over steps, calibration, Lipschitz constants, the paper's settings."""

import numpy as np
import pytest

from tailored import ConditionalLearner, UnconditionalLearner
from tailored.paper import ProjectedSGD
from tailored.paper.step_size import PAPER_STEP_SIZES

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_search_never_does_worse_than_the_unconditional_twin(clusters):
    grid = (0.01, 0.1, 1.0)
    conditional = ConditionalLearner(solver=ProjectedSGD(step_sizes=grid), fit_intercept=False).fit(
        clusters
    )
    unconditional = UnconditionalLearner(
        solver=ProjectedSGD(step_sizes=grid), fit_intercept=False
    ).fit(clusters)
    assert conditional.validation_error_ <= unconditional.validation_error_ + 1e-15
    still = [r["error"] for r in conditional.search_results_ if r["step_H"] == 0]
    np.testing.assert_allclose(
        still, [r["error"] for r in unconditional.search_results_], rtol=1e-12
    )


def test_validation_tasks_can_be_given(clusters):
    train, held_out = clusters[:30], clusters[30:]
    learner = ConditionalLearner(
        solver=ProjectedSGD(step_sizes=(0.01, 1.0)), fit_intercept=False
    ).fit(train, validation=held_out)
    fixed = ConditionalLearner(
        solver=ProjectedSGD((learner.step_size_.C, learner.step_size_.H)), fit_intercept=False
    ).fit(train)
    np.testing.assert_array_equal(learner.conditioning_.C, learner.scale_ * fixed.conditioning_.C)


def test_calibration_is_the_best_multiple_on_held_out_tasks(clusters):
    learner = UnconditionalLearner(
        solver=ProjectedSGD(step_sizes=(1e-12,)), fit_intercept=False
    ).fit(clusters)  # τ = I: only the scale is learned
    plain = UnconditionalLearner(
        solver=ProjectedSGD(step_sizes=(1e-12,)), tune_scale=False, fit_intercept=False
    ).fit(clusters)
    np.testing.assert_array_equal(learner.conditioning_.C, learner.scale_ * plain.conditioning_.C)
    errors = {r["scale"]: r["error"] for r in learner.search_results_}
    assert errors[1.0] == plain.validation_error_
    assert errors[learner.scale_] == min(errors.values()) < errors[1.0]


def test_the_surrogate_of_a_loss_without_a_lipschitz_constant(clusters):
    def learner(**options):
        solver = ProjectedSGD(0.1)
        return UnconditionalLearner(solver=solver, loss="squared", fit_intercept=False, **options)

    given = learner(lipschitz=np.sqrt(np.mean(clusters.y**2))).fit(clusters)
    np.testing.assert_allclose(
        learner().fit(clusters).conditioning_.C, given.conditioning_.C, rtol=1e-12
    )
    with pytest.raises(ValueError, match=r"lipschitz: the squared loss.*lipschitz="):
        learner().partial_fit(clusters)


def test_the_paper_s_configuration_to_the_last_setting():
    learner = ConditionalLearner.paper()
    solver = learner.solver
    assert learner.get_params(deep=False) == {
        "feature_map": "mean",
        "loss": "absolute",
        "inner": "online",
        "rank": None,
        "fit_intercept": False,
        "solver": solver,
        "initial_representation": None,
        "lipschitz": None,
        "scale_features": False,
        "tune_scale": False,
        "validation_fraction": 0.2,
        "support": 0.5,
        "tol": 1e-8,
        "max_iter": 1000,
        "n_jobs": None,
        "progress": False,
        "random_state": 0,
    }
    assert type(solver) is ProjectedSGD
    assert solver.get_params() == {
        "step": "search",
        "step_sizes": PAPER_STEP_SIZES,
        "step_ratios": (1.0,),
    }
    np.testing.assert_allclose(PAPER_STEP_SIZES, np.logspace(-5, 5, 14))
    other = ConditionalLearner.paper(feature_map="vector", n_jobs=2)
    changed = {
        name
        for name, value in other.get_params(deep=False).items()
        if value != getattr(learner, name)
    }
    assert changed == {"feature_map", "n_jobs", "solver"}  # solvers are objects of their own
