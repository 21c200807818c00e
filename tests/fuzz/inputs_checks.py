"""What must hold of anything that was learned, adapted or summed up."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from inputs_verdict import Failure, attempt, check_ends, check_finite
from tailored import TaskSet
from tailored.exceptions import UnknownCategoryWarning


def check_learned(learner: Any) -> None:
    for name in (
        "validation_error_",
        "scale_",
        "task_weights_",
        "mean_",
        "median_",
        "coef_",
        "covariance_",
        "noise_",
    ):
        value = vars(learner).get(name)
        if value is not None:
            check_finite(name, value)
    prior = vars(learner).get("prior_")
    if prior is not None and prior.calibration is not None:
        check_finite("noise of the calibration", prior.calibration.noise)


def check_model(model: Any, X: Any) -> None:
    check_finite("coef_", model.coef_)
    check_finite("intercept_", model.intercept_)
    with warnings.catch_warnings():
        # Both encode the side information again.
        warnings.simplefilter("ignore", UnknownCategoryWarning)
        if model._prior.response.is_gaussian:
            check_finite("dual_gap_", model.dual_gap_)
        if model.representation_ is not None:
            check_finite("representation_", model.representation_)
    if not len(X) if isinstance(X, list) else not X.shape[0]:
        return
    found = attempt(lambda: model.predict(X), model)
    if found is not None:
        check_finite("predict", found)
    if model._prior.calibration is None:
        return
    ends = attempt(lambda: model.predict_interval(X), model)
    if ends is not None:
        check_ends(ends)
    deviation = attempt(lambda: model.predict_std(X), model)
    if deviation is not None:
        check_finite("predict_std", deviation)
        if (deviation < 0).any():
            raise Failure("predict_std is negative")


def check_probabilities(P: Any, all_classes: bool = False) -> None:
    """Probabilities of classes (n, K), or of the second class alone."""
    check_finite("probability", P)
    if (P < 0).any() or (P > 1).any():
        raise Failure("a probability is not between 0 and 1")
    if (all_classes or P.shape[1] > 2) and len(P) and np.abs(P.sum(axis=1) - 1.0).max() > 1e-9:
        raise Failure("probabilities do not add up to one")


def check_summary(learner: Any, tasks: TaskSet) -> None:
    """What is said of the learner; NaN is what it does not know."""
    said = attempt(learner.summary, learner)
    if said is not None:
        attempt(lambda: str(said) + repr(said.frames))
        for name, table in said.tables.items():
            for column, values in table.columns.items():
                # Ratios of large coefficients overflow.
                if name != "ratios" and any(isinstance(v, float) and np.isinf(v) for v in values):
                    raise Failure(f"summary: {column!r} of {name!r} has an infinity")
    effects = attempt(lambda: learner.effects(tasks), learner)
    if effects is not None:
        check_finite("effects", effects["effect"])


def check_table(table: Any, calibrated: bool) -> None:
    check_finite("predict_tasks", np.asarray(table["prediction"]))
    if calibrated:
        check_ends(np.column_stack([np.asarray(table["lower"]), np.asarray(table["upper"])]))
        check_finite("std of predict_tasks", np.asarray(table["std"]))
