"""Choosing the step sizes: candidates, the paper's theoretical step, held-out tasks of a stream."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..tasks import TaskSet
from ..tasks.rows import segment_sums
from .trajectory import StepSizes

Array = NDArray[np.float64]

#: The paper's grid: 14 values, log-spaced over [1e-5, 1e5].
PAPER_STEP_SIZES = tuple(float(step) for step in np.logspace(-5, 5, 14))

#: The default grid of the search: coarser, because every step is tried with several ratios for H.
STEP_SIZES = tuple(float(step) for step in np.logspace(-4, 4, 9))

#: Multiples of τ that calibration tries; 1 first, so that a tie leaves τ as it was learned.
CALIBRATION_SCALES = (1.0, 0.25, 0.5, 2.0, 4.0, 8.0, 16.0, 32.0)


def candidate_steps(
    step_sizes: Iterable[float], step_ratios: Sequence[float], *, conditional: bool
) -> list[StepSizes]:
    """Steps ``(γ, ratio · γ)`` for C and H; ratio 0 first, so that a tie goes to the simpler model.

    Ratio 0, "H does not move", is always among the candidates of a conditional learner: on the
    held-out tasks it can then never do worse than its unconditional twin.
    """
    ratios = sorted({0.0, *map(float, step_ratios)}) if conditional else [0.0]
    return [StepSizes(step, ratio * step, step) for ratio in ratios for step in step_sizes]


def theory_step(*, distance: float, K: float, L: float, R: float, n: float, T: int) -> float:
    """The step of Thm. bound_estimated_feature.

    ``γ = ‖(H − H₀, C − C₀)‖_F / ((1 + K²)(LR)²) · (½ + 2/n)⁻¹ / √T``

    Parameters
    ----------
    distance : float
        ``‖(H − H₀, C − C₀)‖_F`` of the conditioning function one competes with.
    K, R : float
        Bounds on ‖φ‖ and on ‖x‖.
    L : float
        Lipschitz constant of the loss.
    n : float
        Rows per task.
    T : int
        Number of tasks.
    """
    return distance / ((1.0 + K**2) * (L * R) ** 2 * (0.5 + 2.0 / n) * np.sqrt(T))


def oracle_distance(X: Array, y: Array, offsets: NDArray[np.int64], C0: Array, L: float) -> float:
    """Estimate ``‖θ_ρ − C₀‖_F`` for the unconditional oracle θ_ρ of Prop. oracle_function.

    W is estimated from lightly regularised least-squares weights of each task, the inputs' covariance
    from all rows.
    """
    d = X.shape[1]
    W = np.zeros((d, d))
    T = len(offsets) - 1
    for a, b in pairwise(offsets):
        if b > a:
            gram = X[a:b].T @ X[a:b]
            ridge = 1e-3 * max(np.trace(gram) / d, 1e-12)
            w = np.linalg.solve(gram + ridge * np.eye(d), X[a:b].T @ y[a:b])
            W += np.outer(w, w) / T
    values, vectors = np.linalg.eigh(X.T @ X / max(len(X), 1))
    keep = values > 1e-10 * max(values[-1], 0.0)
    root = (vectors[:, keep] * np.sqrt(values[keep])) @ vectors[:, keep].T
    inverse = (vectors[:, keep] / np.sqrt(values[keep])) @ vectors[:, keep].T
    inner_values, inner_vectors = np.linalg.eigh(root @ W @ root)
    inner = (inner_vectors * np.sqrt(np.maximum(inner_values, 0.0))) @ inner_vectors.T
    n = float(np.mean(np.diff(offsets)))
    oracle = np.sqrt(n) / (2.0 * L) * inverse @ inner @ inverse
    return float(np.linalg.norm(oracle - C0))


def split_rows(
    tasks: TaskSet, positions: Iterable[int], support: float, key: Sequence[int]
) -> tuple[TaskSet, TaskSet]:
    """Support and query rows of each task, drawn from ``key`` and its position in the stream alone.

    The draw of a task does not depend on which call brought it, so that a stream can be cut anywhere.
    """
    mask = np.zeros(len(tasks.y), dtype=bool)
    for start, n, position in zip(tasks.offsets[:-1], tasks.sizes, positions, strict=True):
        n_support = min(max(int(support * n + 0.5), 1), n - 1) if n > 1 else 0
        chosen = np.random.default_rng([*key, position]).permutation(n)[:n_support]
        mask[start + chosen] = True
    sizes = segment_sums(mask.astype(float), tasks.offsets).astype(np.int64)
    return tasks.with_rows(mask, sizes), tasks.with_rows(~mask, tasks.sizes - sizes)


@dataclass
class ValidationPool:
    """The held-out tasks of a stream.

    In every block of ``1 / fraction`` consecutive tasks one, never the first, is held out, until
    ``limit`` tasks are there; after that all tasks train.  Until a first task is held out, the pool
    falls back on the first training tasks.  Everything follows from ``seed`` and the position in the
    stream.
    """

    fraction: float
    support: float
    seed: int
    limit: int = 300
    fallback_limit: int = 4
    held_out: list[tuple[TaskSet, TaskSet]] = field(default_factory=list)
    fallback: list[tuple[TaskSet, TaskSet]] = field(default_factory=list)
    n_held_out: int = 0
    n_fallback: int = 0

    @property
    def _key(self) -> tuple[int, int]:
        return (self.seed, 1)

    def partition(self, tasks: TaskSet, first_position: int) -> NDArray[np.bool_]:
        """Which of the tasks, the first of which is number ``first_position`` of the stream, train."""
        block = max(2, round(1.0 / self.fraction))
        train = np.ones(len(tasks), dtype=bool)
        for t in range(len(tasks)):
            number, place = divmod(first_position + t, block)
            chosen = 1 + int(np.random.default_rng([self.seed, 0, number]).integers(block - 1))
            if place == chosen and self.n_held_out < self.limit:
                train[t] = False
                self.n_held_out += 1
        held = np.flatnonzero(~train)
        if len(held):
            self.held_out.append(split_rows(tasks[held], first_position + held, self.support, self._key))
        early = np.flatnonzero(train)[: max(0, self.fallback_limit - self.n_fallback)]
        if len(early):
            self.n_fallback += len(early)
            self.fallback.append(split_rows(tasks[early], first_position + early, self.support, self._key))
        return train

    def add(self, tasks: TaskSet, first_position: int) -> None:
        """Hold out tasks that the user set aside."""
        positions = np.arange(first_position, first_position + len(tasks))
        self.held_out.append(split_rows(tasks, positions, self.support, self._key))
        self.n_held_out += len(tasks)

    def tasks(self) -> tuple[TaskSet, TaskSet]:
        """All held-out tasks as one (support, query) pair, so that the arithmetic is the same however
        the stream was cut."""
        pieces = self.held_out or self.fallback
        support, query = zip(*pieces, strict=True)
        return TaskSet.concat(support, relabel=True), TaskSet.concat(query, relabel=True)
