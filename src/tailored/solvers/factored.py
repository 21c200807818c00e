"""Training loops over the factors of the conditioning function, for ``solver="lbfgs"`` and ``"adam"``.

Both work in coordinates in which the start is the identity (`Coordinates`), so that their steps mean the same
whatever the units of the data, and both judge every iterate on held-out tasks and return the best one, the
start included.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from ..losses import Loss
from ..mixed_models import TaskStatistics, Units, fit_mixed_model
from ..objectives import Objective
from ..representation.bias import Bias
from ..representation.conditioning import Conditioning, Constant
from ..tasks import TaskSet
from .factors import FactoredObjective, Factors, transformed
from .trajectory import TaskBatch, concatenated

Array = NDArray[np.float64]

#: Valid values of a learner's ``solver``.
SOLVERS = ("projected", "lbfgs", "adam")

#: Times in a row that the held-out tasks gain nothing, after which a solver stops.
PATIENCE = {"lbfgs": 10, "adam": 5}
#: First step of Adam, in the coordinates of the start; it is halved whenever nothing is gained.
ADAM_STEP = 0.01
#: Steps of Adam at least between two looks at the held-out tasks: passes over few tasks go together.
ADAM_STEPS = 16
#: Decay of Adam's averages of the gradient and of its square.
ADAM_DECAY = 0.9, 0.999
#: Pairs that L-BFGS keeps.
MEMORY = 20
#: Draws of support rows that L-BFGS sees of every task under the query objective (Adam: one per pass).
#: With a single one it learns which rows are in it.
DRAWS = 4
#: Mean of V Vᵀ over the tasks at the start, as a fraction of C: large enough to leave the saddle at M = 0.
START_H = 0.03
#: Directions of the starting C below this fraction of its mean eigenvalue are raised to it: F could not grow.
FLOOR = 1e-3
#: Floats that the mixed model behind the start may take; beyond, it sees the first tasks only (160 MB).
START_FLOATS = 20_000_000
#: Multiples of C that are tried at the start; 1 first, so that a tie leaves it as it is.
START_SCALES = tuple(4.0**e for e in (0, -1, 1, -2, 2, -3, 3, -4, 4))
#: Multiples of τ outside this range are not tried.
SCALE_RANGE = 2.0**-12, 2.0**12


@dataclass(frozen=True)
class Coordinates:
    """Rows ``X @ transform``, features ``φ / phi_scale``, prior means in ``unit``."""

    transform: Array
    phi_scale: float
    unit: float

    def enter(self, batch: TaskBatch) -> TaskBatch:
        return transformed(batch, self.transform, self.phi_scale)

    def leave(self, factors: Factors) -> Factors:
        return factors.mapped(self.transform, self.phi_scale, self.unit)


@dataclass(frozen=True)
class State:
    """Where training stands: the best factors so far and the best multiple of their τ.

    The coordinates stay those of the first tasks, however many more there are.
    """

    factors: Factors
    coordinates: Coordinates
    scale: float = 1.0


def _best_scale(error: Callable[[float], float], scale: float) -> tuple[float, float]:
    """Walk from ``scale``, doubling or halving, to where the error stops falling; (scale, error)."""
    here = error(scale)
    least, ratio = min((error(scale * ratio), ratio) for ratio in (0.5, 2.0))
    while least < here and SCALE_RANGE[0] <= scale * ratio <= SCALE_RANGE[1]:
        scale, here = scale * ratio, least
        least = error(scale * ratio)
    return scale, here


#: Error on the held-out tasks of a multiple of the τ that has these factors.
HeldOut = Callable[[Factors, float], float]


class _Best:
    """The best factors met so far with their multiple, and how long ago that was."""

    def __init__(self, state: State, held_out: HeldOut, patience: int, calibrate: bool) -> None:
        self.held_out, self.patience, self.calibrate = held_out, patience, calibrate
        self.factors, self.scale, self.error, self.waited = state.factors, state.scale, np.inf, 0
        self.history: list[dict[str, Any]] = []
        self.offer(state.factors, 0)

    def offer(self, factors: Factors, iteration: int) -> bool:
        """Judge new factors by the multiple of them that does best; whether they are the best so far."""
        if self.calibrate:
            scale, error = _best_scale(lambda c: self.held_out(factors, c), self.scale)
        else:
            scale, error = self.scale, self.held_out(factors, self.scale)
        self.history.append({"iteration": iteration, "scale": scale, "error": error})
        gained = error < self.error
        if gained:
            self.factors, self.scale, self.error = factors, scale, error
        self.waited = 0 if gained else self.waited + 1
        return gained

    @property
    def exhausted(self) -> bool:
        return self.waited >= self.patience

    def result(self) -> Trained:
        return Trained(self.factors, self.scale, self.error, self.history)


@dataclass(frozen=True)
class Trained:
    """The best factors, their multiple, its error on the held-out tasks, and that of every iteration."""

    factors: Factors
    scale: float
    error: float
    history: list[dict[str, Any]]


def lbfgs(
    objective: FactoredObjective,
    state: State,
    batch: TaskBatch,
    held_out: HeldOut,
    *,
    max_passes: int,
    calibrate: bool,
    tick: Callable[[int], None] | None = None,
) -> Trained:
    """L-BFGS over all tasks, stopped when the held-out tasks gain nothing any more."""
    start, best = state.factors, _Best(state, held_out, PATIENCE["lbfgs"], calibrate)
    # relative to the start, because the tolerances of L-BFGS are absolute
    size = objective(start, batch)[0] or 1.0

    def function(vector: Array) -> tuple[float, Array]:
        value, gradient = objective(start.unpack(vector), batch)
        if not np.isfinite(value):
            return np.inf, np.zeros_like(vector)
        return value / size, gradient.pack() / size

    def judge(vector: Array) -> None:
        best.offer(start.unpack(vector.copy()), len(best.history))
        if tick is not None:
            tick(1)
        if best.exhausted:
            raise StopIteration

    vector = start.pack()
    while not best.exhausted and (left := max_passes - len(best.history) + 1) > 0:
        before = len(best.history)
        found = optimize.minimize(
            function,
            vector,
            jac=True,
            method="L-BFGS-B",
            callback=judge,
            options={"maxiter": left, "maxcor": MEMORY, "maxfun": 20 * left},
        )
        vector = found.x
        # A kink of the loss ends the line search early: forget the curvature and go on from there, once
        # at least one iteration has been made.
        if found.status != 2 or len(best.history) == before:
            break
    return best.result()


def adam(
    objective: FactoredObjective,
    state: State,
    draw: Callable[[int], TaskBatch],
    held_out: HeldOut,
    *,
    max_passes: int,
    batch_size: int,
    calibrate: bool,
    rng: np.random.Generator,
    tick: Callable[[int], None] | None = None,
) -> Trained:
    """Adam over mini-batches of the tasks of ``draw(pass)``, judged by the mean of the latest iterates."""
    start, best = state.factors, _Best(state, held_out, PATIENCE["adam"], calibrate)
    vector, step = start.pack(), ADAM_STEP
    first, second, n_steps = np.zeros_like(vector), np.zeros_like(vector), 0
    total, n_summed = np.zeros_like(vector), 0
    beta, gamma = ADAM_DECAY
    for number in range(1, max_passes + 1):
        batch = draw(number - 1)
        n_pieces = max(1, round(len(batch) / batch_size))
        for piece in np.array_split(rng.permutation(len(batch)), n_pieces):
            g = objective(start.unpack(vector), batch.take(piece))[1].pack()
            n_steps += 1
            first = beta * first + (1.0 - beta) * g
            second = gamma * second + (1.0 - gamma) * g * g
            size = np.sqrt(second / (1.0 - gamma**n_steps))
            vector = vector - step * first / (1.0 - beta**n_steps) / np.where(size > 0, size, 1.0)
            total, n_summed = total + vector, n_summed + 1
        if tick is not None:
            tick(1)
        if not np.isfinite(vector).all():
            break
        if n_summed < ADAM_STEPS and number < max_passes:
            continue
        gained = best.offer(start.unpack(total / n_summed), number)
        total, n_summed = np.zeros_like(vector), 0
        if best.exhausted:
            break
        if not gained:
            step /= 2.0
            vector = best.factors.pack()
    return best.result()


# --- where to start


def start(
    tasks: TaskSet,
    batch: TaskBatch,
    loss: Loss,
    objective: Objective,
    bias: Bias,
    *,
    C0: Array | None,
    rank: int,
    fit_intercept: bool,
    calibrate: bool,
    held_out: Callable[[Conditioning, Bias], float],
    rng: np.random.Generator,
) -> State:
    """Coordinates in which C = I, and a small random M.

    ``C0`` is taken as it is; without one, C and b₀ are those of a linear mixed model of the tasks, C with
    the multiple that the objective prefers (the surrogate a smaller one than the held-out tasks).
    """
    n_side = batch.phis.shape[1]
    if C0 is None:
        F, mean = _mixed_model(tasks, batch, loss, fit_intercept, bias.moves)
        if bias.moves:
            bias.constant = mean
        value = FactoredObjective(objective)
        # A grid, here and below, because there need not be one valley: interpolation is a plateau.
        values = [value(Factors.of(np.sqrt(c) * F, n_side, 0, bias), batch)[0] for c in START_SCALES]
        F = np.sqrt(START_SCALES[int(np.argmin(values))]) * F
    else:
        F = _root(C0)
    scale = 1.0
    if calibrate:
        errors = [held_out(Constant(c * (F @ F.T), n_side), bias) for c in START_SCALES]
        scale = START_SCALES[int(np.argmin(errors))]
    # sparse rows stay sparse under a diagonal only
    transform = F if batch.columns is None else np.diag(np.sqrt(np.diag(F @ F.T)))
    inverse = np.linalg.inv(transform)
    squared = float(batch.squared_scale[-1])
    coordinates = Coordinates(
        transform, float(np.sqrt(squared)) if squared > 0 else 1.0, _prediction_unit(batch, F)
    )
    if bias.moves:
        bias.constant = inverse @ bias.constant / coordinates.unit
    factors = Factors.of(inverse @ F, n_side, rank, bias)
    size = np.sqrt(START_H / max(factors.M.shape[2], 1))
    return State(replace(factors, M=size * rng.standard_normal(factors.M.shape)), coordinates, scale)


def _root(C: Array) -> Array:
    """Square F with F Fᵀ = C, after raising the small eigenvalues; C = 0 would be a saddle."""
    values, vectors = np.linalg.eigh(C)
    floor = FLOOR * max(float(values.mean()), 0.0) or FLOOR
    root: Array = vectors * np.sqrt(np.maximum(values, floor))
    return root


def _mixed_model(
    tasks: TaskSet, batch: TaskBatch, loss: Loss, fit_intercept: bool, learn_mean: bool
) -> tuple[Array, Array]:
    """A root of C = n W / s, and b₀, of the linear mixed model; the identity where d is too large for one.

    ``exp(−ℓ(r) / s)`` is the density of the residuals that the loss stands for, and E[r ℓ'(r)] = s under it;
    that moment is taken at the mixed model's Gaussian residuals, n at the mean number of support rows.
    """
    d = tasks.n_features + fit_intercept
    fitting = START_FLOATS // d**2
    if fitting < min(len(tasks), d):
        return np.eye(d), np.zeros(d)
    units = Units.of(tasks, fit_intercept)
    statistics = TaskStatistics.of(tasks[:fitting], fit_intercept, units)
    mixture = fit_mixed_model(statistics, max_iter=100, tol=1e-5, learn_mean=learn_mean)
    root = units.weights[:, None] * _root(mixture.covariances[0])
    sigma = np.sqrt(mixture.noise) * units.target
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    residuals = sigma * nodes
    slopes = loss.subgradient(residuals, np.zeros_like(residuals))
    s = float(weights @ (residuals * slopes)) / float(weights.sum())
    n = float(np.mean(np.diff(batch.support.offsets)))
    return np.sqrt(max(n, 1.0) / (s if s > 0 else sigma)) * root, units.weights * mixture.means[0]


def _prediction_unit(batch: TaskBatch, F: Array) -> float:
    """Size of prior means, in the coordinates where C = I, whose predictions are of the size of the targets."""
    energy = float(((batch.support.X @ F) ** 2).sum())
    square = float(batch.support.y @ batch.support.y)
    return float(np.sqrt(square / energy)) if energy > 0 and square > 0 else 1.0


def train(
    solver: str,
    objective: Objective,
    state: State,
    draw: Callable[[int], TaskBatch],
    held_out: HeldOut,
    *,
    max_passes: int,
    batch_size: int,
    calibrate: bool,
    n_jobs: int | None,
    rng: np.random.Generator,
    tick: Callable[[int], None] | None = None,
) -> Trained:
    """Go on from ``state`` with the solver of this name.

    ``draw(i)`` are the training tasks in their i-th division into support and query rows, ``held_out`` judges
    factors of the raw rows.
    """
    here = state.coordinates
    mean = FactoredObjective(objective, here.unit, n_jobs)
    options: dict[str, Any] = {"max_passes": max_passes, "calibrate": calibrate, "tick": tick}

    def judge(factors: Factors, scale: float) -> float:
        return held_out(here.leave(factors), scale)

    if solver == "lbfgs":
        batch = concatenated([draw(i) for i in range(DRAWS if objective.needs_query else 1)])
        return lbfgs(mean, state, here.enter(batch), judge, **options)
    return adam(
        mean,
        state,
        lambda i: here.enter(draw(i)),
        judge,
        batch_size=batch_size,
        rng=rng,
        **options,
    )
