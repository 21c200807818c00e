"""EmpiricalBayesLearner: adapting to any number of rows, another prior, tiny and odd data."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import tailored
from bayes_samples import learned, same_numbers, skewed_tasks, weights_of
from folds import few_folds
from tailored import (
    EmpiricalBayesLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
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


def test_without_rows_the_prior_mean_predicts(skewed):
    _, learner = skewed
    empty = TaskSet.from_tasks([(np.empty((0, 4)), np.empty(0))])
    expected = learner.prior_.scaling.raw_weights(np.array(learner.prior_.mean(empty)[0]))
    np.testing.assert_allclose(weights_of(learner.adapt()), expected)
    np.testing.assert_allclose(learner.adapt_many(empty).weights_[0], expected)
    np.testing.assert_allclose(learner.adapt().coef_, np.ones(4), atol=0.6)
    assert learner.adapt().intercept_ == pytest.approx(0.0, abs=0.3)


def test_constant_column_is_the_intercept(few_steps):
    """A task is fitted as with a column of ones, and the level of the targets only moves the
    intercepts.
    """
    tasks = skewed_tasks(7, n_tasks=12)
    shifted = TaskSet(tasks.X, tasks.y + 5.0, np.repeat(tasks.labels, tasks.sizes))
    a, b = EmpiricalBayesLearner().fit(shifted), EmpiricalBayesLearner().fit(tasks)
    tau = a.representation()
    np.testing.assert_allclose(b.representation(), tau, atol=1e-9 * np.abs(tau).max())
    np.testing.assert_allclose(
        a.adapt_many(shifted).weights_, b.adapt_many(tasks).weights_ + 5.0 * np.eye(5)[4], atol=1e-8
    )
    assert (a.n_features_in_, len(a.prior_.scaling.columns)) == (4, 5)
    X, y = shifted[0].X, shifted[0].y
    model = a.adapt(X, y)
    assert model.intercept_ == pytest.approx(5.0, abs=0.5)
    ones = np.hstack([X, np.ones((len(y), 1))])
    again = TaskRegressor(model.representation_, model.bias_, loss="squared", tol=1e-13).fit(
        ones, y
    )
    np.testing.assert_allclose(again.coef_, weights_of(model), atol=1e-6)


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


# ---------------------------------------------------------------- another prior


def test_a_loaded_learner_is_fitted_anew(few_steps, mixture, clusters, tmp_path):
    mixture.save(tmp_path / "a")
    again, fresh = tailored.load(tmp_path / "a").fit(clusters[:8]), clone(mixture).fit(clusters[:8])
    same_numbers(learned(fresh), learned(again))


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
