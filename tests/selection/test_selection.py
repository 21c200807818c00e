"""Selection of the structure, of side information and of components, and the warning that nothing
helped.
"""

import warnings
from dataclasses import replace

import numpy as np
import pytest

from folds import few_folds
from studies.rivals.base import MixedModel, RidgePerTask
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.datasets import make_clusters
from tailored.exceptions import UnhelpfulWarning
from tailored.losses import Absolute
from tailored.selection import learn
from tailored.selection.data import Settings, Training, TrainingData
from tailored.selection.steps.covariance import covariance_structures
from tailored.selection.training_summary import LEAST_COMPARED, better_baseline


def tasks_of(weights, n_rows, noise, seed, level=0.0):
    """Standard normal columns, and a level: of all tasks, or of each."""
    rng = np.random.default_rng(seed)
    entries = []
    for w, own in zip(weights, np.broadcast_to(level, len(weights)), strict=True):
        X = rng.normal(size=(n_rows, len(w)))
        y = X @ w + own + noise * rng.normal(size=n_rows)
        entries.append((X, y))
    return TaskSet.from_tasks(entries)


def data_of(tasks, **changes):
    settings = Settings(Absolute(), True, 0, None)
    return TrainingData(tasks, None, 0, replace(settings, **changes))


# ---------------------------------------------------------------- structures


def test_correlations_are_shrunk_to_zero():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(12, 1)) * [1.0, 0.9] + 0.1 * rng.normal(size=(12, 2))
    statistics = data_of(tasks_of(weights, 4, 1.0, 1), fit_intercept=False).statistics
    fitter = Training(statistics, [0])
    fits = [fitter.fit(full).covariances[0] for full in covariance_structures(2, False)[2:]]
    correlations = [W[0, 1] / np.sqrt(W[0, 0] * W[1, 1]) for W in fits]
    assert (np.diff(correlations) < 0.0).all()
    assert correlations[0] > 0.5
    assert 0.0 < correlations[-1] < 0.1
    for W in fits[1:]:
        np.testing.assert_allclose(np.diag(W), np.diag(fits[0]), rtol=0.25)


# ---------------------------------------------------------------- warnings


def test_who_is_better_by_more_than_chance():
    rng = np.random.default_rng(0)
    errors = 1.0 + 0.1 * rng.normal(size=LEAST_COMPARED)
    rivals = {"worse": errors + 0.5, "better": errors - 0.2, "best": errors - 0.3}
    assert better_baseline(errors, rivals) == "best"
    assert better_baseline(errors, {"worse": rivals["worse"], "same": errors}) is None
    # targets that are equal within each task: errors of rounding, next to those of the task mean
    # and of pooled regression
    assert better_baseline(1e-17 * errors, {"task mean": 1e-33 * errors, "pooled": errors}) is None
    # a handful of tasks cannot tell
    assert (
        better_baseline(errors[:-1], {name: found[:-1] for name, found in rivals.items()}) is None
    )
    assert better_baseline(np.append(errors[:-1], np.nan), {"best": rivals["best"]}) is None


def test_two_tasks_are_no_reason_to_warn():
    for seed in range(5):
        tasks = tasks_of(np.random.default_rng(seed).normal(size=(2, 3)), 5, 3.0, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnhelpfulWarning)
            EmpiricalBayesLearner().fit(tasks)


def test_equal_counts_are_no_reason_to_warn():
    X, groups = np.random.default_rng(7).normal(size=(50, 2)), np.repeat(np.arange(10), 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnhelpfulWarning)
        few_folds(loss="poisson").fit(X, np.full(50, 3), groups=groups)


def test_a_level_without_an_intercept_is_said():
    tasks = tasks_of(np.zeros((14, 2)), 6, 1.0, 0, level=50.0)
    with pytest.warns(
        UnhelpfulWarning,
        match="higher than those of the task mean; check .* should have an intercept",
    ):
        EmpiricalBayesLearner(fit_intercept=False).fit(tasks)


def test_warnings_name_baselines_of_the_summary(monkeypatch):
    """With effects that all tasks share, the task mean was evaluated on residuals and is not in the
    table.
    """
    rng, groups = np.random.default_rng(2), np.repeat(np.arange(20), 10)
    x = rng.uniform(-2.0, 2.0, len(groups))
    y = 3.0 * np.sin(2.0 * x) + 0.1 * rng.normal(size=len(groups))
    monkeypatch.setattr(learn, "better_baseline", lambda errors, baselines: " and ".join(baselines))
    with pytest.warns(UnhelpfulWarning, match="higher than those of the pooled regression; check"):
        learner = EmpiricalBayesLearner().fit(x[:, None], y, groups=groups)
    assert learner.prior_.shared is not None
    assert "task mean" not in learner.summary().to_frame("errors")["method"].tolist()


def test_the_pooled_fit_is_a_rival():
    """If the held-out errors are higher than those of pooled regression, the user is told."""
    tasks = tasks_of(np.tile([1.0, -1.0], (16, 1)), 6, 1.0, 0)
    found = learn.learn(data_of(tasks))
    assert found.warning is None
    worse = replace(found, best=replace(found.best, errors=found.best.errors + 1.0))
    assert "higher than those of the pooled regression; check" in worse.warning


# ---------------------------------------------------------------- what is selected


def test_conditioning_helps_where_it_should():
    tasks = make_clusters(140, n_clusters=2, n_rows=40, n_features=6, random_state=0)
    support, query = tasks.support_query(15, random_state=0)
    train, new, query = support[:80], support[80:], query[80:]
    learner = few_folds(loss="absolute").fit(train)
    error = learner.task_errors(new, query).mean()
    # subspaces of rank one: a component for each, or one for each sign
    assert learner.n_components_ in (2, 4)
    assert error < 0.98 * MixedModel(fit_intercept=False).fit(train).task_errors(new, query).mean()
    assert error < 0.9 * RidgePerTask().fit(train).task_errors(new, query).mean()


def test_simpler_structures_are_selected_where_they_suffice():
    one = make_clusters(150, n_clusters=1, n_rows=40, n_features=6, rank=2, random_state=3)
    support, query = one.support_query(20, random_state=0)
    learner = few_folds(loss="absolute").fit(support[:80])
    mixed = MixedModel(fit_intercept=False).fit(support[:80])
    errors = [each.task_errors(support[80:], query[80:]).mean() for each in (learner, mixed)]
    assert errors[0] < 1.01 * errors[1]
    # Isotropic weights: nothing is better than each task alone.
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(150):
        X = rng.normal(size=(40, 4))
        entries.append((X, X @ rng.normal(size=4) + 0.3 * rng.normal(size=40)))
    support, query = TaskSet.from_tasks(entries).support_query(15, random_state=0)
    alone = RidgePerTask().fit(support[:30]).task_errors(support[30:], query[30:]).mean()
    # An intercept that is not needed is learned, too.
    for fit_intercept, most in ((False, 1.01), (True, 1.04)):
        learner = few_folds(loss="absolute", fit_intercept=fit_intercept).fit(support[:30])
        assert learner.task_errors(support[30:], query[30:]).mean() < most * alone


def test_search_results_hold_the_choice(mixture):
    measured = ("error", "density")
    tried = mixture.search_results_
    assert {entry["kind"] for entry in tried} == {"mixed model", "mixture"}
    structures = [{k: v for k, v in entry.items() if k not in measured} for entry in tried]
    chosen = tried[structures.index(mixture.structure_)]
    # The clusters are clear, so that the highest density is significantly higher.
    assert chosen is max(tried, key=lambda entry: entry["density"])
    assert mixture.validation_error_ == pytest.approx(chosen["error"], rel=1e-9)


def test_means_of_counts():
    """Gamma-Poisson counts: with no rows, the mean prediction is the mean count (the median is much
    lower).
    """
    rng = np.random.default_rng(31)
    X, groups = rng.normal(size=(6000, 2)), np.repeat(np.arange(1000), 6)
    rates = rng.gamma(0.5, 14.0, 1000)[groups] * np.exp(0.3 * X[:, 0] - 0.2 * X[:, 1])
    y = rng.poisson(rates).astype(float)
    prior = few_folds().fit(X, y, groups=groups).adapt()
    assert prior.predict(X).mean() == pytest.approx(y.mean(), rel=0.03)
    assert np.median(y) < 0.6 * y.mean()


def test_a_structure_whose_means_explode_is_not_selected():
    """Most tasks have no events, and some have many: log rates vary so much that their means are
    enormous.
    """
    rng, T, n = np.random.default_rng(1), 160, 6
    happens = (rng.random((T, n)) < 0.3) & (rng.random(T) < 0.6)[:, None]
    rates = np.exp(1.0 + 0.6 * np.arange(n) + 1.5 * rng.normal(size=(T, 1)))
    y = np.where(happens, rng.negative_binomial(0.5, 0.5 / (0.5 + rates)), 0).ravel().astype(float)
    X = np.tile(np.eye(n)[:, 1:], (T, 1))
    learner = few_folds(loss="negative_binomial").fit(X, y, groups=np.repeat(np.arange(T), n))
    densest = max(learner.search_results_, key=lambda entry: entry["density"])
    (selected,) = (e for e in learner.search_results_ if learner.structure_.items() <= e.items())
    assert selected["error"] < 0.8 * densest["error"]


def test_standard_errors_of_coefficients_in_a_mixture():
    """Components do not know a slope that all tasks share better than the data do: se = σ / √(Σ
    within-task squares).
    """
    rng, T = np.random.default_rng(9), 45
    groups, x = np.repeat(np.arange(T), 6), np.tile(np.arange(-25.0, 26.0, 10.0), T)
    own = np.where(rng.random(T) < 0.3, 20.0, -10.0) + 2.0 * rng.normal(size=T)
    tasks = TaskSet(x[:, None], 0.158 * x + own[groups] + 4.5 * rng.normal(size=6 * T), groups)
    learner = EmpiricalBayesLearner().fit(tasks)
    assert learner.structure_["n_components"] > 1
    found = learner.effects(tasks)
    std = found.loc[found["column"] == "x0", "std"]
    assert std.min() > 0.9 * 4.5 / np.sqrt(x @ x)  # it was a third of this
