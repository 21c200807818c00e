"""Gates: the proportions of a mixture as a function of a task's description.

    π_k(s) ∝ exp(a_k + <A_k, v(s)>) ,

multinomial logistic in the features v(s), penalised by ``½ penalty Σ_k ‖A_k‖²``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[np.float64]

#: That of the constants a_k, whatever the penalty: only their differences speak, and this settles the rest.
CONSTANT_PENALTY = 1e-3


def log_gates(gates: Array, side: Array) -> Array:
    """log π (T, K) at features ``side`` (T, q), for gates (K, 1 + q) whose first column are the constants."""
    logits = gates[:, 0] + side @ gates[:, 1:].T
    largest = logits.max(axis=1, keepdims=True)
    return np.asarray(logits - largest - np.log(np.exp(logits - largest).sum(axis=1, keepdims=True)))


def fit_gates(side: Array, responsibilities: Array, penalty: float, start: Array) -> Array:
    """The M-step of the gates: a convex problem, by L-BFGS from ``start``."""
    T, K = responsibilities.shape
    known = np.hstack([np.ones((T, 1)), side])
    pull = np.full(known.shape[1], penalty / T)
    pull[0] = CONSTANT_PENALTY / T

    def objective(flat: Array) -> tuple[float, Array]:
        gates = flat.reshape(K, -1)
        log_pi = log_gates(gates, side)
        gradient = (np.exp(log_pi) - responsibilities).T @ known / T + pull * gates
        value = -float((responsibilities * log_pi).sum()) / T + 0.5 * float((pull * gates * gates).sum())
        return value, gradient.ravel()

    found = minimize(objective, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 30})
    return np.asarray(found.x).reshape(K, -1)
