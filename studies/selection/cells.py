"""Cells (environment, seed) of the comparison of versions: run them, keep them in one table,
compare two labels.
"""

from __future__ import annotations

import csv
import io
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import xlogy
from scipy.stats import norm
from scipy.stats import t as student
from threadpoolctl import threadpool_limits

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored._utils.progress import progress_bar

from ..benchmark.splits import Split
from ..files import ResultsError, WriteError, make_folder
from ..parallel import in_any_order
from .environments import ENVIRONMENTS, Array, linear_predictions

#: The table of all cells in a results folder.
FILE = "cells.csv"


class Measured(NamedTuple):
    """A line of the table: one fit, evaluated with one number of support rows."""

    label: str
    environment: str
    seed: int
    rows: str  # number of support rows, or "all"
    error: float = np.nan
    reference: float = np.nan  # the same error of the reference that knows the parameters
    log_density: float = (
        np.nan
    )  # mean over tasks; of the normal distribution with the predicted mean and std
    coverage: float = np.nan  # share of query rows in the 90 % intervals, mean over tasks
    mean_ratio: float = np.nan  # of counts: mean prediction relative to that of the reference
    seconds: float = np.nan  # CPU time of the fit
    structure: str = ""
    warnings: str = ""
    failure: str = ""


def run_cell(label: str, name: str, seed: int, data: str | None) -> list[Measured]:
    """Fit the learner with its defaults to one seed and evaluate it; an exception of the package is
    recorded, not raised.
    """
    environment = ENVIRONMENTS[name]
    sample = environment.load(seed, data)
    make: Any = (
        EmpiricalBayesClassifier if environment.measure == "log loss" else EmpiricalBayesLearner
    )
    sizes = ["all" if n_rows is None else str(n_rows) for n_rows in environment.rows]
    lines = {n_rows: Measured(label, name, seed, n_rows) for n_rows in sizes}
    common: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(1):
        warnings.simplefilter("always")
        learner, start = make(**environment.options), time.process_time()
        try:
            try:
                learner.fit(sample.train)
            finally:
                common["seconds"] = time.process_time() - start
            common["structure"] = describe(learner)
            for text, n_rows in zip(sizes, environment.rows, strict=True):
                support = sample.given(n_rows, seed)
                lines[text] = lines[text]._replace(
                    **_evaluate(learner, environment.measure, sample, support)
                )
        except Exception as error:
            common["failure"] = _one_line(f"{type(error).__name__}: {error}")
    common["warnings"] = " | ".join(
        dict.fromkeys(_one_line(str(warning.message)) for warning in caught)
    )
    return [line._replace(**common) for line in lines.values()]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def describe(learner: Any) -> str:
    """Return what was selected: structure, mixture, side information, δ, offset and shared effects,
    on one line.
    """
    learner = getattr(learner, "learners_", [learner])[0]
    structure = dict(learner.structure_)
    if structure.get("n_components") == 1:
        del structure["n_components"]
    name = [str(structure.pop(key)) for key in ("kind", "structure") if key in structure]
    parts = [" ".join(name), *(f"{key} {value}" for key, value in structure.items())]
    if (side := getattr(learner, "side_structure_", None)) is not None:
        parts.append("side " + " ".join(f"{key} {value}" for key, value in side.items()))
    if getattr(learner.prior_, "without_rows", None) is not None:
        parts.append("mean without rows")
    if getattr(learner.prior_, "offset", 0.0):
        parts.append("offset")
    effects = getattr(getattr(learner.prior_, "shared", None), "effects", ())
    parts += sorted(
        f"{type(effect).__name__} {getattr(effect, 'columns', '')}" for effect in effects
    )
    return "; ".join(parts)


def _evaluate(learner: Any, measure: str, sample: Split, support: TaskSet) -> dict[str, Any]:
    """Return error, reference, log density and coverage, given these support rows of the new
    tasks.
    """
    query, oracle = sample.query, sample.oracle
    table = learner.predict_tasks(query, support)
    predicted = np.asarray(table["probability" if measure == "log loss" else "prediction"])
    values = getattr(sample, "values", None)
    targets, known, found = query.y if values is None else values, None, {}
    if measure == "weights":
        found["error"] = _distance(learner.adapt_many(support).coef_, sample.weights)
        found["reference"] = (
            np.nan if oracle is None else _distance(oracle.adapt_many(support), sample.weights)
        )
    else:
        found["error"] = _mean(LOSSES[measure](predicted, targets), query)
        known = reference_predictions(sample, support)
        found["reference"] = (
            np.nan if known is None else _mean(LOSSES[measure](known, targets), query)
        )
    if measure == "log loss":
        found["log_density"] = -found["error"]
        return found
    if np.isfinite(table["lower"]).all():
        inside = (table["lower"] <= query.y) & (query.y <= table["upper"])
        found["coverage"] = _mean(inside.astype(float), query)
    if measure == "deviance":
        found["mean_ratio"] = np.nan if known is None else float(predicted.mean() / known.mean())
    else:
        found["log_density"] = _mean(norm.logpdf(query.y, predicted, table["std"]), query)
    return found


def reference_predictions(sample: Split, support: TaskSet) -> Array | None:
    """Return the predictions of the reference for the query rows; None if there is none."""
    if (reference := getattr(sample, "reference", None)) is not None:
        return np.asarray(reference(support, sample.query))
    return (
        None
        if sample.oracle is None
        else linear_predictions(sample.query, sample.oracle.adapt_many(support))
    )


def _deviances(predicted: Array, targets: Array) -> Array:
    mean = np.maximum(predicted, 1e-6)
    return np.asarray(xlogy(targets, targets / mean) - targets + mean)


def _log_losses(predicted: Array, targets: Array) -> Array:
    p = np.clip(predicted, 1e-6, 1.0 - 1e-6)
    return -np.where(targets == 1.0, np.log(p), np.log1p(-p))


#: Losses of the query rows, given predictions and targets.
LOSSES: dict[str, Callable[[Array, Array], Array]] = {
    "squared": lambda predicted, targets: np.square(predicted - targets),
    "deviance": _deviances,
    "log loss": _log_losses,
}


def _distance(found: Any, weights: Any) -> float:
    return float(np.linalg.norm(np.asarray(found) - weights, axis=1).mean())


def _mean(values: Array, query: TaskSet) -> float:
    """Return the mean over tasks of the mean over rows; every task has a query row."""
    return float((np.add.reduceat(values, query.offsets[:-1]) / query.sizes).mean())


# --- the table
# -------------------------------------------------------------------------------------------------


def run_cells(
    label: str,
    seeds: Mapping[str, Sequence[int]],
    out: Path,
    *,
    data: str | None = None,
    n_jobs: int = 1,
    progress: bool = False,
) -> None:
    """Run the cells that are not in the table yet, environment by environment, and append each when
    it is finished.
    """
    make_folder(out)
    finished = set()
    if (out / FILE).exists():
        finished = set(
            read(out)[["label", "environment", "seed"]].itertuples(index=False, name=None)
        )
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
        with suppress(FileExistsError), path.open("x") as file:
            file.write(",".join(Measured._fields) + "\n")
        # Without a buffer, so that the lines are not divided.
        with path.open("ab", buffering=0) as file:
            file.write(text.getvalue().encode())
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
        above=lambda lines: lines["error"] / lines["reference"],
        failed=lambda lines: lines["failure"] != "",
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

    ``ratio`` is the geometric mean over seeds of the new error relative to the old one.  Its
    standard error and the p-value are those of a t-test of the logarithms.  Where the seeds split
    one table, they are corrected for the overlap of the training sets (Nadeau and Bengio, 2003).
    Seeds on which one fit failed count in ``failed`` only.
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


def to_text(found: pd.DataFrame) -> str:
    """Return the numbers of a summary or of a comparison as a table, and below it the structures,
    unless they are equal.
    """
    texts = [name for name in found if name.startswith("structures")]
    lines = [
        found.drop(columns=texts).to_string(float_format=lambda value: f"{value:.4g}", na_rep=""),
        "",
    ]
    for name, some in found[texts].groupby(level=0, sort=False):
        first = some.iloc[0]
        if len(texts) == 1 or first.nunique() > 1:
            lines += [f"{name}, {text}: {first[text]}" for text in texts]
    if "ratio" in found:
        # Each environment counts once, with the mean of its numbers of support rows.
        means = np.exp(np.log(found[["ratio", "cpu_ratio"]]).groupby(level=0).mean().mean())
        over = f"geometric means over {found.index.get_level_values(0).nunique()} environments"
        lines += ["", f"{over}: error {means['ratio']:.4f}, CPU {means['cpu_ratio']:.3f}"]
    return "\n".join(lines)
