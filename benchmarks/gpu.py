"""Check the GPU against the CPU and time it, on any CUDA machine.

    PYTHONPATH=src python benchmarks/gpu.py --tasks 1000000

Times are medians of device events; data are random, and made on the device.  Before anything is
timed, sums of EM and weights are compared with those of the CPU on some thousand ragged tasks, for
several numbers of columns, components and kinds of prior.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import replace
from itertools import pairwise

os.environ.setdefault("OMP_NUM_THREADS", "1")
import numpy as np
import torch

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.priors.base import adapt_tasks
from tailored.priors.mixture import MixturePrior, weights_on_device
from tailored.scale.cuda import CudaMoments
from tailored.scale.tensors import TensorTasks
from tailored.tasks.rows import Scaling

DEVICE = torch.device("cuda", 0)


def mixture(d: int, K: int, rng: np.random.Generator, rank: int | None = None) -> Mixture:
    roots = rng.normal(size=(K, d, rank or d)) / np.sqrt(d)
    covariances = roots @ roots.transpose(0, 2, 1)
    if rank is None:
        covariances += 0.05 * np.eye(d)
    return Mixture(rng.dirichlet(np.full(K, 5.0)), rng.normal(size=(K, d)), covariances, 0.3)


def prior_of(model: Mixture, units: Scaling) -> MixturePrior:
    return MixturePrior(scaling=units, model=model)


def ragged(T: int, d: int, rng: np.random.Generator) -> TaskSet:
    sizes = rng.integers(0, 2 * d + 2, size=T)
    X = rng.normal(size=(sizes.sum(), d)) * rng.uniform(0.5, 2.0, size=d) + 1.0
    y = 2.0 * rng.normal(size=sizes.sum()) + 3.0
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return TaskSet.from_tasks([(X[a:b], y[a:b]) for a, b in pairwise(offsets)])


def distance(found: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


def check(
    d: int, K: int, *, single: bool = False, rank: int | None = None, intercept: bool = True
) -> None:
    rng = np.random.default_rng([d, K])
    tasks = ragged(3000, d, rng)
    units = Scaling.of(tasks, intercept, centre=True)
    model = mixture(d + intercept, K, rng, rank)
    here = Moments.of(tasks, units)
    rows = TensorTasks.from_tasks(tasks, DEVICE)
    if single:
        rows = replace(rows, X=rows.X.float(), y=rows.y.float())
    there = CudaMoments.of(rows, units)
    expected, found = here.sums(model).sums, there.sums(model).sums
    again = there.sums(model).sums
    same = all(
        np.array_equal(getattr(found, name), getattr(again, name))
        for name in ("first", "second", "counts")
    )
    errors = {
        name: distance(np.array(getattr(found, name)), np.array(getattr(expected, name)))
        for name in ("log_evidence", "counts", "first", "second", "residual")
    }
    errors["totals"] = distance(there.totals().gram, here.totals().gram)
    prior = prior_of(model, units)
    here_weights = adapt_tasks(prior, tasks, covariances=False).weights
    errors["weights"] = distance(weights_on_device(prior, rows).cpu().numpy(), here_weights)
    kind = "float32" if single else "float64"
    said = "  ".join(f"{name} {value:.0e}" for name, value in errors.items())
    print(
        f"d={d}{'+1' if intercept else ''} K={K} rank={rank or d} {kind}: {said}  same bits twice: "
        f"{same}",
        flush=True,
    )
    tolerance = 1e-4 if single else 1e-6
    assert same
    assert max(errors.values()) < tolerance, errors


def timed(work, n: int = 9) -> float:
    """Median milliseconds."""
    for _ in range(2):
        work()
    torch.cuda.synchronize()
    found = []
    for _ in range(n):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end))
    return float(np.median(found))


def rows_on_device(T: int, n: int, d: int, dtype: torch.dtype) -> TensorTasks:
    X = torch.randn(T * n, d, device=DEVICE, dtype=dtype)
    y = torch.randn(T * n, device=DEVICE, dtype=dtype)
    return TensorTasks(
        X, y, torch.arange(0, T * n + 1, n, device=DEVICE), torch.arange(T, device=DEVICE)
    )


def time_em(
    T: int,
    n: int,
    d: int,
    K: int,
    dtype: torch.dtype,
    intercept: bool = False,
    rank: int | None = None,
) -> None:
    units = Scaling.raw(d, intercept)
    statistics = CudaMoments.of(rows_on_device(T, n, d, dtype), units)
    model = mixture(d + intercept, K, np.random.default_rng(0), rank)
    step = timed(lambda: statistics.sums(model))
    print(
        f"EM step, {T:,} tasks, d={d + intercept}, rank={rank or d + intercept}, K={K}, {dtype}: "
        f"{step:.2f} ms",
        flush=True,
    )


def time_adapting(
    T: int, n: int, d: int, K: int, dtype: torch.dtype, intercept: bool = False
) -> None:
    units = Scaling.raw(d, intercept)
    rows = rows_on_device(T, n, d, dtype)
    prior = prior_of(mixture(d + intercept, K, np.random.default_rng(0)), units)
    took = timed(lambda: weights_on_device(prior, rows))
    # A learner as it is after a fit, with this prior.
    learner = EmpiricalBayesLearner(device="cuda", fit_intercept=intercept)
    learner.prior_, learner.n_features_in_, learner.n_side_info_in_ = prior, d, 0
    groups = torch.repeat_interleave(rows.labels, n)
    public = timed(lambda: learner.adapt_many(rows.X, rows.y, groups=groups))
    what = f"adapt_many, {T:,} tasks of {n} rows, d={d + intercept}, K={K}, {dtype}"
    print(f"{what}: {public:.2f} ms, its pass alone {took:.2f} ms", flush=True)


def time_plain(T: int, n: int, d: int) -> None:
    """The same by batched calls of torch, one component."""
    X = torch.randn(T, n, d, device=DEVICE, dtype=torch.float64)
    y = torch.randn(T, n, device=DEVICE, dtype=torch.float64)
    ridge = torch.eye(d, device=DEVICE, dtype=torch.float64)
    gram, cross = X.mT @ X, (X.mT @ y[..., None])[..., 0]

    def step() -> None:
        factor = torch.linalg.cholesky(gram + ridge)
        inverse = torch.cholesky_inverse(factor)
        u = (inverse @ cross[..., None])[..., 0]
        factor.diagonal(dim1=1, dim2=2).log().sum()
        u.T @ u + inverse.sum(0)

    def adapt_all() -> None:
        factor = torch.linalg.cholesky(X.mT @ X + ridge)
        z = torch.linalg.solve_triangular(factor, X.mT @ y[..., None], upper=False)
        torch.linalg.solve_triangular(factor.mT, z, upper=True)

    print(
        f"plain torch, {T:,} tasks, d={d}: EM step K=1 {timed(step, 3):.1f} ms, adapting "
        f"{timed(adapt_all, 3):.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1_000_000)
    parser.add_argument("--skip-checks", action="store_true")
    options = parser.parse_args()
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    if not options.skip_checks:
        check(20, 6, intercept=False)
        check(20, 6)
        check(20, 1)
        check(3, 1)
        check(10, 3, rank=2)
        check(20, 6, rank=2, single=True)
        check(13, 2, single=True)
        check(40, 2)
    T = options.tasks
    for dtype in (torch.float64, torch.float32):
        for K in (1, 6):
            time_em(T, 40, 20, K, dtype)
            time_adapting(T, 40, 20, K, dtype)
    time_em(T, 40, 20, 6, torch.float64, intercept=True)
    time_adapting(T, 40, 20, 6, torch.float64, intercept=True)
    time_em(T, 40, 20, 6, torch.float64, rank=2)
    time_em(T, 40, 20, 6, torch.float64, rank=10)
    time_em(T, 20, 10, 1, torch.float64)
    time_em(T // 5, 40, 40, 1, torch.float64)
    time_plain(T, 40, 20)


if __name__ == "__main__":
    main()
