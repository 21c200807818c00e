"""Run the variants of Algorithm 1 that produced the published numbers, and compare them seed by seed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from tailored.datasets import fetch_jester, fetch_lenk, fetch_movielens

Array = NDArray[np.float64]

STEPS = 10 ** np.linspace(-5, 5, 14)
CHECKPOINTS = [1, 2, 3, 5, 10, 20, 50, 100]


class Part(NamedTuple):
    """Tasks padded with zeros to a common number of rows."""

    X: Array  # (T, n, d)
    y: Array  # (T, n)
    n: Array  # (T,) rows of each task
    query_X: Array
    query_y: Array
    query_n: Array
    phi: Array  # (T, k), not scaled


class Data(NamedTuple):
    train: Part
    validation: Part
    test: Part
    n_in_file_order: Array


Rows = tuple[Array, Array]


def _pad(tasks: list[Rows]) -> tuple[Array, Array, Array]:
    n = np.array([len(y) for _, y in tasks], dtype=float)
    X = np.zeros((len(tasks), int(n.max()), tasks[0][0].shape[1]))
    y = np.zeros(X.shape[:2])
    for t, (rows, targets) in enumerate(tasks):
        X[t, : len(targets)], y[t, : len(targets)] = rows, targets
    return X, y, n


def _data(support: list[Rows], query: list[Rows], phi: Any, sizes: tuple[int, int, int], n: Any = None) -> Data:
    ends = np.cumsum(sizes)
    parts = [
        Part(*_pad(support[a:b]), *_pad(query[a:b]), np.array([phi(*rows) for rows in support[a:b]]))
        for a, b in zip(ends - sizes, ends, strict=True)
    ]
    return Data(*parts, n_in_file_order=parts[0].n if n is None else n)


def mean_embedding(X: Array, y: Array) -> Array:
    return np.append((X.T @ np.column_stack([y, np.ones(len(y))]) / len(y)).ravel(), 1.0)


def clusters(m: int, seed: int) -> Data:
    np.random.seed(seed)
    cluster = np.random.randint(m, size=(1, 900))[0]
    supports = np.random.choice(np.arange(20), 2 * m, replace=False).reshape(m, 2)
    support, query = [], []
    for j in cluster:
        X = np.random.randn(80, 20)
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        w = np.zeros((20, 1))
        w[supports[j]] = np.random.randn(2, 1)
        w /= np.linalg.norm(w)
        y = (X @ w)[:, 0] + 0.1 * np.random.randn(80)
        first, rest = train_test_split(np.arange(80), test_size=0.5)
        support.append((X[first], y[first]))
        query.append((X[rest], y[rest]))
    return _data(support, query, mean_embedding, (500, 300, 100))


def tikhonov(X: Array, y: Array) -> Array:
    X1 = np.column_stack([X, np.ones(len(y))])
    return np.linalg.solve(X1.T @ X1 + np.eye(X1.shape[1]), X1.T @ y)


def lenk(seed: int, path: Any) -> Data:
    tasks = fetch_lenk(path=path).tasks
    X = np.column_stack([np.ones(len(tasks.y)), tasks.X]).reshape(180, 20, 14)
    y = tasks.y.reshape(180, 20)
    np.random.seed(seed)
    np.random.shuffle(list(range(170)))
    support, query = [], []
    for t in range(170):
        order = np.random.permutation(16)
        support.append((X[t, order], y[t, order]))
        query.append((X[t, 16:], y[t, 16:]))
    return _data(support, query, tikhonov, (100, 40, 30))


def angles(X, y):
    a = np.pi / 10 * y
    return np.append(np.concatenate([X.T @ np.cos(a), X.T @ np.sin(a)]) / len(y), 1.0)


def ratings(tasks, seed: int, sizes, phi) -> Data:
    rows = [(tasks.X[a:b], tasks.y[a:b]) for a, b in zip(tasks.offsets[:-1], tasks.offsets[1:])]
    # sort rows by column
    rows = [(X[o], y[o]) for X, y in rows for o in [np.argsort(X.argmax(1))]]
    np.random.seed(seed)
    order = np.random.permutation(sum(sizes))
    support, query = [], []
    for place, t in enumerate(order):
        X, y = rows[t]
        if place < sizes[0]:
            support.append((X, y)); query.append((X, y))
        else:
            a, b = train_test_split(np.arange(len(y)), test_size=0.25)
            support.append((X[a], y[a])); query.append((X[b], y[b]))
    return _data(support, query, phi, sizes, np.array([len(y) for _, y in rows], dtype=float))


def one_pass(theta: Array, X: Array, y: Array, n: Array) -> tuple[Array, Array, Array]:
    """Return subgradients, the last iterate and the mean of the iterates after each step."""
    B = np.broadcast_shapes(theta.shape[:-2], X.shape[:-2])
    w = np.zeros((*B, X.shape[-1])); mean = np.zeros_like(w)
    signs = np.zeros((*B, X.shape[-2]))
    for i in range(X.shape[-2]):
        x = X[..., i, :]
        s = np.where(y[..., i] < np.einsum('...d,...d', x, w), 1.0, -1.0)
        new = (1 - 1 / (i + 1)) * w - (theta @ x[..., None])[..., 0] * s[..., None] / (i + 1)
        active = (i < n)[..., None]
        w = np.where(active, new, w)
        mean = mean + np.where(active, new, 0)
        signs[..., i] = np.where(active[..., 0], s, 0)
    return signs, w, mean / n[..., None]


def project(A: Array) -> Array:
    lam, V = np.linalg.eigh(A)
    return (V * np.maximum(lam, 0)[..., None, :]) @ np.swapaxes(V, -1, -2)


@dataclass(frozen=True)
class Variant:
    gradient: Literal["pinv", "dual"] = "dual"
    trace: bool = True
    project: bool = True
    at_averages: bool = False
    n: Literal["own", "file order"] = "own"
    side: Literal["", "reshape", "kron"] = ""
    rows: Any = None


def reshaped(phi, d):
    return np.tensordot(np.eye(d), phi, 0).reshape(d * len(phi), d)


def kron(phi, d):
    return np.kron(np.eye(d), phi[:, None])


def error(C, H, part: Part, T):
    theta = C[..., None, :, :]
    if T is not None:
        theta = theta + np.swapaxes(T, -1, -2) @ H[..., None, :, :] @ T
    w = one_pass(theta, part.X, part.y, part.n)[2]
    wrong = np.abs(np.einsum('tnd,...td->...tn', part.query_X, w) - part.query_y)
    return (wrong.sum(-1) / part.query_n).mean(-1)


def run(data: Data, v: Variant, checkpoints, steps=STEPS):
    d = data.train.X.shape[-1]; S = len(steps); g = steps[:, None, None]
    k = data.train.phi.shape[1]
    if v.side:
        f = {"reshape": reshaped, "kron": kron}[v.side]
        used = np.flatnonzero(f(np.ones(k), d).any(1)) if v.rows is None else v.rows
        T_of = lambda phi: np.array([f(p, d)[used] for p in phi])
        Ts = [T_of(p.phi) for p in (data.train, data.validation, data.test)]
        r = len(used)
    else:
        Ts = [None] * 3; r = 0
    C = np.tile(np.eye(d), (S, 1, 1)); H = np.zeros((S, r, r))
    sumC = np.zeros_like(C); sumH = np.zeros_like(H)
    at_C, at_H = C, H
    out = {}
    for t in range(len(data.train.X)):
        n = int(data.train.n[t]); X = data.train.X[t, :n]; y = data.train.y[t, :n]
        theta = at_C
        if v.side:
            T = Ts[0][t]
            theta = at_C + T.T @ at_H @ T
        s, w, _ = one_pass(theta, X, y, np.array(n))
        u = (np.linalg.pinv(theta) @ w[..., None])[..., 0] if v.gradient == "pinv" else s @ X / n
        G = -0.5 * u[:, :, None] * u[:, None, :]
        if v.trace:
            m = n if v.n == "own" else data.n_in_file_order[t]
            G = G + 2 * X.T @ X / m**2
        C = C - g * G
        if v.project: C = project(C)
        sumC = sumC + C
        if v.side:
            H = H - g * (T @ G @ T.T)
            if v.project: H = project(H)
            sumH = sumH + H
        if v.at_averages:
            at_C, at_H = (np.eye(d) + sumC) / (t + 1), sumH / (t + 1)
            est = at_C, at_H
        else:
            at_C, at_H = C, H
            est = sumC / (t + 1), sumH / (t + 1)
        if t + 1 in checkpoints:
            out[t + 1] = error(*est, data.test, Ts[2])
    return out, error(*est, data.validation, Ts[1])
