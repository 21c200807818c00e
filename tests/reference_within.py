"""Slow twins of `tailored.within` in NumPy and SciPy, sharing no code with the compiled kernels.

Every function takes a ``loss`` with ``value``, ``subgradient`` and, but for the logistic loss, ``dual_box``;
`test_losses.py` checks those against their definitions.
"""

import numpy as np
from scipy.optimize import minimize
from scipy.special import entr


def square_root(theta):
    """S (d, r) with theta = S S' and r the numerical rank, by eigenvalues."""
    values, vectors = np.linalg.eigh(theta)
    keep = values > 1e-12 * max(values.max(initial=0.0), 1e-300)
    return vectors[:, keep] * np.sqrt(values[keep])


def conjugate(loss, alpha, y):
    """l*(alpha, y) = sup over p of alpha p - l(p, y), infinite outside its domain."""
    alpha = np.asarray(alpha, dtype=float)
    if loss.name == "logistic":
        b = -alpha * np.asarray(y, dtype=float)
        return np.where(
            (b >= 0.0) & (b <= 1.0), -entr(np.clip(b, 0.0, 1.0)) - entr(np.clip(1.0 - b, 0.0, 1.0)), np.inf
        )
    linear, lower, upper, quadratic, kink = loss.dual_box(y)
    inside = alpha * linear + 0.5 * quadratic * alpha**2 + kink * np.abs(alpha)
    return np.where((alpha >= lower) & (alpha <= upper), inside, np.inf)


def primal(v, X, y, theta, loss, offset):
    """P(v), infinite off the range of theta; with the pseudo-inverse that the library never forms."""
    inverse = np.linalg.pinv(theta, hermitian=True, rcond=1e-12)
    outside = v - theta @ (inverse @ v)
    if np.linalg.norm(outside) > 1e-6 * np.linalg.norm(v):
        return np.inf
    return loss.value(offset + X @ v, y).mean() + 0.5 * v @ inverse @ v


def dual(alpha, X, y, theta, loss, offset):
    """D(alpha)."""
    u = X.T @ alpha / len(y)
    return (alpha * offset - conjugate(loss, alpha, y)).mean() - 0.5 * u @ theta @ u


def online(X, y, theta, loss, offset):
    """The paper's Eq. (online_inner_algorithm), iterate by iterate: mean of w_2 .. w_{n+1}, and the s_i."""
    n, d = X.shape
    w = np.zeros(d)
    later, subgradients = [], []
    for i in range(1, n + 1):
        x, target = X[i - 1], y[i - 1]
        s = float(loss.subgradient(offset[i - 1] + x @ w, target))
        w = (1 - 1 / i) * w - theta @ x * s / i
        later.append(w)
        subgradients.append(s)
    return np.mean(later, axis=0), np.array(subgradients)


def exact_by_dual(X, y, theta, loss, offset):
    """v = -theta X'a/n from L-BFGS-B on the dual of a loss with a dual box, a = p - m with p, m >= 0."""
    n = len(y)
    linear, lower, upper, quadratic, kink = loss.dual_box(y)
    Z = X @ square_root(theta)

    def objective(pair):
        a = pair[:n] - pair[n:]
        u = Z.T @ a / n
        value = ((linear - offset) * a + 0.5 * quadratic * a**2).mean() + kink * pair.sum() / n + 0.5 * u @ u
        slope = (linear - offset + quadratic * a) / n + Z @ u / n
        return value, np.concatenate([slope + kink / n, -slope + kink / n])

    bounds = [(0, b) for b in upper] + [(0, -b) for b in lower]
    options = {"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 0.0, "gtol": 1e-13, "maxcor": 30, "maxls": 60}
    start = np.zeros(2 * n)
    for _ in range(3):  # restarts, because the line search may give up early at this accuracy
        result = minimize(objective, start, jac=True, bounds=bounds, method="L-BFGS-B", options=options)
        start = result.x
    return -theta @ X.T @ (result.x[:n] - result.x[n:]) / n


def exact_by_primal(X, y, theta, loss, offset):
    """v = S w from BFGS on the primal in w, for smooth losses."""
    S = square_root(theta)
    Z = X @ S
    n, r = Z.shape
    if r == 0:
        return np.zeros(len(theta))

    def objective(w):
        z = offset + Z @ w
        return loss.value(z, y).mean() + 0.5 * w @ w, Z.T @ loss.subgradient(z, y) / n + w

    w = np.zeros(r)
    for _ in range(3):
        w = minimize(objective, w, jac=True, method="BFGS", options={"gtol": 1e-12, "maxiter": 100_000}).x
    return S @ w


def exact(X, y, theta, loss, offset):
    """A minimiser of P to about 1e-9, by a general-purpose optimiser."""
    by_dual = loss.piecewise_linear
    return (exact_by_dual if by_dual else exact_by_primal)(X, y, theta, loss, offset)
