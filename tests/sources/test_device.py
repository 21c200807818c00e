"""The tensors of torch against NumPy: on the CPU if torch is installed, and on a GPU."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from tailored import EmpiricalBayesLearner, TaskSet
from tailored._utils.frames import is_tensor
from tailored.gaussian.em import em
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.priors.base import adapt_tasks
from tailored.priors.mixture import MixturePrior
from tailored.priors.on_device import weights_on_device
from tailored.sources import device as device_module
from tailored.sources.base import Blocks
from tailored.sources.device import DeviceSource, check_device
from tailored.sources.reservoir import Reservoir
from tailored.tasks.rows import Scaling
from tests.sources.test_sources import low_rank_frame


@pytest.fixture(params=["cpu", "cuda"])
def device(request, monkeypatch):
    """A torch device that learners with ``device="cuda"`` use."""
    torch = pytest.importorskip("torch")
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if request.param == "cpu":
        for module in ("base", "reading", "empirical_bayes"):
            name = f"tailored.learners.{module}.check_device"
            monkeypatch.setattr(name, lambda _: torch.device("cpu"))
        return torch.device("cpu")
    return check_device("cuda")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of tasks, and of rows of tasks of one size."""
    monkeypatch.setattr(device_module, "BLOCK_FLOATS", 2_000)


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
    roots = rng.normal(size=(K, d, d if rank is None else rank)) / np.sqrt(d)
    W = roots @ roots.transpose(0, 2, 1)
    Gamma, gates = (
        (None, None) if not side else (rng.normal(size=(d, side)), rng.normal(size=(K, 1 + side)))
    )
    return Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), W, 0.3, Gamma, gates)


def test_a_device_that_is_not_there_is_named():
    with pytest.raises((ImportError, ValueError), match=r"device.*'cuda:99'"):
        EmpiricalBayesLearner(device="cuda:99").fit(ragged(12, 3))


def test_effects_that_all_tasks_share_are_refused_on_a_device():
    rng = np.random.default_rng(0)
    x, groups = rng.uniform(-2.0, 2.0, 400), np.repeat(np.arange(40), 10)
    y = x**2 + rng.normal(size=40)[groups] + 0.3 * rng.normal(size=400)
    learner = EmpiricalBayesLearner().fit(x[:, None], y, groups=groups)
    assert learner.prior_.shared is not None
    with pytest.raises(
        ValueError, match=r"device: effects that all tasks share are computed on the CPU"
    ):
        weights_on_device(learner.prior_, None)


@pytest.mark.parametrize("device", [0, object(), 1.5, "gpu"])
def test_a_device_is_a_name_of_cuda(device):
    with pytest.raises(ValueError, match="device must be None, 'cuda' or"):
        check_device(device)


def test_arrays_are_no_tensors():
    assert not is_tensor(np.zeros(3))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize(
    ("d", "K", "rank", "side"),
    [(3, 1, None, 0), (20, 6, None, 0), (10, 3, 2, 0), (7, 2, None, 2), (4, 2, 0, 0)],
)
def test_sums_are_those_of_numpy(d, K, rank, side, single, device):
    tasks = ragged(500, d, side=bool(side))
    units = Scaling.of(tasks, True, centre=True)
    known = tasks.side_info if side else None
    model = mixture(d + 1, K, rank=rank, side=side)
    rows = DeviceSource.from_tasks(tasks, device)
    if single:
        rows = replace(rows, X=rows.X.float(), y=rows.y.float())
    here, blocks = Moments.of(tasks, units, known), list(rows.moments(units, known))
    assert len(blocks) > 1 or d < 4
    there = Blocks(blocks)
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
    again = Blocks(list(rows.moments(units, known))).sums(model).sums
    assert np.array_equal(again.second, found.second)


def test_em_ends_where_that_of_numpy_does(device):
    tasks = ragged(300, 5)
    units = Scaling.of(tasks, True, centre=True)
    # One component: tasks in memory are asked about those that they have left in some steps only.
    start = mixture(6, 1)
    here = em(Moments.of(tasks, units), start, max_iter=10)
    there = em(
        Blocks(list(DeviceSource.from_tasks(tasks, device).moments(units))),
        start,
        max_iter=10,
    )
    largest = np.abs(here.mixture.covariances).max()
    assert np.abs(there.mixture.covariances - here.mixture.covariances).max() / largest < 1e-8
    assert there.log_evidence == pytest.approx(here.log_evidence, rel=1e-8)


@pytest.mark.parametrize("side", [False, True])
def test_tensors_in_give_tensors_out(side, device, no_curves):
    import torch

    tasks = ragged(200, 4, side=side)
    learner = EmpiricalBayesLearner().fit(tasks)
    expected = learner.adapt_many(tasks).weights_
    learner.set_params(device="cuda")
    np.testing.assert_allclose(learner.adapt_many(tasks).weights_, expected, rtol=1e-6, atol=1e-8)
    kept = tasks.sizes > 0
    X, y = (torch.tensor(part, device=device) for part in (tasks.X, tasks.y))
    groups = torch.tensor(np.repeat(np.arange(len(tasks)), tasks.sizes), device=device)
    described = None if tasks.side_info is None else dict(enumerate(tasks.side_info))
    order = torch.randperm(len(y), device=device)
    found = learner.adapt_many(
        X[order], y[order], groups=groups[order], side_info=described
    ).weights_
    assert found.device == device
    np.testing.assert_allclose(found.cpu().numpy(), expected[kept], rtol=1e-6, atol=1e-8)
    with pytest.raises(ValueError, match="columns"):
        learner.adapt_many(X[:, :2], y, groups=groups, side_info=described)
    with pytest.raises(ValueError, match="NaN"):
        learner.adapt_many(X * float("nan"), y, groups=groups, side_info=described)
    with pytest.raises(ValueError, match="on meta"):
        learner.adapt_many(X.to("meta"), y, groups=groups, side_info=described)


@pytest.mark.parametrize(("K", "rank"), [(1, None), (3, None), (3, 2)])
def test_weights_are_those_of_numpy(K, rank, device):
    tasks, model = ragged(200, 4), mixture(5, K, rank=rank)
    prior = MixturePrior(scaling=Scaling.of(tasks, True), model=model)
    assert (tasks.sizes == 0).any()
    prior = replace(prior, without_rows=np.random.default_rng(1).normal(size=5))
    found = weights_on_device(prior, DeviceSource.from_tasks(tasks, device)).cpu().numpy()
    np.testing.assert_allclose(found, adapt_tasks(prior, tasks).weights, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("kind", ["plain", "levels", "low rank"])
def test_a_fit_on_the_device_is_that_of_numpy(kind, device, monkeypatch):
    import torch

    from tailored.empirical_bayes import data

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
        for limit in ("LOW_RANK", "WIDE"):
            monkeypatch.setattr(data, limit, 7)
    kept = tasks[tasks.sizes > 0]
    # A sample of 150 tasks, refined on all of them: here by NumPy, there on the device.
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
    X, y = (torch.tensor(part, device=device) for part in (kept.X, kept.y))
    groups = torch.tensor(np.repeat(kept.labels, kept.sizes), device=device)
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
