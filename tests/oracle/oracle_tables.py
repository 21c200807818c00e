"""Random tables of tasks, with an encoding of their columns that is independent of the package."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from scipy.special import expit

from tailored import TaskSet

#: Kinds of columns and how often they are drawn; "task" is constant within tasks.
KINDS = {"number": 0.54, "boolean": 0.1, "category": 0.16, "ordered": 0.06, "task": 0.14}
#: Kinds of side information.
SIDES = {"none": 0.4, "number": 0.2, "category": 0.15, "both": 0.1, "missing": 0.15}
#: Tasks that are not used for training.
N_NEW = 5


@dataclass
class Table:
    """A drawn table: training rows, rows of new tasks, and what they consist of."""

    train: pd.DataFrame
    new: pd.DataFrame
    kinds: dict[str, str]  # kind of each feature
    side: list[str] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)  # columns with values per row
    n_tasks: int = 0

    @property
    def features(self):
        return list(self.kinds)

    @property
    def unit(self):
        return max(float(self.train["y"].astype(float).std()), 1e-300)

    def tasks(self, frame=None, **options):
        """Read rows as the package does."""
        side = {"side_columns": self.side} if self.side else {}
        options = {"features": self.features, **self.roles, **side, **options}
        frame = self.train if frame is None else frame
        return TaskSet.from_frame(frame, task="task", target="y", **options)

    def encode(self, frame, *, intercept=False):
        """Encode the features by the documented rules: a matrix, and the names of its columns."""
        columns, names = [], []
        for name, kind in self.kinds.items():
            if kind == "category":
                for value in sorted(self.train[name].astype(str).unique())[1:]:
                    columns.append(frame[name].astype(str) == value)
                    names.append(f"{name}={value}")
                continue
            columns.append(frame[name].cat.codes if kind == "ordered" else frame[name])
            names.append(name)
        if intercept:
            columns.append(np.ones(len(frame)))
        empty = np.zeros((len(frame), 0))
        matrix = np.column_stack([np.asarray(c, float) for c in columns]) if columns else empty
        return matrix, names

    def values(self, frame, role):
        """Return the values per row of a role; ones without the role."""
        if role not in self.roles:
            return np.ones(len(frame))
        return frame[self.roles[role]].to_numpy(float)

    def split(self, rng):
        """Split the rows of the new tasks into support and query rows; one task may lack
        support.
        """
        place = self.new.groupby("task").cumcount()
        is_support = place < self.new.groupby("task")["y"].transform("size") // 2
        if rng.random() < 0.3:
            is_support &= self.new["task"] != self.new["task"].iloc[0]
        return self.new[is_support], self.new[~is_support]

    def side_of(self, label):
        """Return the side information of a task, as a mapping."""
        rows = pd.concat([self.train, self.new])
        first = rows.loc[rows["task"] == label, self.side].iloc[0]
        return {"side_info": {name: first[name] for name in self.side}} if self.side else {}


def draw(rng, *, target="number", n_tasks=None, side=True, weights=True, most=4, wild=True):
    """Draw a table; ``wild`` columns have any unit and are far from zero."""
    T = int(rng.choice([5, 8, 12, 20, 35, 60])) if n_tasks is None else n_tasks
    sizes = np.append(_sizes(rng, T), rng.integers(2, 9, N_NEW))
    g, n = np.repeat(np.arange(T + N_NEW), sizes), int(sizes.sum())
    kinds, columns, standard = {}, {}, []
    for j in range(int(rng.integers(0, most + 1))):
        kind = str(rng.choice([*KINDS], p=[*KINDS.values()]))
        kinds[f"x{j}"] = kind
        columns[f"x{j}"] = _column(rng, kind, g, wild)
        standard.append(_standard(columns[f"x{j}"]))
    labels = _labels(rng, T + N_NEW)
    frame = pd.DataFrame({"task": labels[g], **columns})
    effect = np.zeros(T + N_NEW)
    side_columns = _side(rng, T + N_NEW, effect) if side else {}
    for name, values in side_columns.items():
        frame[name] = values[g]
    X = np.column_stack([*standard, np.ones(n)])
    d = X.shape[1]
    spread = rng.choice([0.0, 0.3, 1.0, 2.0], size=d)
    U = rng.normal(size=(T + N_NEW, d)) * spread
    if d > 1 and rng.random() < 0.3:
        U[:, -1] += U[:, 0]  # correlated
    fixed = rng.normal(size=d) * rng.choice([0, 1, 1])
    f = X @ fixed + (X * U[g]).sum(axis=1) + effect[g]
    roles, precision = _roles(rng, frame, target) if weights else ({}, np.ones(n))
    frame["y"] = _target(rng, target, f, precision, frame, roles, wild)
    is_train = g < T
    train = frame[is_train]
    if rng.random() < 0.4:
        train = train.sample(frac=1.0, random_state=int(rng.integers(1 << 30)))
    train, new = train.reset_index(drop=True), frame[~is_train].reset_index(drop=True)
    return Table(train, new, kinds, [*side_columns], roles, T)


def _sizes(rng, T):
    how = rng.choice(["equal", "varied", "small", "mostly one"], p=[0.3, 0.45, 0.2, 0.05])
    if how == "equal":
        return np.full(T, rng.integers(2, 11))
    if how == "mostly one":
        return np.where(rng.random(T) < 0.7, 1, rng.integers(2, 8, T))
    return rng.integers(1, 16 if how == "varied" else 5, T)


def _labels(rng, n):
    how = rng.choice(["numbers", "strings", "any order"])
    if how == "strings":
        return np.array([f"t{i:03d}" for i in range(n)])
    return 3 * np.arange(n) + 1 if how == "numbers" else rng.permutation(1000)[:n]


def _column(rng, kind, g, wild):
    n = len(g)
    if kind == "boolean":
        return rng.random(n) < 0.4
    if kind == "category":
        return rng.choice(np.array(["b", "a", "zz", "C"])[: rng.integers(2, 5)], n)
    if kind == "ordered":
        names = ["low", "mid", "high"]
        return pd.Categorical(rng.choice(names, n), categories=names, ordered=True)
    unit = 10.0 ** rng.uniform(-3, 3) if wild else 1.0
    shift = 10.0 ** rng.uniform(-1, 2) * rng.choice([-1, 0, 1]) if wild else 0.0
    values = rng.normal(size=g.max() + 1)[g] if kind == "task" else rng.normal(size=n)
    return unit * (values + shift)


def _standard(values):
    codes = pd.factorize(values, sort=True)[0] if np.asarray(values).dtype.kind in "OU" else values
    codes = np.asarray(codes, float)
    return (codes - codes.mean()) / (codes.std() or 1.0)


def _side(rng, n, effect):
    """Draw columns of side information, and add their effect to ``effect``."""
    how = str(rng.choice([*SIDES], p=[*SIDES.values()]))
    columns = {}
    if how in ("number", "both", "missing"):
        values = rng.normal(size=n)
        effect += values
        columns["z"] = 10.0 ** rng.uniform(-3, 3) * (values + rng.normal())
    if how in ("category", "both"):
        codes = rng.integers(0, int(rng.integers(2, 4)), n)
        effect += codes
        columns["k"] = np.array(["u", "v", "w"], dtype=object)[codes]
    if how == "missing":
        columns["z"] = np.where(rng.random(n) < 0.25, np.nan, columns["z"])
    effect *= rng.choice([0, 1, 3])
    return columns


def _roles(rng, frame, target):
    """Draw weights, frequencies and exposures; return their columns, and the rows' precisions."""
    n, roles = len(frame), {}
    precision = np.ones(n)
    if target == "number" and rng.random() < 0.3:
        precision = np.round(rng.uniform(0.2, 4.0, n), 3)
        frame["precision"] = precision * 10.0 ** rng.integers(-2, 3)
        roles["sample_weight"] = "precision"
    if rng.random() < 0.25:
        frame["count"] = rng.integers(0 if rng.random() < 0.3 else 1, 4, n).astype(float)
        first = frame.groupby("task").head(1).index  # every task keeps a row
        frame.loc[first, "count"] = np.maximum(frame.loc[first, "count"], 1.0)
        roles["frequency_weight"] = "count"
    if target == "count" and rng.random() < 0.5:
        frame["exposure"] = np.round(rng.uniform(0.2, 5.0, n), 2) * 10.0 ** rng.integers(-2, 3)
        roles["exposure"] = "exposure"
    return roles, precision


def _target(rng, target, f, precision, frame, roles, wild):
    n = len(f)
    if target == "number":
        y = f + rng.choice([0.03, 0.3, 1.0]) * rng.normal(size=n) / np.sqrt(precision)
        unit = 10.0 ** rng.uniform(-6, 6) if wild else 1.0
        return unit * (y + (10.0 ** rng.uniform(-1, 4) * rng.choice([-1, 0, 1]) if wild else 0.0))
    eta = f / max(f.std(), 1.0)
    if target == "class":
        y = (rng.random(n) < expit(1.2 * eta + rng.normal(0, 0.5))).astype(int)
        y[:2] = [0, 1]
        return y
    exposure = frame["exposure"].to_numpy() if "exposure" in roles else np.ones(n)
    mean = np.exp(0.6 * eta + rng.normal(0.5, 0.7)) * exposure / exposure.mean()
    if rng.random() < 0.4:
        mean = mean * rng.gamma(2.0, 0.5, n)
    y = rng.poisson(mean).astype(float)
    y[0] = max(y[0], 1.0)
    return y
