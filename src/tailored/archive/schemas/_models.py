"""Models of one task, and where a stream of tasks stands: what holds rows."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from ...within import WITHIN
from ..kinds import (
    Kind,
    either,
    flag,
    floats,
    integers,
    label,
    labels,
    maybe,
    named,
    need,
    not_negative,
    number,
    one_of,
    pair,
    positive,
    psd,
    same,
    sequence,
    shape,
    whole,
    word,
    words,
)
from ..schema import Schema, node
from ._learners import LOSS, clip, encoded_width, given_numbers, truth
from ._maps import summary_fits
from ._prior import RANGE
from ._widths import side_width

Parts = Mapping[str, Any]

#: Learners that can be written with their stream.
PAUSED = ("EmpiricalBayesLearner",)


# --- tasks


def _rows(value: Any, place: str) -> None:
    """Rows (N, d): an array, or the parts of one in compressed sparse rows."""
    if type(value) is not tuple:
        floats(2)(value, place)
        return
    need(len(value) == 4, place, "must be data, indices, pointers and a shape")
    data, indices, pointers, size = value
    floats(1)(data, f"{place}.0")
    for i, numbers in ((1, indices), (2, pointers)):
        integers(0)(numbers, f"{place}.{i}")
    pair(whole(), tuple)(size, f"{place}.3")
    need(len(data) == len(indices), place, "has entries without columns")
    need(len(pointers) == size[0] + 1 and pointers[0] == 0, place, "has rows without pointers")
    need(pointers[-1] == len(data) and (np.diff(pointers) >= 0).all(), place, "has pointers to nowhere")
    need((indices < size[1]).all(), place, "has columns beyond the last")
    # Sorted and different within a row, as compiled loops take them.
    inside = np.ones(len(indices), dtype=bool)
    starts = pointers[:-1][pointers[:-1] < len(indices)]
    inside[starts] = False
    need((np.diff(indices)[inside[1:]] > 0).all(), place, "has columns out of order")


def _described(value: Any, place: str) -> None:
    """Side information: numbers, or rows of numbers and words; NaN and None are missing ones."""
    cell = maybe(either(number(finite=False), label))
    either(floats(2, finite=False), sequence(sequence(cell, list), list))(value, place)
    if isinstance(value, np.ndarray):
        need(not np.isinf(value).any(), place, "holds infinity")


def rows_of(tasks: Parts) -> tuple[int, int]:
    """N and d."""
    X = tasks["X"]
    return (X[3][0], X[3][1]) if isinstance(X, tuple) else X.shape


def _tasks(parts: Parts, place: str) -> None:
    (N, d), T, offsets = rows_of(parts), len(parts["labels"]), parts["offsets"]
    need(d > 0, f"{place}.X", "has no columns")
    shape(parts["y"], (N,), f"{place}.y")
    shape(offsets, (T + 1,), f"{place}.offsets")
    need(offsets.dtype == np.int64, f"{place}.offsets", "must be of 64 bits")
    need(offsets[0] == 0 and offsets[-1] == N, f"{place}.offsets", "do not part all rows")
    need((np.diff(offsets) >= 0).all(), f"{place}.offsets", "must not decrease")
    side, names = parts["side_info"], parts["side_names"]
    if side is not None:
        same(len(side), T, f"{place}.side_info", "tasks")
        q = side.shape[1] if isinstance(side, np.ndarray) else len(names or side[0])
        need(
            isinstance(side, np.ndarray) or all(len(row) == q for row in side),
            place,
            "has rows of other lengths",
        )
        need(names is None or len(names) == q, f"{place}.side_names", "are not those of the columns")
    if parts["feature_names"] is not None:
        same(len(parts["feature_names"]), d, f"{place}.feature_names", "columns")


# --- one task


def _one_task(parts: Parts, place: str) -> None:
    prior, given = parts["prior"].parts, parts["given"]
    units, wide = prior["units"].parts, prior["conditioning"].kind == "LowRank"
    d = len(units["columns"])
    shape(parts["weights"], (d,), f"{place}.weights")
    if wide:
        need(
            parts["theta"] is None and parts["mean"] is None and given is not None,
            place,
            "is not of many columns",
        )
        need(parts["open"] is not None, f"{place}.open", "is missing")
        q = prior["conditioning"].parts["factors"].shape[1]
        shape(parts["open"].parts["covariances"], (1, q, q), f"{place}.open.covariances")
        shape(parts["X"], (0, 0), f"{place}.X")
    else:
        need(parts["theta"] is not None and parts["open"] is None, f"{place}.theta", "is missing")
        shape(parts["theta"], (d, d), f"{place}.theta")
        shape(parts["X"], (len(parts["X"]), d), f"{place}.X")
        if parts["mean"] is not None:
            shape(parts["mean"], (d,), f"{place}.mean")
    shape(parts["y"], (len(parts["X"]),), f"{place}.y")
    most = max(parts["n_rows"], 0) if not wide else 0
    need(len(parts["y"]) <= most or wide, f"{place}.n_rows", "is less than there are rows")
    if given is not None:
        tasks = given.parts
        same(len(tasks["labels"]), 1, f"{place}.given", "tasks")
        same(
            rows_of(tasks),
            (parts["n_rows"], d - units["fit_intercept"]),
            f"{place}.given",
            "rows and columns",
        )
    need(
        (prior["common"] is None) == (parts["described"] is None),
        f"{place}.described",
        "does not fit the prior",
    )
    if parts["described"] is not None:
        shape(parts["described"], (1, encoded_width(prior["common"])), f"{place}.described")
    if parts["side"] is not None:
        features = prior["feature_map"]
        model = None if features is None else features.parts.get("model")
        side = None if model is None else model.parts.get("side")
        shape(parts["side"], (1, 0 if side is None else len(side.parts["mean"])), f"{place}.side")


def _regressor(parts: Parts, place: str) -> None:
    fitted, one, arguments = parts["fitted"], parts["one"], parts["parameters"]
    need(
        fitted["clip_"] is None or fitted["clip_"][0] <= fitted["clip_"][1],
        f"{place}.fitted.clip_",
        "is no range",
    )
    if one is None:
        for name in ("coef_", "intercept_", "representation_", "dual_gap_", "n_iter_"):
            need(name in fitted, f"{place}.fitted.{name}", "is missing")
        n = len(fitted["coef_"])
        need(n > 0, f"{place}.fitted.coef_", "has no columns")
        d = n + bool(arguments["fit_intercept"])
        theta = fitted["representation_"]
        need(theta is not None or parts["adapted"], f"{place}.fitted.representation_", "is missing")
        if theta is not None:
            shape(theta, (d, d), f"{place}.fitted.representation_")
    else:
        need(len(fitted) <= 2 and "coef_" not in fitted, f"{place}.fitted", "is computed from the task")
        units = one.parts["prior"].parts["units"].parts
        n = len(units["columns"]) - units["fit_intercept"]
        same(bool(arguments["fit_intercept"]), units["fit_intercept"], f"{place}.parameters", "intercept")
        need(arguments["representation"] is None and arguments["bias"] is None, place, "is given twice")
        need(parts["adapted"], f"{place}.adapted", "does not fit")
    if "feature_names_in_" in fitted:
        same(len(fitted["feature_names_in_"]), n, f"{place}.fitted.feature_names_in_", "columns")


# --- streams


def _running(parts: Parts, place: str) -> None:
    units, side = parts["units"].parts, parts["side"]
    d = len(units["columns"])
    q = 0 if side is None else side_width(side, d - units["fit_intercept"], f"{place}.side")
    for name in ("last", "average"):
        mixture, at = parts["model"].parts[name].parts, f"{place}.model.{name}"
        K = len(mixture["means"])
        shape(mixture["means"], (K, d), f"{at}.means")
        if mixture["side"] is not None:
            shape(mixture["side"], (d, q), f"{at}.side")
        if mixture["gates"] is not None:
            shape(mixture["gates"], (K, 1 + q), f"{at}.gates")
    rows = [level.parts["rows"] for level in parts["biases"]]
    need(all(a < b for a, b in pairwise(rows)), f"{place}.biases", "must increase")
    for i, level in enumerate(parts["biases"]):
        at, B, summary = f"{place}.biases.{i}", level.parts["B"], level.parts["summary"]
        need(B is None or summary is not None, f"{at}.summary", "is missing")
        if summary is not None:
            summary_fits(summary.parts, d, q, f"{at}.summary")
        if B is not None:
            shape(B, (d, 1 + len(summary.parts["mean"])), f"{at}.B")


def _stepwise(parts: Parts, place: str) -> None:
    for name in ("last", "average"):
        found = len(parts[name].parts["means"])
        same(found, parts["form"].parts["n_components"], f"{place}.{name}", "components")


def _form(parts: Parts, place: str) -> None:
    need(parts["kind"] != "independent" or parts["ridge"] is not None, f"{place}.ridge", "is missing")
    need(not parts["pseudo_tasks"] or parts["n_factors"] is not None, f"{place}.n_factors", "is missing")
    need(parts["kind"] == "mixture" or parts["n_components"] == 1, f"{place}.n_components", "must be one")


def _stream(parts: Parts, place: str) -> None:
    need(parts["sample"].parts["pieces"], f"{place}.sample", "holds no task")
    need(parts["n_chosen"] <= parts["n_tasks"], f"{place}.n_chosen", "is more than there are tasks")


def _paused(parts: Parts, place: str) -> None:
    fitted = parts["learner"].parts["fitted"]
    need(fitted, f"{place}.learner", "is not fitted")
    stream = parts["stream"].parts
    for name in ("sample", "validation"):
        for tasks in stream[name].parts["pieces"]:
            same(rows_of(tasks.parts)[1], fitted["n_features_in_"], f"{place}.stream", "columns")
            side = tasks.parts["side_info"]
            q = (
                0
                if side is None
                else (side.shape[1] if isinstance(side, np.ndarray) else len(side[0]) if side else 0)
            )
            same(q, fitted["n_side_info_in_"], f"{place}.stream", "columns of side information")
    running = stream["running"]
    if running is not None:
        units, prior = running.parts["units"].parts, fitted["prior_"].parts
        same(
            len(units["columns"]), len(prior["units"].parts["columns"]), f"{place}.stream.running", "columns"
        )
        same(
            units["fit_intercept"],
            prior["units"].parts["fit_intercept"],
            f"{place}.stream.running",
            "intercept",
        )


ARGUMENTS: dict[str, Kind] = {
    "representation": maybe(given_numbers(2)),
    "bias": maybe(given_numbers(1)),
    "loss": LOSS,
    "inner": one_of(*WITHIN),
    "fit_intercept": truth,
    "tol": positive,
    "max_iter": whole(1),
    "clip": maybe(clip),
}

MODEL = {
    "TaskSet": Schema(
        {
            "X": _rows,
            "y": floats(1),
            "offsets": integers(0),
            "labels": labels,
            "side_info": maybe(_described),
            "side_names": maybe(sequence(word, list)),
            "feature_names": maybe(words),
            "encoding": maybe(node("Encoding")),
        },
        agree=_tasks,
    ),
    "OneTask": Schema(
        {
            "prior": node("Prior"),
            "given": maybe(node("TaskSet")),
            "X": floats(2),
            "y": floats(1),
            "n_rows": whole(),
            "side": maybe(floats(2)),
            "described": maybe(floats(2)),
            "theta": maybe(psd()),
            "mean": maybe(floats(1)),
            "weights": floats(1),
            "gap": not_negative,
            "n_iter": whole(),
            "open": maybe(node("FactorSpreads")),
        },
        agree=_one_task,
    ),
    "TaskRegressor": Schema(
        {
            "parameters": named(ARGUMENTS),
            "fitted": named(
                {"clip_": RANGE},
                {
                    "coef_": floats(1),
                    "intercept_": number(),
                    "representation_": maybe(psd()),
                    "dual_gap_": number(),
                    "n_iter_": whole(),
                    "feature_names_in_": words,
                },
            ),
            "one": maybe(node("OneTask")),
            "adapted": flag,
            "encoding": maybe(node("Encoding")),
        },
        agree=_regressor,
    ),
    "Form": Schema(
        {
            "kind": one_of("independent", "mixed model", "mixture"),
            "n_components": whole(1),
            "structure": one_of("full", "diagonal", "intercept", "none"),
            "gate_penalty": not_negative,
            "learn_mean": flag,
            "ridge": maybe(not_negative),
            "n_factors": maybe(whole()),
            "pseudo_tasks": not_negative,
            "truncation": not_negative,
            "varying": maybe(sequence(whole(), tuple)),
        },
        agree=_form,
    ),
    "SideForm": Schema(
        {
            "penalty": not_negative,
            "intercept_only": flag,
            "curved": flag,
            "varying": maybe(sequence(whole(), tuple)),
        }
    ),
    "Stepwise": Schema(
        {"form": node("Form"), "last": node("Mixture"), "average": node("Mixture")}, agree=_stepwise
    ),
    "LevelBias": Schema(
        {
            "rows": number(0.0),
            "B": maybe(floats(2)),
            "summary": maybe(node("TaskSummary")),
            "penalty": maybe(not_negative),
            "errors": floats(1),
        }
    ),
    "Running": Schema(
        {
            "model": node("Stepwise"),
            "side_form": maybe(node("SideForm")),
            "scale": not_negative,
            "biases": sequence(node("LevelBias"), tuple),
            "units": node("Units"),
            "side": maybe(node("SideFeatures")),
        },
        agree=_running,
    ),
    "Reservoir": Schema(
        {
            "size": whole(1),
            "numbers": whole(1),
            "seed": whole(0, 2**63),
            "batches": sequence(node("TaskSet"), tuple),
            "limit": whole(0, 2**64 - 1),
        }
    ),
    "Stream": Schema(
        {
            "seed": whole(0, 2**63),
            "sample": node("Reservoir"),
            "validation": node("Reservoir"),
            "n_tasks": whole(),
            "n_chosen": whole(),
            "running": maybe(node("Running")),
        },
        agree=_stream,
    ),
    "Paused": Schema({"learner": node(*PAUSED), "stream": node("Stream")}, agree=_paused),
}
