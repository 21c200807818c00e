"""Either form of input, arrays or a task set, as a task set."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import validate_data

from .._utils.validation import name_some, numbers_of, outside, targets_in_objects
from ..exceptions import SingleTaskWarning
from ..losses import Loss
from ..sources.reservoir import Reservoir
from ..sources.scan import TaskScan
from ..tasks import TaskSet, Units
from ..tasks.encoding import columns_of_words
from ..tasks.pairs import label_list
from ..tasks.units import LARGEST

_READ_AGAIN = "Read the table as the one of fit was: TaskSet.from_frame(..., encoding=learner.encoding_)"


def read_tasks(
    learner: BaseEstimator,
    X: Any,
    y: Any = None,
    groups: Any = None,
    side_info: Any = None,
    *,
    loss: Loss,
    reset: bool,
) -> TaskSet:
    """The tasks, checked against the features seen in ``fit`` (``reset``: they are those of a new fit)."""
    if isinstance(X, TaskScan):
        raise TypeError(
            "X: a scan is for EmpiricalBayesLearner.fit; elsewhere give its rows as a TaskSet (TaskSet.from_frame)"
        )
    if isinstance(X, TaskSet):
        for name, value in (("y", y), ("groups", groups), ("side_info", side_info)):
            if value is not None:
                raise TypeError(f"{name}: a TaskSet brings its own {name}; pass X, y, groups or a TaskSet")
        tasks = X
        if len(tasks) == 0:
            raise ValueError("X: the task set is empty; give at least one task")
        check_names(learner, tasks, reset=reset)
    elif not reset and (read := encoded_rows(learner, X))[1] is not None:
        tasks = with_names(TaskSet(read[0], y, groups, side_info), read[1])
    else:
        if reset:
            refuse_words(X)
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
            )
        if reset and groups is None and len(X.shape) == 2 and X.shape[0] > 1:
            warnings.warn(
                f"groups: none were given, so all {X.shape[0]} rows are taken as one task; pass groups= with a label "
                "for each row (in cross-validation: sklearn.set_config(enable_metadata_routing=True) and "
                "params={'groups': ...})",
                SingleTaskWarning,
                stacklevel=outside(),
            )
        tasks = TaskSet(X, y, groups, side_info)
    _check_targets(tasks, loss)
    return tasks if reset else in_known_order(learner, tasks)


def encoded_rows(learner: Any, X: Any) -> tuple[Any, NDArray[Any] | None]:
    """Rows of a frame read as those of `fit` were, and their names; other rows as they are, without."""
    encoding = learner.encoding_
    rows = X if encoding is None else encoding.rows_of(X)
    return rows, None if rows is X else encoding.feature_names


def has_no_rows(X: Any, n_features: int, y: Any) -> bool:
    """Whether rows of a task are none, which is no mistake: a table that is filtered may leave nothing."""
    shape: tuple[int, ...] = np.shape(X) if isinstance(X, list | tuple) else getattr(X, "shape", (1,))
    if not shape or shape[0] != 0:
        return False
    if y is not None and np.size(y):
        raise ValueError(
            f"X: it has no rows, and y has {np.size(y)} targets; pass as many of both, or neither"
        )
    if len(shape) == 2 and type(X) is np.ndarray and shape[1] != n_features:
        raise ValueError(f"X: it has no rows of {shape[1]} columns, and in fit there were {n_features}")
    return True


def refuse_words(X: Any) -> None:
    """Say who encodes words, where scikit-learn would only say that they are no numbers."""
    words = columns_of_words(X)
    if words:
        raise ValueError(
            f"X: column {name_some(words)} holds words, dates or categories; TaskSet.from_frame encodes them, and fit takes "
            "the TaskSet (or encode them as numbers)"
        )


def with_names(tasks: TaskSet, names: NDArray[Any] | None) -> TaskSet:
    """The tasks with names of their columns."""
    if names is None:
        return tasks
    return TaskSet.from_arrays(
        tasks.X, tasks.y, tasks.offsets, tasks.labels, tasks.side_info, tasks.side_names, names
    )


def check_names(learner: Any, tasks: TaskSet, *, reset: bool = False) -> None:
    """What scikit-learn's validation does with arrays and frames."""
    names = tasks.feature_names
    if reset:
        learner.n_features_in_ = tasks.n_features
        if names is not None:
            learner.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(learner, "feature_names_in_"):
            del learner.feature_names_in_
        return
    known = getattr(learner, "feature_names_in_", None)
    read_as = (
        None
        if tasks.encoding is None or learner.encoding_ is None
        else learner.encoding_.differs(tasks.encoding)
    )
    hint = f". {_READ_AGAIN}" if tasks.encoding is not None and learner.encoding_ is not None else ""
    if read_as is not None:
        raise ValueError(f"X: {read_as} (here: in fit). {_READ_AGAIN}")
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


def refuse_description(learner: Any) -> None:
    """Side information for a learner that cannot read any is an error and not ignored."""
    if not learner.n_side_info_in_:
        raise ValueError(
            "side_info: this learner was fitted without side information and cannot read any; fit it with "
            "side_info, or leave it out here"
        )


def in_known_order(learner: Any, tasks: TaskSet) -> TaskSet:
    """The tasks with the columns of their descriptions as in `fit`, where both have names."""
    if tasks.encoding is None and learner.encoding_ is not None and tasks.side_info is not None:
        # descriptions as they are, which a learner of frames has read otherwise
        read = learner.encoding_.described((tasks.side_info, tasks.side_names))
        if read.values is not tasks.side_info:
            tasks = with_description(tasks, *read)
    known, names = learner.columns_in_["side_info"], tasks.side_names
    if known is None or names is None or names == known or tasks.side_info is None:
        return tasks
    lost = [name for name in known if name not in names]
    new = [name for name in names if name not in known]
    if lost or new:
        words = [f"no column {name_some(lost)}"] * bool(lost) + [
            f"the unknown column {name_some(new)}"
        ] * bool(new)
        raise ValueError(f"side_info: it has {' and '.join(words)}; in fit it had {name_some(known, 12)}")
    return with_description(tasks, tasks.side_info[:, [names.index(name) for name in known]], known)


def with_description(tasks: TaskSet, side: NDArray[Any] | None, names: list[str] | None) -> TaskSet:
    """The tasks with other side information."""
    return TaskSet.from_arrays(
        tasks.X, tasks.y, tasks.offsets, tasks.labels, side, names, tasks.feature_names, tasks.encoding
    )


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


def clean_task(X: Any, y: Any, side_info: Any, n_features: int, units: Units) -> TaskSet | None:
    """A task given in the ordinary form, checked by hand; None if it is another one.

    scikit-learn's validation costs more than the fit.
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
    if not (clean and units.hold(X, y)):
        return None
    # Views, because a TaskSet freezes its arrays and these are the user's.
    X, y = np.ascontiguousarray(X)[:], np.ascontiguousarray(y)[:]
    side = None if side_info is None else side_info[None].copy()
    return TaskSet.from_arrays(X, y, np.array([0, len(y)]), np.zeros(1, dtype=int), side)


def _is_vector(side_info: Any) -> bool:
    """Whether the side information of one task is a clean vector of numbers, which needs no reading."""
    return (
        type(side_info) is np.ndarray
        and side_info.ndim == 1
        and side_info.dtype == np.float64
        and side_info.size > 0
        # others are read, and refused, the long way
        and bool(np.vdot(side_info, side_info) <= LARGEST**2)
    )


def task_positions(known: NDArray[Any], groups: Any, n_rows: int) -> NDArray[np.intp]:
    """Positions of the rows' tasks among those with the labels ``known``; −1 for the others."""
    labels = label_list(groups)
    if len(labels) != n_rows:
        raise ValueError(f"groups: expected {n_rows} labels, one per row of X, got {len(labels)}")
    where = {label: t for t, label in enumerate(label_list(known))}
    return np.array([where.get(label, -1) for label in labels], dtype=np.intp)


def tasks_without_rows(
    X: Any, groups: Any, chosen: NDArray[np.bool_], side_info: Any
) -> tuple[TaskSet, NDArray[np.int64]]:
    """The tasks of the ``chosen`` rows as if none of their rows were known, and the task of each row X."""
    everything = label_list(groups)
    labels = [everything[i] for i in np.flatnonzero(chosen)]
    if isinstance(side_info, np.ndarray | list | tuple) and len(side_info) == len(everything):
        # A row for each row of X; frames and mappings are searched by label.
        table = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
        side_info = table[chosen]
    tasks = TaskSet(X, np.zeros(len(labels)), labels, side_info)
    empty = tasks.with_rows(np.zeros(len(labels), dtype=bool), np.zeros(len(tasks), dtype=np.int64))
    return empty, task_positions(tasks.labels, labels, len(labels)).astype(np.int64)


def unnamed(tasks: TaskSet, n_before: int) -> TaskSet:
    """A task that the user gave no label, under one that no task before it has."""
    label = np.array([f"unnamed task {n_before}"])
    return TaskSet.from_arrays(
        tasks.X, tasks.y, tasks.offsets, label, tasks.side_info, tasks.side_names, tasks.feature_names
    )


def warn_of_numbers(before: Reservoir, piece: TaskSet) -> None:
    """`TaskSet.from_tasks` numbers tasks from zero: in a stream, these would be the same ones again and again."""
    n = len(piece)
    counted = n > 1 and piece.labels.dtype.kind == "i" and np.array_equal(piece.labels, np.arange(n))
    if counted and before.contains(piece).all() and np.array_equal(before.sample.labels[:n], piece.labels):
        warnings.warn(
            f"partial_fit: tasks 0 to {n - 1} came before, and their new rows were added to the earlier ones; if they are "
            "other tasks, name them (TaskSet.from_tasks(tasks, labels=...))",
            UserWarning,
            stacklevel=outside(),
        )


def refuse_others(learner: Any, others: dict[str, Any]) -> None:
    """Arguments of `fit` that a learner does not take; weights of rows are named with the learner that takes them."""
    for name in others:
        if name == "sample_weight":
            raise TypeError(
                f"sample_weight: {type(learner).__name__} takes every row once; EmpiricalBayesLearner.fit takes "
                "frequency weights"
            )
        raise TypeError(f"{type(learner).__name__}.fit() got an unexpected keyword argument {name!r}")


def with_frequencies(tasks: TaskSet, sample_weight: Any, groups: Any, *, from_rows: bool) -> TaskSet:
    """The tasks with every row as often as its weight says: those of the rows repeated, bit for bit.

    ``from_rows``: weights are in the order of the rows that the tasks were read from, whose labels are ``groups``; tasks
    come in the order in which the rows that are left name them.
    """
    values = np.array(sample_weight, dtype=float)
    if values.shape != tasks.y.shape:
        raise ValueError(
            f"sample_weight: expected {len(tasks.y)} weights, one per row, got shape {values.shape}"
        )
    bad = ~(np.isfinite(values) & (values >= 0) & (values == np.round(values)))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"sample_weight: row {row} has {values[row]:g}; weights are frequencies, and k >= 0 is a row k times. Other "
            "weights have no meaning in the model's likelihood: leave them out, or round them"
        )
    if not values.any():
        raise ValueError("sample_weight: all weights are zero; at least one row has to be left")
    order = np.arange(len(values))
    if from_rows:
        order = TaskSet(np.zeros((len(values), 1)), order, groups).y.astype(np.int64)
    counts = values.astype(np.int64)[order]
    rows = np.repeat(np.arange(len(counts)), counts)
    sizes = np.diff(np.concatenate([[0], np.cumsum(counts)])[tasks.offsets])
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    repeated = TaskSet.from_arrays(
        tasks.X[rows],
        tasks.y[rows],
        offsets,
        tasks.labels,
        tasks.side_info,
        tasks.side_names,
        tasks.feature_names,
        tasks.encoding,
    )
    if not from_rows:
        return repeated
    filled = np.flatnonzero(sizes)
    return repeated[filled[np.argsort(order[rows][offsets[filled]], kind="stable")]]


def weights_as_targets(tasks: TaskSet, sample_weight: Any, groups: Any) -> TaskSet:
    """The tasks with the weight of each row as its target; in the order of the rows' ``groups`` if there are any."""
    values = np.array(sample_weight, dtype=float)
    if values.shape != tasks.y.shape:
        raise ValueError(f"sample_weight: expected {len(tasks.y)} weights, got shape {values.shape}")
    if groups is not None:
        return TaskSet(np.zeros((len(values), 1)), values, groups)
    return TaskSet.from_arrays(tasks.X, values, tasks.offsets, tasks.labels)
