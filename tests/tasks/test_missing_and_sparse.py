"""Masked arrays, sparse rows far from zero, and tasks without features."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from studies.rivals.base import RidgePerTask
from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet

pytestmark = pytest.mark.usefixtures("short_fits_in_module", "no_curves_in_module")

GROUPS = np.repeat(np.arange(30), 6)


def draw(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(GROUPS), 2))
    weights = 2.0 + rng.normal(size=(30, 2))
    y = (
        (X * weights[GROUPS]).sum(axis=1)
        + rng.normal(size=30)[GROUPS]
        + 0.1 * rng.normal(size=len(X))
    )
    return X, y


def mask(values, row=3):
    masked = np.ma.array(values, mask=np.zeros(np.shape(values), dtype=bool))
    masked[row] = np.ma.masked
    return masked


@pytest.mark.parametrize("argument", ["X", "y", "groups", "side_info"])
def test_masked_values_are_refused(argument):
    X, y = draw()
    arguments = {"X": X, "y": y, "groups": GROUPS, "side_info": GROUPS[:, None] * 1.0}
    arguments[argument] = mask(arguments[argument])
    for read in (TaskSet, EmpiricalBayesLearner().fit):
        with pytest.raises(ValueError, match=f"{argument} is a masked array with . masked values"):
            read(**arguments)
    # without masked values it is an ordinary array
    arguments[argument] = np.ma.array(arguments[argument].data)
    assert len(TaskSet(**arguments)) == 30


@pytest.fixture(scope="module")
def dense_and_sparse():
    X, y = draw()
    X = X + 1000.0
    return [(EmpiricalBayesLearner().fit(x, y, groups=GROUPS), x, y) for x in (X, sp.csr_array(X))]


def test_dense_and_sparse_rows_give_the_same_model(dense_and_sparse):
    outputs = []
    for learner, X, y in dense_and_sparse:
        model = learner.adapt(X[:4], y[:4])
        tasks = TaskSet(X, y, GROUPS)
        table = learner.predict_tasks(tasks, support=tasks)
        outputs.append(
            [
                learner.predict(X, groups=GROUPS),
                model.predict(X),
                model.predict_interval(X),
                table["prediction"],
                table["upper"],
                learner.adapt_many(tasks).weights_,
            ]
        )
    for dense, sparse in zip(*outputs, strict=True):
        np.testing.assert_allclose(sparse, dense, rtol=0, atol=1e-8)


def test_masked_values_of_new_rows_are_refused(dense_and_sparse):
    learner, X, y = dense_and_sparse[0]
    model = learner.adapt(X[:4], y[:4])
    for call in (
        lambda: learner.adapt(mask(X[:6]), y[:6]),
        lambda: learner.predict(mask(X), groups=GROUPS),
        lambda: model.predict(mask(X)),
        lambda: model.update(mask(X), y),
    ):
        with pytest.raises(ValueError, match="X is a masked array"):
            call()
    with pytest.raises(ValueError, match="groups is a masked array"):
        learner.predict(X, groups=mask(GROUPS))
    with pytest.raises(ValueError, match="y is a masked array"):
        RidgePerTask().fit(TaskSet(X, mask(y), GROUPS))


# --- tasks without features: y ~ 1 + (1 | g)


@pytest.fixture(scope="module")
def intercepts():
    rng = np.random.default_rng(1)
    y = 5.0 + rng.normal(size=30)[GROUPS] + 0.5 * rng.normal(size=len(GROUPS))
    frame = pd.DataFrame({"g": GROUPS, "y": y})
    return frame, EmpiricalBayesLearner().fit(TaskSet.from_frame(frame, task="g", target="y"))


def test_without_features_and_intercept_there_is_nothing_to_fit(intercepts):
    frame, _ = intercepts
    tasks = TaskSet.from_frame(frame, task="g", target="y")
    for fit in (
        lambda: EmpiricalBayesLearner(fit_intercept=False).fit(tasks),
        lambda: EmpiricalBayesLearner(fit_intercept=False).fit(tasks.X, tasks.y, groups=GROUPS),
    ):
        with pytest.raises(ValueError, match=r"0 feature\(s\) .*fit_intercept=True"):
            fit()


@pytest.mark.parametrize("response", ["poisson", "classes"])
def test_classes_and_counts_read_sparse_rows(response):
    X, y = draw()
    y = np.random.default_rng(1).poisson(np.exp(0.3 * y.clip(-4, 4))).astype(float)
    learner = (
        EmpiricalBayesLearner(loss=response)
        if response != "classes"
        else EmpiricalBayesClassifier()
    )
    y = y if response != "classes" else np.array(["few", "many"])[(y > 1).astype(int)]
    X[np.abs(X) < 0.5] = 0.0
    outputs = []
    for rows in (X, sp.csr_array(X)):
        fitted = clone(learner).fit(rows, y, groups=GROUPS)
        predict = fitted.predict_proba if response == "classes" else fitted.predict
        outputs.append(predict(rows, groups=GROUPS))
    np.testing.assert_allclose(outputs[1], outputs[0], rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="y is a masked array"):
        clone(learner).fit(X, mask(y), groups=GROUPS)
