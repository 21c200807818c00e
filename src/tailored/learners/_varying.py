"""Which weights may differ between tasks, as the user has said it."""

from __future__ import annotations

from typing import Any

from .._utils.validation import is_integer, name_some
from ..tasks import TaskSet


def varying_weights(learner: Any, tasks: TaskSet) -> tuple[int, ...] | None:
    """Positions of the weights, that of the intercept among them; None where the learner is to choose."""
    given = learner.varying
    if given is None:
        return None
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"varying: expected a list of columns; got {given!r}. Write [{given!r}]")
    if len(tasks) < 2:
        raise ValueError("varying: a single task does not say how tasks differ; give more, or leave it out")
    found: set[int] = set()
    for column in given:
        found.update(_positions(learner, column))
    if learner.fit_intercept:
        found.add(learner.n_features_in_)
    if not found:
        raise ValueError(
            "varying: nothing would vary without an intercept; name a column, or fit_intercept=True"
        )
    return tuple(sorted(found))


def _positions(learner: Any, column: Any) -> list[int]:
    d = learner.n_features_in_
    if is_integer(column):
        if not 0 <= column < d:
            raise ValueError(f"varying: there is no column {column}; positions are 0 to {d - 1}")
        return [int(column)]
    names = getattr(learner, "feature_names_in_", None)
    if names is None:
        raise ValueError(f"varying: columns have no names here; give the position of {column!r}")
    if learner.encoding_ is not None:
        found = learner.encoding_.positions(column)
    else:
        found = [j for j, name in enumerate(names) if name == column]
    if not found:
        raise ValueError(f"varying: there is no column {column!r}; there are {name_some(names, 12)}")
    return found
