"""The joint distribution of query rows under a fitted learner, and tables of their totals."""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import narwhals.stable.v1 as nw
import numpy as np

from .._utils.frames import RowsLike, ValuesLike, as_records, read_frame, require_columns
from .._utils.threads import single_threaded_blas
from .._utils.validation import name_some, native
from ..priors.draws import JointRows, adding
from ..priors.mixture import MixturePrior
from ..tasks.reading import check_row_values, group_rows, positions_of
from ..tasks.task_set import TaskSet
from .reading import Query, require_side_info

if TYPE_CHECKING:
    from .base import MetaLearner


def joint_rows(learner: MetaLearner, method: str, query: Query, *, calibrated: bool) -> JointRows:
    """Return the joint distribution of the query rows, given the support rows of their tasks;
    errors name the ``method``.
    """
    prior, tasks = learner.prior_, query.tasks
    known = getattr(learner, "task_labels_", tasks.labels[:0])
    if calibrated and prior.quantile is not None:
        raise ValueError(
            f"{method}: the model predicts the {prior.quantile:g} quantile of rows, and quantiles "
            "do not add up; fit with loss='squared'"
        )
    if not isinstance(prior, MixturePrior):
        raise ValueError(
            f"{method}: not supported for the {type(prior).__name__} of {type(learner).__name__}; "
            "use EmpiricalBayesLearner, with fewer columns if there are hundreds"
        )
    if not len(tasks.y):
        raise ValueError("query: it has no rows; pass at least one")
    adapted = query.support_of(tasks)
    missing = (positions_of(tasks.labels, known) >= 0) & (adapted.sizes == 0)
    if missing.any():
        raise ValueError(
            f"support: {method} needs the rows of training tasks, but there are none for "
            f"{name_some(native(tasks.labels[missing]))}. Pass the rows of fit, or relabel new "
            "tasks."
        )
    require_side_info(learner, adapted, "pass it, or tables that have it")
    summary = getattr(learner, "training_summary_", None)
    errors = [None] * prior.model.n_components
    if summary is not None:
        errors = summary.mean_by_component or [summary.mean] * prior.model.n_components
    with single_threaded_blas():
        return JointRows.of(prior, adapted, tasks, errors, calibrated=calibrated)


def _column_of(data: RowsLike, name: str, values: str | ValuesLike) -> Any:
    """Return ``values``, or the column of the query with this name; errors cite the argument
    ``name``.
    """
    if not isinstance(values, str):
        return values
    if not isinstance(data, TaskSet):
        frame = read_frame(data, "query")
        require_columns(frame, name, [values])
        return frame[values]
    if (name, values) != ("by", "task"):
        raise ValueError(
            f"{name}: a TaskSet has no column {values!r}; pass an array, or a frame as query"
        )
    return np.repeat(data.labels, data.sizes)


def table_of_totals(
    rows: JointRows,
    query: Query,
    by: str | ValuesLike,
    weights: str | ValuesLike,
    is_mean: bool,
    coverage: float,
    n_draws: int,
    rng: np.random.Generator,
) -> Any:
    """Return the totals or means of the query rows by group; see `MetaLearner.predict_totals`."""
    n, name = len(query.order), by if isinstance(by, str) else "by"
    names = ("prediction", "lower", "upper", "std")
    if name in names:
        raise ValueError(f"by: {name!r} is also the name of a column of the result; rename it")
    grouping = group_rows(_column_of(query.data, "by", by), n, "by")
    units = check_row_values("weights", _column_of(query.data, "weights", weights), n)
    units = np.ones(n) if units is None else units[query.order]
    group, G = np.asarray(grouping.codes, np.intp)[query.order], len(grouping.labels)
    add = adding(group, G, np.ones(n))
    scale = add @ units if is_mean else np.ones(G)
    if not scale.all():
        empty = name_some(native(grouping.labels[scale == 0]))
        where = "" if by is None else f" where {name} is {empty}"
        raise ValueError(
            f"weights: all are zero{where}, so there is no mean; pass positive weights"
        )
    prediction, tail = add @ (units * rows.mean), 0.5 - 0.5 * coverage
    if rows.is_gaussian:
        std = np.sqrt(rows.variances(group, G, units))
        half_width = NormalDist().inv_cdf(1.0 - tail) * std
        lower, upper = prediction - half_width, prediction + half_width
    else:
        draws = rows.draw(n_draws, rng, units, add)
        # With this method, the bounds of totals of counts are counts.
        lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0, method="inverted_cdf")
        std = draws.std(axis=0)
    table = {} if by is None else {name: grouping.labels}
    table |= dict(zip(names, np.array([prediction, lower, upper, std]) / scale, strict=True))
    if isinstance(query.data, TaskSet):
        return as_records(table)
    namespace = nw.get_native_namespace(read_frame(query.data, "query"))
    return nw.from_dict(table, native_namespace=namespace).to_native()
