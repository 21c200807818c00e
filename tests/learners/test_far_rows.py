"""Rows far outside of the training data: `predict` warns once per call, and names the column."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from folds import few_folds, short_fits
from tailored import IndependentLearner, TaskSet, load

N = 12


def draw(rng, n_tasks=N):
    groups = np.repeat(np.arange(n_tasks), 6)
    X = np.column_stack([rng.uniform(2.0, 4.0, len(groups)), rng.uniform(-1.0, 1.0, len(groups))])
    X[0], X[1] = (2.0, -1.0), (4.0, 1.0)
    return X, X.sum(axis=1) + groups + rng.normal(size=len(groups)), groups


@pytest.fixture(scope="module")
def learner():
    with short_fits():
        return few_folds().fit(
            *draw(np.random.default_rng(0))[:2], groups=np.repeat(np.arange(N), 6)
        )


def messages(call):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    return [str(warning.message) for warning in caught]


def ways(learner, X):
    """Return all calls that predict the rows X, of task 0."""
    X0, y0, _ = draw(np.random.default_rng(0))
    few = TaskSet(X0[:6], y0[:6], np.zeros(6, dtype=int))
    query = TaskSet(X, np.zeros(X.shape[0]), np.zeros(X.shape[0], dtype=int))
    return [
        lambda: learner.adapt(few.X, few.y).predict(X),
        lambda: learner.adapt(few.X, few.y).predict_interval(X, 0.5),
        lambda: learner.predict(X, groups=np.zeros(X.shape[0], dtype=int)),
        lambda: learner.predict_tasks(query, few, coverage=None),
    ]


@pytest.mark.parametrize("way", range(4))
def test_one_training_range_outside(learner, way):
    """Column 0 is 2 to 4 in training, so the limits are 0 and 6."""
    np.testing.assert_array_equal(learner.prior_.feature_range, [[2.0, -1.0], [4.0, 1.0]])
    inside, far = (
        np.array([[0.01, 2.99], [5.99, -2.99]]),
        np.array([[3.0, 0.0], [6.01, 0.0], [7.0, 0.0]]),
    )
    assert messages(ways(learner, inside)[way]) == []
    (message,) = messages(ways(learner, far)[way])
    assert "column 0 has the value 7, more than one training range outside" in message
    assert "(about " in message
    assert "2 to 4" in message
    (message,) = messages(ways(learner, np.array([[-0.01, 3.1]]))[way])
    assert "value -0.01" in message
    assert "In total, 2 columns are far outside." in message


def test_sparse_rows(learner):
    model = learner.adapt()
    assert messages(lambda: model.predict(sparse.csr_array([[3.0, 0.0]]))) == []
    assert (
        "column 1 has the value -9"
        in messages(lambda: model.predict(sparse.csr_array([[3.0, -9.0]])))[0]
    )


def test_names_and_files(tmp_path):
    X, y, groups = draw(np.random.default_rng(1))
    frame = pd.DataFrame({"hours": X[:, 0], "age": 7.0, "task": groups, "y": y})
    with short_fits():
        learner = few_folds().fit(TaskSet.from_frame(frame, task="task", target="y"))
    learner.save(tmp_path / "model")
    model = load(tmp_path / "model").adapt()
    # A column that was constant in training has no range.
    asked = pd.DataFrame({"hours": [3.0], "age": [50.0]})
    assert messages(lambda: model.predict(asked)) == []
    assert (
        "column 'hours' has the value 9"
        in messages(lambda: model.predict(asked.assign(hours=9.0)))[0]
    )


def test_learners_of_the_paper():
    X, y, groups = draw(np.random.default_rng(2))
    model = IndependentLearner().fit(X, y, groups=groups).adapt(X[:4], y[:4])
    assert "column 1" in messages(lambda: model.predict(np.array([[3.0, 50.0]])))[0]
