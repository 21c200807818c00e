"""What is decided with few tasks and with many, and when a learner says that it could not help."""

import warnings
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize

from folds import few_folds
from tailored import EmpiricalBayesLearner, TaskSet
from tailored._utils.progress import Stages
from tailored.datasets import make_clusters
from tailored.empirical_bayes import learn as learn_module
from tailored.empirical_bayes import selection
from tailored.empirical_bayes.data import Settings, TrainingData
from tailored.empirical_bayes.query_bias import SMOOTHING, QueryBias, smoothed
from tailored.empirical_bayes.selection import LEAST_COMPARED, better_baseline, likely_cause
from tailored.exceptions import UnhelpfulWarning
from tailored.gaussian import side
from tailored.gaussian.structures import PSEUDO_TASKS, StructureFitter, covariance_structures
from tailored.losses import Absolute, EpsilonInsensitive, Pinball, Squared


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
    settings = Settings(Absolute(), True, None, 0, None)
    return TrainingData(tasks, None, 0, replace(settings, **changes))


# ---------------------------------------------------------------------------------- forms for few tasks


def test_covariances_of_one_gaussian():
    def kinds(*arguments, **options):
        return [[form.covariance for form in chain] for chain in covariance_structures(*arguments, **options)]

    full = ["full"] * (1 + len(PSEUDO_TASKS))
    assert kinds(3, True) == [["none"], ["intercept"], ["diagonal"], full]
    assert kinds(3, False) == [["none"], ["diagonal"], full]
    # With one coefficient, all covariances are a variance.
    assert kinds(1, True) == [["none"], ["intercept"]]
    assert kinds(1, False) == [["none"], ["diagonal"]]
    assert kinds(40, True, full=False) == [["none"], ["intercept"], ["diagonal"]]
    # Coefficients that the user sets as varying do vary.
    assert kinds(4, True, (0, 3)) == [["diagonal"], full]
    assert kinds(4, True, (0,)) == [["full"]]
    assert {form.varying for chain in covariance_structures(4, True, (0, 3)) for form in chain} == {(0, 3)}


def test_correlations_are_shrunk_to_zero():
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(12, 1)) * [1.0, 0.9] + 0.1 * rng.normal(size=(12, 2))
    statistics = data_of(tasks_of(weights, 4, 1.0, 1), fit_intercept=False).statistics
    fitter = StructureFitter.of(statistics, [0])
    fits = [fitter.most_likely(form).covariances[0] for form in covariance_structures(2, False)[-1]]
    correlations = [W[0, 1] / np.sqrt(W[0, 0] * W[1, 1]) for W in fits]
    assert (np.diff(correlations) < 0.0).all()
    assert correlations[0] > 0.5
    assert 0.0 < correlations[-1] < 0.1
    for W in fits[1:]:
        np.testing.assert_allclose(np.diag(W), np.diag(fits[0]), rtol=0.25)


@pytest.mark.parametrize("T", [40, pytest.param(80, marks=pytest.mark.slow)])
def test_noise_is_predicted_by_its_mean(T):
    tasks = tasks_of(np.zeros((T + 60, 6)), 6, 1.0, 5, level=30.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnhelpfulWarning)
        learner = EmpiricalBayesLearner(loss="absolute").fit(tasks[:T])
    support, query = tasks[T:].support_query(3, random_state=0)
    errors = learner.task_errors(support, query).mean()
    assert errors < 1.04 * np.abs(query.y - tasks[:T].y.mean()).mean()
    assert errors < 0.95 * np.abs(query.y - np.repeat([t.y.mean() for t in support], query.sizes)).mean()


# ------------------------------------------------------------------------------------ the description


def test_a_weak_effect_on_the_intercept_is_kept():
    """Two standard errors of density would reject it; a proposal only must not lower the density."""
    kept = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        side = rng.normal(size=(45, 1))
        X, groups = rng.normal(size=(45 * 6, 1)), np.repeat(np.arange(45), 6)
        y = (X[:, 0] + (0.5 * side[:, 0] + rng.normal(size=45))[groups]) + rng.normal(size=len(X))
        learner = few_folds()
        data = data_of(TaskSet(X, y, groups, side_info=dict(enumerate(side))), n_folds=2)
        data = replace(data, side=learner._side_features(data.tasks))
        kept += selection.select(data, Stages("")).side is not None
    assert kept >= 3


# --------------------------------------------------------------------------------- what errors can say


def test_who_is_better_by_more_than_chance():
    rng = np.random.default_rng(0)
    errors = 1.0 + 0.1 * rng.normal(size=LEAST_COMPARED)
    rivals = {"worse": errors + 0.5, "better": errors - 0.2, "best": errors - 0.3}
    assert better_baseline(errors, rivals) == "best"
    assert better_baseline(errors, {"worse": rivals["worse"], "same": errors}) is None
    # a handful of tasks cannot tell
    assert better_baseline(errors[:-1], {name: found[:-1] for name, found in rivals.items()}) is None
    assert better_baseline(np.append(errors[:-1], np.nan), {"best": rivals["best"]}) is None


def test_two_tasks_are_no_reason_to_warn():
    for seed in range(5):
        tasks = tasks_of(np.random.default_rng(seed).normal(size=(2, 3)), 5, 3.0, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnhelpfulWarning)
            EmpiricalBayesLearner().fit(tasks)


def test_a_level_without_an_intercept_is_said():
    tasks = tasks_of(np.zeros((14, 2)), 6, 1.0, 0, level=50.0)
    with pytest.warns(UnhelpfulWarning, match="mean of their own rows; look at fit_intercept"):
        EmpiricalBayesLearner(fit_intercept=False).fit(tasks)


def test_the_pooled_fit_is_a_rival(monkeypatch):
    """If the selected Gaussian has higher held-out errors than pooled regression, the user is told."""
    rng = np.random.default_rng(0)
    tasks = tasks_of([1.0, -1.0] + 0.0 * rng.normal(size=(16, 2)), 6, 1.0, 0)

    select = selection._select_covariance

    def worse(*arguments):
        folds, tried, single = select(*arguments)
        return folds, tried, replace(single, errors=single.errors + 1.0)

    monkeypatch.setattr(selection, "_select_covariance", worse)
    with pytest.warns(UnhelpfulWarning, match="one fit to the rows of all tasks; no column of X stands out"):
        EmpiricalBayesLearner().fit(tasks)


def test_the_column_that_stands_out_is_named():
    import pandas as pd

    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"height": rng.normal(size=60), "weight": rng.normal(size=60), "y": rng.normal(size=60)}
    )
    frame["school"] = np.repeat(np.arange(12), 5)
    frame.loc[frame.school == 3, "weight"] *= 1000.0
    tasks = TaskSet.from_frame(frame, task="school", target="y")
    assert "column 'weight' of X" in likely_cause(data_of(tasks))
    plain = TaskSet.from_arrays(tasks.X, tasks.y, tasks.offsets, tasks.labels)
    assert "column 1 of X" in likely_cause(data_of(plain))
    assert "fit_intercept" in likely_cause(data_of(tasks_of(np.ones((5, 2)), 4, 1.0, 0), fit_intercept=False))
    empty = TaskSet.from_tasks([(np.zeros((0, 2)), np.zeros(0)), (np.ones((2, 2)), np.ones(2))])
    assert isinstance(likely_cause(data_of(empty)), str)
    assert selection.UNUSUAL > 1.0


# ------------------------------------------------------------------------------------------ components


def count_components(data):
    folds, _, single = selection._select_covariance(
        data, None, lambda fold, side: selection._fold_state(data, fold, side), Stages("")
    )
    return selection.count_components(data, folds, single, single)


def test_components_are_counted_as_they_will_be_used(monkeypatch):
    """With side information, mixing weights depend on it; the single Gaussian was evaluated before."""
    seen, score = [], selection._score

    def watched(data, fold, structure, mixture):
        seen.append(mixture)
        return score(data, fold, structure, mixture)

    monkeypatch.setattr(selection, "COUNTED_TASKS", 1)
    monkeypatch.setattr(selection, "COMPONENTS", (2,))
    monkeypatch.setattr(side, "least_gain", lambda n: -np.inf)  # all side information is relevant
    tasks = make_clusters(60, n_clusters=2, n_rows=10, n_features=4, rank=1, hint=0.8, random_state=0)
    data = data_of(tasks)
    data = replace(data, side=EmpiricalBayesLearner()._side_features(tasks))
    monkeypatch.setattr(selection, "_score", watched)
    count_components(data)
    mixtures = [mixture for mixture in seen if mixture.n_components == 2]
    assert len(mixtures) == 1  # of the first fold
    assert mixtures[0].gates is not None


def test_weights_with_a_length_have_a_component_for_each_sign():
    """w = ±p of one of four clusters: eight means tell more than four lines."""
    tasks = make_clusters(500, n_clusters=4, n_rows=48, n_features=10, rank=1, hint=0.5, random_state=0)
    train, _ = tasks[:200].support_query(40, shuffle=False)
    data = replace(data_of(train), side=EmpiricalBayesLearner()._side_features(train))
    assert count_components(data) >= 8


# ------------------------------------------------------------------------------- the problem on query rows


def query_bias(loss, seed=0, N=80):
    rng = np.random.default_rng(seed)
    directions, psi = rng.normal(size=(N, 3)), rng.normal(size=(N, 2))
    features = np.column_stack([np.ones(N), psi])
    target = rng.exponential(size=N) + directions[:, 0] * psi[:, 1]
    return QueryBias(directions, features, np.zeros(N), target, np.full(N, 1.0 / N), loss)


LOSSES = (Absolute(), Squared(), Pinball(0.9), EpsilonInsensitive(0.3))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_second_derivatives_are_those_of_the_gradient(loss):
    problem = query_bias(loss)
    rng = np.random.default_rng(1)
    found, expected, step = np.zeros((9, 9)), np.zeros((9, 9)), 1e-6
    B = 0.1 * rng.normal(size=(3, 3))
    # nothing changes its branch within the step
    slopes = [
        smoothed(problem._box, problem.predict(B + s), SMOOTHING * problem.residual)[1] for s in (0, 1e-4)
    ]
    assert np.abs(slopes[0] - slopes[1]).max() < 0.1
    found = problem.second_derivatives(B, 0.3)
    for j in range(9):
        moved = np.zeros(9)
        moved[j] = step
        ends = [problem.value_and_gradient(B.ravel() + sign * moved, 0.3)[1] for sign in (1, -1)]
        expected[:, j] = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("penalty", [1.0, 1e-3, 1e-5])
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_the_last_solve_is_the_minimum(loss, penalty):
    problem = query_bias(loss)
    B = problem.fit(penalty)
    value, gradient = problem.value_and_gradient(B.ravel(), penalty)
    assert np.abs(gradient).max() < 1e-9
    options = {"maxiter": 20000, "maxfun": 100000, "ftol": 1e-16, "gtol": 1e-11}
    patient = minimize(
        problem.value_and_gradient, np.zeros(9), args=(penalty,), jac=True, method="L-BFGS-B", options=options
    )
    assert value <= patient.fun + 1e-13
    # from elsewhere, and in other units, it is the same
    np.testing.assert_allclose(problem.fit(penalty, np.ones((3, 3))), B, atol=1e-8)


def test_where_it_ends_does_not_depend_on_the_units():
    problem, penalty = query_bias(Absolute(), N=150), 1e-5
    unit = 1e4
    other = replace(
        problem,
        directions=unit * problem.directions,
        prediction=unit * problem.prediction,
        target=unit * problem.target,
        unit=unit,
    )
    found = [p.fit(penalty) for p in (problem, other)]
    np.testing.assert_allclose(found[1], found[0], atol=1e-8)


def test_a_large_problem_is_left_to_lbfgs(monkeypatch):
    problem = query_bias(Absolute())
    expected = problem.fit(0.1)
    monkeypatch.setattr("tailored.empirical_bayes.query_bias.FEW_ENTRIES", 8)
    np.testing.assert_array_equal(problem.fit(0.1, exact=True), expected)
    monkeypatch.setattr("tailored.empirical_bayes.query_bias.LARGEST_NEWTON", 8)
    for exact in (False, True):
        found = problem.fit(0.1, exact=exact)
        assert (found != expected).any()
        np.testing.assert_allclose(found, expected, atol=1e-3)


# ---------------------------------------------------------------------------------------- the progress bar


def test_the_bar_is_as_long_as_what_is_done(monkeypatch):
    ticks, totals = [], []

    @contextmanager
    def counted(name, total, *, enabled):
        totals.append(total)
        yield Stages(name, lambda advance=0, description="": ticks.append(advance))

    monkeypatch.setattr(learn_module, "progress_bar", counted)
    monkeypatch.setattr(selection, "COMPONENTS", (2,))
    tasks = make_clusters(60, n_clusters=2, n_rows=10, n_features=4, rank=1, random_state=0)
    learner = few_folds().fit(tasks)
    assert learner.n_components_ > 1
    biases = [entry for entry in learner.search_results_ if entry["kind"] == "conditional bias"]
    folds, tried = 2, len(biases) - 3
    chains = len(covariance_structures(5, True)) + 2  # mixtures and independent tasks
    assert sum(ticks) == folds * chains + tried
    assert sum(ticks) <= totals[0]
