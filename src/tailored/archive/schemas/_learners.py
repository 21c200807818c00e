"""Learners and solvers: their arguments, as their constructors and `fit` would take them, and what they learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...losses import LOSSES
from ...representation import BIASES
from ...within import WITHIN
from ..kinds import (
    Kind,
    either,
    flag,
    floats,
    integers,
    labels,
    mapping,
    maybe,
    named,
    need,
    not_negative,
    number,
    one_of,
    pair,
    positive,
    regressor,
    same,
    sequence,
    shape,
    share,
    whole,
    word,
    words,
)
from ..schema import Schema, node
from ._maps import SEED, specification
from ._prior import LOSS_NODES, SPREADS
from ._tables import TASK
from ._widths import description_columns, width

Parts = Mapping[str, Any]

SOLVERS = ("ProjectedSGD", "LBFGS")
LEARNERS = (
    "ConditionalLearner",
    "EmpiricalBayesLearner",
    "IndependentLearner",
    "UnconditionalLearner",
)


# --- arguments


def given_numbers(n_dimensions: int, low: float = -np.inf, *, strict: bool = False) -> Kind:
    """Numbers that a user gave: an array of any type, or lists."""
    one = number(low, strict=strict)
    listed: Kind = one
    for _ in range(n_dimensions):
        listed = sequence(listed)

    def check(value: Any, place: str) -> None:
        if isinstance(value, np.ndarray):
            need(value.dtype.kind in "biuf" and value.ndim == n_dimensions, place, "must be numbers")
            need(np.isfinite(value).all(), place, "holds NaN or infinity")
            need(
                (value > low if strict else value >= low).all(),
                place,
                f"holds a number that is not above {low:g}",
            )
        else:
            listed(value, place)

    return check


truth = either(flag, whole(0, 1))
steps = given_numbers(1, 0.0)
range_of_rows = either(whole(), share)


def named_loss(value: Any, place: str) -> None:
    """A name with its settings."""
    need(type(value) in (list, tuple) and len(value) == 2, place, "must be a name and its settings")
    one_of(*LOSSES)(value[0], f"{place}.0")
    mapping(number())(value[1], f"{place}.1")


LOSS = either(one_of(*LOSSES), named_loss, node(*LOSS_NODES))


def clip(value: Any, place: str) -> None:
    either(one_of("train"), given_numbers(1))(value, place)
    if not isinstance(value, str):
        need(len(value) == 2 and value[0] <= value[1], place, "must be a pair (low, high)")


def device(value: Any, place: str) -> None:
    word(value, place)
    need(value.partition(":")[0] == "cuda", place, "must be a CUDA device")


COMMON: dict[str, Kind] = {
    "loss": LOSS,
    "fit_intercept": truth,
    "tol": positive,
    "max_iter": whole(1),
    "n_jobs": maybe(whole(-(2**16), 2**16)),
    "random_state": SEED,
}
WITHIN_TASK: dict[str, Kind] = {**COMMON, "inner": one_of(*WITHIN)}
START: Kind = maybe(either(not_negative, given_numbers(2)))
CHOSEN: dict[str, Kind] = {"validation_fraction": share, "support": share}
OBJECTIVE: dict[str, Kind] = {
    **WITHIN_TASK,
    **CHOSEN,
    "objective": one_of("surrogate", "query"),
    "bias": one_of(*BIASES),
    "clip": maybe(clip),
    "solver": either(one_of("projected", "lbfgs"), node(*SOLVERS)),
    "initial_representation": START,
    "lipschitz": maybe(positive),
    "calibrate": truth,
    "progress": truth,
}
FEATURE_MAP = specification(LEARNERS)

#: Arguments by learner.
PARAMETERS: dict[str, dict[str, Kind]] = {
    "IndependentLearner": {**WITHIN_TASK, "initial_representation": START, "clip": maybe(clip)},
    "UnconditionalLearner": OBJECTIVE,
    "ConditionalLearner": {
        **OBJECTIVE,
        "feature_map": FEATURE_MAP,
        "rank": maybe(whole(1)),
        "scale_features": truth,
    },
    "EmpiricalBayesLearner": {
        **COMMON,
        "feature_map": FEATURE_MAP,
        "varying": maybe(sequence(either(whole(), word))),
        "common": maybe(either(one_of("auto"), regressor)),
        "clip": maybe(clip),
        "support": maybe(either(one_of("auto"), range_of_rows, pair(range_of_rows))),
        "order": one_of("random", "given"),
        "calibrate": truth,
        "validation_fraction": share,
        "device": maybe(device),
        "progress": truth,
    },
}

# --- what was learned


def told(value: Any, place: str) -> None:
    """A word or a number of a report: nothing is computed from it."""
    if type(value) in (list, tuple):
        for i, item in enumerate(value):
            told(item, f"{place}.{i}")
    elif value is not None and type(value) is not bool:
        either(number(finite=False), word)(value, place)


REPORT = mapping(told)
RESULTS = sequence(REPORT, list)
ERROR = maybe(number(finite=False))

FITTED: dict[str, Kind] = {
    "loss_": node(*LOSS_NODES),
    "n_features_in_": whole(1),
    "n_side_info_in_": whole(),
    "columns_in_": named({"task": TASK, "target": maybe(word), "side_info": maybe(words)}),
    "prior_": node("Prior"),
}
SERVED: dict[str, Kind] = {
    "feature_names_in_": words,
    "task_labels_": labels,
    "task_weights_": floats(2),
    "task_spreads_": node(*SPREADS),
    "encoding_": node("Encoding"),
}
BY_SOLVER: dict[str, Kind] = {
    "search_results_": RESULTS,
    "validation_error_": ERROR,
    "scale_": not_negative,
    "n_iter_": whole(),
    "n_tasks_seen_": whole(),
}

#: Fitted attributes beside those of all learners: those that each has, and those that it may have.
LEARNED: dict[str, tuple[dict[str, Kind], dict[str, Kind]]] = {
    "IndependentLearner": ({"n_iter_": whole()}, {}),
    "UnconditionalLearner": (BY_SOLVER, {"step_size_": node("StepSizes"), "theory_constants_": REPORT}),
    "ConditionalLearner": (BY_SOLVER, {"step_size_": node("StepSizes"), "theory_constants_": REPORT}),
    "EmpiricalBayesLearner": (
        {
            **BY_SOLVER,
            "form_": REPORT,
            "n_components_": whole(1),
            "side_form_": maybe(REPORT),
            "bias_penalty_": maybe(not_negative),
        },
        {
            "training_summary_": node("TrainingSummary"),
            "task_descriptions_": floats(2),
            "task_parts_": integers(-1),
            "common_others_": sequence(node("CommonPart"), tuple),
        },
    ),
}


def _learner(parts: Parts, place: str) -> None:
    fitted = parts["fitted"]
    if not fitted:
        return
    prior, n = fitted["prior_"].parts, fitted["n_features_in_"]
    units, at = prior["units"].parts, f"{place}.fitted"
    d = len(units["columns"])
    need(
        bool(parts["parameters"]["fit_intercept"]) == units["fit_intercept"],
        f"{place}.parameters.fit_intercept",
        "is not the one that the learner was fitted with; fit again",
    )
    same(d - units["fit_intercept"], n, f"{at}.n_features_in_", "columns")
    if "feature_names_in_" in fitted:
        same(len(fitted["feature_names_in_"]), n, f"{at}.feature_names_in_", "columns")
    described = fitted["n_side_info_in_"]
    names = fitted["columns_in_"]["side_info"]
    need(
        names is None or len(names) == described, f"{at}.columns_in_", "has other columns of side information"
    )
    read = description_columns(prior["feature_map"]) | description_columns(prior["common"])
    need(read <= {described}, f"{at}.prior_", "reads other columns of side information than there are")
    need(("task_weights_" in fitted) == ("task_labels_" in fitted), at, "has tasks without weights or labels")
    if "task_weights_" in fitted:
        _served(fitted, d, at)


def _served(fitted: Parts, d: int, place: str) -> None:
    """The tasks that `predict` knows."""
    T, prior = len(fitted["task_labels_"]), fitted["prior_"].parts
    shape(fitted["task_weights_"], (T, d), f"{place}.task_weights_")
    need(prior["quantile"] is None or "task_spreads_" in fitted, place, "has a quantile without spreads")
    if "task_spreads_" in fitted:
        spreads = fitted["task_spreads_"]
        wide = prior["conditioning"].kind == "LowRank"
        same(spreads.kind, "FactorSpreads" if wide else "TaskSpreads", f"{place}.task_spreads_", "kind")
        q = prior["conditioning"].parts["factors"].shape[1] if wide else d
        shape(spreads.parts["covariances"], (T, q, q), f"{place}.task_spreads_.covariances")
        shape(spreads.parts["n_rows"], (T,), f"{place}.task_spreads_.n_rows")
    common = prior["common"]
    if common is None:
        return
    for name in ("task_descriptions_", "task_parts_", "common_others_"):
        need(name in fitted, f"{place}.{name}", "is missing")
    k = encoded_width(common)
    shape(fitted["task_descriptions_"], (T, k), f"{place}.task_descriptions_")
    shape(fitted["task_parts_"], (T,), f"{place}.task_parts_")
    need(
        (fitted["task_parts_"] < len(fitted["common_others_"])).all(), f"{place}.task_parts_", "is not there"
    )
    for i, other in enumerate(fitted["common_others_"]):
        same(encoded_width(other), k, f"{place}.common_others_.{i}", "features of a description")


def encoded_width(common: Any) -> int:
    """Numbers that stand for a description in a common part."""
    encoder = common.parts["encoder"]
    return 0 if encoder is None else width(encoder, 0, "encoder")


def _schema(name: str) -> Schema:
    required, optional = LEARNED[name]
    learned = named({**FITTED, **required}, {**SERVED, **optional})

    def fitted(value: Any, place: str) -> None:
        # A learner that is an argument of another one need not be fitted.
        if value != {}:
            learned(value, place)

    return Schema({"parameters": named(PARAMETERS[name]), "fitted": fitted}, agree=_learner)


LEARNER = {
    **{name: _schema(name) for name in LEARNERS},
    "StepSizes": Schema({"C": not_negative, "H": not_negative, "bias": not_negative}),
    "ProjectedSGD": Schema(
        {
            "step": either(one_of("search", "theory"), not_negative, steps),
            "step_sizes": maybe(steps),
            "step_ratios": maybe(steps),
            "theory_constants": maybe(mapping(number())),
        }
    ),
    "LBFGS": Schema({"max_passes": whole(1)}),
}
