"""Compiled sums of `factor_moments`, for one-hot rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True)
def score_systems(
    column: Any,
    value: Any,
    y: Any,
    offsets: Any,
    loadings: Any,
    spread: Any,
    noises: Any,
    has_intercept: int,
    precision: Any,
    right: Any,
    constant: Any,
) -> None:
    """Add the rows of each task to the system of its scores, in place.

    ``loadings`` (d, 1 + r) are the means of (b, f) of each column, ``spread`` (d, 1 + r, 1 + r) their covariances, ``noises``
    (d,) the variances of their rows.
    """
    r = loadings.shape[1] - 1
    for t in range(len(offsets) - 1):
        P, h, total = precision[t], right[t], 0.0
        for i in range(offsets[t], offsets[t + 1]):
            j, x = column[i], value[i]
            f, c = loadings[j], spread[j]
            sure = 1.0 / noises[j]
            e = y[i] - x * f[0]
            total += sure * (e * e + x * x * c[0, 0]) - np.log(sure / (2.0 * np.pi))
            scaled = sure * x
            for a in range(r):
                h[a] += scaled * (f[a + 1] * e - x * c[0, a + 1])
                for k in range(r):
                    P[a, k] += scaled * x * (f[a + 1] * f[k + 1] + c[a + 1, k + 1])
            if has_intercept:
                for a in range(r):
                    P[a, r] += scaled * f[a + 1]
                    P[r, a] += scaled * f[a + 1]
                P[r, r] += sure
                h[r] += sure * e
        constant[t] += total


@njit(cache=True)
def column_sums(
    column: Any,
    value: Any,
    y: Any,
    offsets: Any,
    loadings: Any,
    noises: Any,
    has_intercept: int,
    scores: Any,
    covariances: Any,
    weight: Any,
    gradient: Any,
    count: Any,
    square: Any,
) -> None:
    """Add what the rows say about each column, given the posteriors of the scores, in place.

    ``square`` are squared residuals, without what the columns' own uncertainty adds.
    """
    r = loadings.shape[1] - 1
    q = r + has_intercept
    image = np.zeros(q)
    for t in range(len(offsets) - 1):
        z, C = scores[t], covariances[t]
        for i in range(offsets[t], offsets[t + 1]):
            j, x = column[i], value[i]
            f = loadings[j]
            e = y[i] - x * f[0]
            for a in range(r):
                e -= x * f[a + 1] * z[a]
            if has_intercept:
                e -= z[r]
            more = 0.0
            for a in range(q):
                total = C[a, r] if has_intercept else 0.0
                for k in range(r):
                    total += x * f[k + 1] * C[a, k]
                image[a] = total
                more += total * (x * f[a + 1] if a < r else 1.0)
            sure = 1.0 / noises[j]
            scaled = sure * x
            count[j] += 1.0
            square[j] += e * e + more
            gradient[j, 0] += scaled * e
            weight[j, 0, 0] += scaled * x
            for a in range(r):
                gradient[j, a + 1] += scaled * (e * z[a] - image[a])
                weight[j, 0, a + 1] += scaled * x * z[a]
                weight[j, a + 1, 0] += scaled * x * z[a]
                for k in range(r):
                    weight[j, a + 1, k + 1] += scaled * x * (z[a] * z[k] + C[a, k])
