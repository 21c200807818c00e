"""Read the arguments of learners (arrays, frames or task sets) as task sets."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.frames import is_frame, numeric_column, other_columns, read_frame, require_columns
from .._utils.validation import name_some, native, numbers_of, outside, refuse_masked, targets_in_objects
from ..exceptions import SingleTaskWarning
from ..losses import Loss, MarginLoss
from ..priors.base import Prior
from ..sources.cuda.tensors import TensorTasks, check_device
from ..sources.reservoir import Reservoir
from ..sources.scan import TaskScan
from ..tasks.encoding import ROW_VALUES, Encoding, SideInfo, as_columns, class_positions, target_positions
from ..tasks.reading import (
    LongTable,
    check_row_values,
    positions_of,
    prediction_frame,
    side_by_rows,
    side_column,
)
from ..tasks.rows import LIMIT
from ..tasks.task_set import TaskSet, no_tasks

#: NumPy's float64 dtype, compared with ``is`` for speed; arrays from a pickle may have an equal dtype that is another object.
FLOAT = np.dtype(np.float64)
#: Labels of a single task that was passed without a label.
ONE_LABEL = np.zeros(1, dtype=int)
WITHOUT_Y = (
    "y: fit requires y to be passed, but the target y is None. If X is a table with all columns, use "
    "fit(TaskSet.from_frame(X, task=..., target=...))."
)
_READ_AGAIN = "Read the table like that of fit: TaskSet.from_frame(..., encoding=learner.encoding_)"


def validated(estimator: Any, X: Any, y: Any = "no_validation", **options: Any) -> Any:
    """Return rows as floats, dense or CSR, and targets if there are any, validated by scikit-learn."""
    refuse_masked("X", X)
    refuse_masked("y", y)
    with numbers_of("X" if isinstance(y, str) else "X, y"):
        options |= {"accept_sparse": "csr", "dtype": np.float64}
        if isinstance(y, str):
            options |= {"ensure_min_samples": 0, "ensure_min_features": 0}
            return validate_data(estimator, X, reset=False, **options)
        return validate_data(estimator, X, targets_in_objects(y), y_numeric=True, **options)


def refuse_other_arguments(has_them: str, **arguments: Any) -> None:
    """Raise TypeError if an argument is not None; ``has_them`` is the reason."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name}: {has_them.format(name=name)}")


def read_tasks(
    learner: Any,
    X: Any,
    y: Any = None,
    groups: Any = None,
    side_info: Any = None,
    *,
    reset: bool,
    min_features: int = 1,
    **row_values: Any,
) -> TaskSet:
    """Return the tasks; unless ``reset`` starts a new fit, check them against the features of ``fit``."""
    if isinstance(X, TaskScan):
        raise TypeError("X: only EmpiricalBayesLearner.fit takes a scan. Use TaskSet.from_frame.")
    X, y = _as_signs(learner, X, y, reset=reset)
    if isinstance(X, TaskSet):
        has_them = "a TaskSet has its own {name}; pass arrays or a TaskSet"
        refuse_other_arguments(has_them, y=y, groups=groups, side_info=side_info, **row_values)
        tasks = X
        if len(tasks) == 0:
            raise ValueError("X: the task set is empty; pass at least one task")
        check_names(learner, tasks, reset=reset)
    elif not reset and (read := encoded_rows(learner, X))[1] is not None:
        row_values = values_of_rows(learner.encoding_, X, **(dict.fromkeys(ROW_VALUES) | row_values))
        side_info = side_of_rows(learner, X, side_info)
        tasks = TaskSet(read[0], y, groups, side_info, **row_values).replace(feature_names=read[1])
    else:
        if reset and y is None:
            raise ValueError(WITHOUT_Y)
        options = {"ensure_all_finite": False, "ensure_min_features": min_features}
        frame = X if reset and is_frame(X) else None
        X, y = validated(learner, X if reset else read[0], y, reset=reset, **options)
        if reset and groups is None and len(X.shape) == 2 and X.shape[0] > 1:
            routing = "sklearn.set_config(enable_metadata_routing=True) and params={'groups': ...}"
            advice = f"pass groups= with a label for each row (in cross-validation: {routing})"
            message = f"groups is None, so all {X.shape[0]} rows are one task; {advice}"
            warnings.warn(message, SingleTaskWarning, stacklevel=outside())
        # Errors of a frame name its columns.
        X = X if frame is None else frame
        tasks = TaskSet(X, y, groups, side_info, **row_values).replace(feature_names=None)
    if reset and tasks.n_features < max(min_features, 1 - learner.fit_intercept):
        found = f"X has {tasks.n_features} feature(s) (shape={tasks.X.shape})"
        needed = "Tasks without features need EmpiricalBayesLearner with fit_intercept=True."
        raise ValueError(f"{found} while a minimum of 1 is required. {needed}")
    _check_targets(tasks, learner.loss_)
    return tasks if reset else align_side_info(learner, tasks)


def _as_signs(learner: Any, X: Any, y: Any, *, reset: bool = False) -> tuple[Any, Any]:
    """Return rows and targets; for a margin loss, encode two class labels as −1 and +1, and store them in `fit`."""
    is_set = isinstance(X, TaskSet)
    if not isinstance(learner.loss_, MarginLoss) or (y is None and not is_set):
        return X, y
    labels = np.asarray(X.y if is_set else y)
    names = X.encoding.classes if is_set and X.encoding is not None else ()
    if reset and labels.ndim == 1 and (names or not np.isin(labels, (-1, 1)).all()):
        classes = np.array(names) if names else np.unique(labels)
        if len(classes) == 2 and (classes == classes).all():
            learner.classes_ = classes
        elif classes.dtype.kind not in "iuf":
            needed = f"y: the {learner.loss_.name} loss needs two classes, got {len(classes)}"
            raise ValueError(f"{needed}. EmpiricalBayesClassifier takes more than two.")
    if not hasattr(learner, "classes_"):
        return X, y
    if is_set:
        return X.replace(y=2.0 * target_positions(X, learner.classes_) - 1.0), y
    return X, 2.0 * class_positions(native(learner.classes_), native(labels)) - 1.0


def values_of_rows(encoding: Encoding | None, X: Any, **values: Any) -> dict[str, Any]:
    """Return these optional values per row; if one is None and X is a frame, read it from the column used in `fit`."""
    if encoding is not None and is_frame(X):
        frame = read_frame(X, "X")
        for role, name in ((role, getattr(encoding, role)) for role in values):
            if values[role] is None and name in frame.columns:
                values[role] = numeric_column(frame[name], role)
        if "exposure" in values and values["exposure"] is None and encoding.exposure is not None:
            raise missing_exposure(encoding)
    return values


def missing_exposure(encoding: Encoding | None) -> ValueError:
    """Return the error for rows without exposures, if the training tasks had them."""
    name = None if encoding is None else encoding.exposure
    column, frame = ("", "") if name is None else (f" (column {name!r})", ", or a frame with this column")
    advice = f"Pass exposure= with a number for each row{frame}. Ones mean one unit per row."
    return ValueError(f"exposure: fit had exposures{column}, and these rows have none. {advice}")


def side_of_rows(learner: Any, X: Any, side_info: Any) -> Any:
    """Return the side information that was passed, or read it from the columns used in `fit` if X is a frame."""
    names = learner.columns_in_["side_info"]
    if side_info is None and names and learner.encoding_ is not None and is_frame(X):
        frame = read_frame(X, "X")
        if len(frame) and set(names) <= set(frame.columns):
            return np.column_stack([side_column(frame[name]) for name in names])
    return side_info


def side_by_label(learner: Any, side_info: Any) -> Any:
    """Return side information as a mapping from label to row, if it is a frame with the task column of `fit`."""
    task = learner.columns_in_["task"]
    frame = read_frame(side_info, "side_info") if is_frame(side_info) and isinstance(task, str) else None
    if frame is None or task not in frame.columns or frame[task].is_duplicated().any():
        return side_info
    return dict(zip(frame[task].to_list(), frame.drop(task).rows(named=True), strict=True))


def check_exposure(prior: Prior, exposure: Any, n_rows: int) -> NDArray[np.float64] | None:
    """Return a positive exposure for each row, or None; raise ValueError if the targets are not counts."""
    if exposure is not None and not prior.response.has_exposure:
        raise ValueError("exposure: only counts have one (loss='poisson'); leave it out")
    return check_row_values("exposure", exposure, n_rows)


def encoded_rows(learner: Any, X: Any) -> tuple[Any, NDArray[Any] | None]:
    """Return the encoded rows of a frame and their column names; without an encoding, the columns of `fit` and None."""
    encoding = learner.encoding_
    if encoding is None:
        return known_columns(learner, X), None
    rows = encoding.encode_rows(X)
    return rows, None if rows is X else encoding.feature_names


def known_columns(learner: Any, X: Any) -> Any:
    """Return X; if it is a frame that has the columns of `fit` and others, return a frame without the others."""
    names = getattr(learner, "feature_names_in_", None)
    if names is None or not is_frame(X):
        return X
    frame = read_frame(X, "X")
    has_more = len(frame.columns) > len(names) and set(names) <= set(frame.columns)
    return frame.select(list(names)).to_native() if has_more else X


def tasks_to_score(learner: Any, X: Any, y: Any, groups: Any, side_info: Any) -> TaskSet:
    """Return rows and targets as tasks; the targets of a classifier are positions of its classes."""
    has_classes = hasattr(learner, "learners_")
    if isinstance(X, TaskSet):
        return X.replace(y=target_positions(X, learner.classes_)) if has_classes else X
    if has_classes:
        y = class_positions(native(learner.classes_), native(np.asarray(y)))
    side_info = side_by_rows(side_info, groups, X, y)
    if getattr(learner, "encoding_", None) is None:
        return TaskSet(known_columns(learner, X), y, groups, side_info)
    row_values = values_of_rows(learner.encoding_, X, **dict.fromkeys(ROW_VALUES))
    rows, names = encoded_rows(learner, X)
    side_info = side_of_rows(learner, X, side_info)
    return TaskSet(rows, y, groups, side_info, **row_values).replace(feature_names=names)


def _has_no_rows(X: Any, n_features: int, y: Any) -> bool:
    """Return whether a task has no rows, for example after filtering a table."""
    shape: tuple[int, ...] = (len(X),) if isinstance(X, list | tuple) else getattr(X, "shape", (1,))
    if not shape or shape[0] != 0:
        return False
    if y is not None and np.size(y):
        raise ValueError(f"X has no rows, but y has {np.size(y)} targets. Pass the same number of both.")
    if len(shape) == 2 and type(X) is np.ndarray and shape[1] != n_features:
        raise ValueError(f"X has {shape[1]} columns (and no rows), but there were {n_features} in fit.")
    return True


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
        expected = f"{type(learner).__name__} is expecting {learner.n_features_in_} features as input{hint}"
        raise ValueError(f"X has {tasks.n_features} features, but {expected}")
    if names is not None and known is not None and list(names) != list(known):
        found = f"expected {list(known)}, got {list(names)}{hint}"
        raise ValueError(f"The feature names should match those that were passed during fit: {found}")


def refuse_side_info(learner: Any) -> None:
    """Raise ValueError if the learner was fitted without side information."""
    if not learner.n_side_info_in_:
        raise ValueError("side_info: this learner was fitted without side information; leave it out here")


def require_side_info(learner: Any, tasks: TaskSet, advice: str) -> None:
    """Raise ValueError if tasks lack the side information of `fit`.  A {} in ``advice`` becomes an example of a mapping."""
    if learner.n_side_info_in_ and tasks.side_info is None:
        names = learner.columns_in_["side_info"]
        columns = f" with the columns {name_some(names, 12)}" if names else ""
        fitted = f"the learner was fitted with side information{columns}"
        raise ValueError(f"side_info: {fitted}; {advice.format(f'{{{names[0]!r}: ...}}' if names else '')}")


def align_side_info(learner: Any, tasks: TaskSet) -> TaskSet:
    """Return the tasks with side information encoded and ordered as in `fit`."""
    if tasks.encoding is None and learner.encoding_ is not None and tasks.side_info is not None:
        encoded = learner.encoding_.encode_side_info(tasks.side_info, tasks.side_names)
        if encoded.values is not tasks.side_info:
            tasks = tasks.replace(side_info=encoded.values, side_names=encoded.names)
    known, names = learner.columns_in_["side_info"], tasks.side_names
    if known is None or names is None or names == known or tasks.side_info is None:
        return tasks
    if missing := [name for name in known if name not in names]:
        found = f"it has no column {name_some(missing)}, but {name_some(names, 12)}"
        raise ValueError(f"side_info: {found}; in fit it had {name_some(known, 12)}")
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


def _clean_task(learner: Any, X: Any, y: Any, side_info: Any) -> TaskSet | None:
    """Return one task from valid float64 arrays, or None for other input, which must be read and checked.

    This is a fast path, because scikit-learn's validation costs more than adapting to the task.
    """
    if hasattr(learner, "classes_"):
        return None
    for array in (X, y) if side_info is None else (X, y, side_info):
        if type(array) is not np.ndarray or array.dtype is not FLOAT or not array.size:
            return None
    if y.ndim != 1 or X.shape != (len(y), learner.n_features_in_) or not learner.prior_.scaling.holds(X, y):
        return None
    if side_info is not None and (side_info.ndim != 1 or not np.vdot(side_info, side_info) <= LIMIT**2):
        return None
    learner.loss_.check_targets(y)
    # Copy, because a TaskSet makes its arrays read-only, and these belong to the user.
    side = None if side_info is None else side_info[None].copy()
    return TaskSet.from_arrays(X.copy(), y.copy(), np.array([0, len(y)]), ONE_LABEL, side)


def tasks_without_rows(
    X: Any, labels: NDArray[Any], chosen: NDArray[np.bool_], side_info: Any
) -> tuple[TaskSet, NDArray[np.int64]]:
    """Return the tasks of the chosen rows as tasks without rows, and the position of each chosen row's task."""
    if isinstance(side_info, SideInfo) and side_info.values is not None:
        side_info = side_info._replace(values=side_info.values[chosen])
    elif isinstance(side_info, np.ndarray | list | tuple) and len(side_info) == len(labels):
        # An array has a row for each row of X; frames and mappings are searched by label.
        table = side_info if isinstance(side_info, np.ndarray) else np.asarray(side_info, dtype=object)
        side_info = table[chosen]
    tasks = TaskSet(X[chosen], np.zeros(int(chosen.sum())), labels[chosen], side_info)
    return tasks.without_rows(), positions_of(labels[chosen], tasks.labels)


def warn_repeated_numbers(before: Reservoir, batch: TaskSet) -> None:
    """Warn if a later batch of a stream repeats the labels 0, 1, .., which are the default of `TaskSet.from_tasks`."""
    n = len(batch)
    counted = n > 1 and batch.labels.dtype.kind == "i" and np.array_equal(batch.labels, np.arange(n))
    if counted and before.contains(batch).all() and np.array_equal(before.sample.labels[:n], batch.labels):
        added = f"tasks 0 to {n - 1} occurred before, and their new rows were added to the earlier ones"
        advice = "If they are other tasks, label them: TaskSet.from_tasks(tasks, labels=...)"
        warnings.warn(f"partial_fit: {added}. {advice}", UserWarning, stacklevel=outside())


def weights_as_targets(tasks: TaskSet, sample_weight: Any, groups: Any) -> TaskSet:
    """Return the tasks with the sample weights as targets.  If ``groups`` is given, the weights are in its order."""
    refuse_masked("sample_weight", sample_weight)
    values = np.array(sample_weight, dtype=float)
    if values.shape != tasks.y.shape:
        raise ValueError(f"sample_weight: expected {len(tasks.y)} weights, one per row, got {values.shape}")
    in_order = values if groups is None else TaskSet(np.zeros((len(values), 1)), values, groups).y
    return tasks.replace(y=in_order)


def read_one_task(learner: Any, X: Any, y: Any, side_info: Any, **row_values: Any) -> TaskSet:
    """Return a set of one task, which may have no rows."""
    if not hasattr(learner, "prior_"):  # scikit-learn's check alone costs as much as adapting
        check_is_fitted(learner, "prior_")
    if side_info is not None:
        refuse_side_info(learner)
    if not row_values and (clean := _clean_task(learner, X, y, side_info)) is not None:
        return clean
    scaling, names = learner.prior_.scaling, getattr(learner, "feature_names_in_", None)
    if isinstance(X, TaskSet):
        task = read_tasks(learner, X, y, None, side_info, reset=False, **row_values)
        scaling.check(task.X, task.y, names)
        return task
    if X is None or _has_no_rows(X, learner.n_features_in_, y):
        if X is None and y is not None:
            raise ValueError("y: got targets without rows; pass X as well")
        # Side information is read together with a dummy row, which is then dropped.
        task = TaskSet(np.zeros((1, learner.n_features_in_)), [0.0], None, side_info).without_rows()
        return align_side_info(learner, task)
    row_values = values_of_rows(learner.encoding_, X, **(dict.fromkeys(ROW_VALUES) | row_values))
    y = _as_signs(learner, X, y)[1]
    # Unlike scikit-learn's validation, this does not warn about arrays without names.
    side_info = side_of_rows(learner, X, side_info)
    X, row_names = encoded_rows(learner, X)
    task = TaskSet(X, y, None, side_info, **row_values)
    task = task if row_names is None else task.replace(feature_names=row_names)
    check_names(learner, task)
    task = align_side_info(learner, task)
    scaling.check(task.X, task.y, names)
    learner.loss_.check_targets(task.y)
    return task


def read_tensors(
    learner: Any, X: Any, y: Any, groups: Any, side_info: Any, *, reset: bool = False
) -> TensorTasks:
    """Check tensors of rows; unless ``reset``, they must have the columns of `fit`."""
    if getattr(learner, "device", None) is None:
        advice = "Pass an array, or use EmpiricalBayesLearner(device='cuda')."
        raise ValueError(f"X: got a tensor, but {type(learner).__name__} computes on the CPU. {advice}")
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


def read_table(
    learner: Any, data: Any, name: str, task: Any, target: Any, side_info: Any = None, exposure: Any = None
) -> tuple[TaskSet, NDArray[np.intp]]:
    """Return the rows of a frame or task set as tasks; row i of the tasks is row ``order[i]`` of the frame.

    ``name`` is "query" (a frame without targets) or "support".
    """
    if isinstance(data, TaskSet):
        has_it = "a TaskSet has its own {name}; leave it out, or pass a frame"
        refuse_other_arguments(has_it, side_info=side_info, exposure=exposure)
        return data, np.arange(len(data.y))
    if task is None:
        raise ValueError(f"task: the learner was not fitted on a frame; name the label column of {name}")
    frame, n_features, encoding = read_frame(data, name), learner.n_features_in_, learner.encoding_
    side, features = learner.columns_in_["side_info"], getattr(learner, "feature_names_in_", None)
    if side is None or encoding is not None or side_info is not None or not set(side) <= set(frame.columns):
        side = []  # `LongTable` finds the side information columns of an encoding
    if encoding is not None:
        columns = [column.name for column in encoding.features]
    elif features is not None:
        columns = list(features)
    else:
        columns = other_columns(frame.columns, (*as_columns(task), target, exposure, *side))
        if len(columns) != n_features:
            given = f"{len(columns)}: {name_some(columns, 12)}"
            raise ValueError(f"{name}: expected {n_features} feature columns as in fit, got {given}")
    target = None if name == "query" else target
    require_columns(frame, name, [*as_columns(task), *([] if target is None else [target]), *columns, *side])
    if not len(frame):
        return no_tasks(n_features), np.zeros(0, dtype=np.intp)
    features = columns if encoding is None else None
    options = {"encoding": encoding, "row_columns": {"exposure": exposure}}
    try:
        rows = LongTable(data, task, target, features, side_info, side or None, **options).read()
        tasks = TaskSet.from_grouped(*rows)
    except ValueError as error:  # errors of `LongTable` do not name the argument
        raise ValueError(f"support: {error}" if name == "support" else str(error)) from None
    if name == "support" and hasattr(learner, "task_labels_"):
        at = positions_of(tasks.labels, learner.task_labels_)
        n_rows = getattr(learner, "learners_", [learner])[0].task_posterior_.n_rows[at]
        if n_fewer := int(((at >= 0) & (tasks.n_observed < n_rows)).sum()):
            found = f"{n_fewer} training task{'s have' if n_fewer > 1 else ' has'} fewer rows than in fit"
            advice = "Add the rows of fit, or leave these tasks out. If they are new, relabel them."
            message = f"support: {found}, and only the rows here are used. {advice}"
            warnings.warn(message, UserWarning, stacklevel=outside())
    return tasks, np.argsort(rows.grouping.codes, kind="stable")


def prediction_table(
    columns: Mapping[str, NDArray[np.float64]], query: Any, order: NDArray[np.intp], task: Any
) -> Any:
    """Return columns of predictions next to the task labels: a frame like the query, or a structured array."""
    if not isinstance(query, TaskSet):
        return prediction_frame(columns, query, order, as_columns(task))
    dtype = [("task", query.labels.dtype), *((column, np.float64) for column in columns)]
    table = np.empty(len(query.y), dtype=dtype)
    for column, values in (("task", np.repeat(query.labels, query.sizes)), *columns.items()):
        table[column] = values
    return table
