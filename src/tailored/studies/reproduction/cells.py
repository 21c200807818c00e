"""One cell of an experiment: a seed, a method and a step size in; a test curve and a validation error out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ... import within
from ..._threads import single_threaded_blas
from ...losses import Loss, get_loss
from ...objectives import Surrogate
from ...tasks import Rows
from .averages import Means, evaluate_dense, start_means
from .config import ExperimentConfig
from .practical import run_practical
from .protocol import Part, Prepared, prepare

Array = NDArray[np.float64]


class Cell(NamedTuple):
    """The name of a cell; ``step`` is the position in the grid of step sizes (None: nothing is learned)."""

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
    test : ndarray of shape (T,)
        Mean error on the test tasks with the mean of the first t iterates, t = 1 .. T; infinite from where
        the iterates overflowed.
    validation : float
        Mean error on the validation tasks with the mean of all T iterates.
    arrays : dict of ndarray
        Learned representation, for the figures; empty unless asked for.
    """

    test: Array
    validation: float
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def list_cells(config: ExperimentConfig) -> list[Cell]:
    """All cells of an experiment, the slow ones first within a seed."""
    cells = []
    for seed in range(config.grid.seeds):
        for method in reversed(config.learning.methods):
            alone = method == "independent" or config.preset == "practical"
            steps = [None] if alone else range(config.grid.step_count)
            cells += [Cell(config.name, seed, method, step) for step in steps]
    return cells


def run_cell(config: ExperimentConfig, cell: Cell, data: str | None = None) -> CellResult:
    """Compute one cell; the same bits on every run of the same machine and libraries."""
    # Overflow is an expected end of the largest steps, and is handled where it is met.
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        prepared = prepare(config, cell.seed, data)
        if config.preset == "practical":
            return CellResult(*run_practical(config, prepared, cell.method))
        if cell.step is None:
            return _independent(config, prepared)
        step_size = config.grid.step_sizes[cell.step]
        return _learn(config, prepared, step_size, cell.method == "conditional", keep_arrays=cell.seed == 0)


def _independent(config: ExperimentConfig, prepared: Prepared) -> CellResult:
    theta = np.eye(prepared.n_features)
    test = Scorer(config, prepared.test)(theta)
    validation = Scorer(config, prepared.validation)(theta)
    return CellResult(np.full(config.tasks.train, test), validation)


def _learn(
    config: ExperimentConfig, prepared: Prepared, step_size: float, conditional: bool, *, keep_arrays: bool
) -> CellResult:
    """Algorithm 1 from ``C_1 = I``, ``H_1 = 0``."""
    n_tasks = config.tasks.train
    loss = get_loss(config.learning.loss)
    objective = Surrogate(loss, lipschitz=_lipschitz(loss), inner=config.learning.inner)
    means = start_means(
        np.eye(prepared.n_features),
        step_size,
        prepared.test.phis,
        conditional=conditional,
        rank=config.learning.rank,
        n_tasks=n_tasks,
    )
    score = Scorer(config, prepared.test)
    test = np.full(n_tasks, np.inf)
    try:
        for t in range(n_tasks):
            test[t] = score(means.mean_test())
            # The step of the last task leads to an iterate that no mean contains.
            if t + 1 < n_tasks:
                _step(means, objective, prepared.train, t)
    except OverflowError:
        return CellResult(test, np.inf)
    H, C = means.finish()
    validation = Scorer(config, prepared.validation)(evaluate_dense(H, C, prepared.validation.phis))
    arrays = _representation(prepared, H, C, means.mean_test()) if keep_arrays else {}
    return CellResult(test, validation, arrays)


def _lipschitz(loss: Loss) -> float:
    if loss.lipschitz is None:
        raise ValueError("the surrogate of the paper needs a Lipschitz loss")
    return float(loss.lipschitz)


def _step(means: Means, objective: Surrogate, train: Part, t: int) -> None:
    start, stop = train.support.offsets[t], train.support.offsets[t + 1]
    rows = Rows(train.support.X[start:stop], train.support.y[start:stop], np.array([0, stop - start]))
    theta = means.iterate(train.phis[t])
    result = objective(rows, None, theta[None], None)
    if not np.isfinite(result.value).all():
        raise OverflowError("the surrogate is no longer finite")
    means.step(result.theta(0, rows.X), train.phis[t])


class Scorer:
    """Mean over tasks of the mean error on their query rows, after adapting to their support rows."""

    def __init__(self, config: ExperimentConfig, part: Part) -> None:
        self.part = part
        self.loss = get_loss(config.learning.loss)
        self.inner = config.learning.inner
        sizes = np.diff(part.query.offsets)
        self.task = np.repeat(np.arange(len(sizes)), sizes)
        self.weights = np.repeat(1.0 / (sizes * len(sizes)), sizes)

    def __call__(self, thetas: Array) -> float:
        """``thetas`` (T, d, d), or one (d, d) for all tasks."""
        if not np.isfinite(thetas).all():
            raise OverflowError("a representation is no longer finite")
        coef = within.solve_many(*self.part.support, thetas, self.loss, inner=self.inner).coef
        prediction = np.einsum("ij,ij->i", self.part.query.X, coef[self.task])
        return float(self.weights @ self.loss.value(prediction, self.part.query.y))


def _representation(prepared: Prepared, H: Array, C: Array, taus: Array) -> dict[str, NDArray[Any]]:
    """Mean τ of each group of test tasks, in the frame of the figures, and the spectra of H and C."""
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
