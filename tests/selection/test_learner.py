"""EmpiricalBayesLearner: adapting to any number of rows, another prior, tiny and odd data."""

import warnings

import numpy as np
import pytest

from bayes_samples import skewed_tasks
from folds import few_folds
from tailored import TaskSet, UnconditionalLearner
from tailored.exceptions import UnhelpfulWarning
from tailored.losses import Absolute
from tailored.paper import ProjectedSGD
from tailored.selection.data import Settings, TrainingData

# ---------------------------------------------------------------- adapting


def test_the_representation_grows_with_the_number_of_rows(skewed):
    """θ = n τ(s) for empirical Bayes, θ = τ(s) for the paper's learners."""
    tasks, bayes = skewed
    assert bayes.n_components_ == 1  # so that τ does not depend on the rows
    paper = UnconditionalLearner(solver=ProjectedSGD(0.5), fit_intercept=False).fit(tasks)
    X, y = tasks[0].X, tasks[0].y
    model = bayes.prior_.model
    C = bayes.prior_.scaling.raw_representation(model.covariances[0] / model.noise)
    for n in (1, 2, 12):
        np.testing.assert_allclose(bayes.representation(X[:n], y[:n]), n * C)
        np.testing.assert_allclose(paper.representation(X[:n], y[:n]), paper.conditioning_.C)
    np.testing.assert_allclose(bayes.representation(), C)


@pytest.mark.parametrize(("n_tasks", "n_validation"), [(11, 0), (600, 0), (30, 7)])
def test_folds_do_not_train_on_their_held_out_tasks(n_tasks, n_validation):
    tasks = skewed_tasks(0, n_tasks=n_tasks, d=2, n_rows=3)
    folds = TrainingData(tasks, None, n_validation, Settings(Absolute(), True, 0, None)).splits
    assert len(folds) == (5 if n_tasks == 11 else 1)
    for fold in folds:
        assert not set(fold.train) & set(fold.held_out)
    if n_tasks == 11:
        assert sorted(np.concatenate([fold.held_out for fold in folds])) == list(range(11))
    if n_validation:
        np.testing.assert_array_equal(folds[0].held_out, np.arange(23, 30))


# ---------------------------------------------------------------- tiny and odd data


def odd_tasks():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 5)), rng.normal(size=6)
    constant = X.copy()
    constant[:, 2], constant[:, 4] = 3.0, 0.0
    return {
        "one row": [(X[:1], y[:1])],
        "one task": [(X, y)],
        "one row in each task": [(X[i : i + 1], y[i : i + 1]) for i in range(6)],
        "two tasks": [(X[:3], y[:3]), (X[3:], y[3:])],
        "more columns than rows": [
            (rng.normal(size=(2, 30)), rng.normal(size=2)) for _ in range(4)
        ],
        "constant columns": [(constant, y), (constant[:4], y[:4]), (constant[2:], y[2:])],
        "duplicated rows": [(np.repeat(X[:1], 5, axis=0), np.repeat(y[:1], 5))] * 3,
        "duplicated tasks": [(X, y)] * 12,
        "targets all zero": [(X, np.zeros(6))] * 4,
        "targets all equal": [(X, np.full(6, 7.0))] * 4,
        "rows all zero": [(np.zeros((4, 5)), y[:4])] * 3,
        "a task without rows": [(X, y), (X[:0], y[:0]), (X[:2], y[:2])],
        "huge": [(1e8 * X, 1e10 * y)] * 4,
        "tiny": [(1e-8 * X, 1e-10 * y)] * 4,
        "no noise": [(rng.normal(size=(8, 5)), np.zeros(8)) for _ in range(10)],
    }


#: Where the last steps of EM are the dangerous ones.
TO_THE_END = ("more columns than rows", "duplicated rows", "no noise")


@pytest.mark.parametrize("name", odd_tasks())
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_tiny_and_odd_data(name, fit_intercept, request):
    if not (fit_intercept and name in TO_THE_END):
        request.getfixturevalue("few_steps")
    tasks = TaskSet.from_tasks(odd_tasks()[name])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", UnhelpfulWarning)
        warnings.filterwarnings(
            "ignore", "fit: ", UserWarning
        )  # about few tasks and constant columns
        learner = few_folds(fit_intercept=fit_intercept).fit(tasks)
        assert np.isfinite(learner.adapt_many(tasks).weights_).all()
        assert np.isfinite(learner.validation_error_)
        model = learner.adapt(tasks[0].X, tasks[0].y)
        assert np.isfinite(model.predict(tasks.X)).all()
        assert np.isfinite(learner.adapt().coef_).all()
