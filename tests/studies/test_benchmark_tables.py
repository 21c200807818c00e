"""Tables of the benchmark: oracles, an earlier version, quantiles, units and cross-validation, each by hand."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from studies.__main__ import app
from studies.benchmark import METHODS, SUITES, Report, Trial, TrialResult, run_trial, seeds_of
from studies.benchmark import recipe as recipe_module
from studies.benchmark.methods import (
    ALGORITHM_1,
    COMMON,
    IN_ORDER,
    MIXED,
    ORACLE,
    OURS,
    QUANTILE,
    SHIFTED,
    STANDARD,
    predictions,
)
from studies.benchmark.run import applies, list_trials
from studies.benchmark.splits import Split, curve, hint
from studies.benchmark.suites import Suite
from studies.benchmark.tables import (
    aims,
    before,
    cross_validation,
    intervals,
    multilevel,
    oracle,
    unit_changes,
)
from tailored import EmpiricalBayesLearner, UnconditionalLearner
from tailored.datasets import make_circle, make_clusters
from tailored.losses import Pinball
from tailored.solvers import ProjectedSGD
from tailored.theory.bayes import ClusterOracle, CurveOracle


@pytest.fixture
def tiny(monkeypatch):
    def load(seed, data):
        tasks = make_clusters(36, n_clusters=2, n_rows=12, n_features=4, rank=2, random_state=seed)
        support, query = tasks.support_query(8, shuffle=False)
        return Split(tasks[:24], support[24:], query[24:])

    monkeypatch.setitem(SUITES, "tiny", Suite("a test", 24, load, also=(QUANTILE, STANDARD, SHIFTED, MIXED)))


def row_of(text, start):
    (found,) = (line for line in text.splitlines() if line.startswith(start))
    return found


@pytest.mark.parametrize("rows", [8, 3, 1])
def test_oracle_of_the_hint(rows):
    """The trial of the oracle is `ClusterOracle` on the same rows; the design page's sizes."""
    split = hint(20, 40, 8, n_clusters=6, hint=0.7)(3, None)
    tasks, truth = make_clusters(420, n_clusters=6, n_rows=40, hint=0.7, random_state=3, return_truth=True)
    assert truth.bases.shape == (6, 20, 2)
    known = ClusterOracle(truth.bases, 0.1, 0.7)
    np.testing.assert_array_equal(split.train.y, tasks[:20].y)
    given = split.given(rows, 3)
    assert set(given.sizes.tolist()) == {rows}
    assert set(split.query.sizes.tolist()) == {32}
    np.testing.assert_allclose(split.oracle.adapt_many(given), known.adapt_many(given))


def test_oracle_of_the_circle():
    split = curve(10, 20, 3)(5, None)
    _, truth = make_circle(410, random_state=5, return_truth=True)
    known = CurveOracle(truth.mean, 0.3, 0.5)
    np.testing.assert_allclose(split.oracle.adapt_many(split.support), known.adapt_many(split.support))
    assert set(split.query.sizes.tolist()) == {17}


def test_a_trial_of_the_oracle(monkeypatch):
    suite = Suite("a test", 20, curve(10, 20, 3), also=(ORACLE,))
    monkeypatch.setitem(SUITES, "tiny circle", suite)
    split = suite.load(5, None)
    weights = split.oracle.adapt_many(split.support)
    errors = [
        np.abs(task.y - np.column_stack([task.X, np.ones(len(task.y))])[:, : len(w)] @ w).mean()
        for task, w in zip(split.query, weights, strict=True)
    ]
    found = run_trial(Trial("tiny circle", ORACLE, 5))
    assert found.error == pytest.approx(np.mean(errors), rel=1e-12)


def test_table_beside_the_oracle():
    errors = {OURS: [1.1, 2.4], ORACLE: [1.0, 2.0], "mixed model": [2.0, 4.0]}
    results = [
        (Trial("circle", name, seed), TrialResult(e, 1.0, cold={"0": e, "1": e, "3": e}))
        for name, values in errors.items()
        for seed, e in enumerate(values)
    ]
    text = oracle.write(Report(results))
    ratio = np.sqrt(1.1 * 1.2)
    error = ratio * np.std(np.log([1.1, 1.2]), ddof=1) / np.sqrt(2)
    expected = f"| circle | 3 | 2 | 1.5000 | 1.7500 | {100 * (ratio - 1):+.2f} ± {100 * error:.2f} % |"
    assert row_of(text, "| circle | 3 |").startswith(expected)
    assert "+100.00 ± 0.00 %" in row_of(text, "| circle | 0 |")
    assert oracle.write(Report(results[:2])) == ""


def test_an_earlier_version(tmp_path):
    """Cells of an earlier version know fewer scores and another name."""
    cells = tmp_path / "cells"
    cells.mkdir()
    for seed, error in ((7, 2.0), (8, 3.0), (9, 9.0)):
        old = {"error": error, "seconds": 4.0, "clipped": None, "cold": {}, "coverage": {"5": [0.9, 2.0]}}
        (cells / f"clusters-2_conditional_{seed}_all.json").write_text(json.dumps(old))
    (cells / "clusters-2_conditional_7_100.json").write_text(json.dumps(old))
    (cells / "clusters-2_conditional--surrogate_7_all.json").write_text(json.dumps(old))
    found = before.read_before(tmp_path)
    assert {suite: sorted(by_seed) for suite, by_seed in found.items()} == {"clusters-2": [7, 8, 9]}
    results = [
        (
            Trial("clusters-2", OURS, seed),
            TrialResult(error, 6.0, coverage={"5": (0.91, 1.8)}, calibrated=[5, 9]),
        )
        for seed, error in ((7, 2.2), (8, 3.0))
    ]
    report = Report(results, found)
    ratio = np.sqrt(1.1)
    row = row_of(before.write(report), "| clusters-2 | 2 | 2.5000 | 2.6000 |")
    assert f"{100 * (ratio - 1):+.2f} ±" in row
    assert row.endswith("| 4.0 s | 6.0 s | 1.50 |")
    row = row_of(intervals.write(report), "| clusters-2 | **5** | 2 | 91.0 ± 0.0 % | 1.8 | 2 |")
    assert "-10.00 ± 0.00 %" in row
    assert before.write(Report(results)) == ""


def test_end_of_the_interval_as_a_quantile(few_steps, tiny):
    result = run_trial(Trial("tiny", OURS, 0))
    split = SUITES["tiny"].load(0, None)
    learner = EmpiricalBayesLearner().fit(split.train)
    below, losses = [], []
    for given, asked in zip(split.support, split.query, strict=True):
        end = learner.adapt(given.X, given.y).predict_interval(asked.X, 0.8)[:, 1]
        below.append(np.mean(asked.y <= end))
        losses.append(np.mean(np.where(asked.y > end, 0.9 * (asked.y - end), 0.1 * (end - asked.y))))
    assert result.quantile["all"] == pytest.approx((np.mean(below), np.mean(losses)))
    assert METHODS[QUANTILE].make(split).loss == Pinball(0.9)


def test_table_of_quantiles():
    results = [
        (Trial("hsb82", name, 0), TrialResult(1.0, 1.0, quantile={"all": numbers}))
        for name, numbers in ((QUANTILE, (0.9, 1.0)), (OURS, (0.8, 2.0)))
    ]
    assert "| hsb82 | all | 1 | 90.0 % | 80.0 % | 1 | 2 | -50.00 % |" in intervals.quantiles(Report(results))


def test_units_of_the_data_do_not_matter(few_steps, tiny):
    """The learner sees other numbers, and the error is in the units of the data set."""
    split = SUITES["tiny"].load(0, None)
    learner = EmpiricalBayesLearner().fit(split.train)
    expected = predictions(learner, split.support, split.query)
    for method in (STANDARD, SHIFTED, MIXED):
        elsewhere = METHODS[method].make(split).fit(split.train)
        seen = elsewhere.change_.tasks(split.train)
        assert not np.allclose(seen.X, split.train.X) or not np.allclose(seen.y, split.train.y)
        if method == STANDARD:
            np.testing.assert_allclose(seen.X.std(axis=0), 1.0)
            assert seen.y.mean() == pytest.approx(0.0, abs=1e-12)
        found = predictions(elsewhere, split.support, split.query)
        np.testing.assert_allclose(found, expected, atol=1e-5 * split.train.y.std())


def test_table_of_units():
    results = [
        (Trial("hsb82", name, 0), TrialResult(e, 1.0))
        for name, e in ((STANDARD, 2.0), (OURS, 2.02), (MIXED, 2.0))
    ]
    assert "| hsb82 | 1 | 2.0000 | +1.00 % |  | +0.00 % |" in unit_changes.write(Report(results))


def test_recipe_equals_its_loop(tmp_path, monkeypatch):
    monkeypatch.setattr(recipe_module, "N_TASKS", 12)
    lines = recipe_module.compare(0, UnconditionalLearner(loss="squared", solver=ProjectedSGD(0.1)))
    assert len(lines) == 4
    for line in lines:
        assert line["cross_val_score"] == pytest.approx(line["loop"], rel=1e-6)
        assert line["grid_search"] == pytest.approx(line["loop"], rel=1e-6)
    assert len({round(line["loop"], 6) for line in lines}) == 4
    monkeypatch.setattr(recipe_module, "compare", lambda seed: lines)
    assert recipe_module.recipe(tmp_path) == lines
    monkeypatch.setattr(recipe_module, "compare", None)  # kept in a file
    assert recipe_module.recipe(tmp_path) == lines
    assert f"{lines[0]['loop']:.8f}" in cross_validation.write(Report([], recipe=lines))


def test_rows_in_the_order_of_time():
    tasks = make_clusters(12, n_clusters=2, n_rows=10, n_features=5, rank=2, random_state=0)
    support, query = tasks.support_query(4, shuffle=False)
    split = Split(tasks, support, query, new=tasks, arrival={"order": "given", "support": 4})
    np.testing.assert_array_equal(split.given(2, 0)[0].y, tasks[0].y[:2])
    given, asked = split.with_exactly(7, 0)
    np.testing.assert_array_equal(given[3].y, tasks[3].y[:7])
    np.testing.assert_array_equal(asked[3].y, tasks[3].y[7:])
    given, asked = split.with_exactly(3, 0)
    np.testing.assert_array_equal(asked.y, query.y)
    assert len(split.with_exactly(10, 0)[0]) == 0
    random = Split(tasks, support, query)
    assert not np.array_equal(random.given(2, 0).y, split.given(2, 0).y)
    assert np.isin(random.given(2, 0).y, random.given(3, 0).y).all()


def test_what_runs_where():
    assert applies(OURS, "hsb82")
    assert not applies(QUANTILE, "exam")
    assert applies(COMMON, "exam")
    assert not applies(COMMON, "sleepstudy-time")
    assert applies(IN_ORDER, "sleepstudy-time")
    assert not applies(ORACLE, "clusters-2")
    assert not applies("lme4", "clusters-2")
    trials = list_trials(["exam"], ["lme4", "statsmodels", ALGORITHM_1], seeds_by_suite("exam"))
    counts = {name: sum(trial.method == name for trial in trials) for name in ("lme4", "statsmodels")}
    assert counts == {"lme4": 30, "statsmodels": 10}


def seeds_by_suite(suite):
    return {suite: seeds_of(suite, 200)}


def test_forecasts_and_common():
    results = [
        (Trial(suite, name, 0), TrialResult(e, 1.0, coverage=covered, row_rmse=e))
        for suite, name, e, covered in (
            ("oxboys-time", IN_ORDER, 1.0, {"all": (0.9, 1.0)}),
            ("oxboys-time", OURS, 1.5, {}),
            ("oxboys-time", "lme4", 2.0, {}),
            ("oxboys", OURS, 2.0, {}),
            ("oxboys", COMMON, 1.0, {}),
            ("oxboys", "lme4", 1.0, {}),
        )
    ]
    report = Report(results)
    text = multilevel.forecasts(report)
    row = row_of(text, '| oxboys-time | `EmpiricalBayesLearner(order="given"')
    assert row.endswith("| 1 | -50.00 % |  | -50.00 % |  | 90.0 % |")
    assert row_of(text, "| oxboys-time | `EmpiricalBayesLearner()` |").endswith(
        "| -25.00 % |  | -25.00 % |  |  |"
    )
    assert "| oxboys | 1 | -50.00 % | -50.00 % |" in multilevel.common(report)
    against = multilevel.write(report)
    assert "| oxboys | 20 | `EmpiricalBayesLearner()` | 1 | +100.00 % |" in against
    assert "oxboys-time" not in against


def test_the_command_lists_names():
    result = CliRunner().invoke(app, ["benchmark", "--list"])
    assert result.exit_code == 0, result.output
    assert all(name in result.output for name in (*SUITES, *METHODS))
    assert "EmpiricalBayesLearner(common='auto')" in result.output


def test_aims():
    """Each limit on both of its sides."""

    def found(results, before=None):
        lines = [aim for aims_of in aims.AIMS for aim in aims_of(Report(results, before or {}))]
        return {aim.what: aim.is_met for aim in lines}

    def both(suite, ours, theirs, other, **given):
        return [
            (
                Trial(suite, name, seed),
                TrialResult(e, 1.0, cold={"3": e, "0": e, "1": e}, row_rmse=e, **given),
            )
            for name, errors in ((OURS, ours), (other, theirs))
            for seed, e in enumerate(errors)
        ]

    close = found(both("circle", [1.02, 1.03], [1.0, 1.0], ORACLE))
    assert close == {"circle, 3 rows, above the oracle": True, "circle, 0 rows, above the oracle": True}
    assert not any(found(both("circle", [1.03, 1.05], [1.0, 1.0], ORACLE)).values())
    # Many groups: the upper limit; few: the mean.
    noisy = [1.03, 0.98, 1.01]
    assert not found(both("exam", noisy, [1.0] * 3, "lme4"))["exam, MAE and RMSE against lme4, upper limit"]
    assert found(both("oxboys", noisy, [1.0] * 3, "lme4"))["oxboys, MAE and RMSE against lme4, mean"]
    better = found(both("exam", [0.9, 0.91], [1.0, 1.0], "lme4"))
    assert [met for what, met in better.items() if what.startswith("sets on which")] == [
        False
    ]  # one is not three
    before = {"lenk": {0: TrialResult(1.0, 0.5, coverage=dict.fromkeys(("0", "5", "all"), (0.9, 2.0)))}}
    ours = TrialResult(
        1.004, 1.0, coverage={"0": (0.99, 2.1), "5": (0.95, 1.9), "all": (0.9, 2.0)}, calibrated=[0, 5, 9]
    )
    assert found([(Trial("lenk", OURS, 0), ours)], before) == {
        "lenk, error against the version before": False,
        "lenk, time of a fit against it": False,
        "lenk, 5 rows, coverage within two standard errors": False,
        "lenk, 0 rows, width against the version before": False,
        "lenk, 5 rows, width against the version before": True,
        "lenk, all rows, width against the version before": True,
    }
