"""Cells against the literal transcription of the paper, and against the learners."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import reference
from studies.reproduction.cells import Cell, run_cells
from studies.reproduction.config import ExperimentConfig, load_config, parse_config, select_configs
from studies.reproduction.protocol import prepare
from tailored import ConditionalLearner, EmpiricalBayesLearner, TaskSet, UnconditionalLearner
from tailored.paper import ProjectedSGD
from tailored.paper.algorithm_1 import Trajectory
from tailored.paper.step_size import PAPER_STEP_SIZES
from tiny import TINY


@pytest.fixture
def tiny() -> ExperimentConfig:
    return parse_config(TINY, "tiny", "tiny.toml")


def as_tasks(part):
    """The (X, y, X_test, y_test) of each task of a `Part`."""
    columns = []
    for rows in (part.support, part.query):
        columns += [np.split(values, rows.offsets[1:-1]) for values in (rows.X, rows.y)]
    return list(zip(*columns, strict=True))


def literal_cell(config, seed, step_size, method):
    """Algorithm 1 and its evaluation, as the paper writes them, for every number of tasks."""
    prepared = prepare(config, seed)
    if method == "conditional-scaled":
        norm = np.sqrt(np.mean(np.sum(prepared.train.phis**2, axis=1)))
        parts = {name: getattr(prepared, name) for name in ("train", "validation", "test")}
        scaled = {name: replace(part, phis=part.phis / norm) for name, part in parts.items()}
        prepared = replace(prepared, **scaled)
    train = [(X, y) for X, y, _, _ in as_tasks(prepared.train)]
    d, k = prepared.n_features, prepared.train.phis.shape[1]
    loss = reference.absolute()
    gamma_H = 0.0 if method == "unconditional" else step_size
    run = reference.algorithm_1(
        train,
        list(prepared.train.phis),
        step_size,
        gamma_H,
        np.eye(d),
        config.learning.inner,
        loss,
        1.0,
    )

    def error(H, C, part):
        assert H.shape == (d * k, d * k)
        return reference.evaluate(
            H, C, as_tasks(part), part.phis, config.learning.inner, loss
        ).mean()

    numbers = range(1, len(train) + 1)
    test = [error(sum(run.H[:t]) / t, sum(run.C[:t]) / t, prepared.test) for t in numbers]
    return np.array(test), error(run.mean_H, run.mean_C, prepared.validation)


@pytest.mark.parametrize("method", ["unconditional", "conditional", "conditional-scaled"])
@pytest.mark.parametrize("inner", ["online", "exact"])
@pytest.mark.parametrize("step", [0, 1])
def test_cell_is_the_paper_s_algorithm(tiny, method, inner, step):
    config = replace(tiny, learning=replace(tiny.learning, inner=inner))
    result = run_cells(config, [Cell("tiny", 1, method, step)])[0]
    test, validation = literal_cell(config, 1, config.grid.step_sizes[step], method)
    np.testing.assert_allclose(result.test, test, atol=1e-8)
    assert result.validation == pytest.approx(validation, abs=1e-8)
    # Something was learned, and the first mean is the starting point.
    independent = run_cells(config, [Cell("tiny", 1, "independent", None)])[0]
    assert result.test[0] == pytest.approx(independent.test[0], abs=1e-12)
    assert np.abs(np.diff(result.test)).max() > 1e-6


@pytest.mark.parametrize("method", ["unconditional", "conditional"])
def test_overflow_is_an_infinite_error_and_no_crash(tiny, monkeypatch, method):
    real, seen = Trajectory.step, []

    def step(trajectory, gradient, *arguments):
        seen.append(len(seen))
        real(trajectory, np.full_like(gradient, 1e308) if seen[-1] == 3 else gradient, *arguments)

    monkeypatch.setattr(Trajectory, "step", step)
    result = run_cells(tiny, [Cell("tiny", 0, method, 1)])[0]
    assert seen == [0, 1, 2, 3]
    assert result.validation == np.inf
    assert np.isfinite(result.test[:4]).all()
    assert (result.test[4:] == np.inf).all()


def task_sets(rows):
    groups = np.repeat(np.arange(len(rows.offsets) - 1), np.diff(rows.offsets))
    return TaskSet(rows.X, rows.y, groups)


@pytest.mark.parametrize("name", ["tiny", "clusters-2"])
@pytest.mark.parametrize("method", ["unconditional", "conditional", "conditional-scaled"])
def test_the_learner_s_paper_configuration_is_a_cell(name, method, tiny):
    """Same tasks, same step: the same errors on new tasks, to rounding."""
    config = tiny if name == "tiny" else select_configs([name], quick=True)[0]
    step = len(config.grid.step_sizes) // 2
    result = run_cells(config, [Cell(config.name, 0, method, step)])[0]
    prepared = prepare(config, 0)
    solver = ProjectedSGD(step=config.grid.step_sizes[step])
    learner = ConditionalLearner.paper(solver=solver, scale_features=method == "conditional-scaled")
    if method == "unconditional":
        learner = UnconditionalLearner(
            inner="online", tune_scale=False, solver=solver, fit_intercept=False
        )
    learner.fit(task_sets(prepared.train.support))
    for part, expected in (
        (prepared.test, result.test[-1]),
        (prepared.validation, result.validation),
    ):
        errors = learner.task_errors(task_sets(part.support), task_sets(part.query))
        np.testing.assert_allclose(errors.mean(), expected, rtol=1e-9)


def test_paper_searches_the_grid_of_the_reproduction():
    learner = ConditionalLearner.paper()
    config = load_config("clusters-2")
    np.testing.assert_allclose(learner.solver.step_sizes, config.grid.step_sizes, rtol=1e-9)
    assert learner.solver.step_sizes == PAPER_STEP_SIZES
    assert learner.solver.step_ratios == (1.0,)
    assert (learner.rank, learner.inner, learner.loss) == (
        None,
        config.learning.inner,
        config.learning.loss,
    )
    assert learner.feature_map == config.features.map
    assert not learner.scale_features
    assert not learner.tune_scale
    assert learner.initial_representation is None


@pytest.mark.parametrize("constant", [False, True])
def test_empirical_bayes_has_the_rows_of_algorithm_1(tiny, constant):
    """Fitted to training support rows and all validation rows; the errors of one adapted model per
    test task.
    """
    config = replace(tiny, rows=replace(tiny.rows, constant=constant))
    prepared = prepare(config, 0)
    X, y, labels = [], [], []
    for name, part in (("train", prepared.train), ("validation", prepared.validation)):
        for t, (support, y_support, query, y_query) in enumerate(as_tasks(part)):
            keep = len(query) if name == "validation" else 0
            X.append(np.vstack([support, query[:keep]])[:, :4])
            y.append(np.concatenate([y_support, y_query[:keep]]))
            labels += [f"{name} {t}"] * len(y[-1])
    assert (len(labels), len(set(labels))) == (7 * 8 + 5 * 14, 12)
    learner = EmpiricalBayesLearner(loss="absolute").fit(
        np.vstack(X), np.concatenate(y), groups=labels
    )
    errors = [
        np.abs(learner.adapt(X[:, :4], y).predict(X_test[:, :4]) - y_test).mean()
        for X, y, X_test, y_test in as_tasks(prepared.test)
    ]
    result = run_cells(config, [Cell("tiny", 0, "empirical-bayes", None)])[0]
    np.testing.assert_allclose(result.test, [np.mean(errors)], rtol=1e-6)
    assert np.isnan(result.validation)
