"""Rivals of other programs: the best linear predictor, what lme4 estimates, and trees without a
leak.
"""

import logging
import shutil

import numpy as np
import pytest

from studies.benchmark.methods import predictions
from studies.rivals import BoostedMixedModel, Lme4, MixedEffectsForest
from studies.rivals import mixed_models as external
from studies.rivals.base import MixedModel, PooledBoosting
from studies.rivals.mixed_models import (
    FULL,
    INTERCEPT,
    DescribedMixedModel,
    Estimates,
    independent_columns,
    random_effects,
)
from tailored import TaskSet

COVARIANCE = np.array([[0.5, 0.3], [0.3, 1.0]])
NOISE = 0.25


def skip_if_missing(rival):
    if reason := rival.missing():
        pytest.skip(reason)


@pytest.fixture
def lme4():
    """Skip a test without R and lme4; `Lme4.missing` starts R, so it is not called during
    collection.
    """
    skip_if_missing(Lme4)


def simulate(n_tasks, n_rows, seed=0, side=True):
    """A slope, an intercept that the side information shifts by 2 s, variances `COVARIANCE` and
    `NOISE`.
    """
    rng = np.random.default_rng(seed)
    entries = []
    for _ in range(n_tasks):
        x, s = 2.0 * rng.normal(size=(n_rows, 1)), rng.normal(size=1)
        u = rng.multivariate_normal([0.0, 0.0], COVARIANCE)
        y = (3.0 + u[0]) * x[:, 0] + 10.0 + u[1] + 0.5 * rng.normal(size=n_rows)
        entries.append((x, y + 2.0 * s[0], s) if side else (x, y))
    return TaskSet.from_tasks(entries)


# --- the best linear predictor


@pytest.mark.parametrize("n", [1, 2, 7])
def test_best_linear_predictor_is_the_conditional_mean(n):
    """E[u | y] from the precision of the joint Gaussian of (u, y)."""
    rng = np.random.default_rng(n)
    Z, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    root = rng.normal(size=(3, 3))
    W = root @ root.T
    joint = np.block([[W, W @ Z.T], [Z @ W, Z @ W @ Z.T + 0.3 * np.eye(n)]])
    precision = np.linalg.inv(joint)
    expected = -np.linalg.solve(precision[:3, :3], precision[:3, 3:] @ y)
    np.testing.assert_allclose(random_effects(Z, y, W, 0.3), expected, rtol=1e-6)


def test_best_linear_predictor_at_the_boundary():
    Z, y = np.random.default_rng(0).normal(size=(5, 2)), np.arange(5.0)
    expected = [Z[:, 0] @ y / (Z[:, 0] @ Z[:, 0] + 0.25), 0.0]
    np.testing.assert_allclose(random_effects(Z, y, np.diag([2.0, 0.0]), 0.5), expected)
    np.testing.assert_array_equal(random_effects(Z, y, np.zeros((2, 2)), 0.5), 0.0)
    np.testing.assert_array_equal(random_effects(Z[:0], y[:0], np.eye(2), 0.5), 0.0)


class LeastSquares(DescribedMixedModel):
    """A program that knows no random effects."""

    @classmethod
    def missing(cls):
        return None

    def _estimate(self, rows):
        d = rows.X.shape[1]
        np.testing.assert_allclose(rows.X.std(axis=0), 1.0)
        return Estimates(
            "none", np.linalg.lstsq(rows.fixed, rows.y)[0], self.spread * np.eye(d + 1), 1.0
        )

    spread = 0.0


def test_units_and_dependent_columns():
    """Columns in any units, and side information with dependent columns, give the least squares of
    all rows.
    """
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(8):
        s = rng.normal(size=1)
        X = rng.normal(size=(5, 2)) * [1e-3, 1e3] + [0, 50]
        entries.append((X, 40 + 1e6 * rng.normal(size=5), np.array([s[0], 3 * s[0] - 1, 7.0])))
    tasks = TaskSet.from_tasks(entries)
    model = LeastSquares().fit(tasks)
    weights = model.adapt_many(tasks)
    design = np.hstack([tasks.X, np.ones((40, 1)), np.repeat(tasks.side_info[:, :1], 5, axis=0)])
    expected = design @ np.linalg.lstsq(design, tasks.y)[0]
    found = [X @ w[:-1] + w[-1] for w, (X, *_) in zip(weights, tasks, strict=True)]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-6)


def test_covariance_in_the_users_units():
    tasks = simulate(10, 6)
    model = LeastSquares()
    model.spread = 2.0
    model.fit(tasks)
    units = np.array([tasks.X.std(), 1.0])
    np.testing.assert_allclose(model.covariance_, 2.0 * tasks.y.var() * np.diag(1 / units**2))
    assert model.noise_ == pytest.approx(tasks.y.var())


def test_independent_columns():
    a, b = np.random.default_rng(0).normal(size=(2, 9))
    columns = np.column_stack([a, np.ones(9), 0 * a, 2 * a - 3, b, a + b])
    np.testing.assert_array_equal(independent_columns(columns), [0, 1, 4])


# --- lme4


@pytest.mark.usefixtures("lme4")
def test_known_variances():
    model = Lme4().fit(simulate(250, 10))
    assert model.form_ == FULL
    assert model.aic_[FULL] < model.aic_[INTERCEPT]
    np.testing.assert_allclose(model.weights_, [3.0, 10.0], atol=0.2)
    np.testing.assert_allclose(model.description_, [2.0], atol=0.2)
    np.testing.assert_allclose(model.covariance_, COVARIANCE, atol=0.2)
    assert model.noise_ == pytest.approx(NOISE, rel=0.1)


@pytest.mark.usefixtures("lme4")
def test_agrees_with_our_mixed_model():
    """The same likelihood, maximised by another program: the same model, and the same weights of
    new tasks.
    """
    tasks = simulate(60, 8, side=False)
    train, support = tasks[:40], tasks[40:].support_query(3, random_state=0)[0]
    theirs = Lme4(forms=(FULL,), reml=False).fit(train)
    ours = MixedModel(fit_intercept=True).fit(train)
    np.testing.assert_allclose(theirs.weights_, ours.mean_, rtol=1e-3)
    np.testing.assert_allclose(theirs.covariance_, ours.covariance_, rtol=2e-2, atol=1e-3)
    assert theirs.noise_ == pytest.approx(ours.noise_, rel=1e-2)
    np.testing.assert_allclose(theirs.adapt_many(support), ours.adapt_many(support), rtol=5e-3)


@pytest.mark.usefixtures("lme4")
def test_restricted_likelihood_has_the_larger_variance():
    """Of a random intercept and few tasks: the usual correction for estimated means."""
    tasks = simulate(8, 6)
    spread = [
        Lme4(reml=reml, forms=(INTERCEPT,)).fit(tasks).covariance_[-1, -1] for reml in (True, False)
    ]
    assert spread[0] > 1.05 * spread[1]


def test_missing_programs(monkeypatch):
    tasks = simulate(5, 4)
    external._r_with_lme4.cache_clear()
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "Rscript is not installed" in Lme4.missing()
    with pytest.raises(RuntimeError, match="r-cran-lme4"):
        Lme4().fit(tasks)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for rival, package in ((BoostedMixedModel, "gpboost"), (MixedEffectsForest, "merf")):
        assert package in rival.missing()
        with pytest.raises(RuntimeError, match=r"rivals"):
            rival().fit(tasks)
    external._r_with_lme4.cache_clear()


# --- trees


def test_training_rows_of_boosting_do_not_contain_their_own_target():
    tasks = TaskSet.from_tasks([(np.zeros((n, 1)), n + 10.0 ** np.arange(n)) for n in (1, 2, 5, 9)])
    baseline = PooledBoosting(max_iter=1).fit(tasks)
    columns, targets, _ = baseline._training_rows(tasks, np.random.RandomState(0))
    totals = {task.y.sum(): task.y for task in tasks}
    for (_, mean, number), y in zip(columns, targets, strict=True):
        assert np.isnan(mean) == (number == 0)
        # Distinct powers of ten: the sum of the support rows tells which rows they are.
        own = next(rows for rows in totals.values() if y in rows)
        assert (
            number == 0
            or not (round(mean * number - number * len(own)) // round(y - len(own))) % 10
        )


@pytest.fixture(scope="module")
def boosted():
    """Levels of tasks that the side information shifts by 2 s."""
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(60):
        X, s = rng.normal(size=(8, 1)), rng.normal(size=1)
        entries.append(
            (X, 10.0 + X[:, 0] + 2.0 * s[0] + 3.0 * rng.normal() + 0.5 * rng.normal(size=8), s)
        )
    tasks = TaskSet.from_tasks(entries)
    support, query = tasks[45:].support_query(4, random_state=0)
    return PooledBoosting(max_iter=100).fit(tasks[:45]), support, query


def test_query_targets_never_enter(boosted):
    model, support, query = boosted
    found = model.predict_rows(support, query)
    hidden = TaskSet.from_arrays(
        query.X, np.zeros_like(query.y), query.offsets, query.labels, query.side_info
    )
    np.testing.assert_array_equal(model.predict_rows(support, hidden), found)
    np.testing.assert_array_equal(predictions(model, support, query), found)
    with pytest.raises(ValueError, match="the same 2 tasks"):
        model.predict_rows(support[:2], query)


def test_boosting_reads_rows_and_side_information(boosted):
    model, support, query = boosted
    none = support.with_rows(
        np.zeros(len(support.y), dtype=bool), np.zeros(len(support), dtype=int)
    )
    with_rows, cold = (model.task_errors(given, query).mean() for given in (support, none))
    assert with_rows < 0.6 * cold
    moved = TaskSet.from_arrays(
        query.X, query.y, query.offsets, query.labels, query.side_info + 1.0
    )
    assert model.predict_rows(none, moved).mean() > model.predict_rows(none, query).mean() + 0.5
    assert 1 <= model.n_iter_ <= 100


@pytest.mark.parametrize(
    ("rival", "options"),
    [
        (MixedEffectsForest, {"n_estimators": 20, "max_iter": 3}),
        (BoostedMixedModel, {"max_iter": 20}),
    ],
)
def test_trees_adapt_their_intercept(rival, options):
    skip_if_missing(rival)
    tasks = simulate(40, 8)
    support, query = tasks[30:].support_query(4, random_state=0)
    handlers = logging.getLogger().handlers[:]
    model = rival(**options).fit(tasks[:30])
    assert logging.getLogger().handlers == handlers
    none = support.with_rows(
        np.zeros(len(support.y), dtype=bool), np.zeros(len(support), dtype=int)
    )
    shift = model.predict_rows(support, query) - model.predict_rows(none, query)
    trees = model.predict_rows(none, support)
    for t in range(len(support)):
        left = (support.y - trees)[slice(*support.offsets[t : t + 2])] / model.unit_
        u = random_effects(np.ones((4, 1)), left, np.array([[model.variance_]]), model.noise_)
        np.testing.assert_allclose(shift[slice(*query.offsets[t : t + 2])], u[0] * model.unit_)


@pytest.mark.usefixtures("lme4")
def test_lme4_takes_what_can_be_fitted():
    """Two rows a task are too few for full slopes; that model is left out and the reason kept."""
    tasks = simulate(30, 2)
    model = Lme4().fit(tasks)
    assert FULL not in model.aic_
    assert "number of observations" in model.failures_[FULL]
    with pytest.raises(RuntimeError, match=r"none of its models.*number of observations"):
        Lme4(forms=(FULL,)).fit(tasks)
