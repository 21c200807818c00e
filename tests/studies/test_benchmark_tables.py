"""Tables of the benchmark: oracles, forecasts and intervals, each by hand."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from scipy.stats import t as student

from studies.benchmark.measures import weight_error
from studies.benchmark.methods import (
    IN_ORDER,
    ORACLE,
    OURS,
    Known,
)
from studies.benchmark.run import Trial, TrialResult
from studies.benchmark.splits import Split, subspaces
from studies.benchmark.tables import lme4_table, oracle_table, summarise
from tailored.datasets import make_clusters


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
