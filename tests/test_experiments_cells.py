"""Cells against the literal transcription of the paper, and the averages against the obvious way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import reference
from tailored import ConditionalLearner, TaskSet
from tailored.representation import Dense
from tailored.studies.reproduction import cells as cells_module
from tailored.studies.reproduction.averages import ChangeMeans, DirectMeans, evaluate_dense, start_means
from tailored.studies.reproduction.cells import Cell, list_cells, run_cell
from tailored.studies.reproduction.config import METHODS, ExperimentConfig
from tailored.studies.reproduction.config_files import load_config, parse_config, select_configs
from tailored.studies.reproduction.exact import ExactIterate, eigenpairs_below
from tailored.studies.reproduction.protocol import prepare

TINY = b"""
title = "tiny"
target = "error"
[data]
source = "clusters"
n_clusters = 2
n_features = 4
n_rows = 14
noise = 0.1
[tasks]
train = 7
validation = 5
test = 6
order = "kept"
[rows]
support = 8
split = "first"
order = "shuffled"
train = "support"
constant = false
[features]
map = "mean"
scale = true
[learning]
methods = ["independent", "unconditional", "conditional"]
loss = "absolute"
inner = "online"
rank = "exact"
[grid]
seeds = 2
step_low = 0.3
step_high = 30
step_count = 2
"""


@pytest.fixture
def tiny() -> ExperimentConfig:
    return parse_config(TINY, "tiny", "tiny.toml")


def as_tasks(part):
    """The (X, y, X_test, y_test) of each task of a `Part`."""
    support = [slice(*part.support.offsets[t : t + 2]) for t in range(len(part))]
    query = [slice(*part.query.offsets[t : t + 2]) for t in range(len(part))]
    return [
        (part.support.X[s], part.support.y[s], part.query.X[q], part.query.y[q])
        for s, q in zip(support, query, strict=True)
    ]


def literal_cell(config, seed, step_size, conditional):
    """Algorithm 1 and its evaluation, as the paper writes them, for every number of tasks."""
    prepared = prepare(config, seed)
    train = [(X, y) for X, y, _, _ in as_tasks(prepared.train)]
    d, k = prepared.n_features, prepared.train.phis.shape[1]
    loss = reference.absolute()
    gamma_H = step_size if conditional else 0.0
    run = reference.algorithm_1(
        train, list(prepared.train.phis), step_size, gamma_H, np.eye(d), config.learning.inner, loss, 1.0
    )
    test = []
    for t in range(1, len(train) + 1):
        H, C = sum(run.H[:t]) / t, sum(run.C[:t]) / t
        assert H.shape == (d * k, d * k)
        errors = reference.evaluate(
            H, C, as_tasks(prepared.test), prepared.test.phis, config.learning.inner, loss
        )
        test.append(errors.mean())
    validation = reference.evaluate(
        run.mean_H,
        run.mean_C,
        as_tasks(prepared.validation),
        prepared.validation.phis,
        config.learning.inner,
        loss,
    ).mean()
    return np.array(test), validation


@pytest.mark.parametrize("method", ["unconditional", "conditional"])
@pytest.mark.parametrize("inner", ["online", "exact"])
@pytest.mark.parametrize("step", [0, 1])
def test_cell_is_the_paper_s_algorithm(tiny, method, inner, step):
    config = replace(tiny, learning=replace(tiny.learning, inner=inner))
    result = run_cell(config, Cell("tiny", 1, method, step))
    test, validation = literal_cell(config, 1, config.grid.step_sizes[step], method == "conditional")
    np.testing.assert_allclose(result.test, test, atol=1e-8)
    assert result.validation == pytest.approx(validation, abs=1e-8)
    # Something was learned, and the first mean is the starting point.
    independent = run_cell(config, Cell("tiny", 1, "independent", None))
    assert result.test[0] == pytest.approx(independent.test[0], abs=1e-12)
    assert np.abs(np.diff(result.test)).max() > 1e-6


def some_steps(rng, d, k, n_steps):
    """Gradients as the surrogate gives them, of tasks with all inputs, with some (one-hot), and with none."""
    for t in range(n_steps):
        u, X = rng.standard_normal(d), rng.standard_normal((4, d))
        if t % 4 == 1:
            u[0], X[:, 0] = 0.0, 0.0
        gradient = -0.5 * np.outer(u, u) + 0.1 * X.T @ X
        phi = np.zeros(k) if t == 5 else rng.standard_normal(k)
        yield (np.zeros((d, d)) if t == 9 else gradient), phi


def test_exact_iterate_is_the_dense_one():
    rng = np.random.default_rng(3)
    d, k, step_size = 3, 9, 0.3
    ours, dense = ExactIterate(np.eye(d), k, 22), Dense(np.zeros((d * k, d * k)), np.eye(d))
    for gradient, phi in some_steps(rng, d, k, 22):
        lifted = reference.lift(d, phi)
        moved = dense.H - step_size * lifted @ gradient @ lifted.T
        ours.step(gradient, phi, step_size)
        dense.step(gradient, phi, step_size, step_size)
        np.testing.assert_allclose(ours.dense_H(), dense.H, atol=1e-12)
        np.testing.assert_allclose(ours.C, dense.C, atol=1e-12)
        np.testing.assert_allclose(ours(phi), dense(phi), atol=1e-11)
        # What was removed is the difference, and nothing that was kept.
        taken = (ours.removed * ours.removed_values) @ ours.removed.T
        np.testing.assert_allclose(moved - taken, dense.H, atol=1e-12)
        np.testing.assert_allclose(ours.basis.T @ ours.basis, np.eye(len(ours.P)), atol=1e-13)
        np.testing.assert_allclose(ours.basis.T @ ours.removed, 0.0, atol=1e-13)
    assert len(ours.P) > 10


def test_exact_iterate_of_repeated_side_information():
    """The same φ again and again: nothing of ``I ⊗ φ`` is left outside the range."""
    rng = np.random.default_rng(4)
    d, k = 3, 5
    ours, dense = ExactIterate(np.eye(d), k, 12), Dense(np.zeros((d * k, d * k)), np.eye(d))
    phi = rng.standard_normal(k)
    for gradient, _ in some_steps(rng, d, k, 12):
        for iterate, sizes in ((ours, (0.5,)), (dense, (0.5, 0.5))):
            iterate.step(gradient, phi, *sizes)
        np.testing.assert_allclose(ours.dense_H(), dense.H, atol=1e-11)


@pytest.mark.parametrize("n", [30, 150])
def test_eigenpairs_below(n):
    """Random, and with an eigenvalue of multiplicity n / 2 below the bound."""
    rng = np.random.default_rng(n)
    Q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    for values in (np.linspace(-1, 5, n), np.repeat([-1.0, 2.0], n // 2)):
        M = (Q * values) @ Q.T
        M = (M + M.T) / 2
        found, vectors = eigenpairs_below(M, 0.0)
        np.testing.assert_allclose(found, values[values < 0], atol=1e-12)
        np.testing.assert_allclose(M @ vectors, vectors * found, atol=1e-12)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(found)), atol=1e-11)
    assert eigenpairs_below(np.eye(n), 0.0)[1].shape == (n, 0)


def test_means_from_changes_equal_the_direct_ones():
    """After every step, and the dense mean at the end."""
    rng = np.random.default_rng(7)
    d, k, n_test, n_tasks = 3, 14, 5, 36
    phis, C = rng.standard_normal((n_test, k)), np.diag([1.0, 2.0, 0.5])
    fast = ChangeMeans(C, 0.3, phis, n_tasks)
    direct = DirectMeans(C, 0.3, phis, None)
    for gradient, phi in some_steps(rng, d, k, n_tasks - 1):
        for means in (fast, direct):
            means.step(gradient, phi)
        np.testing.assert_allclose(fast.mean_test(), direct.mean_test(), atol=1e-10)
    for ours, theirs in zip(fast.finish(), direct.finish(), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-10)
    H, C = direct.finish()
    np.testing.assert_allclose(evaluate_dense(H, C, phis), Dense(H, C).evaluate(phis), atol=1e-10)
    np.testing.assert_allclose(evaluate_dense(H, C, phis), direct.mean_test(), atol=1e-10)


def test_means_from_changes_refuse_a_wrong_number_of_steps():
    means = ChangeMeans(np.eye(2), 1.0, np.ones((3, 9)), 5)
    means.step(-np.eye(2), np.ones(9))
    with pytest.raises(RuntimeError, match="1 steps"):
        means.finish()


def test_the_way_is_chosen_by_size():
    phis = np.ones((2, 40))
    assert isinstance(
        start_means(np.eye(20), 1.0, phis, conditional=True, rank=None, n_tasks=500), ChangeMeans
    )
    assert isinstance(start_means(np.eye(20), 1.0, phis, conditional=True, rank=64, n_tasks=500), DirectMeans)
    # The range of H may come to fill the space: no small eigenproblem is left then.
    assert isinstance(
        start_means(np.eye(20), 1.0, phis, conditional=True, rank=None, n_tasks=800), DirectMeans
    )


def test_a_limit_above_the_rank_changes_nothing(tiny):
    cell = Cell("tiny", 0, "conditional", 1)
    limited = replace(tiny, learning=replace(tiny.learning, rank=7))
    np.testing.assert_allclose(run_cell(limited, cell).test, run_cell(tiny, cell).test, atol=1e-9)


def test_overflow_is_an_infinite_error_and_no_crash(tiny, monkeypatch):
    real, seen = cells_module._step, []

    def step(means, objective, train, t):
        seen.append(t)
        if t == 3:
            means.step(np.full((4, 4), 1e308), 10 * np.ones(8))
        real(means, objective, train, t)

    monkeypatch.setattr(cells_module, "_step", step)
    for method in ("unconditional", "conditional"):
        seen.clear()
        result = run_cell(tiny, Cell("tiny", 0, method, 1))
        assert seen == [0, 1, 2, 3]
        assert result.validation == np.inf
        assert np.isfinite(result.test[:4]).all()
        assert (result.test[4:] == np.inf).all()


@pytest.mark.parametrize("value", [np.inf, np.nan, 1e308])
def test_exact_iterate_refuses_what_is_not_finite(value):
    iterate = ExactIterate(np.eye(2), 5, 3)
    with pytest.raises(OverflowError), np.errstate(all="ignore"):
        iterate.step(np.full((2, 2), value), np.ones(5), 10.0)


def test_same_bits_twice(tiny):
    cell = Cell("tiny", 0, "conditional", 0)
    first = run_cell(tiny, cell)
    prepare.cache_clear()
    second = run_cell(tiny, cell)
    assert first.test.tobytes() == second.test.tobytes()
    assert first.validation == second.validation


def test_arrays_of_the_first_seed_only(tiny):
    kept = run_cell(tiny, Cell("tiny", 0, "conditional", 0)).arrays
    assert kept["taus"].shape[1:] == (4, 4)
    assert len(kept["group_names"]) == len(kept["taus"])
    assert (np.diff(kept["spectrum_H"]) <= 0).all()
    assert run_cell(tiny, Cell("tiny", 1, "conditional", 0)).arrays == {}


def test_cells_of_the_paper():
    config = load_config("lenk")
    cells = list_cells(config)
    assert len(cells) == len(set(cells)) == 5 * (14 + 14 + 1)
    assert len({str(cell) for cell in cells}) == len(cells)
    assert config.grid.step_sizes[0] == 1e-5
    assert config.grid.step_sizes[-1] == 1e5


def test_needs_a_lipschitz_loss():
    class Squared:
        lipschitz = None

    with pytest.raises(ValueError, match="Lipschitz"):
        cells_module._lipschitz(Squared())


def test_practical_preset_is_the_recommended_methods_on_the_same_tasks():
    """The end of each curve, recomputed from task sets and the public interface."""
    from tailored.baselines import MixedModel, RidgePerTask
    from tailored.studies.reproduction.practical import refits

    (config,) = select_configs(["clusters-2"], preset="practical", quick=True)
    cells = list_cells(config)
    assert {(cell.method, cell.step) for cell in cells} == {(name, None) for name in METHODS}
    part = prepare(config, 0).test
    train = prepare(config, 0).train.support
    groups = np.repeat(np.arange(config.tasks.train), np.diff(train.offsets))
    methods = {"independent": RidgePerTask, "unconditional": MixedModel, "conditional": ConditionalLearner}
    for cell in cells[:3]:
        result = run_cell(config, cell)
        method = methods[cell.method]().fit(TaskSet(train.X, train.y, groups))
        errors = []
        for t in range(config.tasks.test):
            support = slice(part.support.offsets[t], part.support.offsets[t + 1])
            query = slice(part.query.offsets[t], part.query.offsets[t + 1])
            model = method.adapt(part.support.X[support], part.support.y[support])
            errors.append(np.abs(model.predict(part.query.X[query]) - part.query.y[query]).mean())
        assert result.test.shape == (config.tasks.train,)
        np.testing.assert_allclose(result.test[-1], np.mean(errors), rtol=1e-6)
        # Nothing is learned between two fits.
        assert len(np.unique(result.test)) <= len(refits(config.tasks.train))
    assert refits(60) == [1, 2, 5, 10, 20, 50, 60]
    assert refits(1) == [1]
