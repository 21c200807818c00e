"""The paper, transcribed line by line: slow, and right by inspection.

Explicit Kronecker products, an eigendecomposition for every projection, a pseudo-inverse wherever
the paper has a dagger, Python loops over points and tasks.  Nothing here imports the library;
everything fast is compared with this file, and the speed benchmark is timed against it.

A task is a pair ``(X, y)``, or ``(X, y, X_test, y_test)`` where errors are measured.  Names of
equations are the labels of ``paper.tex``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.special
import scipy.stats

# --- losses --------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """ℓ(·, y) of one point: value, a subgradient, the conjugate and its domain, the Lipschitz
    constant.

    All conjugates but the logistic one are ``a·y + ½·curvature·a²`` on the domain.
    """

    value: Callable
    subgradient: Callable
    conjugate: Callable
    domain: Callable
    lipschitz: float | None
    curvature: float | None = 0.0


def absolute():
    return Loss(
        value=lambda p, y: abs(p - y),
        subgradient=lambda p, y: float(np.sign(p - y)),
        conjugate=lambda a, y: a * y,
        domain=lambda y: (-1.0, 1.0),
        lipschitz=1.0,
    )


def pinball(quantile=0.5):
    """q (y − p) when the prediction is too low, (1 − q) (p − y) when it is too high."""
    return Loss(
        value=lambda p, y: quantile * (y - p) if y >= p else (1 - quantile) * (p - y),
        subgradient=lambda p, y: 0.0 if p == y else (-quantile if y > p else 1 - quantile),
        conjugate=lambda a, y: a * y,
        domain=lambda y: (-quantile, 1 - quantile),
        lipschitz=max(quantile, 1 - quantile),
    )


def huber(delta=1.0):
    """½ r² up to |r| = δ, then the tangent δ (|r| − δ/2)."""
    return Loss(
        value=lambda p, y: (
            0.5 * (p - y) ** 2 if abs(p - y) <= delta else delta * (abs(p - y) - delta / 2)
        ),
        subgradient=lambda p, y: min(max(p - y, -delta), delta),
        conjugate=lambda a, y: a * y + 0.5 * a**2,
        domain=lambda y: (-delta, delta),
        lipschitz=delta,
        curvature=1.0,
    )


def squared():
    """½ (p − y)²: the scaling in which the solution is θXᵀ(XθXᵀ + nI)⁻¹y."""
    return Loss(
        value=lambda p, y: 0.5 * (p - y) ** 2,
        subgradient=lambda p, y: p - y,
        conjugate=lambda a, y: a * y + 0.5 * a**2,
        domain=lambda y: (-np.inf, np.inf),
        lipschitz=None,
        curvature=1.0,
    )


def logistic():
    """log(1 + exp(−yp)), y = ±1; the conjugate is the negative entropy of −ay."""
    return Loss(
        value=lambda p, y: float(np.logaddexp(0.0, -y * p)),
        subgradient=lambda p, y: float(-y * np.exp(-np.logaddexp(0.0, y * p))),
        conjugate=lambda a, y: sum(q * np.log(q) for q in (-a * y, 1 + a * y) if q > 0),
        domain=lambda y: (min(0.0, -y), max(0.0, -y)),
        lipschitz=1.0,
        curvature=None,
    )


def hinge():
    """max(0, 1 − yp), y = ±1."""
    return Loss(
        value=lambda p, y: max(1 - y * p, 0.0),
        subgradient=lambda p, y: -float(y) if y * p < 1 else 0.0,
        conjugate=lambda a, y: a * y,
        domain=lambda y: (min(0.0, -y), max(0.0, -y)),
        lipschitz=1.0,
    )


def like(loss):
    """Return the loss with the name and the parameter of a loss of the library."""
    parameter = {"pinball": "quantile", "huber": "delta"}.get(loss.name)
    return globals()[loss.name](*([] if parameter is None else [getattr(loss, parameter)]))


# --- linear algebra
# -----------------------------------------------------------------------------------------


def project_psd(matrix):
    """The projection on the cone of positive semidefinite matrices in Frobenius norm."""
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2)
    return vectors @ np.diag(np.maximum(values, 0.0)) @ vectors.T


def best_rank(matrix, rank):
    """The nearest positive semidefinite matrix of at most this rank."""
    values, vectors = scipy.linalg.eigh((matrix + matrix.T) / 2)
    values[: max(len(values) - rank, 0)] = 0.0
    return vectors @ np.diag(np.maximum(values, 0.0)) @ vectors.T


def pinv(matrix):
    """θ†, with eigenvalues that are rounding noise taken as zero."""
    return np.linalg.pinv(matrix, rcond=1e-13, hermitian=True)


def root(matrix):
    """The symmetric square root of a positive semidefinite matrix."""
    values, vectors = scipy.linalg.eigh(matrix)
    return vectors @ np.diag(np.sqrt(np.maximum(values, 0.0))) @ vectors.T


# --- Eq. (parametrization), Prop. (matricial_rewriting), Eq. (feature-space-T)
# ------------------------------


def H_from_tensor(M):
    """H_M[(i−1)k + h, (j−1)k + z] = <M(:, i, h), M(:, j, z)>."""
    _, d, k = M.shape
    H = np.zeros((d * k, d * k))
    for i in range(d):
        for h in range(k):
            for j in range(d):
                for z in range(k):
                    H[i * k + h, j * k + z] = M[:, i, h] @ M[:, j, z]
    return H


def tau_from_tensor(M, C, phi):
    """τ(s) = (M Φ(s))ᵀ M Φ(s) + C."""
    p, d, k = M.shape
    M_phi = np.zeros((p, d))
    for q in range(p):
        for i in range(d):
            for h in range(k):
                M_phi[q, i] += M[q, i, h] * phi[h]
    return M_phi.T @ M_phi + C


def lift(d, phi):
    """I_d ⊗ Φ(s), (dk, d)."""
    return np.kron(np.eye(d), phi.reshape(-1, 1))


def tau(H, C, phi):
    """τ(s) = (I_d ⊗ Φ(s)ᵀ) H (I_d ⊗ Φ(s)) + C."""
    I_phi = lift(len(C), phi)
    return I_phi.T @ H @ I_phi + C


# --- within a task
# ------------------------------------------------------------------------------------------


class Solution(NamedTuple):
    """``w`` the estimate, ``alpha`` the dual variables that enter the meta-gradient."""

    w: np.ndarray
    alpha: np.ndarray


def online(X, y, theta, subgradient, offset=None):
    """Eq. (online_inner_algorithm): the mean of w_2 .. w_{n+1}, and the subgradients.

    ``offset`` is what a prior mean b predicts: <x_i, b> is added to the predictions and w stands
    for w − b.
    """
    n, d = X.shape
    offset = np.zeros(n) if offset is None else offset
    theta_dagger = pinv(theta)
    w = np.zeros(d)
    total = np.zeros(d)
    s = np.zeros(n)
    for i in range(n):
        s[i] = subgradient(X[i] @ w + offset[i], y[i])
        p = s[i] * X[i] + theta_dagger @ w
        w = w - theta @ p / (i + 1)
        total = total + w
    return Solution(total / max(n, 1), s)


def regularised_risk(w, X, y, theta, loss, offset=None):
    """R_{Z,θ}(w) = 1/n Σ ℓ(<x_i, w>, y_i) + ½ <w, θ†w>."""
    n = len(y)
    offset = np.zeros(n) if offset is None else offset
    risk = 0.0
    for i in range(n):
        risk += loss.value(X[i] @ w + offset[i], y[i]) / n
    return risk + 0.5 * w @ pinv(theta) @ w


def dual_value(alpha, X, y, theta, loss, offset=None):
    """−1/n Σ (ℓ*_i(α_i) − α_i o_i) − 1/(2n²) Tr(θ XᵀααᵀX): properties_surrogate's proof, with
    offsets o.
    """
    n = len(y)
    offset = np.zeros(n) if offset is None else offset
    value = 0.0
    for i in range(n):
        value -= (loss.conjugate(alpha[i], y[i]) - alpha[i] * offset[i]) / n
    u = X.T @ alpha
    return value - u @ theta @ u / (2 * max(n, 1) ** 2)


def exact(X, y, theta, loss, offset=None, tol=1e-11):
    """Eq. (RERM_feature) through its dual problem; the duality gap is asserted."""
    n, d = X.shape
    if n == 0:
        return Solution(np.zeros(d), np.zeros(0))
    offset = np.zeros(n) if offset is None else offset
    K = X @ theta @ X.T
    low, high = np.array([loss.domain(y[i]) for i in range(n)]).T
    if loss.curvature is None:
        alpha = _newton(X @ root(theta), y, loss, offset)
    elif np.isinf(high).any():
        alpha = -n * np.linalg.solve(K + n * np.eye(n), y - offset)
    else:
        Q = K / n**2 + loss.curvature / n * np.eye(n)
        alpha = box_quadratic_program(Q, (y - offset) / n, low, high)
    w = -theta @ X.T @ alpha / n
    primal = regularised_risk(w, X, y, theta, loss, offset)
    gap = primal - dual_value(alpha, X, y, theta, loss, offset)
    assert gap <= tol * (1 + abs(primal)), f"the reference solve has a gap of {gap}"
    return Solution(w, alpha)


def box_quadratic_program(Q, c, low, high):
    """argmin ½ xᵀQx + cᵀx over low ≤ x ≤ high: a primal-dual interior point method."""
    n = len(c)
    scale = max(np.abs(Q).max(), np.abs(c).max())
    Q, c = Q / scale, c / scale
    x = (low + high) / 2
    s, t = x - low, high - x  # kept apart from x: close to an end, x − low has no digits left
    z, u = np.ones(n), np.ones(n)
    for _ in range(200):
        mean_product = (z @ s + u @ t) / (2 * n)
        if mean_product < 1e-17:
            break
        mu = 0.1 * mean_product
        dx = np.linalg.solve(Q + np.diag(z / s + u / t), -(Q @ x + c) + mu / s - mu / t)
        dz = mu / s - z - z / s * dx
        du = mu / t - u + u / t * dx
        length = 1.0
        for value, change in ((s, dx), (t, -dx), (z, dz), (u, du)):
            for i in range(n):
                if change[i] < 0:
                    length = min(length, -0.99 * value[i] / change[i])
        x, z, u = x + length * dx, z + length * dz, u + length * du
        s, t = s + length * dx, t - length * dx
    # One exact solve on the variables that are not at an end of their interval.
    at_low, at_high = s / (high - low) < z, t / (high - low) < u
    free = ~(at_low | at_high)
    polished = np.where(at_low, low, np.where(at_high, high, 0.0))
    rest = Q[np.ix_(free, ~free)] @ polished[~free] + c[free]
    polished[free] = np.linalg.lstsq(Q[np.ix_(free, free)], -rest, rcond=1e-13)[0]
    inside = (polished >= low).all() and (polished <= high).all()
    return polished if inside else x


def _newton(A, y, loss, offset):
    """Dual variables of the smooth problem min 1/n Σ ℓ(o_i + <a_i, v>, y_i) + ½ ‖v‖² for a logistic
    ℓ.
    """
    n, d = A.shape
    v = np.zeros(d)
    for _ in range(100):
        alpha = np.array([loss.subgradient(A[i] @ v + offset[i], y[i]) for i in range(n)])
        gradient = A.T @ alpha / n + v
        hessian = A.T @ np.diag(np.abs(alpha) * (1 - np.abs(alpha))) @ A / n + np.eye(d)
        step = np.linalg.solve(hessian, gradient)
        length = 1.0
        while length > 1e-8:

            def objective(v):
                values = [loss.value(A[i] @ v + offset[i], y[i]) for i in range(n)]
                return np.mean(values) + 0.5 * v @ v

            if objective(v - length * step) <= objective(v) + 1e-15:
                break
            length /= 2
        v = v - length * step
        if np.abs(gradient).max() < 1e-15:
            break
    return np.array([loss.subgradient(A[i] @ v + offset[i], y[i]) for i in range(n)])


# --- the surrogate and Algorithm (meta_alg)
# -----------------------------------------------------------------


def surrogate(theta, X, y, loss, L, offset=None):
    """Eq. (surrogate_linear): R_{Z,θ}(A(θ, Z)) + 2L²/n Tr(θ XᵀX/n)."""
    n = len(y)
    if n == 0:
        return 0.0
    w = exact(X, y, theta, loss, offset).w
    return regularised_risk(w, X, y, theta, loss, offset) + 2 * L**2 / n * np.trace(
        theta @ X.T @ X / n
    )


def surrogate_gradient(X, alpha, L):
    """∇̂ of Prop. (properties_surrogate) in its dual form, Eq. (gigia)."""
    n, d = X.shape
    if n == 0:
        return np.zeros((d, d))
    return -np.outer(X.T @ alpha, X.T @ alpha) / (2 * n**2) + 2 * L**2 * X.T @ X / n**2


def surrogate_gradient_primal(X, w, theta, L):
    """∇̂ as Prop. (properties_surrogate) prints it, through θ†w (λ = 1): it only sees Ran(θ)."""
    v = pinv(theta) @ w
    return -np.outer(v, v) / 2 + 2 * L**2 * X.T @ X / len(X) ** 2


def solve(X, y, theta, inner, loss):
    """A(θ, Z) by the inner algorithm of this name."""
    return online(X, y, theta, loss.subgradient) if inner == "online" else exact(X, y, theta, loss)


class Run(NamedTuple):
    """Iterates H_1 .. H_{T+1}, C_1 .. C_{T+1} of Algorithm 1 and the means over 1 .. T; its
    gradients.
    """

    H: list
    C: list
    mean_H: np.ndarray
    mean_C: np.ndarray
    gradients: list


def algorithm_1(tasks, phis, gamma_C, gamma_H, C0, inner, loss, L, H0=None):
    """Alg. (meta_alg): projected stochastic gradient descent, one task per step."""
    d, k = len(C0), len(phis[0])
    H = [np.zeros((d * k, d * k)) if H0 is None else H0]
    C = [C0]
    gradients = []
    for (X, y), phi in zip(tasks, phis, strict=True):
        theta = tau(H[-1], C[-1], phi)
        alpha = solve(X, y, theta, inner, loss).alpha
        gradient = surrogate_gradient(X, alpha, L)
        I_phi = lift(d, phi)
        gradient_H = I_phi @ gradient @ I_phi.T
        H.append(project_psd(H[-1] - gamma_H * gradient_H))
        C.append(project_psd(C[-1] - gamma_C * gradient))
        gradients.append((gradient_H, gradient))
    T = len(tasks)
    return Run(H, C, sum(H[:T]) / T, sum(C[:T]) / T, gradients)


def evaluate(H, C, tasks, phis, inner, loss):
    """Mean error on the test rows of each task ``(X, y, X_test, y_test)`` after adapting to its
    rows.
    """
    errors = []
    for (X, y, X_test, y_test), phi in zip(tasks, phis, strict=True):
        w = solve(X, y, tau(H, C, phi), inner, loss).w
        total = 0.0
        for i in range(len(y_test)):
            total += loss.value(X_test[i] @ w, y_test[i])
        errors.append(total / len(y_test))
    return np.array(errors)


# --- feature maps of section (experiments)
# ------------------------------------------------------------------


def mean_embedding(X, y):
    """Φ(Z) = 1/n Σ vec(x_i (y_i, 1)ᵀ): the columns of a (d, 2) matrix one after the other."""
    n, d = X.shape
    total = np.zeros((d, 2))
    for i in range(n):
        total += np.outer(X[i], np.array([y[i], 1.0]))
    return (total / n).flatten(order="F")


def tikhonov(X, y, lam=1.0):
    """Φ(Z) = w with (X̂ᵀX̂ + λI) w = X̂ᵀy, X̂ the inputs with a column of ones at the end."""
    X_hat = np.column_stack([X, np.ones(len(X))])
    return np.linalg.solve(X_hat.T @ X_hat + lam * np.eye(X_hat.shape[1]), X_hat.T @ y)


def angle_map(X, y, low, high):
    """Φ(Z) = (vec([cos a, sin a] ⊙ c), 1), a = Σ x_i π/4 (M − y_i)/(M − m), c = Σ x_i."""
    n, d = X.shape
    angle, count = np.zeros(d), np.zeros(d)
    for i in range(n):
        angle += X[i] * (np.pi / 4 * (high - y[i]) / (high - low))
        count += X[i]
    columns = np.column_stack([np.cos(angle), np.sin(angle)]) * count[:, None]
    return np.append(columns.flatten(order="F"), 1.0)


# --- the posterior of a task under a Gaussian mixture
# --------------------------------------------------------


class MixturePosterior(NamedTuple):
    """log p(y), r (K,), E(w | y, k) (K, d), Cov(w | y, k) (K, d, d), and the mixture's mean (d,)
    and covariance (d, d).
    """

    log_evidence: float
    shares: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def mixture_posterior(X, y, proportions, means, covariances, noise):
    """w ~ Σ_k π_k N(b_k, W_k), y = Xw + N(0, σ²I): from the n x n covariances S_k = X W_k Xᵀ + σ² I
    of y.
    """
    joint, component_means, component_covariances = [], [], []
    for pi, b, W in zip(proportions, means, covariances, strict=True):
        S = X @ W @ X.T + noise * np.eye(len(y))
        S_inverse = np.linalg.inv(S)
        e = y - X @ b
        log_density = -0.5 * (e @ S_inverse @ e + np.linalg.slogdet(2.0 * np.pi * S)[1])
        joint.append(np.log(pi) + log_density)
        component_means.append(b + W @ X.T @ S_inverse @ e)
        component_covariances.append(W - W @ X.T @ S_inverse @ X @ W)
    joint, m, C = np.array(joint), np.array(component_means), np.array(component_covariances)
    log_evidence = joint.max() + np.log(np.sum(np.exp(joint - joint.max())))
    r = np.exp(joint - log_evidence)
    mean = sum(r[k] * m[k] for k in range(len(r)))
    covariance = sum(r[k] * (C[k] + np.outer(m[k] - mean, m[k] - mean)) for k in range(len(r)))
    return MixturePosterior(float(log_evidence), r, m, C, mean, covariance)


# --- other responses
# ----------------------------------------------------------------------------------------


def response_log_likelihood(name, y, f, dispersion=None):
    """log p(y | f) of a target: logit link for "bernoulli", log link for counts."""
    if name == "bernoulli":
        return scipy.stats.bernoulli.logpmf(y, scipy.special.expit(f))
    if name == "poisson":
        return scipy.stats.poisson.logpmf(y, np.exp(f))
    return scipy.stats.nbinom.logpmf(y, 1.0 / dispersion, 1.0 / (1.0 + dispersion * np.exp(f)))


def response_posterior(X, y, name, b, W, *, dispersion=None, offset=0.0, weights=1.0, n_draws=None):
    """log p(y), E(w | y) and Cov(w | y) under w ~ N(b, W), on a grid over W's range; from draws of
    the prior if n_draws.
    """
    values, vectors = np.linalg.eigh(W)
    kept = values > 1e-9
    L = vectors[:, kept] * np.sqrt(values[kept])
    p = L.shape[1]
    if n_draws:
        u, log_weights = np.random.default_rng(0).normal(size=(n_draws, p)), np.zeros(n_draws)
    else:
        axis = np.linspace(-8.0, 8.0, (1, 3001, 301, 61)[p])
        u = (
            np.stack([g.ravel() for g in np.meshgrid(*[axis] * p)], axis=1)
            if p
            else np.zeros((1, 0))
        )
        log_weights = -0.5 * (u**2).sum(axis=1)
    joint = log_weights - scipy.special.logsumexp(log_weights)
    w = b + u @ L.T
    for x, target, shift, power in zip(
        X, y, np.broadcast_to(offset, len(y)), np.broadcast_to(weights, len(y)), strict=True
    ):
        joint = joint + power * response_log_likelihood(name, target, w @ x + shift, dispersion)
    log_evidence = scipy.special.logsumexp(joint)
    r = np.exp(joint - log_evidence)
    mean = r @ w
    return log_evidence, mean, (r[:, None] * (w - mean)).T @ (w - mean)
