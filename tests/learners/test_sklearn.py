"""Conformity with scikit-learn: its own checks, settings of solvers, pickles and ordinary
regressors.
"""

import pickle

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    UnconditionalLearner,
)
from tailored.datasets import make_clusters
from tailored.paper import ProjectedSGD

# scikit-learn's checks know no tasks, and mean a single one.
pytestmark = [
    pytest.mark.filterwarnings("ignore::tailored.exceptions.SingleTaskWarning"),
    pytest.mark.usefixtures("short_fits_in_module"),
]

FAST = {"solver": ProjectedSGD(step_sizes=(1e-2, 1.0))}
ESTIMATORS = [
    TaskRegressor(loss="squared", fit_intercept=True),
    IndependentLearner(),
    UnconditionalLearner(**FAST),
    EmpiricalBayesLearner(),
    ConditionalLearner("ridge", solver=ProjectedSGD(0.1)),
    ConditionalLearner("ridge", solver=ProjectedSGD(0.1), rank=4),
]


def expected_failures(estimator):
    """Return the checks that fail on purpose, with the reason."""
    if not isinstance(estimator, EmpiricalBayesLearner):
        return {}
    precisions = "sample_weight is a precision, as in lme4; frequency_weight repeats rows"
    return {
        "check_estimators_empty_data_messages": "rows without features are allowed",
        "check_sample_weight_equivalence_on_dense_data": precisions,
        "check_sample_weight_equivalence_on_sparse_data": precisions,
    }


#: The learners share their validation of input: one of them and the adapted model are checked by
#: default.
FIRST = [each for each in ESTIMATORS if isinstance(each, EmpiricalBayesLearner | TaskRegressor)]


@parametrize_with_checks(FIRST, expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([each for each in ESTIMATORS if each not in FIRST])
def test_scikit_learn_checks_of_other_learners(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tasks():
    return make_clusters(24, n_clusters=2, n_rows=12, n_features=6, rank=2, random_state=0)


def test_parameters_of_the_solver_are_reached_through_the_learner(tasks):
    learner = ConditionalLearner()
    assert learner.get_params()["solver"] is None
    assert learner.set_params(solver__step=0.25, rank=3) is learner
    assert type(learner.solver) is ProjectedSGD
    assert (learner.solver.step, learner.rank) == (0.25, 3)
    assert learner.get_params()["solver__step"] == 0.25
    learner.set_params(solver__step_sizes=(1.0,))
    assert (learner.solver.step, learner.solver.step_sizes) == (0.25, (1.0,))
    # another solver and its setting in one call
    learner.set_params(solver=ProjectedSGD(0.5), solver__step_sizes=(2.0,))
    assert (learner.solver.step, learner.solver.step_sizes) == (0.5, (2.0,))
    plain = ConditionalLearner().set_params(rank=5)
    assert plain.solver is None
    stepped = ConditionalLearner().set_params(solver__step=0.1).fit(tasks)
    given = ConditionalLearner(solver=ProjectedSGD(0.1)).fit(tasks)
    np.testing.assert_array_equal(
        stepped.adapt_many(tasks).weights_, given.adapt_many(tasks).weights_
    )


def test_adapted_model_is_an_ordinary_regressor(tasks):
    learner = ConditionalLearner(solver=ProjectedSGD(0.1)).fit(tasks)
    task = tasks[3]
    model = learner.adapt(task.X, task.y)
    again = TaskRegressor(
        model.representation_, model.bias_, loss=learner.loss_, fit_intercept=learner.fit_intercept
    )
    again.fit(task.X, task.y)
    np.testing.assert_allclose(again.coef_, model.coef_, atol=1e-12)
    restored = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(restored.predict(task.X), model.predict(task.X))
    assert model.score(task.X, task.y) <= 1.0
    pipeline = make_pipeline(StandardScaler(), again).fit(task.X, task.y)
    assert pipeline.predict(task.X).shape == (12,)
