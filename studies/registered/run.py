"""Run the registered benchmark: defaults of `tailored`, and mixed models in R, on the same rows.

    python -m studies.registered run OUT [TABLE ...]       # adds rows to OUT/scores.csv
    python -m studies.registered scores OUT                # prints the ratios of the errors

The reference is lme4 for numbers and classes, and glmmTMB for counts; `mixed_models.R` selects its
random slopes, its dispersion and a factor of years by AIC.  Its predictions of new groups are
posterior means given the observed rows: exact for numbers, by adaptive quadrature otherwise.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from .definitions import TABLES
from .tables import Split, Table, is_category, load, split

Array = NDArray[np.float64]
SEEDS = range(1700, 1705)
COVERAGE = 0.9
COLUMNS = ["kind", "table", "seed", "method", "k", "error", "mae", "coverage", "cpu"]
#: Nodes of the quadrature per random effect, by their number.
NODES = {1: 31, 2: 21, 3: 9}


def run(out: Path, names: list[str]) -> None:
    """Score both methods on all splits of the tables; all tables by default."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names or list(TABLES):
        table = TABLES[name]
        frame = filled(table, load(table))
        for seed in SEEDS:
            parts = split(table, frame, seed)
            for method in (tailored_scores, reference_scores, scaled_scores):
                rows = list(method(table, frame, parts))
                shown = pd.DataFrame(rows).assign(table=name, seed=seed, kind=table.kind)
                shown = shown.reindex(columns=COLUMNS)
                file = out / "scores.csv"
                shown.to_csv(file, mode="a", header=not file.exists(), index=False)
            print(name, seed, flush=True)


def filled(table: Table, frame: pd.DataFrame) -> pd.DataFrame:
    """Replace missing values of groups by a category or the mean, because R needs values; declare
    categories, which may look like numbers.
    """
    for column in (*table.cols, *table.side):
        values = frame[column]
        if is_category(values):
            frame[column] = values.fillna("missing").astype("category")
        else:
            frame[column] = values.fillna(values.mean())
    return frame


def tailored_scores(table: Table, frame: pd.DataFrame, parts: Split) -> Iterator[dict[str, Any]]:
    """Fit defaults, and score the predictions for each number of observed rows."""
    from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet

    settings: dict[str, Any] = {"n_support": None if table.time is None else "first"}
    if table.kind == "count":
        settings["loss"] = "poisson"
    kind = EmpiricalBayesClassifier if table.kind == "binary" else EmpiricalBayesLearner
    columns = [table.task, table.y, *table.cols, *([table.expo] if table.expo else [])]
    side = frame[[table.task, *table.side]].drop_duplicates(table.task) if table.side else None
    training = frame.loc[parts.training, columns]
    roles: dict[str, Any] = {"task": table.task, "target": table.y, "exposure": table.expo}
    known = None if side is None else side[side[table.task].isin(training[table.task])]
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        learner = kind(**settings).fit(TaskSet.from_frame(training, side_info=known, **roles))
        cpu = time.process_time() - start
        query, y = frame.loc[parts.query, columns], frame.loc[parts.query, table.y].to_numpy(float)
        for k in table.ks:
            support = frame.loc[parts.observed(k), columns] if k else None
            options: dict[str, Any] = {} if table.kind == "binary" else {"coverage": COVERAGE}
            if side is not None:
                options["side_info"] = side
            found = learner.predict_tasks(query.drop(columns=table.y), support, **options)
            is_binary = table.kind == "binary"
            predicted = found.iloc[:, -1] if is_binary else found["prediction"]
            row = {"method": "tailored", "k": k, "cpu": cpu}
            row |= errors(table.kind, y, predicted.to_numpy(float))
            if not is_binary:
                row["coverage"] = float(found["lower"].le(y).mean() - found["upper"].lt(y).mean())
            yield row


def reference_scores(table: Table, frame: pd.DataFrame, parts: Split) -> Iterator[dict[str, Any]]:
    """Fit mixed models in R, and score the posterior means for each number of observed rows."""
    # Names that are valid in formulas of R, whatever the columns are called.
    short = {column: f"c{j}" for j, column in enumerate(dict.fromkeys([*table.cols, *table.side]))}
    rows = frame[list(short)].rename(columns=short)
    rows = rows.assign(y=frame[table.y], g=frame[table.task], role=parts.role)
    if table.expo:
        rows["offset"] = np.log(frame[table.expo])
    rows = rows[parts.role != "X"]
    fixed, slopes = " ".join(short.values()), " ".join(short[c] for c in table.slopes)
    year = short[table.year] if table.year else ""
    with tempfile.TemporaryDirectory() as folder:
        file, result = f"{folder}/rows.csv", f"{folder}/result"
        rows.to_csv(file, index=False)
        script = str(Path(__file__).with_name("mixed_models.R"))
        command = ["Rscript", script, table.kind, fixed, slopes, year, file, result]
        subprocess.run(command, check=True, capture_output=True, timeout=1800)
        linear = pd.read_csv(f"{result}-rows.csv").to_numpy(float)
        W = pd.read_csv(f"{result}-W.csv").to_numpy(float)
        model = pd.read_csv(f"{result}-model.csv").iloc[0]
    new = parts.role == "N"
    eta, Z = np.full(len(frame), np.nan), np.full((len(frame), len(W)), np.nan)
    eta[new], Z[new] = linear[:, 0], linear[:, 1:]
    if table.expo:
        eta[new] += np.log(frame[table.expo].to_numpy(float)[new])
    y = frame[table.y].to_numpy(float)
    groups = frame.index.to_series()[parts.query].groupby(frame[table.task]).indices
    places = np.flatnonzero(parts.query)
    for k in table.ks:
        predicted, observed = np.full(len(frame), np.nan), parts.observed(k)
        for group, inside in groups.items():
            query = places[inside]
            support = np.flatnonzero(observed & (frame[table.task] == group).to_numpy())
            predicted[query] = posterior_mean(
                table.kind,
                y[support],
                eta[support],
                Z[support],
                eta[query],
                Z[query],
                W,
                model.scale,
            )
        row = {"method": "reference", "k": k, "cpu": float(model.cpu)}
        yield row | errors(table.kind, y[parts.query], predicted[parts.query])


def scaled_scores(table: Table, frame: pd.DataFrame, parts: Split) -> Iterator[dict[str, Any]]:
    """Fit the same mixed models to standardized columns: with raw years, their optimizers stop
    early.

    This was added after the first results of `reference_scores` were known.
    """
    frame = frame.copy()
    for column in dict.fromkeys([*table.cols, *table.side]):
        if not is_category(frame[column]):
            known = frame.loc[parts.training, column].astype(float)
            frame[column] = (frame[column] - known.mean()) / (known.std() or 1.0)
    for row in reference_scores(table, frame, parts):
        yield row | {"method": "scaled"}


def posterior_mean(
    kind: str, y: Array, eta: Array, Z: Array, new_eta: Array, new_Z: Array, W: Array, scale: float
) -> Array:
    """Return the means of new targets of a group given the observed ones.

    The random effects are u ~ N(0, W). ``scale`` is the noise variance, or the size of a negative
    binomial distribution (NaN: Poisson).
    """
    if kind == "gauss":
        V = Z @ W @ Z.T + scale * np.eye(len(y))
        return new_eta + new_Z @ W @ Z.T @ np.linalg.solve(V, y - eta)
    W = W + 1e-10 * np.eye(len(W))
    precision, mode = np.linalg.inv(W), np.zeros(len(W))

    def log_density(u: Array) -> Array:
        f = eta + u @ Z.T
        if kind == "binary":
            value = y * f - np.logaddexp(0.0, f)
        elif np.isnan(scale):
            value = y * f - np.exp(f)
        else:
            value = y * f - (y + scale) * np.log(scale + np.exp(f))
        return np.asarray(value.sum(-1) - 0.5 * np.einsum("...i,ij,...j", u, precision, u))

    hessian = precision
    for _ in range(100):
        f = np.clip(eta + Z @ mode, -30.0, 25.0)
        mean = expit(f) if kind == "binary" else np.exp(f)
        if kind == "binary":
            slope, weight = y - mean, mean * (1.0 - mean)
        elif np.isnan(scale):
            slope, weight = y - mean, mean
        else:
            slope = scale * (y - mean) / (scale + mean)
            weight = scale * mean * (y + scale) / (scale + mean) ** 2
        hessian = precision + Z.T @ (weight[:, None] * Z)
        step = np.linalg.solve(hessian, Z.T @ slope - precision @ mode)
        size = 1.0
        while size > 1e-8 and log_density(mode + size * step) < log_density(mode) - 1e-12:
            size /= 2.0
        mode = mode + size * step
        if np.abs(size * step).max() < 1e-9:
            break
    x, w = np.polynomial.hermite_e.hermegauss(NODES[len(W)])
    grid = np.stack(np.meshgrid(*[x] * len(W), indexing="ij"), -1).reshape(-1, len(W))
    weights = np.stack(np.meshgrid(*[w] * len(W), indexing="ij"), -1).reshape(-1, len(W))
    nodes = mode + grid @ np.linalg.cholesky(np.linalg.inv(hessian)).T
    log_weights = np.log(weights).sum(1) + 0.5 * (grid**2).sum(1) + log_density(nodes)
    posterior = np.exp(log_weights - log_weights.max())
    f = new_eta + nodes @ new_Z.T
    means = expit(f) if kind == "binary" else np.exp(np.clip(f, -30.0, 25.0))
    return np.asarray(posterior @ means / posterior.sum())


def errors(kind: str, y: Array, p: Array) -> dict[str, float]:
    """Return the mean squared error, log loss or Poisson deviance, and the mean absolute error."""
    if kind == "gauss":
        error = (y - p) ** 2
    elif kind == "binary":
        p = np.clip(p, 1e-6, 1.0 - 1e-6)
        error = -np.where(y == 1, np.log(p), np.log1p(-p))
    else:
        p = np.maximum(p, 1e-6)
        error = 2.0 * (xlogy(y, y / p) - y + p)
    return {"error": float(error.mean()), "mae": float(np.abs(y - p).mean())}


def ratios(out: Path) -> pd.DataFrame:
    """Return one row per table and number of observed rows: the geometric mean over splits of the
    error relative to the reference, and its standard error.

    The column "rows" is 0, 1 or 2: none, the smaller and the larger number of observed rows.
    """
    scores = pd.read_csv(out / "scores.csv").drop_duplicates(
        ["table", "seed", "method", "k"], keep="last"
    )
    table = scores.pivot_table(
        index=["kind", "table", "k", "seed"], columns="method", values="error"
    )
    log = np.log(table["tailored"] / table["reference"]).groupby(level=["kind", "table", "k"])
    found = log.agg(["mean", "sem"]).reset_index()
    found["rows"] = found.groupby("table").cumcount()
    found["ratio"] = np.exp(found["mean"])
    return found


def print_scores(out: Path) -> None:
    """Print the ratio of each table, and geometric means over tables."""
    found = ratios(out)
    wide = found.pivot(index=["kind", "table"], columns="rows", values="ratio")
    print(wide.round(3).to_string())
    for name, part in [("all", found), *found.groupby("kind")]:
        means = np.exp(part.groupby("rows")["mean"].mean()).round(3).tolist()
        print(f"{name}: {means} on {part['table'].nunique()} tables")
    worse = found[(found["mean"] > np.log(1.03)) & (found["mean"] > 2 * found["sem"])]
    print("worse by 3 % and two standard errors:", *worse["table"] + " k=" + worse["k"].astype(str))
    cpu = pd.read_csv(out / "scores.csv").groupby(["table", "method"])["cpu"].mean().unstack()
    print(
        "median CPU relative to the reference:",
        round((cpu["tailored"] / cpu["reference"]).median(), 2),
    )
    scores = pd.read_csv(out / "scores.csv")
    print(
        "coverage of the 90 % intervals:", scores.groupby("k")["coverage"].mean().round(3).to_dict()
    )
