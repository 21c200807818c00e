"""Dense definitions of the models, written from the mathematics; nothing here imports the package.

A task has rows X (n, d), targets y and weights w of its rows.  Its coefficients are b + u with
u ~ N(0, W).  The last column of X is the constant, if the model has an intercept.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, gammaln


class Marginal:
    """The likelihood of y ~ N(Xb, ZWZᵀ + σ² diag(1/w)) per task; Z are the ``varying`` columns.

    Columns are divided by their root mean square.  If ``centred``, they are centred as well, which
    leaves the model unchanged if W is any matrix and the intercept varies.
    """

    def __init__(self, X, y, task, varying, weights=None, *, centred=False):
        d = X.shape[1]
        mean = np.append(X[:, :-1].mean(axis=0), 0.0) if centred else np.zeros(d)
        size = np.sqrt(((X - mean) ** 2).mean(axis=0))
        self.A = np.diag(size)  # coefficients of the scaled columns are A times those of X
        if centred:
            self.A[-1, :-1] = mean[:-1]
        scaled = (X - mean) / size
        basis, R = np.linalg.qr(scaled)
        self.unit = y.std() or 1.0
        self.shift = y.mean() if np.ptp(X[:, -1]) == 0 else 0.0
        self.varying = np.asarray(varying, int)
        self.n, self.rank = X.shape
        weights = np.ones(len(y)) if weights is None else weights
        rows = [np.flatnonzero(task == t) for t in np.unique(task)]
        # Padded to the longest task, which makes products over tasks one call each.
        shape = len(rows), max(map(len, rows))
        self.Q, self.Z = np.zeros((*shape, d)), np.zeros((*shape, len(self.varying)))
        self.y, self.inverse, self.real = np.zeros(shape), np.ones(shape), np.zeros(shape, bool)
        for t, at in enumerate(rows):
            m = len(at)
            self.Q[t, :m], self.Z[t, :m] = basis[at], scaled[at][:, self.varying]
            self.y[t, :m] = (y[at] - self.shift) / self.unit
            self.inverse[t, :m], self.real[t, :m] = 1.0 / weights[at], True
        self.R = R @ self.A  # X = basis @ R

    def scaled(self, W, noise):
        """Return W of the varying columns, and the noise variance, in scaled units."""
        W = self.A @ W @ self.A.T / self.unit**2
        return W[np.ix_(self.varying, self.varying)], noise / self.unit**2

    def _solve(self, W, noise):
        V = self.Z @ W @ self.Z.transpose(0, 2, 1)
        diagonal = np.where(self.real, noise * self.inverse, 1.0)
        V[:, np.arange(V.shape[1]), np.arange(V.shape[1])] += diagonal
        inverse = np.linalg.inv(V)
        return inverse, np.linalg.slogdet(V)[1].sum()

    def log_likelihood(self, W, noise, reml, *, gradient=False):
        """Return the (restricted) log likelihood in the units of y, for scaled W and noise."""
        inverse, log_det = self._solve(W, noise)
        VQ = inverse @ self.Q
        information = np.einsum("tni,tnj->ij", self.Q, VQ)
        self.b = np.linalg.solve(information, np.einsum("tni,tn->i", VQ, self.y))
        residual = self.y - self.Q @ self.b
        Vr = np.einsum("tnm,tm->tn", inverse, residual)
        n_free = self.n - self.rank * reml
        value = log_det + (residual * Vr).sum() + n_free * np.log(2.0 * np.pi * self.unit**2)
        if reml:
            value += np.linalg.slogdet(information)[1] + 2.0 * np.linalg.slogdet(self.R)[1]
        self.information = information
        if not gradient:
            return -0.5 * value
        G = inverse - Vr[:, :, None] * Vr[:, None, :]
        if reml:
            G = G - VQ @ np.linalg.inv(information) @ VQ.transpose(0, 2, 1)
        by_W = np.einsum("tni,tnm,tmj->ij", self.Z, G, self.Z)
        by_noise = (np.einsum("tnn->tn", G) * self.inverse)[self.real].sum()
        return -0.5 * value, -0.5 * by_W, -0.5 * by_noise

    def fixed_effects(self, W, noise):
        """Return the generalised least squares estimate and its covariance, in the user's units."""
        self.log_likelihood(*self.scaled(W, noise), reml=False)
        to_user = np.linalg.inv(self.R)
        b = to_user @ self.b * self.unit
        b[-1] += self.shift
        return b, to_user @ np.linalg.inv(self.information) @ to_user.T * self.unit**2

    def maximum(self, reml, *, diagonal, starts):
        """Return the largest log likelihood that L-BFGS finds, with its W and noise."""
        q = len(self.varying)
        at = (np.arange(q), np.arange(q)) if diagonal else np.tril_indices(q)

        def unpack(x):
            L = np.zeros((q, q))
            L[at] = x[:-1]
            return L, np.exp(x[-1])

        def objective(x):
            L, noise = unpack(x)
            try:
                value, by_W, by_noise = self.log_likelihood(L @ L.T, noise, reml, gradient=True)
            except np.linalg.LinAlgError:
                return 1e10, np.zeros_like(x)
            if not np.isfinite(value):
                return 1e10, np.zeros_like(x)
            return -value, -np.append((2.0 * by_W @ L)[at], by_noise * noise)

        best = -np.inf, np.zeros((q, q)), 1.0
        for W, noise in starts:
            size = max(np.trace(W) / max(q, 1), 1e-3)
            start = np.append(np.linalg.cholesky(W + 1e-6 * size * np.eye(q))[at], np.log(noise))
            limits = [(None, None)] * (len(start) - 1) + [(-30.0, 10.0)]
            options = {"maxiter": 500, "maxfun": 800, "ftol": 1e-13, "gtol": 1e-8}
            found = minimize(
                objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=options
            )
            if -found.fun > best[0]:
                L, noise = unpack(found.x)
                best = -found.fun, L @ L.T, noise
        return best


def posterior(X, y, w, b, W, noise):
    """Return mean and covariance of a task's coefficients, and the derivative of the mean by b."""
    if not len(y):
        return b.copy(), W.copy(), np.eye(len(b))
    V = X @ W @ X.T + noise * np.diag(1.0 / w)
    K = np.linalg.solve(V, X @ W).T
    return b + K @ (y - X @ b), W - K @ X @ W, np.eye(len(b)) - K @ X


def mixture_posterior(X, y, w, proportions, means, covariances, noise):
    """Return the responsibilities, means and covariances of a task under each component."""
    logs, found = [], []
    for p, b, W in zip(proportions, means, covariances, strict=True):
        V, r = X @ W @ X.T + noise * np.diag(1.0 / w), y - X @ b
        quadratic = r @ np.linalg.solve(V, r) if len(y) else 0.0
        logs.append(np.log(p) - 0.5 * (np.linalg.slogdet(V)[1] + quadratic))
        found.append(posterior(X, y, w, b, W, noise)[:2])
    r = np.exp(np.array(logs) - max(logs))
    return r / r.sum(), np.array([m for m, _ in found]), np.array([C for _, C in found])


def kriging(X, t, y, query, t_query, b, W, noise, share, length):
    """Return the mean of query rows given the others, with noise σ² (I + ρ exp(−|t − t'| / ℓ))."""
    if not len(y):
        return query @ b
    V = X @ W @ X.T + noise * (np.eye(len(y)) + share * serial(t, t, length))
    across = query @ W @ X.T + noise * share * serial(t_query, t, length)
    return query @ b + across @ np.linalg.solve(V, y - X @ b)


def serial(t, other, length):
    return np.exp(-np.abs(np.subtract.outer(t, other)) / length)


# ------------------------------------------------------------- classes and counts, by quadrature


def log_probability(kind, eta, y, dispersion=0.0):
    if kind == "bernoulli":
        return -np.logaddexp(0.0, (1.0 - 2.0 * y) * eta)
    mean = np.exp(np.clip(eta, -300.0, 300.0))
    if kind == "poisson":
        return y * eta - mean - gammaln(y + 1.0)
    k = 1.0 / dispersion
    constant = gammaln(y + k) - gammaln(k) - gammaln(y + 1.0) + k * np.log(k)
    return constant + y * eta - (y + k) * np.log(k + mean)


def _slopes(kind, eta, y, dispersion):
    """Return the first derivative of the log probability and minus the second."""
    if kind == "bernoulli":
        p = expit(eta)
        return y - p, p * (1.0 - p)
    mean = np.exp(np.clip(eta, -50.0, 50.0))
    if kind == "poisson":
        return y - mean, mean
    k = 1.0 / dispersion
    return y - (y + k) * mean / (k + mean), (y + k) * mean * k / (k + mean) ** 2


def generalised_task(kind, X, y, offset, w, b, L, varying, dispersion=0.0, n=25):
    """Return evidence, posterior mean and covariance of v, for coefficients b + Lv, v ~ N(0, I).

    The integral is over the columns of L, by adaptive Gauss-Hermite quadrature at the mode.
    """
    Z, base, q = X[:, varying] @ L, X @ b + offset, L.shape[1]

    def objective(v):
        return -(w * log_probability(kind, base + Z @ v, y, dispersion)).sum() + 0.5 * v @ v

    v, H = np.zeros(q), np.eye(q)
    for _ in range(100):
        slope, curvature = _slopes(kind, base + Z @ v, y, dispersion)
        H = Z.T @ ((w * curvature)[:, None] * Z) + np.eye(q)
        step = np.linalg.solve(H, Z.T @ (w * slope) - v)
        share, before = 1.0, objective(v)
        while objective(v + share * step) > before + 1e-12 and share > 1e-8:
            share /= 2.0
        v = v + share * step
        if np.abs(step).max(initial=0.0) < 1e-11:
            break
    C = np.linalg.cholesky(np.linalg.inv(H))
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    grid = np.stack(np.meshgrid(*[nodes] * q, indexing="ij"), -1).reshape(-1, q)
    log_weights = np.log(weights / weights.sum())
    log_weights = sum(np.meshgrid(*[log_weights] * q, indexing="ij")).ravel() if q else np.zeros(1)
    V = v + grid @ C.T
    eta = base[:, None] + Z @ V.T
    logs = (w[:, None] * log_probability(kind, eta, y[:, None], dispersion)).sum(axis=0)
    logs += 0.5 * ((grid**2).sum(axis=1) - (V**2).sum(axis=1)) + log_weights
    logs += np.log(np.diag(C)).sum()
    p = np.exp(logs - logs.max())
    evidence = logs.max() + np.log(p.sum())
    p /= p.sum()
    mean = p @ V
    return evidence, mean, ((V - mean) * p[:, None]).T @ (V - mean)


def generalised_evidence(kind, tasks, b, L, varying, dispersion=0.0, n=25):
    """Return the log likelihood of tasks (X, y, offset, w)."""
    return sum(generalised_task(kind, *task, b, L, varying, dispersion, n)[0] for task in tasks)


def generalised_maximum(kind, tasks, varying, start, n=15):
    """Return the largest log likelihood near ``start`` = (b, L) and near the pooled model."""
    b, L = start
    q = len(varying)
    at = np.tril_indices(q)

    def objective(x):
        lower = np.zeros((q, q))
        lower[at] = x[len(b) :]
        value = generalised_evidence(kind, tasks, x[: len(b)], lower, varying, n=n)
        return -value if np.isfinite(value) else 1e10

    values = []
    for factor in (L, 0.5 * np.eye(q)):
        x = np.append(b, factor[at])
        values.append(-minimize(objective, x, method="BFGS", options={"gtol": 1e-3}).fun)
    return max(values)


def generalised_errors(kind, tasks, b, L, varying, dispersion=0.0):
    """Return the covariance of the errors of b: the inverse observed information about b, L and log
    dispersion, by finite differences; None where it is not positive definite.
    """
    at = np.tril_indices(L.shape[1])
    lower = np.linalg.cholesky(L @ L.T) if L.size else L
    start = np.concatenate([b, lower[at], np.log([dispersion] if dispersion else [])])

    def evidence(x):
        new = np.zeros_like(lower)
        new[at] = x[len(b) : len(b) + len(at[0])]
        noise = np.exp(x[-1]) if dispersion else 0.0
        return generalised_evidence(kind, tasks, x[: len(b)], new, varying, noise, n=15)

    p, step = len(start), 1e-3
    E, information = step * np.eye(p), np.empty((p, p))
    for i in range(p):
        for j in range(i + 1):
            signs = ((1, 1, -1), (1, -1, 1), (-1, 1, 1), (-1, -1, -1))
            total = sum(s * evidence(start + a * E[i] + c * E[j]) for a, c, s in signs)
            information[i, j] = information[j, i] = total / (4.0 * step**2)
    if np.linalg.eigvalsh(information).min() <= 0.0:
        return None
    return np.linalg.inv(information)[: len(b), : len(b)]


def generalised_draws(kind, tasks, b, L, varying, C, dispersion, rng, n):
    """Draw the targets of query rows (n, rows), for tasks (X, y, offset, w, query, query offset).

    Coefficients are normal with the exact posterior moments, given the errors of b, which are
    normal with covariance C.  Predictors are shifted such that means are those without these
    errors.
    """
    errors, out = rng.multivariate_normal(np.zeros(len(b)), C, n), []
    for X, y, offset, w, Q, query_offset in tasks:

        def moments(b, part=(X, y, offset, w)):
            _, v, V = generalised_task(kind, *part, b, L, varying, dispersion, 31)
            full = np.zeros((len(b), L.shape[1]))
            full[varying] = L
            return b + full @ v, full @ V @ full.T

        mean, V = moments(b)
        steps = 1e-4 * np.eye(len(b))
        R = np.array([(moments(b + e)[0] - moments(b - e)[0]) / 2e-4 for e in steps]).T
        own, more = (np.einsum("ni,ij,nj->n", Q, M, Q) for M in (V, R @ C @ R.T))
        f = Q @ mean + query_offset
        low, high = f - 0.5 * more - 1.0, f + np.abs(f) * (1.0 + more) + 1.0
        low = np.minimum(low, f - np.abs(f) * (1.0 + more) - 1.0)
        target = response_mean(kind, f, own)
        for _ in range(60):
            middle = 0.5 * (low + high)
            is_low = response_mean(kind, middle, own + more) < target
            low, high = np.where(is_low, middle, low), np.where(is_low, high, middle)
        deviations = rng.multivariate_normal(np.zeros(len(b)), V, n) + errors @ R.T
        f = middle + deviations @ Q.T
        if kind == "bernoulli":
            out.append(rng.random(f.shape) < expit(f))
            continue
        rate = np.exp(f)
        if dispersion:
            rate = rate * rng.gamma(1.0 / dispersion, dispersion, f.shape)
        out.append(rng.poisson(rate))
    return np.hstack(out)


def response_mean(kind, mean, variance, n=61):
    """Return the mean of the response if the linear predictor is normal."""
    if kind != "bernoulli":
        return np.exp(mean + 0.5 * variance)
    nodes, weights = np.polynomial.hermite_e.hermegauss(n)
    values = expit(mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    return values @ (weights / weights.sum())
