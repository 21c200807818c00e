"""Defects that long runs of the fuzzer of inputs found, one test for each."""

import warnings

import numpy as np
import pytest
from scipy import sparse

from odd_tasks import D, bayes, make
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
)
from tailored.paper import ProjectedSGD
from tailored.paper.feature_maps import get_feature_map

pytestmark = pytest.mark.usefixtures("nothing_on_the_terminal")


def test_steps_that_go_beyond_all_numbers():
    X, y = 9e14 * np.sign(make().X), 9e14 * np.sign(make().y)
    model = TaskRegressor(loss="squared", inner="online")
    with pytest.raises(
        ValueError, match=r"online within-task algorithm overflowed: X has values up to 9e\+14"
    ):
        model.fit(X[:7], y[:7])
    assert not hasattr(model, "coef_")


@pytest.mark.filterwarnings("ignore:The exact within-task algorithm")
@pytest.mark.parametrize("size", [1e7, 1e9, 1e14])
def test_a_penalty_that_is_rounding(size):
    """Fewer rows than columns, which are so large that nothing is left of the penalty: the rows are
    met all the same.
    """
    X, y = size * make().X[:3], size * make().y[:3]
    X = np.column_stack([X, X[:, ::-1] ** 2 / size, X[::-1]])
    model = TaskRegressor(loss="squared").fit(X, y)
    assert np.abs(model.predict(X) - y).max() < 1e-6 * size


def test_held_out_tasks_with_a_column_of_nothing():
    """A column of zeros is one of subnormal numbers in the held-out tasks: that is nothing, too."""
    tasks = make(side=False)
    found = [
        bayes(
            TaskSet.from_tasks(
                [
                    (np.insert(t.X, D, 0.0 if i < 6 else least, axis=1), t.y)
                    for i, t in enumerate(tasks)
                ]
            )
        )
        for least in (0.0, 1e-311)
    ]
    assert found[0].validation_error_ == pytest.approx(found[1].validation_error_, rel=1e-12)


def test_words_that_look_like_numbers_are_words():
    learner = ConditionalLearner(solver=ProjectedSGD(0.1)).fit(make())
    with pytest.raises(ValueError, match=r"side_info: .* numeric in fit and contains text now"):
        learner.adapt(make().X[:3], make().y[:3], side_info=np.array(["1e300"], dtype=object))


def test_a_missing_target_among_objects():
    X, y = np.ones((3, 1)), np.array([1.0, np.nan, 2], dtype=object)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        TaskRegressor().fit(X, y)
    with pytest.raises(ValueError, match="Input y contains NaN"):
        EmpiricalBayesLearner().fit(X, y, groups=[0, 0, 1])


def test_held_out_tasks_far_beyond_the_others():
    tasks = make()
    far = make(np.array([1e100, 1.0, 1.0, 1.0]))
    with pytest.raises(ValueError, match="X: column 0 has values too large"):
        EmpiricalBayesLearner().fit(tasks[:6], validation=far[6:])


def test_no_warning_comes_before_an_error():
    tasks, empty = (
        make()[:2],
        TaskSet.from_tasks([(np.zeros((0, D)), np.zeros(0), make().side_info[0])]),
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match="validation: none of its tasks has a row"):
            EmpiricalBayesLearner().fit(tasks, validation=empty)
        learner = bayes(make())
        with pytest.raises(ValueError, match="groups has a missing label"):
            learner.predict(1e3 * make().X[:2], groups=["new", None])
        far = make(factors=[1e3, 1.0, 1.0, 1.0])
        with pytest.raises(ValueError, match="'0' and 0 are different tasks"):
            learner.predict_tasks(far.replace(labels=far.labels.astype(str)))
        wide = far.replace(labels=np.arange(20, 28), side_info=np.zeros((8, 3)), side_names=None)
        with pytest.raises(ValueError, match="side_info: expected 1 columns as in fit, got 3"):
            learner.predict_tasks(wide)


def test_a_rating_scale_of_no_rows():
    none = TaskSet.from_tasks([(np.zeros((0, 2)), np.zeros(0))] * 2)
    with pytest.raises(ValueError, match="feature_map: the tasks have no rows"):
        get_feature_map("angle", has_side_info=False).fit(none)


@pytest.mark.filterwarnings("ignore:.*within-task algorithm")
def test_sparse_rows_so_large_that_the_penalty_is_rounding():
    tasks = make(np.array([1e14, 1e14, 1e14, 1.0]), rows=2, side=False)
    learner = IndependentLearner(loss="squared").fit(tasks)
    rows = TaskSet(sparse.csr_array(tasks.X), tasks.y, np.repeat(tasks.labels, 2))
    found = np.asarray(learner.predict_tasks(rows, rows)["prediction"])
    assert np.abs(found - tasks.y).max() < 1e-6 * np.abs(tasks.y).max()
