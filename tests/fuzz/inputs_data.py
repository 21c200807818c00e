"""Odd task sets, drawn from a seed: classes of scales, values, shapes and forms, each with a name that is counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
from scipy import sparse

from tailored import TaskSet

Part = tuple[Any, Any, Any]


@dataclass
class Drawn:
    """Tasks as lists of arrays, before they take a form; ``classes`` says what is odd about them."""

    parts: list[Part]
    n_features: int
    labels: list[Any]
    classes: dict[str, str] = field(default_factory=dict)

    @property
    def has_side(self) -> bool:
        return bool(self.parts) and self.parts[0][2] is not None

    def tasks(self) -> TaskSet:
        """As a task set; a ValueError where that cannot be."""
        return TaskSet.from_tasks(
            [p if p[2] is not None else p[:2] for p in self.parts], labels=self.labels
        )

    def rows(self) -> tuple[np.ndarray, np.ndarray, list[Any]]:
        X = np.concatenate([p[0] for p in self.parts])
        y = np.concatenate([p[1] for p in self.parts])
        groups = [label for p, label in zip(self.parts, self.labels, strict=True) for _ in p[1]]
        return X, y, groups

    def side(self) -> dict[Any, Any] | None:
        return (
            {k: p[2] for k, p in zip(self.labels, self.parts, strict=True)}
            if self.has_side
            else None
        )


# --- shapes

SHAPES = (
    "usual", "usual", "usual", "usual", "one task", "two tasks", "only empty tasks", "some empty tasks", "one row each",
    "fewer rows than columns", "one column", "no columns", "no rows but one", "odd labels", "length of y is wrong",
    "width of one task is wrong", "y has two columns", "X has one axis", "side information of another width",
    "half of the side information", "words as side information",
)  # fmt: skip


#: What cannot be put into one array, or one frame.
MALFORMED = (
    "length of y is wrong", "width of one task is wrong", "y has two columns", "X has one axis", "half of the side information",
)  # fmt: skip


def draw_shape(
    rng: np.random.Generator, shape: str, n_features: int | None, side: int | None
) -> Drawn:
    d = n_features or int(rng.integers(1, 7))
    if n_features is None:
        d = {"one column": 1, "no columns": 0, "fewer rows than columns": 6}.get(shape, d)
    n_tasks = {"one task": 1, "two tasks": 2}.get(shape, int(rng.integers(4, 9)))
    q = int(rng.integers(0, 3)) if side is None else side
    sizes = rng.integers(1, 9, n_tasks)
    if shape == "only empty tasks":
        sizes[:] = 0
    elif shape == "some empty tasks":
        sizes[rng.random(n_tasks) < 0.5] = 0
    elif shape == "one row each":
        sizes[:] = 1
    elif shape == "fewer rows than columns":
        sizes = rng.integers(0, max(d, 1), n_tasks)
    elif shape == "no rows but one":
        sizes[:] = 0
        sizes[rng.integers(n_tasks)] = 1
    elif shape == "many rows":
        d, q, sizes = 1 + d % 2, 0, rng.integers(30, 50, n_tasks)
    centre = rng.normal(size=d)
    parts: list[Part] = []
    for n in sizes:
        s = rng.normal(size=q) if q else None
        X, w = rng.normal(size=(n, d)), centre + rng.normal(size=d)
        y = X @ w + 0.3 * rng.normal(size=n) + 1.0
        parts.append((X, y, s))
    labels: list[Any] = list(range(n_tasks))
    if shape == "odd labels":
        kinds: list[Any] = ["a", 2, (1, "b"), 2.5, b"c", True, np.int64(77), "ü", -1, ""]
        labels = kinds[:n_tasks] if rng.random() < 0.7 else [None, float("nan"), *kinds][:n_tasks]
    return Drawn(parts, d, labels, {"shape": shape})


def break_shape(rng: np.random.Generator, drawn: Drawn) -> Drawn:
    """What is not well formed; applied last."""
    shape, parts = drawn.classes["shape"], list(drawn.parts)
    at = int(rng.integers(len(parts)))
    X, y, s = parts[at]
    if shape == "length of y is wrong":
        parts[at] = X, np.append(y, 1.0), s
    elif shape == "width of one task is wrong":
        parts[at] = np.hstack([X, np.ones((len(X), 1))]), y, s
    elif shape == "y has two columns":
        parts = [(X, np.column_stack([y, y]), s) for X, y, s in parts]
    elif shape == "X has one axis":
        parts = [(X.ravel(), y, s) for X, y, s in parts]
    elif shape == "side information of another width":
        parts = [(X, y, None if s is None else np.append(s, 1.0)) for X, y, s in parts]
    elif shape == "half of the side information":
        if rng.random() < 0.5:
            parts[at] = X, y, None
        elif s is not None:
            gone = s.copy()
            gone[0] = np.nan
            parts[at] = X, y, gone
    elif shape == "words as side information" and drawn.has_side:
        words = np.array(["north", "south", "1e300"], dtype=object)
        parts = [
            (X, y, np.array([words[i % 3], *s[1:]], dtype=object))
            for i, (X, y, s) in enumerate(parts)
        ]
    else:
        return drawn
    return replace(drawn, parts=parts)


# --- values

VALUES = (
    "normal", "normal", "normal", "normal", "constant column", "duplicated columns", "collinear columns", "X is zero",
    "y is constant", "y is zero", "offset of 1e12", "offset of 1e6", "one-hot", "integers", "NaN", "infinity",
    "largest float", "an outlier", "y = ± a number", "side information is constant", "duplicated rows", "NaN in side",
)  # fmt: skip


def draw_values(rng: np.random.Generator, drawn: Drawn, values: str) -> Drawn:
    drawn.classes["values"] = values
    d = drawn.n_features
    column = int(rng.integers(d)) if d else 0
    other = int(rng.integers(d)) if d else 0
    odd = int(rng.integers(len(drawn.parts)))
    offset = {"offset of 1e12": 1e12, "offset of 1e6": 1e6}.get(values, 0.0)
    bad = {
        "NaN": np.nan,
        "infinity": np.inf,
        "largest float": np.finfo(float).max,
        "an outlier": 1e60,
    }.get(values)
    parts = []
    for t, (X, y, s) in enumerate(drawn.parts):
        X, y = X.copy(), y.copy()
        n = len(y)
        if values == "constant column" and d:
            X[:, column] = 3.7
        elif values == "duplicated columns" and d:
            X[:, column] = X[:, other]
        elif values == "collinear columns" and d:
            X[:, column] = X.sum(axis=1)
        elif values == "duplicated rows" and n:
            X[:], y[:] = X[0], y[0]
        elif values == "X is zero":
            X[:] = 0.0
        elif values == "y is constant":
            y[:] = -2.0
        elif values == "y is zero":
            y[:] = 0.0
        elif values == "y = ± a number":
            y = np.where(y > 0, 5.0, -5.0)
        elif values == "one-hot" and d:
            X = np.eye(d)[rng.integers(0, d, n)]
        elif values == "integers":
            X, y = np.round(3 * X), np.round(3 * y)
        elif values == "side information is constant" and s is not None:
            s = np.ones_like(s)
        elif values == "NaN in side" and s is not None and rng.random() < 0.5:
            s = s.copy()
            s[rng.integers(len(s))] = np.nan
        X, y = X + offset * (rng.random() < 0.99), y + offset
        if bad is not None and t == odd and n:
            if d and rng.random() < 0.6:
                X[rng.integers(n), column] = bad
            else:
                y[rng.integers(n)] = bad
        parts.append((X, y, s))
    return replace(drawn, parts=parts)


# --- scales

SCALES = (
    "one", "one", "one", "1e-60 to 1e60", "1e-60 to 1e60", "1e-20 to 1e20", "the edges, 1e±60", "all very small",
    "all very large", "beyond 1e±150", "subnormal", "integers beyond 2^53", "powers of two", "y alone", "side alone",
)  # fmt: skip


def draw_scale(rng: np.random.Generator, drawn: Drawn, scale: str) -> Drawn:
    drawn.classes["scale"] = scale
    if scale == "one":
        return drawn
    d, q = drawn.n_features, len(drawn.parts[0][2]) if drawn.has_side else 0
    m = d + 1 + q
    power = np.zeros(m)
    if scale == "1e-60 to 1e60":
        power = rng.integers(-60, 61, m).astype(float)
    elif scale == "1e-20 to 1e20":
        power = rng.integers(-20, 21, m).astype(float)
    elif scale == "the edges, 1e±60":
        power = rng.choice([-60.0, 0.0, 60.0], m)
    elif scale == "all very small":
        power[:] = rng.integers(-60, -30)
    elif scale == "all very large":
        power[:] = rng.integers(30, 60)
    elif scale == "beyond 1e±150":
        power = rng.choice([0.0, 0.0, -155.0, 155.0, -200.0, 200.0, 300.0, -300.0], m)
    elif scale == "subnormal":
        power = rng.choice([0.0, 0.0, -310.0, -320.0], m)
    elif scale == "y alone":
        power[d] = rng.integers(-60, 61)
    elif scale == "side alone":
        power[d + 1 :] = rng.integers(-60, 61, q)
    factors = 2.0 ** rng.integers(-200, 201, m) if scale == "powers of two" else 10.0**power
    if scale == "integers beyond 2^53":
        factors = np.full(m, 2.0**58)
    return scaled(drawn, factors)


def scaled(drawn: Drawn, factors: np.ndarray) -> Drawn:
    """The same tasks with columns, target and side information in other units."""
    d = drawn.n_features
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        parts = [
            (X * factors[:d], y * factors[d], None if s is None else s * factors[d + 1 :])
            for X, y, s in drawn.parts
        ]
    return replace(drawn, parts=parts)


# --- responses

RESPONSES = ("classes", "counts")


def as_response(rng: np.random.Generator, drawn: Drawn, response: str) -> Drawn:
    """The same tasks with classes or counts as targets; one in ten keeps its targets, which most calls refuse."""
    if rng.random() < 0.1 or any(np.ndim(y) != 1 for _, y, _ in drawn.parts):
        return drawn
    drawn.classes["response"] = response
    y = np.concatenate([y for _, y, _ in drawn.parts])
    with np.errstate(all="ignore"):
        y = np.clip(np.nan_to_num(y / (np.nanmax(np.abs(y), initial=0.0) or 1.0)), -1.0, 1.0)
    kind = str(rng.choice(["usual", "usual", "usual", "rare", "one value", "large"]))
    drawn.classes["targets"] = kind
    if response == "classes":
        names = rng.choice(
            [-1.0, 0.0, 1.0, 2.0, 2.5, 1e6, 7.0], int(rng.integers(2, 5)), replace=False
        )
        k = rng.integers(0, len(names), len(y)) if rng.random() < 0.3 else (y > 0).astype(int)
        k = k * (rng.random(len(y)) < 0.1) if kind == "rare" else k * (kind != "one value")
        y = k.astype(float) if rng.random() < 0.5 else np.sort(names)[k]
    else:
        scale = {
            "usual": 2.0,
            "rare": -2.0,
            "one value": 0.0,
            "large": float(rng.choice([8.0, 20.0, 100.0])),
        }[kind]
        y = (
            np.floor(np.exp(scale * (1.0 + y)))
            if kind != "rare"
            else rng.poisson(0.05, len(y)).astype(float)
        )
    ends = np.cumsum([len(y) for _, y, _ in drawn.parts])[:-1]
    parts = [(X, new, s) for (X, _, s), new in zip(drawn.parts, np.split(y, ends), strict=True)]
    return replace(drawn, parts=parts)


def draw_row_values(rng: np.random.Generator, n: int, seen: dict[str, str]) -> dict[str, Any]:
    """Weights and exposures of n rows, usual and odd ones."""
    name = str(rng.choice(["sample_weight", "frequency_weight", "exposure"]))
    kind = str(
        rng.choice(
            ["usual", "usual", "usual", "ones", "wide", "zero", "negative", "NaN", "too many"]
        )
    )
    seen["row values"] = f"{name}: {kind}"
    values = np.exp(rng.normal(size=n)) if name != "frequency_weight" else 1.0 + rng.poisson(1.0, n)
    if kind == "ones":
        values = np.ones(n)
    elif kind == "wide":
        values = 10.0 ** rng.integers(-8, 9, n)
    elif kind == "too many":
        values = np.append(values, 1.0)
    elif kind in ("zero", "negative", "NaN") and n:
        values[int(rng.integers(n))] = {"zero": 0.0, "negative": -1.0, "NaN": np.nan}[kind]
    return {name: values}


# --- forms

FORMS = (
    "task set", "task set", "task set", "arrays", "Fortran order", "strided", "read-only", "float32", "integers",
    "booleans", "objects", "lists", "csr", "csc", "coo", "sparse task set", "pandas", "polars",
)  # fmt: skip


def as_arguments(
    rng: np.random.Generator, drawn: Drawn, form: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of `fit` and the like: a task set, or X, y, groups and side_info in this form."""
    if drawn.classes["shape"] in MALFORMED and form not in ("task set", "arrays", "lists"):
        form = "task set"
    if drawn.classes["shape"] == "width of one task is wrong":
        form = "task set"
    drawn.classes["form"] = form
    if form == "task set":
        return (drawn.tasks(),), {}
    if form == "sparse task set":
        parts = [(sparse.csr_array(X), *rest) for X, *rest in drawn.parts]
        parts = [p if p[2] is not None else p[:2] for p in parts]
        return (TaskSet.from_tasks(parts, labels=drawn.labels),), {}
    X, y, groups = drawn.rows()
    side = drawn.side()
    if form in ("pandas", "polars"):
        names = [f"x{j}" for j in range(X.shape[1])]
        library = pd.DataFrame if form == "pandas" else pl.DataFrame
        frame = library(
            {"task": [str(g) for g in groups], "y": y, **dict(zip(names, X.T, strict=True))}
        )
        if side is None:
            return (TaskSet.from_frame(frame, task="task", target="y"),), {}
        table = pd.DataFrame(
            np.array(list(side.values())),
            index=[str(k) for k in side],
            columns=[f"s{j}" for j in range(len(next(iter(side.values()))))],
        )
        return (TaskSet.from_frame(frame, task="task", target="y", side_info=table),), {}
    X, y = in_form(X, y, form)
    return (X, y), {"groups": groups, **({} if side is None else {"side_info": side})}


def in_form(X: np.ndarray, y: np.ndarray, form: str) -> tuple[Any, Any]:
    with np.errstate(all="ignore"):
        if form == "Fortran order":
            return np.asfortranarray(X), y
        if form == "strided":
            return np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3], np.repeat(y, 2)[::2]
        if form == "read-only":
            X, y = X.copy(), y.copy()
            X.flags.writeable = y.flags.writeable = False
            return X, y
        if form == "float32":
            return X.astype(np.float32), y.astype(np.float32)
        if form == "integers":
            clean = np.nan_to_num(np.clip(X, -9e18, 9e18)), np.nan_to_num(np.clip(y, -9e18, 9e18))
            return clean[0].astype(np.int64), clean[1].astype(np.int64)
        if form == "booleans":
            return X > 0, y > 0
        if form == "objects":
            if np.isfinite(X).all() and len(X) and X.shape[1] and np.abs(X).max() > 1e12:
                X = np.array(
                    [[int(v) * 10**200 if abs(v) > 1e140 else float(v) for v in row] for row in X],
                    dtype=object,
                )
                return X, y.astype(object)
            return X.astype(object), y.astype(object)
        if form == "lists":
            return X.tolist(), y.tolist()
        if form in ("csr", "csc", "coo"):
            return sparse.coo_array(X).asformat(form), y
    return X, y


def draw(
    rng: np.random.Generator,
    *,
    n_features: int | None = None,
    side: int | None = None,
    calm: float = 0.0,
) -> Drawn:
    """A task set of drawn classes; ``calm`` is the part of them that are well formed and finite."""
    shape = "usual" if rng.random() < calm else str(rng.choice(SHAPES))
    values = "normal" if rng.random() < calm else str(rng.choice(VALUES))
    drawn = draw_shape(rng, shape, n_features, side)
    drawn = draw_scale(rng, draw_values(rng, drawn, values), str(rng.choice(SCALES)))
    return break_shape(rng, drawn)
