"""One cell of an experiment: a seed, a method and a step size in; a test curve and a validation error out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailored._utils.threads import single_threaded_blas
from tailored.losses import get_loss
from tailored.priors.representation import RepresentationPrior
from tailored.representation.base import Conditioning
from tailored.representation.bias import Bias
from tailored.representation.dense import Constant
from tailored.solvers import DivergenceError, ProjectedSGD
from tailored.solvers.base import Problem, TaskBatch
from tailored.solvers.objectives import Surrogate
from tailored.solvers.projected import Trajectory
from tailored.tasks.rows import Scaling, mean_error, predictions
from tailored.tasks.task_set import TaskSet
from tailored.within import solving

from .config import ExperimentConfig
from .curves import MeanAtTasks
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
    """Return all cells of an experiment, the slow ones first within a seed."""
    cells = []
    for seed in range(config.grid.seeds):
        for method in reversed(config.learning.methods):
            steps = [None] if method == "independent" else range(config.grid.step_count)
            cells += [Cell(config.name, seed, method, step) for step in steps]
    return cells


def run_cell(config: ExperimentConfig, cell: Cell, data: str | None = None) -> CellResult:
    """Compute one cell; the same bits on every run of the same machine and libraries."""
    # Overflow is an expected end of the largest steps, and is handled where it is met.
    with single_threaded_blas(), np.errstate(over="ignore", invalid="ignore"):
        prepared = prepare(config, cell.seed, data)
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
    """Algorithm 1 from ``C_1 = I``, ``H_1 = 0``, by the learners' own solver."""
    curve = Curve(config, prepared, conditional)
    problem = _problem(config, prepared, conditional)
    try:
        prior = ProjectedSGD(step_size).solve(problem, callback=curve).prior
    except DivergenceError:
        return CellResult(curve.errors, np.inf)
    phis = prepared.validation.phis if conditional else prepared.validation.phis[:, :0]
    validation = Scorer(config, prepared.validation)(prior.conditioning.evaluate(phis))
    arrays = _representation(prepared, prior.conditioning, curve.means.mean()) if keep_arrays else {}
    return CellResult(curve.errors, validation, arrays)


def _problem(config: ExperimentConfig, prepared: Prepared, conditional: bool) -> Problem:
    rows, d = prepared.train.support, prepared.n_features
    phis = prepared.train.phis if conditional else prepared.train.phis[:, :0]
    loss = get_loss(config.learning.loss)
    if not np.isfinite(loss.lipschitz):
        raise ValueError("the surrogate of the paper needs a Lipschitz loss")
    n_tasks, n_side = phis.shape
    # The features are scaled already, by the root mean square of the training tasks.
    batch = TaskBatch(rows, None, phis, np.ones(n_tasks))
    return Problem(
        RepresentationPrior(
            scaling=Scaling.raw(d),
            conditioning=Constant(np.eye(d), n_side),
            bias=Bias.zero("none", d, n_side),
            loss=loss,
            inner=config.learning.inner,
        ),
        Surrogate(loss, loss.lipschitz, config.learning.inner),
        TaskSet.from_arrays(rows.X, rows.y, rows.offsets, np.arange(n_tasks)),
        batch,
        lambda number: batch,
        rank=config.learning.rank,
    )


class Curve:
    """The error on the test tasks after every training task; called by the solver.

    ``errors`` (T,) is infinite from where the iterates overflowed.
    """

    def __init__(self, config: ExperimentConfig, prepared: Prepared, conditional: bool) -> None:
        self.score = Scorer(config, prepared.test)
        self.means = MeanAtTasks(prepared.test.phis if conditional else prepared.test.phis[:, :0])
        self.errors = np.full(config.tasks.train, np.inf)

    def __call__(self, run: Trajectory) -> None:
        self.means.add(run.iterate)
        self.errors[run.n_steps] = self.score(self.means.mean())


class Scorer:
    """Mean over tasks of the mean error on their query rows, after adapting to their support rows."""

    def __init__(self, config: ExperimentConfig, part: Part) -> None:
        self.part = part
        self.loss = get_loss(config.learning.loss)
        self.inner = config.learning.inner

    def __call__(self, thetas: Array) -> float:
        """``thetas`` (T, d, d), or one (d, d) for all tasks."""
        if not np.isfinite(thetas).all():
            raise OverflowError("a representation is no longer finite")
        solved = solving.solve_many(*self.part.support, thetas, self.loss, inner=self.inner, certify=False)
        query = self.part.query
        return mean_error(self.loss.value(predictions(query, solved.coef), query.y), query.offsets)


def _representation(prepared: Prepared, learned: Conditioning, taus: Array) -> dict[str, NDArray[Any]]:
    """Mean τ of each group of test tasks, in the frame of the figures, and the spectra of H and C."""
    C = learned.C
    H = learned.dense_H() if learned.n_side else np.zeros((0, 0))
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
