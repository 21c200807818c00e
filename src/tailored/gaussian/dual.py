"""The pass of `tailored.gaussian.passes` through the rows of tasks: n × n systems where n is small beside d.

Under ``w ~ N(b, W)`` the targets are N(Xb, S) with ``S = XWXᵀ + σ²I``.  With ``a = S⁻¹(y − Xb)`` the posterior has mean
``b + WXᵀa`` and covariance ``W − WXᵀS⁻¹XW``, and y − X times that mean is σ²a: nothing is d × d but W and its sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..tasks.rows import Rows
from .lanes import invert_all
from .moments import Moments

Array = NDArray[np.float64]


class Stack(NamedTuple):
    """Tasks of n rows each: their positions (m,), inputs (m, n, d) and targets (m, n)."""

    tasks: NDArray[np.intp]
    X: Array
    y: Array


def stacked(rows: Rows) -> list[Stack]:
    """The tasks in groups of equal numbers of rows."""
    out = []
    for n in np.unique(rows.sizes):
        tasks = np.flatnonzero(rows.sizes == n)
        X, y, _ = rows.take(tasks)
        out.append(Stack(tasks, X.reshape(len(tasks), n, rows.X.shape[1]), y.reshape(len(tasks), n)))
    return out


class Seen(NamedTuple):
    """What a stack says under a component: XW (m, n, d), S⁻¹ (m, n, n), a (m, n) and ``(y − Xb)ᵀa`` (m,)."""

    moved: Array
    inverses: Array
    a: Array
    quadratic: Array


def expect(
    stacks: Sequence[Stack],
    b: Array,
    covariances: Array,
    noise: float,
    joint: Array,
    means: Array | None,
) -> list[list[Seen]]:
    """Add the log evidence under each component to ``joint`` (T, K), and write posterior ``means`` (T, K, d)."""
    seen = []
    for k, (mean, W) in enumerate(zip(b, covariances, strict=True)):
        found = []
        for tasks, X, y in stacks:
            n = X.shape[1]
            moved = np.matmul(X, W)
            systems = np.matmul(moved, X.transpose(0, 2, 1)) + noise * np.eye(n)
            inverses, log_determinants = np.empty_like(systems), np.empty(len(systems))
            invert_all(systems, inverses, log_determinants)
            left = y - X @ mean
            a = np.matmul(inverses, left[:, :, None])[:, :, 0]
            quadratic = np.maximum(np.einsum("tn,tn->t", left, a), 0.0)
            joint[tasks, k] -= 0.5 * (log_determinants + quadratic + n * np.log(2.0 * np.pi))
            if means is not None:
                means[tasks, k] = mean + np.matmul(a[:, None, :], moved)[:, 0]
            found.append(Seen(moved, inverses, a, quadratic))
        seen.append(found)
    return seen


def moments(
    stacks: Sequence[Stack],
    seen: list[list[Seen]],
    covariances: Array,
    noise: float,
    responsibilities: Array,
    log_evidence: float,
) -> Moments:
    """The sums of a step of EM, from what `expect` has seen."""
    counts = responsibilities.sum(axis=0)
    K, d, _ = covariances.shape
    first, second, residual = np.zeros((K, d)), counts[:, None, None] * covariances, 0.0
    for k in range(K):
        for (tasks, X, _), (moved, inverses, a, _) in zip(stacks, seen[k], strict=True):
            r = responsibilities[tasks, k]
            moves = np.matmul(a[:, None, :], moved)[:, 0]
            first[k] += r @ moves
            solved = np.matmul(r[:, None, None] * inverses, moved)
            second[k] += (moves * r[:, None]).T @ moves - moved.reshape(-1, d).T @ solved.reshape(-1, d)
            traces = np.trace(inverses, axis1=1, axis2=2)
            left = noise**2 * np.einsum("tn,tn->t", a, a) + noise * (X.shape[1] - noise * traces)
            residual += float(r @ left)
    second = 0.5 * (second + second.transpose(0, 2, 1))
    return Moments(log_evidence, counts, first, second, residual)
