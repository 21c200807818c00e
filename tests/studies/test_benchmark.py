"""The benchmark: trials are reused, errors are what they say, and tables pair seeds."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from scipy.stats import t as student
from typer.testing import CliRunner

from studies.__main__ import app
from studies.benchmark import run as module
from studies.benchmark.measures import weight_error
from studies.benchmark.methods import ORACLE, OURS, Known
from studies.benchmark.run import Trial, TrialResult, run_benchmark, run_trial
from studies.benchmark.splits import Split, subspaces
from studies.benchmark.suites import COLD_ROWS, SUITES, Suite
from studies.benchmark.tables import (
    compare,
    lme4_rows_table,
    lme4_table,
    oracle_table,
    rows_table,
    summarise,
    to_csv,
    trials_table,
)
from studies.rivals import RIVALS
from tailored.datasets import make_clusters


@pytest.fixture
def tiny(monkeypatch):
    def load(seed, data):
        tasks = make_clusters(30, n_clusters=2, n_rows=12, n_features=6, rank=2, random_state=seed)
        support, query = tasks.support_query(8, shuffle=False)
        return Split(support[:20], support[20:], query[20:], (-0.1, 0.1))

    monkeypatch.setitem(SUITES, "tiny", Suite("a test", 20, load))


def test_a_trial_by_hand(tiny):
    result = run_trial(Trial("tiny", "task mean", 0))
    split = SUITES["tiny"].load(0, None)
    errors, clipped, cold = [], [], []
    for support, query in zip(split.support, split.query, strict=True):
        mean = support.y.mean()
        errors.append(np.abs(query.y - mean).mean())
        clipped.append(np.abs(query.y - np.clip(mean, -0.1, 0.1)).mean())
        cold.append(np.abs(query.y - split.train.y.mean()).mean())
    assert result.error == pytest.approx(np.mean(errors))
    assert result.clipped == pytest.approx(np.mean(clipped))
    assert result.cold["0"] == pytest.approx(np.mean(cold))
    assert result.cold["10"] == pytest.approx(result.error)  # only eight rows to take
    assert result.cold["5"] != result.cold["10"]
    means = np.repeat([task.y.mean() for task in split.support], split.query.sizes)
    assert result.row_error == pytest.approx(np.abs(split.query.y - means).mean())
    assert result.row_rmse == pytest.approx(np.sqrt(np.mean((split.query.y - means) ** 2)))


def test_finished_trials_are_kept(tiny, tmp_path, monkeypatch):
    first = run_benchmark(["tiny"], ["task mean", "ridge per task"], [0, 1], tmp_path)
    assert len(first) == 4
    (tmp_path / Trial("tiny", "task mean", 0).file).write_text("{damaged")
    ran = []
    real = module.run_trial
    monkeypatch.setattr(
        module, "run_trial", lambda trial, data: ran.append(trial) or real(trial, data)
    )
    again = run_benchmark(["tiny"], ["task mean", "ridge per task"], [0, 1], tmp_path)
    assert ran == [Trial("tiny", "task mean", 0)]
    assert [(c, r.error) for c, r in again] == [(c, r.error) for c, r in first]
    more = run_benchmark(["tiny"], ["task mean"], [0, 5], tmp_path, only_finished=True)
    assert [trial.seed for trial, _ in more] == [0]


def test_summary_pairs_the_seeds(monkeypatch):
    monkeypatch.setitem(SUITES, "s", Suite("a test", 9, lambda seed, data: None))
    ours, theirs = [1.0, 2.0, 3.0], [1.1, 2.3, 3.2]
    results = [(Trial("s", OURS, i), TrialResult(e, 1.0)) for i, e in enumerate(ours)]
    results += [
        (Trial("s", "ridge per task", i), TrialResult(e, 0.1, cold={"0": 9.0}))
        for i, e in enumerate(theirs)
    ]
    lines = {line.method: line for line in summarise(results)}
    assert lines[OURS].best_baseline == "ridge per task"
    assert lines[OURS].difference == pytest.approx(-100 * 0.6 / 6.6)
    differences = np.subtract(ours, theirs)
    t = differences.mean() / (differences.std(ddof=1) / np.sqrt(3))
    assert lines[OURS].p_value == pytest.approx(2 * student.sf(abs(t), 2))
    assert to_csv(*trials_table(results)).count("\n") == 1 + 3 + 6
    assert ["s", "ridge per task", "0", 9.0] in rows_table(results)[1]


def test_ratios_pair_the_splits(monkeypatch):
    """Geometric mean over the splits that both have, with a one-sided limit; only on multilevel
    sets.
    """
    suite = Suite("a test", 9, lambda seed, data: None, is_multilevel=True, overlap=5 / 9)
    monkeypatch.setitem(SUITES, "m", suite)
    monkeypatch.setitem(SUITES, "s", Suite("a test", 9, lambda seed, data: None))
    ours = {0: (1.0, 2.0), 1: (1.2, 2.0), 2: (0.9, 1.9), 9: (7.0, 7.0)}
    theirs = {0: (1.1, 2.1), 1: (1.35, 1.9), 2: (1.0, 1.8)}
    cold = {str(n): 1.0 for n in COLD_ROWS}
    results = [
        (Trial(suite, method, seed), TrialResult(error, seconds, cold=cold, row_rmse=rmse))
        for suite in ("m", "s")
        for method, seconds, errors in ((OURS, 1.0, ours), ("lme4", 3.0, theirs))
        for seed, (error, rmse) in errors.items()
    ]
    error, rmse = compare(results, "m", OURS, "lme4")
    logs = np.log([1 / 1.1, 1.2 / 1.35, 0.9])
    assert error.n == 3
    assert error.value == pytest.approx(100 * np.exp(logs.mean()) - 100)
    # Student's t with two degrees of freedom, 95 %; five new groups for nine of training.
    margin = 2.919986 * logs.std(ddof=1) * np.sqrt(1 / 3 + 5 / 9)
    assert error.upper == pytest.approx(100 * np.exp(logs.mean() + margin) - 100, rel=1e-5)
    assert rmse.value == pytest.approx(
        100 * np.exp(np.log([2 / 2.1, 2 / 1.9, 1.9 / 1.8]).mean()) - 100
    )
    _, (line,) = lme4_table(results)
    assert line[:4] == ["m", 9, OURS, 3]
    assert line[4:6] == [error.value, error.upper]
    assert line[-2:] == [1.0, 3.0]
    assert np.isnan(compare([results[0], results[4]], "m", OURS, "lme4")[0].upper)
    cold = [(trial, replace(result, cold={"2": result.error})) for trial, result in results]
    monkeypatch.setitem(SUITES, "m", replace(SUITES["m"], cold_rows=(2,)))
    _, (line,) = lme4_rows_table(cold)
    assert line[:5] == ["m", 2, OURS, 3, error.value]
    wider = (
        4.302653 * logs.std(ddof=1) * np.sqrt(1 / 3 + 5 / 9)
    )  # the 97.5 % quantile of Student's t
    assert line[5] == pytest.approx(100 * np.exp(logs.mean()) * wider, rel=1e-5)
    # Trials of an earlier run have no errors over rows.
    bare = [(trial, TrialResult(1.0, 1.0)) for trial, _ in results]
    assert compare(bare, "m", OURS, "lme4") is None


def test_what_cannot_run_is_left_out_with_its_reason(tiny, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        RIVALS["lme4"], "missing", classmethod(lambda cls: "Rscript is not installed")
    )
    monkeypatch.delenv("TAILORED_DATA", raising=False)
    results = run_benchmark(["tiny", "sleepstudy"], ["task mean", "lme4"], [0], tmp_path)
    assert [trial for trial, _ in results] == [Trial("tiny", "task mean", 0)]
    assert set(results.skipped) == {"lme4", "sleepstudy"}
    errors = capsys.readouterr().err
    assert "skipped: lme4: Rscript is not installed" in errors
    assert "skipped: sleepstudy: sleepstudy.csv was not found" in errors


def test_command_writes_tables_and_figures(tiny, tmp_path):
    methods = ["--method", "task mean", "--method", "mixed model"]
    options = ["--seeds", "2", "--jobs", "1", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["benchmark", "tiny", *methods, *options])
    assert result.exit_code == 0, result.output
    trials = [
        f"tiny_{name}_{seed}_all.json"
        for name in ("mixed-model", "task-mean")
        for seed in (200, 201)
    ]
    assert sorted(path.name for path in (tmp_path / "out" / "cells").iterdir()) == trials
    stored = json.loads((tmp_path / "out" / "cells" / "tiny_task-mean_200_all.json").read_text())
    scores = ["error", "seconds", "clipped", "cold", "coverage", "row_error", "row_rmse"]
    assert list(stored) == [*scores, "calibrated", "weight_error"]
    assert f"{stored['error']:.6g}" in (tmp_path / "out" / "trials.csv").read_text()
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {
        "cells",
        "trials.csv",
        "results.csv",
        "rows.csv",
        "benchmark-rows-others.png",
    }


GARBLED = [
    '{"error": 1.0, "sec',
    "[1, 2]",
    "3",
    '{"error": 1.0, "seconds": 2, "warm": 3}',
    "[" * 3000,
]


@pytest.mark.parametrize("text", GARBLED, ids=range(len(GARBLED)))
def test_a_garbled_trial_of_the_benchmark_is_named_and_missing(text, tmp_path, capsys):
    path = tmp_path / "trial.json"
    path.write_text(text)
    assert module.read(path) is None
    assert f"{path} is damaged" in capsys.readouterr().err


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
