"""The GPU against the CPU where there is one, and what is said where there is none."""

import importlib.util
import re
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.mixture import Mixture, unpacked
from tailored.gaussian.moments import Moments
from tailored.priors.mixture import weights_on_device
from tailored.scale.base import Reservoir
from tailored.scale.cuda import KERNELS, CudaMoments, _component
from tailored.scale.tensors import TensorTasks, check_device
from tailored.tasks.rows import Scaling
from test_sources import low_rank_frame


def present() -> bool:
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("cupy") is None:
        return False
    import torch

    return torch.cuda.is_available()


HERE = present()
on_a_gpu = pytest.mark.skipif(not HERE, reason="needs a CUDA device, torch and CuPy")


def ragged(n_tasks, d, seed=0, side=False):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 2 * d, size=n_tasks)
    described = rng.normal(size=(n_tasks, 2))
    base = rng.normal(size=(n_tasks, d)) + (described @ rng.normal(size=(2, d)) if side else 0.0)
    pairs = []
    for n, w in zip(sizes, base, strict=True):
        X = rng.normal(size=(n, d))
        pairs.append((X, X @ w + 0.5 * rng.normal(size=n) + 3.0))
    if not side:
        return TaskSet.from_tasks(pairs)
    # A task without rows cannot be described by row.
    pairs = [pair for pair in pairs if len(pair[1])]
    X, y = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    groups = np.repeat(np.arange(len(pairs)), [len(pair[1]) for pair in pairs])
    return TaskSet(X, y, groups, described[sizes > 0][groups])


def mixture(d, K, seed=0, rank=None, side=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, d, rank or d)) / np.sqrt(d)
    W = roots @ roots.transpose(0, 2, 1)
    Gamma, gates = (
        (None, None) if not side else (rng.normal(size=(d, side)), rng.normal(size=(K, 1 + side)))
    )
    return Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), W, 0.3, Gamma, gates)


# ---------------------------------------------------------------- without a device


@pytest.mark.skipif(HERE, reason="there is a device")
def test_a_device_that_is_not_there_is_named():
    tasks = ragged(12, 3)
    learner = EmpiricalBayesLearner(device="cuda")
    with pytest.raises((ImportError, ValueError), match=r"device.*'cuda'"):
        learner.fit(tasks)
    assert not hasattr(learner, "prior_")


def test_effects_that_all_tasks_share_are_refused_on_a_device():
    rng = np.random.default_rng(0)
    x, groups = rng.uniform(-2.0, 2.0, 400), np.repeat(np.arange(40), 10)
    y = x**2 + rng.normal(size=40)[groups] + 0.3 * rng.normal(size=400)
    learner = EmpiricalBayesLearner().fit(x[:, None], y, groups=groups)
    assert learner.prior_.shared is not None
    message = r"device: .* effects that all tasks share are computed on the CPU"
    with pytest.raises(ValueError, match=message):
        weights_on_device(learner.prior_, None)


@pytest.mark.parametrize("device", [0, object(), 1.5, "gpu"])
def test_a_device_is_a_name_of_cuda(device):
    with pytest.raises(ValueError, match="device must be None, 'cuda' or"):
        check_device(device)


@pytest.mark.parametrize("rank", [4, 2, 0])
def test_components_have_the_evidence_and_posterior_mean_of_the_covariance(rank):
    """The kernels compute log|F| and uᵀFu with F = gram + ridge, in the coordinates of a
    component.
    """
    rng = np.random.default_rng(0)
    d, n, noise = 4, 7, 0.4
    roots = rng.normal(size=(2, d, rank))
    model = Mixture(
        np.array([0.3, 0.7]), rng.normal(size=(2, d)), roots @ roots.transpose(0, 2, 1), noise
    )
    X, y = rng.normal(size=(n, d)), rng.normal(size=n)
    Z = np.column_stack([X, y])
    for k in range(2):
        component = _component(model, k)
        products = (Z.T @ Z)[np.tril_indices(d + 1)]
        if component.reduction is not None:
            products = component.reduction @ products
        p, b = len(component.precision), component.mean
        P = products[unpacked(p + 1)]
        right = P[p, :p] - P[:p, :p] @ b
        F = P[:p, :p] + component.ridge[unpacked(p)]
        square = P[p, p] - b @ (P[p, :p] + right) - right @ np.linalg.solve(F, right)
        found = component.constant - 0.5 * (np.linalg.slogdet(F)[1] + square / noise)
        V, e = (X @ model.covariances[k] @ X.T + noise * np.eye(n), y - X @ model.means[k])
        expected = -0.5 * (np.linalg.slogdet(V)[1] + e @ np.linalg.solve(V, e) - n * np.log(noise))
        assert found == pytest.approx(expected, rel=1e-10)
        u = np.linalg.solve(F, right)
        mean = model.covariances[k] @ X.T @ np.linalg.solve(V, e)
        np.testing.assert_allclose(
            u if component.root is None else component.root @ u, mean, atol=1e-10
        )


# ---------------------------------------------------------------- with one


@on_a_gpu
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    ("d", "K", "rank", "side"), [(3, 1, None, 0), (20, 6, None, 0), (10, 3, 2, 0), (7, 2, None, 2)]
)
def test_sums_are_those_of_the_cpu(d, K, rank, side, single):
    tasks = ragged(500, d, side=bool(side))
    units = Scaling.of(tasks, True, centre=True)
    known = tasks.side_info if side else None
    model = mixture(d + 1, K, rank=rank, side=side)
    rows = TensorTasks.from_tasks(tasks, check_device("cuda"))
    if single:
        rows = replace(rows, X=rows.X.float(), y=rows.y.float())
    here, there = Moments.of(tasks, units, known), CudaMoments.of(rows, units, known)
    expected, found = here.sums(model).sums, there.sums(model).sums
    tolerance = 1e-4 if single else 1e-6
    for name in ("log_evidence", "counts", "first", "second", "residual"):
        value = np.array(getattr(expected, name))
        np.testing.assert_allclose(
            getattr(found, name), value, atol=tolerance * np.abs(value).max(), err_msg=name
        )
    np.testing.assert_allclose(
        there.totals().gram, here.totals().gram, rtol=tolerance, atol=tolerance
    )
    again = there.sums(model).sums
    assert np.array_equal(again.second, found.second)


@on_a_gpu
@pytest.mark.parametrize("side", [False, True])
def test_tensors_in_give_tensors_out(side, no_curves):
    import torch

    tasks = ragged(200, 4, side=side)
    learner = EmpiricalBayesLearner().fit(tasks)
    expected = learner.adapt_many(tasks).weights_
    learner.set_params(device="cuda")
    np.testing.assert_allclose(learner.adapt_many(tasks).weights_, expected, rtol=1e-6, atol=1e-8)
    kept = tasks.sizes > 0
    X, y = (torch.tensor(part, device="cuda") for part in (tasks.X, tasks.y))
    groups = torch.tensor(np.repeat(np.arange(len(tasks)), tasks.sizes), device="cuda")
    described = None if tasks.side_info is None else dict(enumerate(tasks.side_info))
    order = torch.randperm(len(y), device="cuda")
    found = learner.adapt_many(
        X[order], y[order], groups=groups[order], side_info=described
    ).weights_
    assert found.is_cuda
    np.testing.assert_allclose(found.cpu().numpy(), expected[kept], rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="columns"):
        learner.adapt_many(X[:, :2], y, groups=groups, side_info=described)
    with pytest.raises(ValueError, match="NaN"):
        learner.adapt_many(X * float("nan"), y, groups=groups, side_info=described)
    with pytest.raises(ValueError, match="on cpu"):
        learner.adapt_many(X.cpu(), y, groups=groups, side_info=described)


@on_a_gpu
@pytest.mark.parametrize("kind", ["plain", "levels", "low rank"])
def test_a_fit_on_the_device_is_that_of_the_cpu(kind, monkeypatch):
    import torch

    from tailored.selection import data
    from tailored.selection.steps import low_rank

    tasks = ragged(400, 4)
    if kind == "levels":
        rng = np.random.default_rng(1)
        item, groups = rng.integers(0, 25, len(tasks.y)), np.repeat(tasks.labels, tasks.sizes)
        frame = pd.DataFrame(tasks.X, columns=list("abcd")).assign(
            item=[f"i{i}" for i in item], g=groups
        )
        tasks = TaskSet.from_frame(
            frame.assign(y=tasks.y + rng.normal(size=25)[item]), task="g", target="y"
        )
    if kind == "low rank":
        columns = {"task": "user", "target": "y", "side_columns": ["age", "other"]}
        tasks = TaskSet.from_frame(low_rank_frame(300), **columns)
        monkeypatch.setattr(data, "WIDE", 7)
        monkeypatch.setattr(low_rank, "LOW_RANK", 7)
    kept = tasks[tasks.sizes > 0]
    # A sample of 150 tasks, refined on all of them: here from their rows, there on the device.
    monkeypatch.setattr(
        Reservoir.__init__, "__defaults__", (150, *Reservoir.__init__.__defaults__[1:])
    )
    here = EmpiricalBayesLearner().fit(kept)
    there = EmpiricalBayesLearner(device="cuda").fit(kept)
    assert here.structure_ == there.structure_
    assert (here.structure_["kind"] == "low rank") == (kind == "low rank")
    assert (
        (here.prior_.shared is not None) == (there.prior_.shared is not None) == (kind == "levels")
    )
    assert here.side_structure_ == there.side_structure_
    np.testing.assert_allclose(
        there.prior_.model.covariances, here.prior_.model.covariances, atol=1e-7
    )
    if kind == "levels":  # `adapt_many` needs the CPU, and tensors have no categories
        return
    np.testing.assert_allclose(
        there.adapt_many(kept).weights_, here.adapt_many(kept).weights_, rtol=1e-4, atol=1e-5
    )
    X, y = (torch.tensor(part, device="cuda") for part in (kept.X, kept.y))
    groups = torch.tensor(np.repeat(kept.labels, kept.sizes), device="cuda")
    tensors = EmpiricalBayesLearner(device="cuda").fit(
        X, y, groups=groups, side_info=kept.side_info
    )
    np.testing.assert_allclose(
        tensors.adapt_many(kept).weights_, there.adapt_many(kept).weights_, rtol=1e-6, atol=1e-8
    )


def test_many_sparse_columns_need_the_cpu(monkeypatch):
    from scipy import sparse

    monkeypatch.setattr("tailored.learners.empirical_bayes.check_device", lambda device: device)
    rng = np.random.default_rng(0)
    T, d = 150, 300
    columns = np.concatenate([rng.permutation(d)[:15] for _ in range(T)])
    X = sparse.csr_array(
        (np.ones(len(columns)), (np.arange(len(columns)), columns)), shape=(len(columns), d)
    )
    learner = EmpiricalBayesLearner(device="cuda")
    with pytest.raises(ValueError, match="device: this argument is not supported with 300 columns"):
        learner.fit(X, rng.normal(size=len(columns)), groups=np.repeat(np.arange(T), 15))


def test_the_package_has_the_source_of_the_kernels():
    source = files("tailored.scale").joinpath("kernels.cu").read_text()
    assert re.findall(r"__global__ void __launch_bounds__\(\d+\) (\w+)\(", source) == list(KERNELS)
