"""The posterior of tasks in every layout, compared with an independent n x n posterior."""

from dataclasses import replace

import numpy as np
import pytest

from reference import mixture_posterior
from tailored.gaussian import moments as moments_module
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import CHUNK, COMPILED_COLUMNS, Moments, Want, influence
from tailored.gaussian.rows import TaskRows
from tailored.tasks.rows import Scaling
from tailored.tasks.task_set import TaskSet

ALL = Want(means=True, covariances=True, sums=True)
NAMES = ("log_evidence", "counts", "first", "second", "residual")


def environment(T, d, K, ranks, *, side=False, seed=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 2 * d + 2, size=T)
    sizes[0] = 0
    tasks = TaskSet.from_tasks([(rng.normal(size=(n, d)), rng.normal(size=n)) for n in sizes])
    covariances = np.zeros((K, d, d))
    for k in range(K):
        root = rng.normal(size=(d, ranks[k % len(ranks)]))
        covariances[k] = root @ root.T / d
    model = Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), covariances, 0.7)
    v = None
    if side:
        v = rng.normal(size=(T, 2))
        model = replace(model, side=rng.normal(size=(d, 2)), gates=rng.normal(size=(K, 3)))
    return tasks, v, model


def expected_of(tasks, v, model):
    out, W = [], model.covariances
    for t, task in enumerate(tasks):
        effect = 0.0 if model.side is None else model.side @ v[t]
        logits = np.log(model.proportions)
        if model.gates is not None:
            logits = model.gates[:, 0] + model.gates[:, 1:] @ v[t]
        pi = np.exp(logits - logits.max())
        out.append(
            mixture_posterior(task.X, task.y, pi / pi.sum(), model.means + effect, W, model.noise)
        )
    return out


CASES = [
    {"T": 1, "d": 1, "K": 1, "ranks": [1]},
    {"T": 7, "d": 2, "K": 2, "ranks": [2, 0]},
    {"T": 8, "d": 3, "K": 1, "ranks": [3]},
    {"T": 9, "d": 5, "K": 3, "ranks": [5, 2, 1], "side": True},
    {"T": 9, "d": 4, "K": 3, "ranks": [4], "side": True},
    {"T": 5, "d": 4, "K": 3, "ranks": [2]},
    {"T": CHUNK + 3, "d": 9, "K": 2, "ranks": [9, 6]},
    {"T": 5, "d": 14, "K": 1, "ranks": [14]},
    {"T": 3, "d": COMPILED_COLUMNS + 1, "K": 1, "ranks": [2]},
]


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_posterior_is_that_of_the_reference(layout, case):
    tasks, v, model = environment(**case)
    expected = expected_of(tasks, v, model)
    found = layout.of(tasks, Scaling.raw(case["d"]), v).posterior(model, ALL)
    evidence = [e.log_evidence for e in expected]
    np.testing.assert_allclose(found.log_evidence, evidence, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.shares, [e.shares for e in expected], atol=1e-8)
    np.testing.assert_allclose(found.mean, [e.mean for e in expected], atol=1e-7)
    np.testing.assert_allclose(
        found.mixture_covariance(), [e.covariance for e in expected], atol=1e-7
    )
    np.testing.assert_allclose(found.means, [e.means for e in expected], atol=1e-7)
    within = [np.tensordot(e.shares, e.covariances, 1) for e in expected]
    np.testing.assert_allclose(found.covariances, within, atol=1e-7)


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_are_those_of_the_reference(layout, case):
    tasks, v, model = environment(**case)
    sums = layout.of(tasks, Scaling.raw(case["d"]), v).posterior(model, ALL).sums
    K, d = model.means.shape
    counts, first, second, residual = np.zeros(K), np.zeros((K, d)), np.zeros((K, d, d)), 0.0
    expected = expected_of(tasks, v, model)
    for t, (task, e) in enumerate(zip(tasks, expected, strict=True)):
        effect = 0.0 if model.side is None else model.side @ v[t]
        for k in range(K):
            deviation = e.means[k] - effect - model.means[k]
            counts[k] += e.shares[k]
            first[k] += e.shares[k] * deviation
            second[k] += e.shares[k] * (np.outer(deviation, deviation) + e.covariances[k])
            error = np.sum((task.y - task.X @ e.means[k]) ** 2)
            residual += e.shares[k] * (error + np.trace(task.X @ e.covariances[k] @ task.X.T))
    assert sums.log_evidence == pytest.approx(sum(e.log_evidence for e in expected), rel=1e-8)
    # Responsibilities below 1e-6 are left out of the sums.
    for name, value in zip(NAMES[1:], (counts, first, second, residual), strict=True):
        np.testing.assert_allclose(getattr(sums, name), value, rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("layout", [Moments, TaskRows])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_evidences_whose_ratio_overflows(layout, order):
    tasks, _, model = environment(T=6, d=2, K=2, ranks=[2])
    model = replace(model, means=np.array([[0.0, 0.0], [1e4, 0.0]])[order])
    found = layout.of(tasks, Scaling.raw(2)).posterior(model)
    for t, expected in enumerate(expected_of(tasks, None, model)):
        assert found.log_evidence[t] == pytest.approx(expected.log_evidence, rel=1e-9)
        np.testing.assert_allclose(found.shares[t], expected.shares, atol=1e-12)


def test_tasks_do_not_depend_on_each_other_nor_on_threads(monkeypatch):
    tasks, _, model = environment(T=3 * CHUNK + 50, d=4, K=3, ranks=[4, 2, 4])
    statistics = Moments.of(tasks, Scaling.raw(4))
    whole = statistics.posterior(model, ALL)
    for some in (np.arange(3, 20), np.arange(29, -1, -4), np.array([7])):
        part = statistics.take(some).posterior(model, ALL)
        for name in ("log_evidence", "shares", "means", "covariances"):
            np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[some])
    monkeypatch.setattr(moments_module, "BLOCK_FLOATS", 16)
    assert len(statistics.blocks()) == 4
    blocks = statistics.posterior(model, ALL)
    np.testing.assert_array_equal(blocks.covariances, whole.covariances)
    for n_threads in (2, 3):
        found = replace(statistics, n_threads=n_threads).posterior(model, ALL)
        for name in NAMES:
            np.testing.assert_allclose(
                getattr(blocks.sums, name), getattr(whole.sums, name), rtol=1e-11
            )
            np.testing.assert_array_equal(getattr(found.sums, name), getattr(blocks.sums, name))


@pytest.mark.parametrize("rank", [4, 2])
def test_influence_keeps_its_digits_near_the_noise_floor(rank):
    rng = np.random.default_rng(3)
    tasks = TaskSet.from_tasks([(rng.normal(size=(9, 4)), rng.normal(size=9)) for _ in range(5)])
    root = rng.normal(size=(4, rank))
    W, noise = root @ root.T, 1e-8
    model = Mixture(np.ones(1), np.zeros((1, 4)), W[None], noise)
    statistics = Moments.of(tasks, Scaling.raw(4))
    R = influence(
        statistics, model, statistics.posterior(model, Want(covariances=True)).covariances
    )
    for t, task in enumerate(tasks):
        # (I + W G/σ²)⁻¹ W = C, and R acts on a shift inside the range of W without cancellation.
        expected = np.linalg.solve(np.eye(4) + W @ (task.X.T @ task.X) / noise, root)
        assert np.abs(expected).max() < 1e-6
        np.testing.assert_allclose(R[t] @ root, expected, rtol=1e-6, atol=1e-13)


def test_rows_far_larger_than_the_prior_expects_have_a_posterior():
    X = np.array([[1e12, 1e12], [1e12, -1e12]])
    tasks = TaskSet.from_tasks([(X[:1], np.array([1e12])), (X, np.array([1e12, 0.0]))])
    model = Mixture(np.ones(1), np.zeros((1, 2)), np.eye(2)[None], 1.0)
    found = Moments.of(tasks, Scaling.raw(2)).posterior(model, ALL)
    assert np.isfinite(found.covariances).all()
    np.testing.assert_allclose(found.mean[1], [0.5, 0.5], rtol=1e-6)
    np.testing.assert_allclose(found.mean[0].sum(), 1.0, rtol=1e-6)
