"""One cell of an experiment: a seed, a method and a step size in; a test curve and a validation
error out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tailored import EmpiricalBayesLearner, TaskSet
from tailored._utils.threads import single_threaded_blas
from tailored.losses import get_loss
from tailored.paper.algorithm_1 import RunningMean, StepSizes, Surrogate, Trajectory, run
from tailored.paper.representation import Conditioning
from tailored.paper.within_task import WithinTask, WithinTaskOverflowError
from tailored.tasks.rows import Rows

from ..theory.bayes import ClusterOracle
from .config import ExperimentConfig
from .curves import MeanAtTasks
from .protocol import Part, Prepared, prepare

Array = NDArray[np.float64]

#: Methods with one cell for each step size.
STEPPED = ("unconditional", "conditional", "conditional-scaled")


class Cell(NamedTuple):
    """The name of a cell; ``step`` is the position in the grid of step sizes, if any."""

    experiment: str
    seed: int
    method: str
    step: int | None

    def __str__(self) -> str:
        step = "none" if self.step is None else f"{self.step:02d}"
        return f"seed-{self.seed}_{self.method}_step-{step}"


@dataclass(frozen=True)
class CellResult:
    """What a cell leaves behind.

    Attributes
    ----------
    test : ndarray of shape (T,) or (1,)
        Mean error on the test tasks with the mean of the first t iterates, t = 1 .. T; infinite
        from where the iterates overflowed. `EmpiricalBayesLearner` is fitted once, to all training
        tasks.
    validation : float
        Mean error on the validation tasks with the mean of all T iterates; NaN if the method is
        fitted to them.
    arrays : dict of ndarray
        Learned representation, for the figures; empty unless asked for.
    """

    test: Array
    validation: float
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def list_cells(config: ExperimentConfig) -> list[Cell]:
    """Return all cells of an experiment, the slow ones first within a seed."""
    cells = []
    for seed in range(config.grid.seeds):
        for method in reversed(config.learning.methods):
            steps = range(config.grid.step_count) if method in STEPPED else [None]
            cells += [Cell(config.name, seed, method, step) for step in steps]
    return cells


def run_cells(
    config: ExperimentConfig, cells: Sequence[Cell], data: str | None = None
) -> list[CellResult]:
    """Compute cells of one seed and method; the same bits on every run of the same machine and
    libraries.
    """
    # Overflow is an expected end of the largest steps, and is handled where it is met.
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        prepared = prepare(config, cells[0].seed, data)
        if cells[0].step is None:
            return [WITHOUT_STEPS[cells[0].method](config, prepared)]
        return list(_learn(config, prepared, cells))


def _independent(config: ExperimentConfig, prepared: Prepared) -> CellResult:
    parts, theta = (prepared.test, prepared.validation), np.eye(prepared.n_features)
    test, validation = (Scorer(config, part)(theta) for part in parts)
    return CellResult(np.full(config.tasks.train, test), validation)


def _empirical_bayes(
    config: ExperimentConfig, prepared: Prepared, covariance: str | None = None
) -> CellResult:
    """`EmpiricalBayesLearner`, fitted to the training rows of Algorithm 1 and to all rows of the
    validation tasks.

    Algorithm 1 selects its step size on the validation tasks; this learner selects its model by
    cross-validation, or fits one Gaussian with the given covariance.
    """
    train, validation, test = prepared.train, prepared.validation, prepared.test
    n_columns = prepared.n_features - config.rows.constant  # the learner has its own intercept
    T = len(train)
    seen = _task_set(n_columns, (train.support, 0), (validation.support, T), (validation.query, T))
    # Labels of their own: these tasks are new.
    support, query = (
        _task_set(n_columns, (rows, len(seen))) for rows in (test.support, test.query)
    )
    learner = EmpiricalBayesLearner(loss=config.learning.loss, covariance=covariance).fit(seen)
    predicted = learner.predict_tasks(query, support, coverage=None)["prediction"]
    return CellResult(np.array([Scorer(config, test).mean_error(np.asarray(predicted))]), np.nan)


def _bayes(config: ExperimentConfig, prepared: Prepared) -> CellResult:
    """Posterior mean of an observer who knows the clusters' planes and the noise, but not a task's
    cluster.
    """
    assert prepared.bases is not None
    oracle = ClusterOracle(prepared.bases, dict(config.data.options)["noise"])
    test, validation = (
        Scorer(config, part).of_coefficients(
            oracle.adapt_many(_task_set(prepared.n_features, (part.support, 0)))
        )
        for part in (prepared.test, prepared.validation)
    )
    return CellResult(np.full(config.tasks.train, test), validation)


WITHOUT_STEPS: dict[str, Callable[[ExperimentConfig, Prepared], CellResult]] = {
    "independent": _independent,
    "mixed-model": partial(_empirical_bayes, covariance="full"),
    "empirical-bayes": _empirical_bayes,
    "bayes": _bayes,
}


def _task_set(n_columns: int, *parts: tuple[Rows, int]) -> TaskSet:
    """The first columns of rows of tasks; those of each part are labelled from a number on."""
    X = np.concatenate([rows.X[:, :n_columns] for rows, _ in parts])
    y = np.concatenate([rows.y for rows, _ in parts])
    labels = [np.repeat(first + np.arange(len(rows.sizes)), rows.sizes) for rows, first in parts]
    return TaskSet(X, y, np.concatenate(labels))


def _learn(
    config: ExperimentConfig, prepared: Prepared, cells: Sequence[Cell]
) -> Iterator[CellResult]:
    """Algorithm 1 from ``C_1 = I``, ``H_1 = 0``, by the learners' own solver, with the step size of
    each cell.
    """
    loss = get_loss(config.learning.loss)
    if not np.isfinite(loss.lipschitz):
        raise ValueError("the surrogate of the paper needs a Lipschitz loss")
    method = cells[0].method
    k = 0 if method == "unconditional" else prepared.train.phis.shape[1]
    scale = prepared.scale if method == "conditional-scaled" else 1.0
    parts = prepared.train, prepared.validation, prepared.test
    train, validation, test = (part.phis[:, :k] / scale for part in parts)
    C0 = np.eye(prepared.n_features)
    sizes = [config.grid.step_sizes[cell.step] for cell in cells if cell.step is not None]
    runs = [Trajectory(StepSizes(size, size), C0, k, config.learning.rank) for size in sizes]
    score = Scorer(config, prepared.test)
    curves = [Curve(config, score, test, one.mean) for one in runs]
    for one, curve in zip(runs, curves, strict=True):
        one.mean = curve
    surrogate = Surrogate(WithinTask(loss, config.learning.inner), loss.lipschitz)
    run(runs, prepared.train.support, train, np.ones(len(train)), surrogate)
    score = Scorer(config, prepared.validation)
    for cell, one, curve in zip(cells, runs, curves, strict=True):
        if one.failure:
            yield CellResult(curve.errors, np.inf)
            continue
        learned = one.average()
        arrays = _representation(prepared, learned, curve.means.mean()) if cell.seed == 0 else {}
        yield CellResult(curve.errors, score(learned.evaluate(validation)), arrays)


class Curve(RunningMean):
    """The mean of a run's iterates, with its error on the test tasks after every training task.

    ``errors`` (T,) is infinite from where the iterates overflowed.
    """

    def __init__(
        self, config: ExperimentConfig, score: Scorer, phis: Array, mean: RunningMean
    ) -> None:
        self.score, self.means, self.of_run = score, MeanAtTasks(phis), mean
        self.errors = np.full(config.tasks.train, np.inf)

    def add(self, run: Trajectory) -> None:
        self.of_run.add(run)
        self.means.add(run)
        self.errors[self.of_run.count - 1] = self.score(self.means.mean())

    def average(self, run: Trajectory) -> Conditioning:
        return self.of_run.average(run)


class Scorer:
    """Mean over tasks of the mean error on their query rows, after adapting to their support
    rows.
    """

    def __init__(self, config: ExperimentConfig, part: Part) -> None:
        self.support, self.y = part.support, part.query.y
        self.loss = get_loss(config.learning.loss)
        self.algorithm = WithinTask(self.loss, config.learning.inner)
        # One product for the predictions of all tasks, and one for the mean over tasks of the means
        # over rows.
        X, offsets, sizes = part.query.X, part.query.offsets, part.query.sizes
        self.rows = sparse.block_diag(
            [sparse.csr_array(X[a:b]) for a, b in pairwise(offsets)], format="csr"
        )
        self.weights = np.repeat(1.0 / (np.count_nonzero(sizes) * np.maximum(sizes, 1)), sizes)

    def __call__(self, thetas: Array) -> float:
        """``thetas`` (T, d, d), or one (d, d) for all tasks."""
        thetas = thetas if thetas.ndim == 3 else thetas[None]
        if not np.isfinite(thetas).all():
            raise OverflowError("a representation is no longer finite")
        try:
            solved = self.algorithm.solve(self.support, thetas)
        except WithinTaskOverflowError:
            return np.inf
        return self.of_coefficients(solved.coef)

    def of_coefficients(self, coefficients: Array) -> float:
        """``coefficients`` (T, d)."""
        return self.mean_error(self.rows @ coefficients.ravel())

    def mean_error(self, predictions: Array) -> float:
        """``predictions`` of all query rows, in their order."""
        error = float(self.loss.value(predictions, self.y) @ self.weights)
        return error if np.isfinite(error) else np.inf


def _representation(
    prepared: Prepared, learned: Conditioning, taus: Array
) -> dict[str, NDArray[Any]]:
    """Mean τ of each group of test tasks, in the frame of the figures, and the spectra of H and
    C.
    """
    C = learned.C
    H = learned.H
    taus = np.broadcast_to(taus, (len(prepared.test), *C.shape))
    shown = np.unique(prepared.groups)  # a small test set may miss a group
    means = np.array([taus[prepared.groups == group].mean(axis=0) for group in shown])
    return {
        "taus": prepared.frame.T @ means @ prepared.frame,
        "spectrum_H": np.linalg.eigvalsh(H)[::-1] if H.size else np.zeros(0),
        "spectrum_C": np.linalg.eigvalsh(C)[::-1],
        "group_names": np.array(prepared.group_names)[shown],
        "axis_names": np.array(prepared.axis_names),
    }
