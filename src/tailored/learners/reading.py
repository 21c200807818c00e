"""Read the arguments of learners (arrays, frames or task sets) as task sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted, validate_data

from .._utils.frames import (
    Frame,
    RowsLike,
    SideInfoLike,
    ValuesLike,
    as_records,
    is_frame,
    other_columns,
    read_frame,
    require_columns,
    with_columns,
)
from .._utils.validation import check_finite, name_some, warn
from ..exceptions import SingleTaskWarning
from ..gaussian.responses import Bernoulli
from ..priors.base import Prior
from ..scale.scan import TaskScan
from ..scale.tensors import TensorTasks, check_device
from ..tasks.encoding import (
    ROW_VALUES,
    Encoding,
    SideInfo,
    TaskColumns,
    as_columns,
    class_positions,
    missing_exposure,
    side_of_rows,
)
from ..tasks.episodes import SupportLike, SupportSampling
from ..tasks.reading import (
    check_row_values,
    group_labels,
    group_rows,
    label_array,
    positions_of,
    read_labels,
    read_long_table,
    read_side_info,
)
from ..tasks.rows import LIMIT, Array, Index, Scaling
from ..tasks.task_set import TaskSet, encode_rows, no_tasks, target_positions

if TYPE_CHECKING:
    from .adapted_task import AdaptedTask
    from .base import MetaLearner

WITHOUT_Y = (
    "y: fit requires y to be passed, but the target y is None. If X is a dataframe with all "
    "columns, use fit(X, task=..., target=...)."
)
OWN_VALUES = "a TaskSet has its own {name}; leave it out, or pass arrays"


def feature_names(model: MetaLearner | AdaptedTask) -> NDArray[Any] | None:
    """Return the names of the columns of `fit`, or None if they had no names."""
    return getattr(model, "feature_names_in_", None)


def refuse_other_arguments(reason: str, **arguments: object) -> None:
    """Raise TypeError if an argument is not None; "{name}" in the reason is the argument."""
    for name, value in arguments.items():
        if value is not None:
            raise TypeError(f"{name}: {reason.format(name=name)}")


def fit_arguments(
    X: RowsLike,
    y: ValuesLike,
    groups: ValuesLike,
    side_info: SideInfoLike,
    task: TaskColumns | None,
    target: str | None,
    **row_values: ValuesLike,
) -> tuple[Any, dict[str, ValuesLike]]:
    """Return X, y, groups and side_info of `fit`, and its values per row.

    With ``task`` and ``target``, X is a frame, which is read as a task set, and the values per row
    are names of its columns.
    """
    if isinstance(X, TaskScan):
        reason = "a scan has its own columns; name them in tailored.scan"
        refuse_other_arguments(reason, y=y, groups=groups, side_info=side_info)
        refuse_other_arguments("not supported for a scan; pass a TaskSet", **row_values)
    if task is None and target is None:
        return (X, y, groups, side_info), row_values
    given, missing = ("task", "target") if target is None else ("target", "task")
    if task is None or target is None:
        raise TypeError(f"{missing}: missing; {given}= was given, so name both columns of X")
    if not is_frame(X):
        raise TypeError(
            f"X: task and target name columns of a dataframe, got {type(X).__name__}; pass a "
            "dataframe, or leave out task and target"
        )
    reason = "with task and target, it is read from X; leave {name} out"
    refuse_other_arguments(reason, y=y, groups=groups)
    _require_names(**row_values)
    tasks = TaskSet.from_frame(X, task=task, target=target, side_info=side_info, **row_values)
    return (tasks, None, None, None), {}


def _require_names(**columns: object) -> None:
    """Raise TypeError for an argument that is not the name of a column."""
    for name, column in columns.items():
        if not isinstance(column, str | None):
            found = type(column).__name__
            raise TypeError(f"{name}: for a dataframe, pass the name of a column; got {found}")


def has_labels(X: RowsLike, groups: ValuesLike, task: TaskColumns | None) -> bool:
    """Return whether the labels of rows are those of a task set, or those in the task columns of
    `fit` in a frame.
    """
    if isinstance(X, TaskSet):
        refuse_other_arguments(OWN_VALUES, groups=groups)
        return True
    if groups is not None or task is None or not is_frame(X):
        return False
    return set(as_columns(task)) <= set(read_frame(X, "X").columns)


def read(
    learner: MetaLearner,
    X: RowsLike,
    y: ValuesLike = None,
    groups: ValuesLike = None,
    side_info: SideInfoLike = None,
    *,
    reset: bool = False,
    may_lack_names: bool = False,
    **row_values: ValuesLike,
) -> TaskSet:
    """Return rows, or a task set, as tasks; check their columns against those of `fit`, or store
    them if ``reset``.

    scikit-learn warns if the rows are an array and those of `fit` had names, unless they
    ``may_lack_names``.
    """
    if isinstance(X, TaskScan):
        raise TypeError("X: only EmpiricalBayesLearner.fit takes a scan. Use TaskSet.from_frame.")
    if not reset:
        X, side_info = tasks_of_frame(learner, X, side_info, y, groups, *row_values.values())
    if isinstance(X, TaskSet):
        refuse_other_arguments(OWN_VALUES, y=y, groups=groups, side_info=side_info, **row_values)
        if len(X) == 0:
            raise ValueError("X: the task set is empty; pass at least one task")
        return check_tasks(learner, X, reset=reset)
    if not reset:
        refuse_side_info(learner, side_info)
    elif y is None:
        raise ValueError(WITHOUT_Y)
    encoding = None if reset else learner.encoding_
    tasks = TaskSet(X, y, groups, side_info, **row_values, encoding=encoding)
    if reset and groups is None and len(tasks.y) > 1:
        warn(
            f"groups is None, so all {len(tasks.y)} rows are one task; pass the label of each "
            "row's task, fit(X, y, groups). cross_val_score(..., groups=groups) gives them to the "
            "splitter only: call sklearn.set_config(enable_metadata_routing=True), and pass "
            "params={'groups': groups} instead",
            SingleTaskWarning,
        )
    if not may_lack_names:
        _check_names_of_rows(learner, encoding, X, reset=reset)
    return check_tasks(learner, tasks, reset=reset)


def tasks_of_frame(
    learner: MetaLearner, X: RowsLike, side_info: SideInfoLike, *others: ValuesLike
) -> tuple[RowsLike, SideInfoLike]:
    """Return the tasks of a frame with the task and target columns of `fit`; X and ``side_info`` if
    it is not a frame, or if others are given.
    """
    task, target = (learner.columns_in_[role] for role in ("task", "target"))
    is_alone = all(values is None for values in others)
    if not is_alone or task is None or target is None or not is_frame(X):
        return X, side_info
    require_columns(read_frame(X, "X"), "X", [*as_columns(task), target])
    encoding = learner.encoding_
    missing: Any = "impute" if encoding is not None and encoding.imputes else "error"
    tasks = TaskSet.from_frame(
        X, task=task, target=target, side_info=side_info, encoding=encoding, missing=missing
    )
    return tasks, None


def _check_names_of_rows(
    model: MetaLearner | AdaptedTask, encoding: Encoding | None, X: RowsLike, *, reset: bool = False
) -> None:
    """Compare the column names of rows with those of `fit`, as scikit-learn does, unless an
    encoding finds the columns.

    Rows of a `TaskSet` have no names, so arrays are accepted without a warning if `fit` got a
    `TaskSet` of a table.
    """
    if encoding is None or (encoding.task is None and not is_frame(X)):
        validate_data(model, X, reset=reset, skip_check_array=True)


def read_contexts(learner: MetaLearner, side_info: SideInfoLike) -> TaskSet:
    """Return a task without rows for each row of side information, which is an array, a frame, or a
    mapping by label.
    """
    refuse_side_info(learner, side_info)
    if side_info is None or not len(side_info):
        raise ValueError("side_info: there are no rows; pass a row for each task")
    labels = np.arange(len(side_info))
    if isinstance(side_info, Mapping):
        labels = label_array(list(side_info))
    elif is_frame(side_info):
        side_info = side_of_rows(read_frame(side_info, "side_info"))
    return _tasks_with(learner, labels, read_side_info(side_info, group_labels(labels)))


def _tasks_with(learner: MetaLearner, labels: NDArray[Any], side: SideInfo) -> TaskSet:
    """Return tasks without rows, with these labels and this side information."""
    tasks = no_tasks(learner.n_features_in_).replace(
        offsets=np.zeros(len(labels) + 1, dtype=np.int64),
        labels=labels,
        side_info=side.values,
        side_names=side.names,
    )
    return _align_side_info(learner, tasks)


def check_tasks(
    learner: MetaLearner, tasks: TaskSet, *, reset: bool = False, has_targets: bool = True
) -> TaskSet:
    """Check tasks against the learner and the columns of `fit`, or store their columns if
    ``reset``.

    Return the tasks with the columns of side information in the order of `fit`.
    """
    scales = learner._scales  # noqa: SLF001  # not public
    tasks = tasks if scales else tasks.with_indicators()
    check_names(learner, tasks, reset=reset)
    if reset and tasks.n_features < (1 - learner.fit_intercept if scales else 1):
        raise ValueError(
            f"X has {tasks.n_features} feature(s) (shape={tasks.X.shape}) while a minimum of 1 is "
            "required. Tasks without features need EmpiricalBayesLearner with fit_intercept=True."
        )
    _check_row_values(learner, tasks)
    if has_targets:
        _check_targets(learner, tasks)
    if hasattr(learner, "prior_"):
        y = tasks.y if has_targets else None
        learner.prior_.scaling.check(tasks.X, y, feature_names(learner))
    elif not scales:
        Scaling.raw(tasks.n_features).check(tasks.X, tasks.y, tasks.feature_names)
    # Names are those of `fit`, so that tasks of several calls can be joined.
    if tasks.feature_names is not (names := feature_names(learner)):
        tasks = tasks.replace(feature_names=names)
    if not reset:
        return _align_side_info(learner, tasks)
    if not len(tasks.y):
        raise ValueError("X: none of the tasks has a row; pass tasks with rows")
    learner.n_side_info_in_ = tasks.n_side_info
    learner.columns_in_ = {"task": None, "target": None, "side_info": tasks.side_names}
    if (encoding := tasks.encoding) is not None:
        learner.encoding_ = encoding
        learner.columns_in_ |= {"task": encoding.task, "target": encoding.target}
    return tasks


def tasks_to_score(
    learner: MetaLearner,
    X: RowsLike,
    y: ValuesLike,
    groups: ValuesLike,
    side_info: SideInfoLike,
    sample_weight: ValuesLike = None,
) -> TaskSet:
    """Return rows and targets as tasks; targets of a classifier are positions of its classes."""
    X, side_info = tasks_of_frame(learner, X, side_info, y, groups, sample_weight)
    if isinstance(X, TaskSet):
        refuse_other_arguments(OWN_VALUES, sample_weight=sample_weight)
        return X.replace(y=target_positions(X, learner.classes_)) if is_classifier(learner) else X
    if is_classifier(learner):
        y = class_positions(learner.classes_, y)
    encoding = learner.encoding_
    return TaskSet(X, y, groups, side_info, sample_weight=sample_weight, encoding=encoding)


def rows_to_score(
    learner: Any, tasks: TaskSet, n_support: SupportLike, sample_weight: ValuesLike
) -> tuple[TaskSet, TaskSet, Array | None]:
    """Return support rows, query rows and the weights of the query rows in a score.

    The argument ``sample_weight`` of `score` weights rows in the score, not in the adaptation.
    """
    sampling = SupportSampling.of(learner.n_support if n_support is None else n_support)
    support, query = sampling.split(tasks, learner.random_state)
    if sample_weight is None:
        return support, query, query.frequency_weight
    support, unweighted = (each.replace(sample_weight=None) for each in (support, query))
    return support, unweighted, query.row_weights


def read_rows(
    model: MetaLearner | AdaptedTask,
    prior: Prior,
    encoding: Encoding | None,
    X: RowsLike,
    exposure: ValuesLike = None,
    sample_weight: ValuesLike = None,
    *,
    may_lack_names: bool = False,
) -> tuple[Any, Array | None, Array | None]:
    """Return rows to predict, their exposures and their weights, checked against the columns of
    `fit`; see `read`.
    """
    d, names = model.n_features_in_, feature_names(model)
    is_plain = exposure is None and sample_weight is None and (may_lack_names or names is None)
    if is_plain and _is_floats(X, 2) and X.shape[1] == d and prior.scaling.holds(X):
        return X, None, None
    encoded, read_as = encode_rows(X, encoding, min_rows=0)
    check_finite(encoded, "X", columns=None if read_as is None else read_as.source_names)
    if encoding is not None and read_as is not None:
        values = {"exposure": exposure, "sample_weight": sample_weight}
        exposure, sample_weight = encoding.read_columns(X, None, **values)[1].values()
    if is_frame(X) or not may_lack_names:
        _check_names_of_rows(model, encoding, X)
    if encoded.shape[1] != d:
        raise ValueError(
            f"X has {encoded.shape[1]} features, but {type(model).__name__} is expecting {d} "
            "features as input"
        )
    prior.scaling.check(encoded, names=names)
    n = encoded.shape[0]
    weights = check_row_values("sample_weight", sample_weight, n)
    if exposure is not None and not prior.response.has_exposure:
        raise ValueError("exposure: only counts have one (loss='poisson'); leave it out")
    return encoded, check_row_values("exposure", exposure, n), weights


def check_names(learner: MetaLearner, tasks: TaskSet, *, reset: bool = False) -> None:
    """Store or check the features of a task set, as scikit-learn does for arrays and frames."""
    names = tasks.feature_names
    if reset:
        learner.n_features_in_ = tasks.n_features
        if names is not None and len(names):
            learner.feature_names_in_ = np.asarray(names, dtype=object)
        elif hasattr(learner, "feature_names_in_"):
            del learner.feature_names_in_
        return
    known = feature_names(learner)
    hint = ""
    if tasks.encoding is not None and learner.encoding_ is not None:
        advice = "TaskSet.from_frame(..., encoding=learner.encoding_)"
        hint = f". Read the table like that of fit: {advice}"
        difference = learner.encoding_.difference(tasks.encoding)
        if difference is not None:
            raise ValueError(f"X: {difference}{hint}")
    if tasks.n_features != learner.n_features_in_:
        n_expected = learner.n_features_in_
        raise ValueError(
            f"X has {tasks.n_features} features, but {type(learner).__name__} is expecting "
            f"{n_expected} features as input{hint}"
        )
    if names is not None and known is not None and list(names) != list(known):
        raise ValueError(
            "The feature names should match those that were passed during fit: expected "
            f"{list(known)}, got {list(names)}{hint}"
        )


def refuse_side_info(learner: MetaLearner, side_info: SideInfoLike) -> None:
    """Raise ValueError if there is side information, but the learner was fitted without it."""
    if side_info is not None and not learner.n_side_info_in_:
        raise ValueError(
            "side_info: this learner was fitted without side information; leave it out here"
        )


def require_side_info(learner: MetaLearner, tasks: TaskSet, advice: str) -> None:
    """Raise ValueError if tasks lack the side information of `fit`.

    A {} in ``advice`` becomes an example of a mapping.
    """
    if learner.n_side_info_in_ and tasks.side_info is None:
        names = learner.columns_in_["side_info"]
        columns = f" (columns {name_some(names, 12)})" if names else ""
        raise ValueError(
            f"side_info: the learner was fitted with side information{columns}; "
            f"{advice.format(f'{{{names[0]!r}: ...}}' if names else '')}"
        )


def _align_side_info(learner: MetaLearner, tasks: TaskSet) -> TaskSet:
    """Return the tasks with side information encoded and ordered as in `fit`."""
    is_encoded = tasks.encoding is not None and tasks.encoding.side_info
    if not is_encoded and learner.encoding_ is not None and tasks.side_info is not None:
        encoded = learner.encoding_.encode_side_info(tasks.side_info, tasks.side_names)
        tasks = tasks.replace(side_info=encoded)
    known, names = learner.columns_in_["side_info"], tasks.side_names
    if known is None or names is None or names == known or tasks.side_info is None:
        return tasks
    if missing := [name for name in known if name not in names]:
        raise ValueError(
            f"side_info: it has the columns {name_some(names, 12)}, but not {name_some(missing)}; "
            f"in fit it had {name_some(known, 12)}"
        )
    order = [names.index(name) for name in known]
    return tasks.replace(side_info=tasks.side_info[:, order], side_names=known)


def _check_row_values(learner: MetaLearner, tasks: TaskSet) -> None:
    """Raise ValueError for values per row that a learner cannot use, and missing exposures."""
    usable = learner._row_values  # noqa: SLF001  # not public
    for name in ROW_VALUES:
        if getattr(tasks, name) is not None and name not in usable:
            use = "EmpiricalBayesLearner" + "(loss='poisson') for counts" * (name == "exposure")
            raise ValueError(
                f"{name}: {type(learner).__name__} with the {learner.loss_.name} loss cannot use "
                f"it; leave it out, or use {use}"
            )
    if (
        len(tasks.y)
        and tasks.exposure is None
        and hasattr(learner, "prior_")
        and learner.prior_.has_exposure
    ):
        raise missing_exposure(learner.encoding_)


def _check_targets(learner: MetaLearner, tasks: TaskSet) -> None:
    """Raise ValueError for targets that the loss of a learner does not allow."""
    encoding, loss = tasks.encoding, learner.loss_
    if encoding is not None and encoding.classes and not isinstance(loss, Bernoulli):
        raise ValueError(
            f"y: {encoding.target!r} has classes, not numbers; use EmpiricalBayesClassifier"
        )
    try:
        loss.check_targets(tasks.y)
    except ValueError as error:
        for task in tasks:
            try:
                loss.check_targets(task.y)
            except ValueError:
                raise ValueError(f"{error} (first in task {task.label!r})") from None
        raise


def labels_of_rows(
    learner: MetaLearner, X: RowsLike, groups: ValuesLike, n_rows: int
) -> NDArray[Any]:
    """Return the label of the task of each row; without ``groups``, there must be one task."""
    known, task = learner.task_labels_, learner.columns_in_["task"]
    if groups is None and len(known) != 1:
        if task is not None and is_frame(X):
            require_columns(read_frame(X, "X"), "X", as_columns(task))
        raise ValueError(
            f"groups: the learner was fitted to {len(known)} tasks; pass the label of each row's "
            "task, or use adapt(X_few, y_few).predict(X)"
        )
    labels = np.repeat(known, n_rows) if groups is None else read_labels(groups, "groups")
    if len(labels) != n_rows:
        raise ValueError(f"groups: expected {n_rows} labels, one per row of X, got {len(labels)}")
    return labels


def tasks_without_rows(
    learner: MetaLearner, labels: NDArray[Any], chosen: NDArray[np.bool_], side_info: SideInfoLike
) -> tuple[TaskSet, NDArray[np.int64]]:
    """Return the tasks of the chosen rows, without rows, and the position of each row's task."""
    grouping = group_labels(labels[chosen])
    if isinstance(side_info, SideInfo):
        assert side_info.values is not None
        side_info = side_info._replace(values=side_info.values[chosen])
    elif isinstance(side_info, np.ndarray | list | tuple) and len(side_info) == len(labels):
        # A row for each row of X; frames and mappings are searched by label.
        is_array = isinstance(side_info, np.ndarray)
        side_info = (side_info if is_array else np.asarray(side_info, dtype=object))[chosen]
    task = () if learner.encoding_ is None else learner.encoding_.task_columns
    side = read_side_info(side_info, grouping, task=task)
    if side_info is None and learner.n_side_info_in_:
        side = SideInfo(np.full((len(grouping.labels), learner.n_side_info_in_), np.nan))
        warn(
            "side_info: new tasks are predicted without side information, which `fit` had. Pass it."
        )
    return _tasks_with(learner, grouping.labels, side), grouping.codes


def _is_floats(values: Any, ndim: int) -> bool:
    """Return whether values are an array of float64 that is not empty.

    Rows of this kind are read without scikit-learn's validation, which costs more than adapting to
    a task, or predicting a few rows.
    """
    return (
        type(values) is np.ndarray
        and values.dtype == np.float64
        and values.ndim == ndim
        and values.size > 0
    )


def _valid_task(
    learner: MetaLearner, X: RowsLike, y: ValuesLike, side_info: SideInfoLike
) -> TaskSet | None:
    """Return one task from valid arrays; None for other input, which must be read and checked."""
    if learner.prior_.has_exposure:
        return None
    if not _is_floats(X, 2) or not _is_floats(y, 1):
        return None
    if X.shape != (len(y), learner.n_features_in_) or not learner.prior_.scaling.holds(X, y):
        return None
    if side_info is not None and not (
        _is_floats(side_info, 1) and np.vdot(side_info, side_info) <= LIMIT**2
    ):
        return None
    learner.loss_.check_targets(y)
    # Copy, because a TaskSet makes its arrays read-only, and these belong to the user.
    side = None if side_info is None else side_info[None].copy()
    label = np.zeros(1, dtype=int)
    return TaskSet.from_arrays(X.copy(), y.copy(), np.array([0, len(y)]), label, side)


def read_one_task(
    learner: MetaLearner,
    X: RowsLike,
    y: ValuesLike,
    side_info: SideInfoLike,
    **row_values: ValuesLike,
) -> TaskSet:
    """Return the arguments of `adapt` as a set of one task, which may have no rows."""
    refuse_side_info(learner, side_info)
    if all(value is None for value in row_values.values()):
        task = _valid_task(learner, X, y, side_info)
        if task is not None:
            return task
    if X is None and y is not None:
        raise ValueError("y: got targets without rows; pass X as well")
    # A table that was filtered may be empty.
    shape = (len(X),) if isinstance(X, list | tuple) else getattr(X, "shape", (1,))
    has_rows = X is not None and shape[:1] != (0,)
    if has_rows or (y is not None and np.size(y)):
        return read(learner, X, y, None, side_info, may_lack_names=True, **row_values)
    grouping = group_rows(None, 1)
    side = read_side_info(side_info, grouping, has_labels=False)
    return _tasks_with(learner, grouping.labels, side)


def read_tensors(
    learner: MetaLearner,
    X: RowsLike,
    y: ValuesLike,
    groups: ValuesLike,
    side_info: SideInfoLike,
    *,
    reset: bool = False,
    **row_values: ValuesLike,
) -> TensorTasks:
    """Return tensors of rows as tasks; unless ``reset``, they must have the columns of `fit`."""
    refuse_other_arguments("not supported for tensors; pass arrays", **row_values)
    if learner.device is None:
        raise ValueError(
            f"X: got a tensor, but {type(learner).__name__} computes on the CPU. Pass an array, or "
            "use EmpiricalBayesLearner(device='cuda')."
        )
    if y is None or groups is None:
        raise ValueError("y, groups: missing; a tensor X needs both as tensors")
    tasks = TensorTasks.from_tensors(X, y, groups, side_info, check_device(learner.device))
    if reset:
        return tasks
    if tasks.n_features != learner.n_features_in_:
        raise ValueError(
            f"X: expected {learner.n_features_in_} columns as in fit, got {tasks.n_features}"
        )
    if bool(learner.n_side_info_in_) != (side_info is not None):
        expected = "pass it" if learner.n_side_info_in_ else "leave it out"
        raise ValueError(f"side_info: must be given if and only if it was given to fit; {expected}")
    return tasks


class Query(NamedTuple):
    """Rows of many tasks to predict, as tasks, and observed rows of these tasks."""

    data: Any  # the table or the TaskSet of the user
    task: Any  # the columns of the table with the labels
    tasks: TaskSet
    order: Index  # row i of the tasks is row ``order[i]`` of the data
    support: TaskSet | None

    def checked(self, learner: MetaLearner) -> Query:
        """Return the query with tasks that were checked against those of `fit`."""
        tasks = check_tasks(learner, self.tasks, has_targets=False)
        support = self.support
        if support is not None:
            support = read(learner, support) if len(support) else None
        return self._replace(tasks=tasks, support=support)

    def support_of(self, tasks: TaskSet) -> TaskSet:
        """Return the observed rows of some of the tasks."""
        return tasks.without_rows() if self.support is None else self.support.support_of(tasks)

    def table(self, columns: Mapping[str, Array]) -> Any:
        """Return columns of predictions next to the task labels: a frame like that of the user, or
        a structured array.
        """
        if isinstance(self.data, TaskSet):
            return as_records({"task": np.repeat(self.data.labels, self.data.sizes), **columns})
        names = as_columns(self.task)
        for name in names:
            if name in columns:
                raise ValueError(
                    f"task: the column {name!r} has the name of a column of predictions; rename it"
                )
        return with_columns(self.data, names, columns)


def read_query(
    learner: MetaLearner,
    query: RowsLike,
    support: RowsLike | None,
    task: TaskColumns | None,
    target: str | None,
    side_info: SideInfoLike,
    exposure: str | None,
    name: str = "query",
) -> Query:
    """Read the tables of `predict_tasks`; ``name`` is the argument of the query in errors.

    The targets of the support rows are those of the table.
    """
    check_is_fitted(learner, "prior_")
    refuse_side_info(learner, side_info)
    task = learner.columns_in_["task"] if task is None else task
    target = learner.columns_in_["target"] if target is None else target
    options: dict[str, Any] = {"task": task, "target": target, "exposure": exposure}
    tasks, order = read_table(learner, query, name, side_info=side_info, **options)
    observed = None
    if support is not None:
        if target is None and not isinstance(support, TaskSet):
            raise ValueError(
                "target: the learner was not fitted to a frame; name the column of support"
            )
        observed, _ = read_table(learner, support, "support", **options)
    return Query(query, task, tasks, order, observed)


def read_table(
    learner: MetaLearner,
    data: Any,
    name: str,
    *,
    task: TaskColumns | None,
    target: str | None,
    side_info: SideInfoLike = None,
    exposure: str | None = None,
) -> tuple[TaskSet, Index]:
    """Return the rows of a frame or task set as tasks, and ``order``: row i of the tasks is row
    ``order[i]`` of the frame.

    ``name`` is the argument; only targets of "support" are read.
    """
    if isinstance(data, TaskSet):
        reason = "a TaskSet has its own {name}; leave it out, or pass a frame"
        refuse_other_arguments(reason, side_info=side_info, exposure=exposure)
        return data, np.arange(len(data.y))
    if task is None:
        raise ValueError(
            f"task: the learner was not fitted to a frame; name the label column of {name}"
        )
    _require_names(exposure=exposure)
    frame, encoding = read_frame(data, name), learner.encoding_
    side = learner.columns_in_["side_info"] or []
    if encoding is not None or side_info is not None or not set(side) <= set(frame.columns):
        side = []  # `read_long_table` finds the side information columns of an encoding
    columns = _feature_columns(learner, frame, name, (*as_columns(task), target, exposure, *side))
    target = target if name == "support" else None
    targets = [] if target is None else [target]
    require_columns(frame, name, [*as_columns(task), *targets, *columns, *side])
    if not len(frame):
        return no_tasks(learner.n_features_in_), np.zeros(0, dtype=np.intp)
    try:
        fields, order = read_long_table(
            frame,
            task,
            target,
            features=columns if encoding is None else None,
            side_info=side_info,
            side_columns=side or None,
            encoding=encoding,
            row_columns={"exposure": exposure},
        )
    except ValueError as error:  # errors of `read_long_table` do not name the argument
        raise ValueError(f"support: {error}" if name == "support" else str(error)) from None
    tasks = TaskSet.from_arrays(**fields)
    if name == "support" and hasattr(learner, "task_labels_"):
        _warn_fewer_rows(learner, tasks)
    return tasks, order


def _feature_columns(
    learner: MetaLearner, frame: Frame, name: str, others: tuple[str | None, ...]
) -> list[str]:
    """Return the columns of the features in a table: those of `fit` or, if these have no names, all
    except the ``others``.
    """
    if learner.encoding_ is not None:
        return [column.name for column in learner.encoding_.features]
    columns = other_columns(frame.columns, others)
    if len(columns) != learner.n_features_in_:
        raise ValueError(
            f"{name}: expected {learner.n_features_in_} feature columns as in fit, got "
            f"{len(columns)}: {name_some(columns, 12)}"
        )
    return columns


def _warn_fewer_rows(learner: MetaLearner, support: TaskSet) -> None:
    """Warn of training tasks with fewer support rows than in `fit`."""
    at = positions_of(support.labels, learner.task_labels_)
    n_rows = learner.task_posterior_.n_rows[at]
    if n_fewer := int(((at >= 0) & (support.n_observed < n_rows)).sum()):
        have = "s have" if n_fewer > 1 else " has"
        warn(
            f"support: {n_fewer} training task{have} fewer rows than in fit, and only the rows "
            "here are used. Add the rows of fit, or leave these tasks out. If they are new, "
            "relabel them."
        )
