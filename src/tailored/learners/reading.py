"""Read the arguments of learners, arrays or frames or a task set, as task sets."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.frames import other_columns, read_frame, require_columns
from .._utils.validation import name_some, numbers_of, outside, refuse_masked, targets_in_objects
from ..exceptions import SingleTaskWarning
from ..losses import Loss
from ..priors.base import Predicted
from ..sources.cuda.tensors import TensorTasks, check_device
from ..sources.reservoir import Reservoir
from ..sources.scan import TaskScan
from ..tasks.encoding import Encoding, as_columns, columns_to_encode
from ..tasks.reading import LongTable, positions_of, prediction_frame, read_labels
from ..tasks.rows import LIMIT, Scaling
from ..tasks.task_set import TaskSet, no_tasks, offsets_of

_READ_AGAIN = "Read the table like that of fit: TaskSet.from_frame(..., encoding=learner.encoding_)"


def read_tasks(
    learner: Any,
    X: Any,
    y: Any = None,
    groups: Any = None,
    side_info: Any = None,
    *,
    loss: Loss,
    reset: bool,
    min_features: int = 1,
) -> TaskSet:
    """Return the tasks, checked against the features of ``fit``; ``reset`` starts a new fit."""
    if isinstance(X, TaskScan):
        raise TypeError(
            "X: only EmpiricalBayesLearner.fit takes a scan. Read its rows with TaskSet.from_frame."
        )
    if isinstance(X, TaskSet):
        for name, value in (("y", y), ("groups", groups), ("side_info", side_info)):
            if value is not None:
                raise TypeError(f"{name}: a TaskSet has its own {name}; pass arrays or a TaskSet")
        tasks = X
        if len(tasks) == 0:
            raise ValueError("X: the task set is empty; pass at least one task")
        check_names(learner, tasks, reset=reset)
    elif not reset and (read := encoded_rows(learner, X))[1] is not None:
        tasks = TaskSet(read[0], y, groups, side_info).replace(feature_names=read[1])
    else:
        if reset:
            require_numbers(X)
        refuse_masked("X", X)
        refuse_masked("y", y)
        with numbers_of("X or y"):
            X, y = validate_data(
                learner,
                X,
                targets_in_objects(y),
                reset=reset,
                accept_sparse="csr",
                dtype=np.float64,
                y_numeric=True,
                ensure_all_finite=False,
                ensure_min_features=min_features,
            )
        if reset and groups is None and len(X.shape) == 2 and X.shape[0] > 1:
            warnings.warn(
                f"groups is None, so all {X.shape[0]} rows are one task; pass groups= with a label for each row (in "
                "cross-validation: sklearn.set_config(enable_metadata_routing=True) and "
                "params={'groups': ...})",
                SingleTaskWarning,
                stacklevel=outside(),
            )
        tasks = TaskSet(X, y, groups, side_info)
    if reset and tasks.n_features < max(min_features, 1 - learner.fit_intercept):
        raise ValueError(
            f"X has {tasks.n_features} feature(s) (shape={tasks.X.shape}) while a minimum of 1 is required. Tasks without "
            "features need EmpiricalBayesLearner with fit_intercept=True."
        )
    _check_targets(tasks, loss)
    return tasks if reset else align_side_info(learner, tasks)


def encoded_rows(learner: Any, X: Any) -> tuple[Any, NDArray[Any] | None]:
    """Return the encoded rows of a frame and their names; other rows are returned unchanged, without names."""
    encoding = learner.encoding_
    rows = X if encoding is None else encoding.encode_rows(X)
    return rows, None if rows is X else encoding.feature_names


def has_no_rows(X: Any, n_features: int, y: Any) -> bool:
    """Return whether a task has no rows, as a filtered table may have."""
    shape: tuple[int, ...] = np.shape(X) if isinstance(X, list | tuple) else getattr(X, "shape", (1,))
    if not shape or shape[0] != 0:
        return False
    if y is not None and np.size(y):
        raise ValueError(f"X has no rows, but y has {np.size(y)} targets. Pass the same number of both.")
    if len(shape) == 2 and type(X) is np.ndarray and shape[1] != n_features:
        raise ValueError(f"X has {shape[1]} columns (and no rows), but there were {n_features} in fit.")
    return True


def require_numbers(X: Any) -> None:
    """Raise ValueError if columns of a frame hold categories or dates; scikit-learn's message has no advice."""
    columns = columns_to_encode(X)
    if columns:
        raise ValueError(
            f"X: column {name_some(columns)} holds strings, categories or dates. TaskSet.from_frame encodes them, and fit "
            "takes the TaskSet; or encode them as numbers."
        )


def check_names(learner: Any, tasks: TaskSet, *, reset: bool = False) -> None:
    """Store or check the features of a task set, as scikit-learn does for arrays and frames."""
    names = tasks.feature_names
    if reset:
        learner.n_features_in_ = tasks.n_features
        if names is not None and len(names):
            learner.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(learner, "feature_names_in_"):
            del learner.feature_names_in_
        return
    known = getattr(learner, "feature_names_in_", None)
    hint = ""
    if tasks.encoding is not None and learner.encoding_ is not None:
        hint = f". {_READ_AGAIN}"
        difference = learner.encoding_.difference(tasks.encoding)
        if difference is not None:
            raise ValueError(f"X: {difference}{hint}")
    if tasks.n_features != learner.n_features_in_:
        raise ValueError(
            f"X has {tasks.n_features} features, but {type(learner).__name__} is expecting "
            f"{learner.n_features_in_} features as input{hint}"
        )
    if names is not None and known is not None and list(names) != list(known):
        raise ValueError(
            "The feature names should match those that were passed during fit: expected "
            f"{list(known)}, got {list(names)}{hint}"
        )


def refuse_side_info(learner: Any) -> None:
    """Raise ValueError if a learner that was fitted without side information gets some."""
    if not learner.n_side_info_in_:
        raise ValueError(
            "side_info: this learner was fitted without side information; fit it with side_info, or leave it out here"
        )


def align_side_info(learner: Any, tasks: TaskSet) -> TaskSet:
    """Return the tasks with side information encoded and ordered as in `fit`."""
    if tasks.encoding is None and learner.encoding_ is not None and tasks.side_info is not None:
        encoded = learner.encoding_.encode_side_info(tasks.side_info, tasks.side_names)
        if encoded.values is not tasks.side_info:
            tasks = tasks.replace(side_info=encoded.values, side_names=encoded.names)
    known, names = learner.columns_in_["side_info"], tasks.side_names
    if known is None or names is None or names == known or tasks.side_info is None:
        return tasks
    missing = [name for name in known if name not in names]
    unknown = [name for name in names if name not in known]
    if missing or unknown:
        parts = [f"no column {name_some(missing)}"] * bool(missing)
        parts += [f"the unknown column {name_some(unknown)}"] * bool(unknown)
        raise ValueError(f"side_info: it has {' and '.join(parts)}; in fit it had {name_some(known, 12)}")
    order = [names.index(name) for name in known]
    return tasks.replace(side_info=tasks.side_info[:, order], side_names=known)


def _check_targets(tasks: TaskSet, loss: Loss) -> None:
    try:
        loss.check_targets(tasks.y)
    except ValueError as error:
        for task in tasks:
            try:
                loss.check_targets(task.y)
            except ValueError:
                raise ValueError(f"{error} (first in task {task.label!r})") from None
        raise


def clean_task(X: Any, y: Any, side_info: Any, n_features: int, units: Scaling) -> TaskSet | None:
    """Return one task from valid float64 arrays; None for any other input, which is then read and checked.

    scikit-learn's validation costs more than adapting to the task.
    """
    clean = (
        type(X) is np.ndarray
        and type(y) is np.ndarray
        and X.dtype == y.dtype == np.float64
        and X.ndim == 2
        and X.shape == (len(y), n_features)
        and y.ndim == 1
        and len(y) > 0
        and (side_info is None or _is_vector(side_info))
    )
    if not (clean and units.holds(X, y)):
        return None
    # Views: a TaskSet makes its arrays read-only, and these belong to the user.
    X, y = np.ascontiguousarray(X)[:], np.ascontiguousarray(y)[:]
    side = None if side_info is None else side_info[None].copy()
    return TaskSet.from_arrays(X, y, np.array([0, len(y)]), np.zeros(1, dtype=int), side)


def _is_vector(side_info: Any) -> bool:
    """Return whether the side information of one task is a valid vector of numbers."""
    return (
        type(side_info) is np.ndarray
        and side_info.ndim == 1
        and side_info.dtype == np.float64
        and side_info.size > 0
        and bool(np.vdot(side_info, side_info) <= LIMIT**2)
    )


def task_positions(known: NDArray[Any], groups: Any, n_rows: int) -> NDArray[np.int64]:
    """Return the position of each row's task among those with the labels `known`; −1 for other tasks."""
    labels = read_labels(groups, "groups")
    if len(labels) != n_rows:
        raise ValueError(f"groups: expected {n_rows} labels, one per row of X, got {len(labels)}")
    return positions_of(labels, known)


def tasks_without_rows(
    X: Any, groups: Any, chosen: NDArray[np.bool_], side_info: Any
) -> tuple[TaskSet, NDArray[np.int64]]:
    """Return the tasks of the chosen rows without rows, and the position of each chosen row's task."""
    labels = read_labels(groups, "groups")
    if isinstance(side_info, np.ndarray | list | tuple) and len(side_info) == len(labels):
        # An array has a row for each row of X; frames and mappings are searched by label.
        table = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
        side_info = table[chosen]
    tasks = TaskSet(X, np.zeros(X.shape[0]), labels[chosen], side_info)
    return tasks.without_rows(), positions_of(labels[chosen], tasks.labels)


def label_unnamed(tasks: TaskSet, n_before: int) -> TaskSet:
    """Return a task that the user did not name under a label that no earlier task has."""
    return tasks.replace(labels=np.array([f"unnamed task {n_before}"]), encoding=None)


def warn_repeated_numbers(before: Reservoir, batch: TaskSet) -> None:
    """Warn if a stream brings tasks numbered from zero again: `TaskSet.from_tasks` numbers them so."""
    n = len(batch)
    counted = n > 1 and batch.labels.dtype.kind == "i" and np.array_equal(batch.labels, np.arange(n))
    if counted and before.contains(batch).all() and np.array_equal(before.sample.labels[:n], batch.labels):
        warnings.warn(
            f"partial_fit: tasks 0 to {n - 1} occurred before, and their new rows were added to the earlier ones. If they are "
            "other tasks, label them: TaskSet.from_tasks(tasks, labels=...)",
            UserWarning,
            stacklevel=outside(),
        )


def refuse_arguments(learner: Any, others: dict[str, Any]) -> None:
    """Raise TypeError for arguments of `fit` that a learner does not take."""
    for name in others:
        if name == "sample_weight":
            raise TypeError(
                f"sample_weight: {type(learner).__name__} does not take weights; EmpiricalBayesLearner.fit takes "
                "frequency weights"
            )
        raise TypeError(f"{type(learner).__name__}.fit() got an unexpected keyword argument {name!r}")


def repeat_rows(tasks: TaskSet, sample_weight: Any, groups: Any, *, from_rows: bool) -> TaskSet:
    """Repeat every row as often as its frequency weight says; a weight of zero drops the row.

    ``from_rows``: weights are in the order of the rows that the tasks were read from, whose labels are `groups`. Tasks
    are then in the order in which the remaining rows name them.
    """
    values = _check_weights(tasks, sample_weight)
    bad = ~(np.isfinite(values) & (values >= 0) & (values == np.round(values)))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight: row {row} has {values[row]:g}, but weights are frequencies: integers >= 0. Round them, or "
            "leave them out."
        )
    if not values.any():
        raise ValueError("sample_weight: all weights are zero; at least one must be positive")
    order = np.arange(len(values))
    if from_rows:
        order = TaskSet(np.zeros((len(values), 1)), order, groups).y.astype(np.int64)
    counts = values.astype(np.int64)[order]
    rows = np.repeat(np.arange(len(counts)), counts)
    sizes = np.diff(np.concatenate([[0], np.cumsum(counts)])[tasks.offsets])
    offsets = offsets_of(sizes)
    repeated = tasks.replace(X=tasks.X[rows], y=tasks.y[rows], offsets=offsets)
    if not from_rows:
        return repeated
    filled = np.flatnonzero(sizes)
    return repeated[filled[np.argsort(order[rows][offsets[filled]], kind="stable")]]


def weights_as_targets(tasks: TaskSet, sample_weight: Any, groups: Any) -> TaskSet:
    """Return the tasks with the weight of each row as its target; weights may be in the order of `groups`."""
    values = _check_weights(tasks, sample_weight)
    if groups is not None:
        return TaskSet(np.zeros((len(values), 1)), values, groups)
    return tasks.replace(y=values)


def _check_weights(tasks: TaskSet, sample_weight: Any) -> NDArray[np.float64]:
    refuse_masked("sample_weight", sample_weight)
    values = np.array(sample_weight, dtype=float)
    if values.shape != tasks.y.shape:
        raise ValueError(
            f"sample_weight: expected {len(tasks.y)} weights, one per row, got shape {values.shape}"
        )
    return values


def read_one_task(learner: Any, X: Any, y: Any, side_info: Any) -> TaskSet:
    """Return a set of one task, which may have no rows."""
    if not hasattr(learner, "prior_"):  # scikit-learn's check alone costs as much as adapting
        check_is_fitted(learner, "prior_")
    if side_info is not None:
        refuse_side_info(learner)
    if isinstance(X, TaskSet):
        task = read_tasks(learner, X, y, None, side_info, loss=learner.loss_, reset=False)
        learner.prior_.scaling.check(task.X, task.y, getattr(learner, "feature_names_in_", None))
        return task
    scaling, names = learner.prior_.scaling, getattr(learner, "feature_names_in_", None)
    if X is None or has_no_rows(X, learner.n_features_in_, y):
        if X is None and y is not None:
            raise ValueError("y: got targets without rows; pass X as well")
        # Side information is read with one row, which is dropped.
        task = TaskSet(np.zeros((1, learner.n_features_in_)), [0.0], None, side_info).without_rows()
        return align_side_info(learner, task)
    task_or_none = clean_task(X, y, side_info, learner.n_features_in_, scaling)
    if task_or_none is None:
        # Unlike scikit-learn's validation, this does not warn of arrays without names.
        X, row_names = encoded_rows(learner, X)
        task = TaskSet(X, y, None, side_info)
        task = task if row_names is None else task.replace(feature_names=row_names)
        check_names(learner, task)
        task = align_side_info(learner, task)
        scaling.check(task.X, task.y, names)
    else:
        task = task_or_none
    learner.loss_.check_targets(task.y)
    return task


def read_tensors(
    learner: Any, X: Any, y: Any, groups: Any, side_info: Any, *, reset: bool = False
) -> TensorTasks:
    """Check tensors of rows; unless ``reset``, they must have the columns of `fit`."""
    if getattr(learner, "device", None) is None:
        raise ValueError(
            f"X: got a tensor, but {type(learner).__name__} computes on the CPU. Pass an array, or use "
            "EmpiricalBayesLearner(device='cuda')."
        )
    if y is None or groups is None:
        raise ValueError("y, groups: missing; a tensor X needs both as tensors")
    tasks = TensorTasks.from_tensors(X, y, groups, side_info, check_device(learner.device))
    if reset:
        return tasks
    if tasks.n_features != learner.n_features_in_:
        raise ValueError(f"X: expected {learner.n_features_in_} columns as in fit, got {tasks.n_features}")
    if bool(learner.n_side_info_in_) != (side_info is not None):
        expected = "pass it" if learner.n_side_info_in_ else "leave it out"
        raise ValueError(f"side_info: must be given if and only if it was given to fit; {expected}")
    return tasks


# --- predict_tasks: frames in, a frame out


class ColumnNames(NamedTuple):
    """The columns of a learner's frames; None where it was fitted without names."""

    task: str | tuple[str, ...] | None
    target: str | None
    features: list[str] | None
    side: list[str] | None
    n_features: int
    n_side: int
    encoding: Encoding | None

    @classmethod
    def of(cls, learner: Any, task: Any, target: str | None) -> ColumnNames:
        """Return the names of `fit`; the arguments `task` and `target` replace them."""
        columns = learner.columns_in_
        features = getattr(learner, "feature_names_in_", None)
        return cls(
            columns["task"] if task is None else task if isinstance(task, str) else tuple(task),
            columns["target"] if target is None else target,
            None if features is None else list(features),
            columns["side_info"],
            learner.n_features_in_,
            learner.n_side_info_in_,
            learner.encoding_,
        )

    @property
    def task_columns(self) -> tuple[str, ...]:
        return () if self.task is None else as_columns(self.task)

    @property
    def feature_columns(self) -> list[str]:
        """Feature columns of a frame, as far as they are known."""
        if self.encoding is not None:
            return [column.name for column in self.encoding.features]
        return self.features or []


class FrameRows(NamedTuple):
    """The rows of a frame as tasks; row i of the tasks is row ``order[i]`` of the frame."""

    tasks: TaskSet
    order: NDArray[np.intp]


def read_query(query: Any, names: ColumnNames, side_info: Any) -> FrameRows:
    """Return the tasks of the rows to predict, with side information from `side_info` or from the query."""
    if isinstance(query, TaskSet):
        if side_info is not None:
            raise TypeError("side_info: a TaskSet has its own side_info; leave it out, or pass a frame")
        return FrameRows(query, np.arange(len(query.y)))
    return _read_frame(query, "query", names, None, side_info)


def read_support(support: Any, names: ColumnNames) -> TaskSet | None:
    """Return the tasks of the rows with targets."""
    if support is None or isinstance(support, TaskSet):
        return support
    if names.target is None:
        raise ValueError("target: the learner was not fitted on a frame; name the target column of support")
    tasks = _read_frame(support, "support", names, names.target, None).tasks
    return tasks if len(tasks) else None


def _read_frame(data: Any, name: str, names: ColumnNames, target: str | None, side_info: Any) -> FrameRows:
    if names.task is None:
        raise ValueError(f"task: the learner was not fitted on a frame; name the label column of {name}")
    frame = read_frame(data, name)
    side = None
    if names.side is not None and side_info is None and set(names.side) <= set(frame.columns):
        side = names.side
    features = None if names.encoding is not None else names.features
    if names.encoding is None and features is None:
        features = other_columns(frame.columns, (*names.task_columns, names.target, *(side or ())))
        if len(features) != names.n_features:
            raise ValueError(
                f"{name}: expected {names.n_features} feature columns as in fit, got {len(features)}: "
                f"{name_some(features, 12)}"
            )
    required = [
        *names.task_columns,
        *([] if target is None else [target]),
        *names.feature_columns,
        *(side or ()),
    ]
    require_columns(frame, name, required)
    if not len(frame):
        return FrameRows(no_tasks(names.n_features), np.zeros(0, dtype=np.intp))
    rows = LongTable(data, names.task, target, features, side_info, side, names.encoding).read()
    return FrameRows(TaskSet.from_grouped(*rows), np.argsort(rows.grouping.codes, kind="stable"))


def require_side_info(tasks: TaskSet, names: ColumnNames) -> TaskSet:
    """Return the tasks; raise ValueError if they lack the side information that the learner was fitted with."""
    if names.n_side and tasks.side_info is None:
        columns = f" with the columns {name_some(names.side, 12)}" if names.side else ""
        raise ValueError(
            f"side_info: the learner was fitted with side information{columns}; pass side_info=, or frames or task "
            "sets that have it"
        )
    return tasks


def prediction_table(predicted: Predicted, query: Any, rows: FrameRows, names: ColumnNames) -> Any:
    """Return predictions next to the task labels: a frame like the query, or a structured array."""
    columns = predicted._asdict()
    if not isinstance(query, TaskSet):
        return prediction_frame(columns, query, rows.order, names.task_columns)
    table = np.empty(
        len(query.y), dtype=[("task", query.labels.dtype), *((column, np.float64) for column in columns)]
    )
    table["task"] = np.repeat(query.labels, query.sizes)
    for column, values in columns.items():
        table[column] = values
    return table
