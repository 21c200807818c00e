"""Tables and texts about fitted learners, for `MetaLearner.effects` and `MetaLearner.summary`."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np

from .._utils.frames import as_frame
from ..summaries.baselines import baseline_errors
from ..summaries.building import (
    ModelDescription,
    build_summary,
    describe_scale,
    describe_side,
    describe_structure,
    describe_support,
    format_share,
)
from ..summaries.effects import coefficient_names, task_effects
from ..summaries.tables import Summary
from ..tasks.task_set import TaskSet


def effects(learner: Any, tasks: TaskSet, coverage: float) -> Any:
    """Return a table of the coefficients of each task after adapting to its rows."""
    training, names = getattr(learner, "training_summary_", None), coefficient_names(learner)
    mean = None if training is None else training.mean
    weights, std = (values.ravel() for values in task_effects(learner.prior_, tasks, mean, learner.n_jobs))
    half_width = NormalDist().inv_cdf(0.5 + 0.5 * coverage) * std
    columns = {
        "task": np.repeat(tasks.labels, len(names)),
        "column": np.tile(np.array(names, dtype=object), len(tasks)),
        "effect": weights,
        "std": std,
        "lower": weights - half_width,
        "upper": weights + half_width,
    }
    return as_frame(columns)


def summary(learner: Any, sampling: Any, split: tuple[TaskSet, TaskSet] | None = None) -> Summary:
    """Summarise a learner.

    Errors are those of held-out tasks of `fit`, sampled as ``sampling`` (a `SupportSampling`) says, or those of the support
    and query rows ``split``, of which ``sampling`` is the number or fraction of support rows.
    """
    training, columns = getattr(learner, "training_summary_", None), learner.columns_in_
    side_names = columns.get("side_info") or [f"s{j}" for j in range(learner.n_side_info_in_)]
    description = ModelDescription(
        learner.prior_,
        training,
        coefficient_names(learner),
        [str(name) for name in side_names],
        getattr(learner, "scale_", 1.0),
    )
    if split is None:
        errors = {} if training is None else training.errors
        evaluated_on = f"tasks held out in fit, each with {describe_support(sampling)}"
        if errors:
            evaluated_on += "; the model was selected on the same tasks, so its error is slightly optimistic"
    else:
        errors = dict(baseline_errors(learner.prior_, training, *split, learner.loss_, learner.n_jobs))
        evaluated_on = f"the given tasks, each with {format_share(sampling)} of its rows as support"
    loss = training.loss if training is not None and split is None else learner.loss_.name
    title = (type(learner).__name__, columns.get("task"), columns.get("target"))
    return build_summary(title, _sentences(learner), description, errors, loss, evaluated_on)


def _sentences(learner: Any) -> tuple[str, ...]:
    """Return sentences about the selected model."""
    structure: dict[str, Any] | None = getattr(learner, "structure_", None)
    if structure is None:
        return (f"The documentation of {type(learner).__name__} describes its prior.",)
    common, training = learner.common_, getattr(learner, "training_summary_", None)
    sentences = []
    if common is not None:
        name = type(common).__name__
        sentences.append(f"{name} is the shared regressor; the numbers below describe the residuals.")
    sentences.append(describe_structure(structure, coefficient_names(learner)))
    n_side = learner.n_side_info_in_ if learner.prior_.reads_side_info else 0
    sentences.append(describe_side(learner.side_structure_, structure, n_side))
    sentences.append(describe_scale(learner.scale_))
    if learner.bias_penalty_ is not None:
        sentences.append("A part of the prior mean was learned on query rows; it is not in the tables below.")
    n_seen = getattr(learner, "n_tasks_seen_", 0)
    if training is not None and n_seen > training.n_tasks:
        sentences.append(
            f"The stream has {n_seen:,} tasks so far; standard errors and held-out errors are those of the last "
            f"selection, on {training.n_tasks:,} tasks."
        )
    return tuple(sentence for sentence in sentences if sentence)
