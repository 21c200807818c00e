"""Tables of the benchmark: oracles, forecasts and intervals, each by hand."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from scipy.stats import t as student

from studies.benchmark import polls
from studies.benchmark.measures import weight_error
from studies.benchmark.methods import (
    ALGORITHM_1,
    IN_ORDER,
    ORACLE,
    OURS,
    PER_CATEGORY,
    SPLINES,
    Known,
)
from studies.benchmark.run import Trial, TrialResult, applies, list_trials
from studies.benchmark.splits import Split, subspaces, with_oracle
from studies.benchmark.suites import seeds_of
from studies.benchmark.tables import Change, intervals_table, lme4_table, oracle_table, summarise
from studies.rivals.base import MixedModel
from studies.rivals.simple import MixedModelPerCategory, SplineMixedModel
from studies.theory.bayes import ClusterOracle
from tailored.datasets import make_circle, make_clusters


@pytest.mark.parametrize("rows", [8, 3, 1])
def test_oracle_of_the_hint(rows):
    """The trial of the oracle is `ClusterOracle` on the same rows."""
    split = with_oracle(make_clusters, 20, 40, 8, n_clusters=6, hint=0.7)(3, None)
    tasks, truth = make_clusters(
        420, n_clusters=6, n_rows=40, hint=0.7, random_state=3, return_truth=True
    )
    assert truth.bases.shape == (6, 20, 2)
    known = ClusterOracle(truth.bases, 0.1, 0.7)
    np.testing.assert_array_equal(split.train.y, tasks[:20].y)
    given = split.given(rows, 3)
    assert set(given.sizes.tolist()) == {rows}
    assert set(split.query.sizes.tolist()) == {32}
    np.testing.assert_allclose(split.oracle.adapt_many(given), known.adapt_many(given))


def test_table_beside_the_oracle():
    errors = {OURS: [1.1, 2.4], ORACLE: [1.0, 2.0], "mixed model": [2.0, 4.0]}
    results = [
        (Trial("circle", name, seed), TrialResult(e, 1.0, cold={"0": e, "1": e, "3": e}))
        for name, values in errors.items()
        for seed, e in enumerate(values)
    ]
    head, lines = oracle_table(results)
    ratio = np.sqrt(1.1 * 1.2)
    error = ratio * np.std(np.log([1.1, 1.2]), ddof=1) / np.sqrt(2)
    assert lines[0][:5] == ["circle", 3, OURS, 2, "MAE"]
    assert lines[0][5:10] == pytest.approx([1.5, 1.75, 0.65, 100 * (ratio - 1), 100 * error])
    assert lines[-1][:5] == ["circle", 0, "mixed model", 2, "MAE"]
    assert lines[-1][8:10] == pytest.approx([100.0, 0.0])
    assert len(head) == len(lines[0])
    assert oracle_table(results[:2])[1] == []


def test_subspaces_by_dense_covariances():
    """The error of the oracle's weights, from the n x n posterior of each cluster."""
    split = subspaces(30, 12, 2, 6, 3)(4, None)
    assert (len(split.train), set(split.query.sizes.tolist())) == (30, {10})
    errors = []
    for task, true in zip(split.support, split.weights, strict=True):
        logs, means = [], []
        for P in split.oracle.bases:
            W = P @ P.T / 2
            K = task.X @ W @ task.X.T + np.eye(6)
            logs.append(multivariate_normal(np.zeros(6), K).logpdf(task.y))
            means.append(W @ task.X.T @ np.linalg.solve(K, task.y))
        shares = np.exp(logs - np.max(logs))
        errors.append(np.linalg.norm(shares @ means / shares.sum() - true))
    assert weight_error(Known(split.oracle), split) == pytest.approx(np.mean(errors))


def test_corrected_t():
    """Nadeau and Bengio: the variance of a mean over splits has the share of new groups added to
    1/n.
    """
    ours, theirs = [1.0, 1.2, 0.9], [1.1, 1.35, 1.0]
    logs = np.log(ours) - np.log(theirs)
    expected = logs.mean() / (logs.std(ddof=1) * np.sqrt(1 / 3 + 0.4))
    assert Change.of(ours, theirs, 0.4).t == pytest.approx(expected)


def test_corrected_p_of_real_data():
    """Splits of hsb82 share schools, tasks of different seeds of hint do not."""
    ours, theirs = np.array([1.0, 1.2, 0.9]), np.array([1.1, 1.35, 1.0])
    for suite, overlap in (
        ("hsb82", 1 / 3),
        ("oxboys", 1 / 3),
        ("movielens", 1 / 3),
        ("sleepstudy", 5 / 13),
        ("hint", 0.0),
    ):
        results = [
            (Trial(suite, name, seed), TrialResult(error, 1.0))
            for name, errors in ((OURS, ours), ("boosting", theirs))
            for seed, error in enumerate(errors)
        ]
        (line,) = (line for line in summarise(results) if line.method == OURS)
        change = ours - theirs
        t = change.mean() / (change.std(ddof=1) * np.sqrt(1 / 3 + overlap))
        assert line.p_value == pytest.approx(2 * student.sf(abs(t), 2))


def test_mixed_model_with_splines():
    """It finds coefficients on a circle, which effects linear in the side information do not."""
    split = with_oracle(make_circle, 150, 12, 3, n_features=4)(5, None)
    spline, linear, oracle = (
        model.fit(split.train) for model in (SplineMixedModel(), MixedModel(), Known(split.oracle))
    )
    errors = [
        np.abs(m.predict_rows(split.support, split.query) - split.query.y).mean()
        for m in (oracle, spline, linear)
    ]
    assert errors[1] < 1.05 * errors[0]
    assert errors[2] > 1.3 * errors[0]


def test_mixed_model_per_category():
    """Each category has the predictions of a mixed model of its own tasks; a new value has those of
    all tasks.
    """
    tasks = make_clusters(
        60, n_clusters=2, n_rows=10, n_features=4, rank=1, hint=1.0, random_state=0
    )
    train, (support, query) = tasks[:40], tasks[40:].support_query(5, shuffle=False)
    first = train.side_info[:, 0] == 1.0
    own = np.flatnonzero(support.side_info[:, 0] == 1.0)
    expected = (
        MixedModel(fit_intercept=False)
        .fit(train[np.flatnonzero(first)])
        .predict_rows(support[own], query[own])
    )
    model = MixedModelPerCategory().fit(train)
    rows = np.repeat(support.side_info[:, 0] == 1.0, query.sizes)
    np.testing.assert_allclose(model.predict_rows(support, query)[rows], expected)
    unseen = support.replace(side_info=np.full((20, 2), 7.0), side_names=None, encoding=None)
    pooled = MixedModel(fit_intercept=False).fit(train)
    np.testing.assert_allclose(
        model.predict_rows(unseen, query), pooled.predict_rows(support, query)
    )
    many = train.replace(side_info=np.arange(40.0)[:, None], side_names=None, encoding=None)
    with pytest.raises(ValueError, match="at most 20 categories, got 40"):
        model.fit(many)


def test_polls():
    if polls.missing(None):
        pytest.skip("needs R and dslabs")
    split = polls.load(0, None)
    assert (len(split.train), len(split.support)) == (43, 14)
    assert len(split.train.y) + len(split.new.y) == 4207
    assert np.median(np.concatenate([split.train.X[:, 1], split.new.X[:, 1]])) == 772


def test_table_of_intervals():
    """Numbers of rows that fewer than half of the seeds have are left out."""
    results = [
        (Trial("clusters-2", OURS, seed), TrialResult(1.0, 6.0, coverage=coverage))
        for seed, coverage in enumerate([{"5": (0.92, 1.8), "7": (0.9, 1.0)}, {"5": (0.90, 2.0)}])
    ]
    (line,) = intervals_table(results)[1]
    assert line == [
        "clusters-2",
        "5",
        2,
        pytest.approx(0.91),
        pytest.approx(0.01),
        pytest.approx(1.9),
    ]


def test_rows_in_the_order_of_time():
    tasks = make_clusters(12, n_clusters=2, n_rows=10, n_features=5, rank=2, random_state=0)
    support, query = tasks.support_query(4, shuffle=False)
    split = Split(tasks, support, query, new=tasks, arrival={"n_support": ("first", 4)})
    np.testing.assert_array_equal(split.given(2, 0)[0].y, tasks[0].y[:2])
    first, later = split.with_exactly(7, 0)
    np.testing.assert_array_equal(first[3].y, tasks[3].y[:7])
    np.testing.assert_array_equal(later[3].y, tasks[3].y[7:])
    np.testing.assert_array_equal(split.with_exactly(3, 0)[1].y, query.y)
    assert len(split.with_exactly(10, 0)[0]) == 0
    random = Split(tasks, support, query)
    assert not np.array_equal(random.given(2, 0).y, split.given(2, 0).y)
    assert np.isin(random.given(2, 0).y, random.given(3, 0).y).all()


def test_what_runs_where():
    assert applies(OURS, "hsb82")
    assert applies(IN_ORDER, "sleepstudy-time")
    assert not applies(ORACLE, "clusters-2")
    assert not applies("lme4", "clusters-2")
    assert applies(SPLINES, "circle")
    assert not applies(PER_CATEGORY, "circle")
    assert applies(PER_CATEGORY, "hint")
    trials = list_trials(["exam"], ["lme4", "MERF", ALGORITHM_1], {"exam": seeds_of("exam", 200)})
    counts = {name: sum(trial.method == name for trial in trials) for name in ("lme4", "MERF")}
    assert counts == {"lme4": 30, "MERF": 10}


def test_forecasts():
    results = [
        (Trial(suite, name, 0), TrialResult(e, 1.0, coverage=covered, row_rmse=e))
        for suite, name, e, covered in (
            ("oxboys-time", IN_ORDER, 1.0, {"all": (0.9, 1.0)}),
            ("oxboys-time", OURS, 1.5, {}),
            ("oxboys-time", "lme4", 2.0, {}),
            ("oxboys", OURS, 2.0, {}),
            ("oxboys", "lme4", 1.0, {}),
        )
    ]
    lines = {(line[0], line[2]): line[3:] for line in lme4_table(results)[1]}
    assert lines["oxboys-time", IN_ORDER][:2] == [1, pytest.approx(-50.0)]
    assert lines["oxboys-time", IN_ORDER][7] == 0.9
    assert lines["oxboys-time", OURS][:2] == [1, pytest.approx(-25.0)]
    assert lines["oxboys", OURS][1] == pytest.approx(100.0)
