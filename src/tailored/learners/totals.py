"""The joint distribution of query rows under a fitted learner, and the table of their totals."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
from numpy.typing import NDArray

from .._utils.frames import as_records, numeric_column, read_frame, require_columns
from .._utils.threads import single_threaded_blas
from .._utils.validation import check_choice, check_rng, name_some, native
from ..gaussian.serial import SerialGaussian
from ..priors.draws import JointRows
from ..priors.factors import FactorPrior
from ..priors.mixture import MixturePrior
from ..tasks.reading import check_row_values, group_rows, positions_of
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .reading import Learner, require_side_info

#: Columns of a table of totals after the label.
COLUMNS = ("prediction", "lower", "upper", "std")


def joint_rows(learner: Learner, method: str, tasks: TaskSet, support: TaskSet | None) -> JointRows:
    """Return the joint distribution of the rows of ``tasks``; that of totals is calibrated."""
    prior = learner.prior_
    if isinstance(prior, FactorPrior):
        advice = "predict_tasks has intervals for rows; fit fewer columns for joint draws and totals"
        raise ValueError(f"{method}: not supported for the low-rank prior of many columns; {advice}")
    if isinstance(prior.response, SerialGaussian):
        raise ValueError(f"{method}: not supported for noise that is correlated in time; fit without time=")
    if not isinstance(prior, MixturePrior):
        found = f"{type(learner).__name__} has no model of the noise"
        raise ValueError(f"{method}: {found}; use EmpiricalBayesLearner")
    if method == "predict_totals" and prior.quantile is not None:
        found = f"the model predicts the {prior.quantile:g} quantile of rows, and quantiles do not add up"
        raise ValueError(f"{method}: {found}; fit with loss='squared'")
    adapted = tasks.without_rows() if support is None else support.support_of(tasks)
    known = (
        positions_of(tasks.labels, getattr(learner, "task_labels_", tasks.labels[:0]), same_kind=True) >= 0
    )
    if (missing := known & (adapted.sizes == 0)).any():
        found = f"training task {name_some(native(tasks.labels[missing]))} of query has no rows here"
        raise ValueError(
            f"support: {found}, which {method} needs; pass the rows of fit, or relabel new tasks"
        )
    require_side_info(learner, adapted, "pass it, or tables that have it")
    summary = getattr(learner, "training_summary_", None)
    errors, calibrated = None if summary is None else summary.mean, method == "predict_totals"
    with single_threaded_blas():
        return JointRows.of(prior, adapted, tasks, errors, calibrated=calibrated, n_jobs=learner.n_jobs)


def generator(random_state: Any) -> np.random.Generator:
    """Return a NumPy Generator, which draws normal numbers faster than a RandomState."""
    rng = check_rng(random_state)
    if isinstance(rng, np.random.RandomState):
        return np.random.default_rng(rng.randint(2**32, dtype=np.uint64))
    return rng


def read_by(query: Any, by: Any, n_rows: int) -> tuple[str, NDArray[np.intp], NDArray[Any]]:
    """Return the name of the groups of query rows, the group of each row, and the labels of the groups."""
    if by is None:
        return "", np.zeros(n_rows, np.intp), np.zeros(1)
    name, values = (by, None) if isinstance(by, str) else (getattr(by, "name", None) or "by", by)
    if values is None and isinstance(query, TaskSet):
        check_choice("by", by, ["task"])
        values = np.repeat(query.labels, query.sizes)
    elif values is None:
        frame = read_frame(query, "query")
        require_columns(frame, "by", [by])
        values = frame[by]
    if name in COLUMNS:
        raise ValueError(f"by: {name!r} is also the name of a column of the result; rename it")
    grouping = group_rows(values, n_rows, "by")
    return name, grouping.codes.astype(np.intp), grouping.labels


def read_weights(query: Any, weights: Any, n_rows: int) -> Array:
    """Return the number of units that each query row stands for."""
    if weights is None:
        return np.ones(n_rows)
    if isinstance(weights, str):
        if isinstance(query, TaskSet):
            raise ValueError(f"weights: a TaskSet has no column {weights!r}; pass an array")
        frame = read_frame(query, "query")
        require_columns(frame, "weights", [weights])
        weights = numeric_column(frame[weights], f"weights: column {weights!r}")
    units = check_row_values("weights", weights, n_rows)
    assert units is not None
    return units


def table_of(query: Any, name: str, labels: NDArray[Any], columns: list[Array]) -> Any:
    """Return a row for each group: a frame like the query, or a structured array."""
    table = {name: labels} if name else {}
    table |= dict(zip(COLUMNS, columns, strict=True))
    if isinstance(query, TaskSet):
        return as_records(table)
    native = nw.get_native_namespace(read_frame(query, "query"))
    return nw.from_dict(table, native_namespace=native).to_native()


def table(
    rows: JointRows,
    order: NDArray[np.intp],
    query: Any,
    by: Any,
    weights: Any,
    is_mean: bool,
    coverage: float,
    n_draws: int,
    rng: np.random.Generator,
) -> Any:
    """Return the totals or means of query rows by group; the distribution has row ``order[i]`` of the query at i."""
    name, group, labels = read_by(query, by, len(order))
    group, units, G = group[order], read_weights(query, weights, len(order))[order], len(labels)
    total = np.bincount(group, units, G)
    if is_mean and not total.all():
        empty = name_some(native(labels[total == 0]))
        raise ValueError(
            f"weights: they are all zero where {name} is {empty}, so there is no mean; drop these rows"
        )
    prediction = np.bincount(group, units * rows.mean, G)
    if rows.is_gaussian:
        std = np.sqrt(rows.variances(group, G, units))
        half_width = NormalDist().inv_cdf(0.5 + 0.5 * coverage) * std
        lower, upper = prediction - half_width, prediction + half_width
    else:
        draws = rows.totals(group, G, units, n_draws, rng)
        std = draws.std(axis=0)
        lower, upper = np.quantile(draws, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage], axis=0)
    scale = total if is_mean else 1.0
    return table_of(query, name, labels, [part / scale for part in (prediction, lower, upper, std)])
