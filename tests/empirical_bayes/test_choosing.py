"""EmpiricalBayesLearner: which form, which scale, which loss, and what side information adds."""

import numpy as np
import pytest

from bayes_samples import skewed_tasks
from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.baselines import MixedModel, RidgePerTask
from tailored.datasets import make_clusters
from tailored.empirical_bayes.query_bias import PENALTIES
from tailored.feature_maps import MeanEmbedding
from tailored.losses import Pinball
from tailored.priors.base import predict_blocks

# ---------------------------------------------------------------- choosing


def test_conditioning_helps_where_it_should():
    tasks = make_clusters(140, n_clusters=2, n_rows=40, n_features=6, random_state=0)
    support, query = tasks.support_query(15, random_state=0)
    train, new, asked = support[:80], support[80:], query[80:]
    learner = few_folds(loss="absolute", n_folds=4).fit(train)
    error = learner.task_errors(new, asked).mean()
    # subspaces of rank one: a component for each, or one for each sign
    assert learner.n_components_ in (2, 4)
    assert error < 0.98 * MixedModel(fit_intercept=False).fit(train).task_errors(new, asked).mean()
    assert error < 0.9 * RidgePerTask().fit(train).task_errors(new, asked).mean()


def test_it_degrades_to_its_simpler_forms():
    one = make_clusters(150, n_clusters=1, n_rows=40, n_features=6, rank=2, random_state=3)
    support, query = one.support_query(20, random_state=0)
    learner = few_folds(loss="absolute", n_folds=4).fit(support[:80])
    error = learner.task_errors(support[80:], query[80:]).mean()
    assert (
        error
        < 1.01
        * MixedModel(fit_intercept=False).fit(support[:80]).task_errors(support[80:], query[80:]).mean()
    )
    # nothing in common: isotropic weights, so that every task alone is the best one can do
    rng = np.random.default_rng(0)
    entries = []
    for _ in range(150):
        X = rng.normal(size=(40, 4))
        entries.append((X, X @ rng.normal(size=4) + 0.3 * rng.normal(size=40)))
    support, query = TaskSet.from_tasks(entries).support_query(15, random_state=0)
    alone = RidgePerTask().fit(support[:30]).task_errors(support[30:], query[30:]).mean()
    for fit_intercept, most in (
        (False, 1.01),
        (True, 1.04),
    ):  # an intercept that nobody needs is learned, too
        learner = few_folds(loss="absolute", fit_intercept=fit_intercept).fit(support[:30])
        assert learner.task_errors(support[30:], query[30:]).mean() < most * alone


def test_search_results_hold_the_choice(mixture):
    measured = ("error", "density")
    tried = [entry for entry in mixture.search_results_ if entry["kind"] != "conditional bias"]
    assert {entry["kind"] for entry in tried} == {"mixed model", "mixture", "atoms"}
    (chosen,) = [
        entry
        for entry in tried
        if {k: v for k, v in entry.items() if k not in measured} == mixture.structure_
    ]
    # The clusters are clear, so that the highest density is significantly higher.
    assert chosen is max(tried, key=lambda entry: entry["density"])
    biases = [entry for entry in mixture.search_results_ if entry["kind"] == "conditional bias"]
    rows = sorted({entry["rows"] for entry in biases})
    assert rows == [0, 4, 11]  # 15 rows to adapt on in a rotation: none, a quarter, three quarters
    last = {entry["penalty"]: entry["error"] for entry in biases if entry["rows"] == 11}
    assert mixture.validation_error_ == last[mixture.bias_penalty_] <= last[None]
    assert last[None] == pytest.approx(chosen["error"], rel=1e-9)


def test_validation_tasks_can_be_given(clusters):
    """They choose, and then they teach as all others do."""
    learner = EmpiricalBayesLearner().fit(clusters[:60], validation=clusters[60:])
    assert learner.n_tasks_seen_ == 80
    assert len(learner.task_labels_) == 60


def test_quantiles():
    tasks = skewed_tasks(8, n_tasks=120, d=2, n_rows=20)
    support, query = tasks.support_query(10, random_state=0)
    for quantile in (0.1, 0.9):
        learner = few_folds(loss=Pinball(quantile), n_folds=4)
        learner.fit(tasks[:80])
        predicted = predict_blocks(learner.prior_, support[80:], query[80:]).prediction
        below = query.y[query.offsets[80] :] <= predicted
        assert below.mean() == pytest.approx(quantile, abs=0.1)


def test_means_of_counts():
    """Gamma-Poisson counts: with no rows, the mean prediction is the mean count (the median is much lower)."""
    rng = np.random.default_rng(31)
    X, groups = rng.normal(size=(6000, 2)), np.repeat(np.arange(1000), 6)
    rates = rng.gamma(0.5, 14.0, 1000)[groups] * np.exp(0.3 * X[:, 0] - 0.2 * X[:, 1])
    y = rng.poisson(rates).astype(float)
    prior = few_folds().fit(X, y, groups=groups).adapt()
    assert prior.predict(X).mean() == pytest.approx(y.mean(), rel=0.03)
    assert np.median(y) < 0.6 * y.mean()


def test_skewed_noise_asks_for_the_median():
    """The conditional bias: the absolute loss wants the median where the Gaussian model gives the mean."""
    rng = np.random.default_rng(9)
    entries = []
    for _ in range(300):
        y = rng.normal() + rng.exponential(size=8) ** 2
        entries.append((np.ones((8, 1)), y))
    tasks = TaskSet.from_tasks(entries)
    support, query = tasks.support_query(4, random_state=0)
    learner = EmpiricalBayesLearner(loss="absolute").fit(tasks[:200])
    assert learner.bias_penalty_ in PENALTIES
    error = learner.task_errors(support[200:], query[200:]).mean()
    assert (
        error
        < 0.95
        * MixedModel(fit_intercept=False).fit(tasks[:200]).task_errors(support[200:], query[200:]).mean()
    )
    prior = learner.adapt().predict(np.ones((1, 1)))[0]
    assert prior < 1.4  # the mean of the targets is 2, their median about 1


# ---------------------------------------------------------------- side information


def test_side_information_serves_the_cold_start(with_side):
    tasks, learner = with_side
    fresh = skewed_tasks(1, d=3, side=True)
    assert learner.side_structure_["effect on"] == "all weights"
    blind = few_folds("posterior", n_folds=4).fit(tasks)
    assert blind.side_structure_ is None
    informed, uninformed = [], []
    for task in fresh:
        informed.append(np.abs(learner.adapt(side_info=task.side_info).predict(task.X) - task.y).mean())
        uninformed.append(np.abs(blind.adapt().predict(task.X) - task.y).mean())
    assert np.mean(informed) < 0.6 * np.mean(uninformed)
    support, query = fresh.support_query(2, random_state=0)
    assert learner.task_errors(support, query).mean() < 0.85 * blind.task_errors(support, query).mean()


def test_side_information_is_asked_for(with_side, skewed):
    tasks, learner = with_side
    with pytest.raises(ValueError, match="side_info"):
        learner.adapt(tasks[0].X, tasks[0].y)
    with pytest.raises(ValueError, match="side_info: this learner was fitted without"):
        skewed[1].adapt(side_info=[1.0, 2.0])


def test_other_features_join(few_steps):
    tasks = skewed_tasks(3, n_tasks=60, d=2, n_rows=8)
    for spec, some, expected in (
        (
            lambda task: [task.y.sum(), 1.0],
            tasks[:12],
            np.array([[task.y.sum(), 1.0] for task in tasks[:12]]),
        ),
        ("mean", tasks, MeanEmbedding().transform(tasks)),
    ):
        learner = few_folds(spec, loss="absolute").fit(some)
        assert np.isfinite(learner.adapt_many(tasks).weights_).all()
        side = learner.prior_.side
        assert not side.from_side_info
        spread = np.where(expected.std(axis=0) > 0, expected.std(axis=0), 1.0)
        standardised = (expected - expected.mean(axis=0)) / spread / np.sqrt(expected.shape[1])
        np.testing.assert_allclose(side(some), standardised, atol=1e-12)
        # they are part of ψ of every level that has something to say: d directions, two noise levels, these
        for level in learner.prior_.shifts:
            if level.summary is not None:
                assert len(level.summary.mean) == 3 + 2 + expected.shape[1]
    assert learner.bias_penalty_ is not None  # so that there was such a level


def test_a_callable_may_read_the_description(few_steps, with_side):
    tasks, _ = with_side
    some = tasks[:12]
    learner = EmpiricalBayesLearner(lambda task: task.side_info).fit(some)
    assert np.isfinite(learner.adapt(side_info=tasks[0].side_info).coef_).all()
    table = some.side_info
    standardised = (table - table.mean(axis=0)) / table.std(axis=0) / np.sqrt(2.0)
    np.testing.assert_allclose(learner.prior_.side(some), standardised, atol=1e-12)


def test_a_structure_whose_means_explode_is_not_selected():
    """Most tasks have no events, and some have many: log rates vary so much that their means are enormous."""
    rng, T, n = np.random.default_rng(1), 160, 6
    happens = (rng.random((T, n)) < 0.3) & (rng.random(T) < 0.6)[:, None]
    rates = np.exp(1.0 + 0.6 * np.arange(n) + 1.5 * rng.normal(size=(T, 1)))
    y = np.where(happens, rng.negative_binomial(0.5, 0.5 / (0.5 + rates)), 0).ravel().astype(float)
    X = np.tile(np.eye(n)[:, 1:], (T, 1))
    learner = EmpiricalBayesLearner(loss="negative_binomial").fit(X, y, groups=np.repeat(np.arange(T), n))
    assert learner.adapt().predict(X).mean() == pytest.approx(y.mean(), rel=0.1)  # it was 200 times as large


def test_standard_errors_of_coefficients_in_a_mixture():
    """Components do not know a slope that all tasks share better than the data do: se = σ / √(Σ within-task squares)."""
    rng, T = np.random.default_rng(9), 45
    groups, x = np.repeat(np.arange(T), 6), np.tile(np.arange(-25.0, 26.0, 10.0), T)
    own = np.where(rng.random(T) < 0.3, 20.0, -10.0) + 2.0 * rng.normal(size=T)
    tasks = TaskSet(x[:, None], 0.158 * x + own[groups] + 4.5 * rng.normal(size=6 * T), groups)
    learner = EmpiricalBayesLearner().fit(tasks)
    assert learner.structure_["n_components"] > 1
    found = learner.effects(tasks)
    std = found.loc[found["column"] == "x0", "std"]
    assert std.min() > 0.9 * 4.5 / np.sqrt(x @ x)  # it was a third of this
