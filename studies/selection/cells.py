"""Cells (environment, seed) of the comparison of versions: run them, keep them in one table, compare two labels."""

from __future__ import annotations

import csv
import io
import os
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored._utils.progress import progress_bar

from ..benchmark.splits import Split
from ..files import ResultsError, WriteError, make_folder
from ..parallel import in_any_order
from .environments import ENVIRONMENTS, Array, Environment, linear_predictions

#: The table of all cells in a results folder.
FILE = "cells.csv"
COVERAGE = 0.9


class Measured(NamedTuple):
    """A line of the table: one fit, evaluated with one number of support rows."""

    label: str
    environment: str
    seed: int
    rows: str  # number of support rows, or "all"
    error: float = np.nan
    reference: float = np.nan  # the same error of the reference that knows the parameters
    log_density: float = np.nan  # mean over tasks; of the normal distribution with the predicted mean and std
    coverage: float = np.nan  # share of query rows in the 90 % intervals, mean over tasks
    mean_ratio: float = np.nan  # of counts: mean prediction relative to that of the reference
    seconds: float = np.nan  # CPU time of the fit
    structure: str = ""
    warnings: str = ""
    failure: str = ""


def run_cell(label: str, name: str, seed: int, data: str | None) -> list[Measured]:
    """Fit the learner with its defaults to one seed and evaluate it; an exception is recorded, not raised."""
    environment = ENVIRONMENTS[name]
    # Tables that cannot be read end the run: a row for each seed would not help.
    sample = environment.load(seed, data)
    is_binary = environment.measure == "log loss"
    make: Any = EmpiricalBayesClassifier if is_binary else EmpiricalBayesLearner
    shared: dict[str, Any] = {}
    lines: list[Measured] = []
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        try:
            learner, start = make(**environment.options), time.process_time()
            try:
                learner.fit(sample.train)
            finally:
                shared["seconds"] = time.process_time() - start
            shared["structure"] = describe(learner)
        except Exception as error:
            shared["failure"] = _one_line(f"{type(error).__name__}: {error}")
        for n_rows in environment.rows:
            line = Measured(label, name, seed, "all" if n_rows is None else str(n_rows), **shared)
            try:
                if not line.failure:
                    line = line._replace(**_evaluate(learner, environment, sample, n_rows, seed))
            except Exception as error:
                line = line._replace(failure=_one_line(f"{type(error).__name__}: {error}"))
            lines.append(line)
    texts = dict.fromkeys(_one_line(str(warning.message)) for warning in caught)
    return [line._replace(warnings=" | ".join(texts)) for line in lines]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def describe(learner: Any) -> str:
    """Return what was selected: structure, mixture, side information, shift and shared effects, on one line."""
    learner = getattr(learner, "learners_", [learner])[0]
    structure = dict(learner.structure_)
    if structure.get("n_components") == 1:
        del structure["n_components"]
    name = [str(structure.pop(key)) for key in ("kind", "structure") if key in structure]
    parts = [" ".join(name), *(f"{key} {value}" for key, value in structure.items())]
    side = getattr(learner, "side_structure_", None)
    if side is not None:
        parts.append("side " + " ".join(f"{key} {value}" for key, value in side.items()))
    if getattr(learner, "bias_penalty_", None) is not None:
        parts.append("shift")
    effects = getattr(getattr(learner.prior_, "shared", None), "effects", ())
    parts += sorted(
        f"{type(effect).__name__} {effect.columns}" for effect in effects if hasattr(effect, "columns")
    )
    return "; ".join(parts)


def _evaluate(
    learner: Any, environment: Environment, sample: Split, n_rows: int | None, seed: int
) -> dict[str, Any]:
    """Return error, reference, log density and coverage with this number of support rows."""
    support, query = sample.given(n_rows, seed), sample.query
    found: dict[str, Any] = {}
    known = _reference(sample, support)
    if environment.measure == "log loss":
        predicted = np.asarray(learner.predict_tasks(query, support)["probability"])
    else:
        table = learner.predict_tasks(query, support, coverage=COVERAGE)
        predicted, std = np.asarray(table["prediction"]), np.asarray(table["std"])
        inside = (table["lower"] <= query.y) & (query.y <= table["upper"])
        if np.isfinite(table["lower"]).all():
            found["coverage"] = _mean(np.asarray(inside, dtype=float), query)
    if environment.measure == "weights":
        assert sample.weights is not None
        found["error"] = _distance(learner.adapt_many(support).coef_, sample.weights)
        if sample.oracle is not None:
            found["reference"] = _distance(sample.oracle.adapt_many(support), sample.weights)
    else:
        values = getattr(sample, "values", None)
        targets = query.y if values is None else values
        found["error"] = _mean(_losses(environment.measure, predicted, targets), query)
        if known is not None:
            found["reference"] = _mean(_losses(environment.measure, known, targets), query)
    if environment.measure == "log loss":
        found["log_density"] = -found["error"]
    elif environment.measure == "deviance":
        if known is not None:
            found["mean_ratio"] = float(predicted.mean() / known.mean())
    else:
        density = -0.5 * ((query.y - predicted) / std) ** 2 - np.log(std) - 0.5 * np.log(2.0 * np.pi)
        found["log_density"] = _mean(density, query)
    return found


def _reference(sample: Split, support: TaskSet) -> Array | None:
    """Return the predictions of the reference for the query rows; None if there is none."""
    reference = getattr(sample, "reference", None)
    if reference is not None:
        return np.asarray(reference(support, sample.query))
    if sample.oracle is None:
        return None
    return linear_predictions(sample.query, sample.oracle.adapt_many(support))


def _losses(measure: str, predicted: Array, targets: Array) -> Array:
    if measure == "squared":
        return np.square(predicted - targets)
    if measure == "deviance":
        mean = np.maximum(predicted, 1e-6)
        return np.asarray(xlogy(targets, targets / mean) - targets + mean)
    p = np.clip(predicted, 1e-6, 1.0 - 1e-6)
    return -np.where(targets == 1.0, np.log(p), np.log1p(-p))


def _distance(found: Any, weights: Array) -> float:
    return float(np.linalg.norm(np.asarray(found) - weights, axis=1).mean())


def _mean(values: Array, query: TaskSet) -> float:
    """Return the mean over tasks of the mean over rows; every task has a query row."""
    return float((np.add.reduceat(values, query.offsets[:-1]) / query.sizes).mean())


# --- the table ------------------------------------------------------------------------------------------------------


def run_cells(
    label: str,
    seeds: dict[str, Sequence[int]],
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int = 1,
    progress: bool = False,
) -> None:
    """Run the cells that are not in the table yet, environment by environment, and append each when it is finished."""
    make_folder(out)
    finished = set()
    if (out / FILE).exists():
        finished = set(read(out)[["label", "environment", "seed"]].itertuples(index=False, name=None))
    cells = [
        (label, name, seed, data)
        for name, some in seeds.items()
        for seed in some
        if (label, name, seed) not in finished
    ]
    with progress_bar("Environments", len(cells), enabled=progress) as tick:
        for lines in in_any_order(run_cell, cells, n_jobs):
            append(out / FILE, lines)
            if tick is not None:
                tick(1)


def append(path: Path, lines: Sequence[Measured]) -> None:
    """Append the lines of a cell in one write, so that several processes may share the table."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    try:
        try:
            with path.open("x") as file:
                file.write(",".join(Measured._fields) + "\n")
        except FileExistsError:
            pass
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, text.getvalue().encode())
        finally:
            os.close(descriptor)
    except OSError as error:
        raise WriteError(f"cannot write {path}: {error.strerror or error}") from error


def read(out: Path) -> pd.DataFrame:
    """Read the table of a results folder."""
    texts = dict.fromkeys(("label", "environment", "rows", "structure", "warnings", "failure"), str)
    try:
        table = pd.read_csv(out / FILE, dtype=texts)
    except (OSError, ValueError) as error:
        raise ResultsError(f"{out / FILE}: {error}") from error
    return table.fillna(dict.fromkeys(texts, "")).drop_duplicates(
        ["label", "environment", "seed", "rows"], keep="last"
    )


def summarise(table: pd.DataFrame, label: str) -> pd.DataFrame:
    """Return means over the seeds of one label, for each environment and number of support rows."""
    some = table[table["label"] == label].assign(
        above=lambda lines: lines["error"] / lines["reference"], failed=lambda lines: lines["failure"] != ""
    )
    groups = some.groupby(["environment", "rows"], sort=False)
    numbers = ["error", "above", "log_density", "coverage", "mean_ratio", "seconds"]
    found = groups[numbers].mean()
    found.insert(0, "seeds", groups.size())
    found["failed"] = groups["failed"].sum()
    found["structures"] = groups["structure"].agg(_tally)
    return found


def compare(table: pd.DataFrame, old: str, new: str) -> pd.DataFrame:
    """Return the paired comparison of two labels, for each environment and number of support rows.

    ``ratio`` is the geometric mean over seeds of the new error relative to the old one.  Its standard error and the
    p-value are those of a t-test of the logarithms.  Where the seeds split one table, they are corrected for the overlap
    of the training sets (Nadeau and Bengio, 2003).  Seeds on which one fit failed count in ``failed`` only.
    """
    keys = ["environment", "rows", "seed"]
    both = table[table["label"] == old].merge(
        table[table["label"] == new], on=keys, suffixes=("_old", "_new")
    )
    lines = []
    for (name, rows), pairs in both.groupby(["environment", "rows"], sort=False):
        fine = pairs[np.isfinite(pairs["error_old"]) & np.isfinite(pairs["error_new"])]
        logs = np.log(fine["error_new"] / fine["error_old"]).to_numpy()
        ratio, error, p = _paired(logs, ENVIRONMENTS[name].overlap if name in ENVIRONMENTS else 0.0)
        line = {"environment": name, "rows": rows, "seeds": len(fine)}
        line |= {"old": fine["error_old"].mean(), "new": fine["error_new"].mean()}
        line |= {"ratio": ratio, "ratio_error": error, "p": p}
        line["change"] = (fine["error_new"] - fine["error_old"]).mean()
        line["log_density"] = (fine["log_density_new"] - fine["log_density_old"]).mean()
        for kind in ("coverage", "mean_ratio"):
            line |= {f"{kind}_{which}": fine[f"{kind}_{which}"].mean() for which in ("old", "new")}
        # The median, because the first fit of a process may compile functions.
        line["cpu_ratio"] = (fine["seconds_new"] / fine["seconds_old"]).median()
        for which in ("old", "new"):
            line[f"failed_{which}"] = int((pairs[f"failure_{which}"] != "").sum())
            line[f"structures_{which}"] = _tally(pairs[f"structure_{which}"])
        lines.append(line)
    if not lines:
        raise ResultsError(f"no cell has both labels {old!r} and {new!r}")
    return pd.DataFrame(lines).set_index(["environment", "rows"])


def _paired(logs: Array, overlap: float) -> tuple[float, float, float]:
    """Return the geometric mean ratio, its standard error and the p-value."""
    n = len(logs)
    ratio = float(np.exp(logs.mean())) if n else np.nan
    if n < 2:
        return ratio, np.nan, np.nan
    error = float(np.sqrt((1.0 / n + overlap) * logs.var(ddof=1)))
    if error == 0.0:
        return ratio, 0.0, 1.0 if ratio == 1.0 else 0.0
    return ratio, ratio * error, float(2.0 * student.sf(abs(logs.mean()) / error, n - 1))


def _tally(structures: Any) -> str:
    """Return the structures with their numbers of seeds, the most frequent first."""
    return ", ".join(f"{n} x [{text}]" for text, n in Counter(structures).most_common())


def overall(found: pd.DataFrame) -> str:
    """Return the geometric mean of a comparison over environments, each with the mean of its numbers of support rows."""
    logs = np.log(found["ratio"]).groupby(level=0).mean().dropna()
    cpu = np.log(found["cpu_ratio"]).groupby(level=0).mean().dropna()
    return f"geometric mean over {len(logs)} environments: error {np.exp(logs.mean()):.4f}, CPU {np.exp(cpu.mean()):.3f}"
