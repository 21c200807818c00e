"""Feature maps and the Gaussian models in them: their fields, and how many features they give."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from ...feature_maps import FEATURE_MAPS
from ..kinds import (
    either,
    flag,
    floats,
    label,
    maybe,
    named,
    need,
    number,
    one_of,
    pair,
    positive,
    psd,
    same,
    sequence,
    shape,
    shares,
    whole,
)
from ..schema import Schema, node
from ..tree import Node

Parts = Mapping[str, Any]

MAPS = (
    "AdaptedWeights",
    "AngleMap",
    "FourierEmbedding",
    "FourierEstimate",
    "JoinedMaps",
    "MeanEmbedding",
    "PosteriorMap",
    "PosteriorMean",
    "RidgeEstimate",
    "SecondOrder",
    "SideMap",
    "SideVector",
)
#: Degree of the splines of `tailored.feature_maps.side_features`.
DEGREE = 3
SEED = maybe(whole(0, 2**32 - 1))
ESTIMATES = one_of("posterior mean", "tuned ridge")


def specification(learners: tuple[str, ...]) -> Any:
    """What a learner takes as ``feature_map``."""

    def check(value: Any, place: str) -> None:
        either(
            one_of(*FEATURE_MAPS, "auto"),
            sequence(check),
            node(*MAPS, *learners),
        )(value, place)

    return check


# --- what the fields of one map have to say to each other


def _mixture(parts: Parts, place: str) -> None:
    K, d = len(parts["proportions"]), parts["means"].shape[1]
    shape(parts["means"], (K, d), f"{place}.means")
    shape(parts["covariances"], (K, d, d), f"{place}.covariances")
    side, gates = parts["side"], parts["gates"]
    if side is not None:
        shape(side, (d, side.shape[1]), f"{place}.side")
    if gates is not None:
        shape(gates, (K, gates.shape[1]), f"{place}.gates")
        need(gates.shape[1] > 0, f"{place}.gates", "has no constants")


def _posterior(parts: Parts, place: str) -> None:
    mixture, d = parts["mixture"].parts, len(parts["units"].parts["columns"])
    same(mixture["means"].shape[1], d, f"{place}.mixture.means", "columns")
    q = 0 if parts["side"] is None else len(parts["side"].parts["mean"])
    if mixture["side"] is not None:
        shape(mixture["side"], (d, q), f"{place}.mixture.side")
    if mixture["gates"] is not None:
        shape(mixture["gates"], (len(mixture["means"]), 1 + q), f"{place}.mixture.gates")
    rows = [level.parts["rows"] for level in parts["levels"]]
    need(all(a < b for a, b in pairwise(rows)), f"{place}.levels", "must increase")
    for i, level in enumerate(parts["levels"]):
        if level.parts["summary"] is not None:
            summary_fits(level.parts["summary"].parts, d, q, f"{place}.levels.{i}.summary")


def summary_fits(summary: Parts, d: int, q: int, place: str) -> None:
    """The summary of tasks with d columns and q features of a description."""
    shape(summary["centre"], (d,), f"{place}.centre")
    shape(summary["axes"], (d, d), f"{place}.axes")
    for name in ("noise_mean", "noise_deviation"):
        shape(summary[name], (2,), f"{place}.{name}")
    shape(summary["mean"], (d + 2 + (q if summary["with_side"] else 0),), f"{place}.mean")


def _curve(parts: Parts, place: str) -> None:
    knots = parts["knots"]
    need(len(knots) >= 2 * (DEGREE + 1), f"{place}.knots", "are too few")
    need((np.diff(knots) >= 0).all() and knots[0] < knots[-1], f"{place}.knots", "must increase")
    ends = (knots[: DEGREE + 1] == knots[0]).all() and (knots[-DEGREE - 1 :] == knots[-1]).all()
    need(ends, f"{place}.knots", "must be repeated at their ends")


def _side_features(parts: Parts, place: str) -> None:
    n = parts["n_linear"]
    for i, curve in enumerate(parts["curves"]):
        need(curve.parts["column"] < n, f"{place}.curves.{i}.column", "is not there")
        n += len(curve.parts["knots"]) - DEGREE - 2
    shape(parts["mean"], (n,), f"{place}.mean")
    shape(parts["deviation"], (n,), f"{place}.deviation")


def _side_vector(parts: Parts, place: str) -> None:
    means, indicated = parts.get("means"), parts.get("indicated", ())
    need(means is None or parts["categories"] is None, place, "is of numbers and of categories at once")
    n = 0 if means is None else len(means)
    need(all(0 <= j < n for j in indicated), f"{place}.indicated", "names columns that are not there")
    need(len(set(indicated)) == len(indicated), f"{place}.indicated", "names a column twice")
    for i, encoding in enumerate(parts["categories"] or ()):
        values = encoding.get("values", ())
        need(len(set(values)) == len(values), f"{place}.categories.{i}", "has a value twice")


def _joined(parts: Parts, place: str) -> None:
    same(len(parts["norms"]), len(parts["parts"]), f"{place}.norms", "maps")


# --- how many features a map gives


def width(map_: Node, n: int, place: str) -> int:
    """Features of a fitted map for tasks with n columns."""
    return WIDTHS[map_.kind](map_.parts, n, place)


def _fitted(value: Any, place: str) -> Any:
    need(value is not None, place, "is not fitted")
    return value


def _ridge_width(parts: Parts, n: int, place: str) -> int:
    _fitted(parts["penalty"], f"{place}.penalty")
    return n + 1


def _angle_width(parts: Parts, n: int, place: str) -> int:
    _fitted(parts["scale"], f"{place}.scale")
    return 2 * n + 1


def _fourier_width(parts: Parts, n: int, place: str) -> int:
    _frequencies(parts, n, place)
    return 2 * int(parts["n_components"])


def _frequencies(parts: Parts, n: int, place: str) -> None:
    D = parts["n_components"]
    shape(_fitted(parts["frequencies"], f"{place}.frequencies"), (n, D), f"{place}.frequencies")
    shape(_fitted(parts["phases"], f"{place}.phases"), (D,), f"{place}.phases")


def _vector_width(parts: Parts, n: int, place: str) -> int:
    if parts["categories"] is None:
        return len(_fitted(parts.get("means"), f"{place}.means")) + len(parts["indicated"])
    lengths = (
        len(e["values"]) if "values" in e else 1 + e.get("indicator", False) for e in parts["categories"]
    )
    return sum(lengths)


def _joined_width(parts: Parts, n: int, place: str) -> int:
    need(parts["parts"], f"{place}.parts", "is not fitted")
    return sum(width(part, n, f"{place}.parts.{i}") for i, part in enumerate(parts["parts"]))


def _adapted_width(parts: Parts, n: int, place: str) -> int:
    model = _fitted(parts["model"], f"{place}.model").parts
    need(model["fitted"], f"{place}.model", "is not fitted")
    same(model["fitted"]["n_features_in_"], n, f"{place}.model", "columns")
    return n + bool(model["parameters"]["fit_intercept"]) + parts["constant"]


def _mean_width(parts: Parts, n: int, place: str) -> int:
    d = n + parts["fit_intercept"]
    units, mixture = (_fitted(parts[name], f"{place}.{name}").parts for name in ("units", "mixture"))
    same(len(units["columns"]), d, f"{place}.units", "columns")
    same(units["fit_intercept"], parts["fit_intercept"], f"{place}.units", "intercept")
    same(mixture["means"].shape[1], d, f"{place}.mixture", "columns")
    need(
        mixture["side"] is None and mixture["gates"] is None, f"{place}.mixture", "has a description to read"
    )
    return d + 1


def _of_estimate(parts: Parts, n: int, place: str) -> None:
    width(_fitted(parts["source"], f"{place}.source"), n, f"{place}.source")
    kind = "PosteriorMean" if parts["estimate"] == "posterior mean" else "RidgeEstimate"
    same(parts["source"].kind, kind, f"{place}.source", "estimate")
    if kind == "PosteriorMean":
        need(parts["source"].parts["fit_intercept"], f"{place}.source", "has no intercept")
    shape(_fitted(parts["unit"], f"{place}.unit"), (n + 1,), f"{place}.unit")


def _second_order_width(parts: Parts, n: int, place: str) -> int:
    _of_estimate(parts, n, place)
    q = min(parts["n_axes"], n + 1)
    shape(_fitted(parts["axes"], f"{place}.axes"), (n + 1, q), f"{place}.axes")
    return n + q * (q + 1) // 2 + 1


def _fourier_estimate_width(parts: Parts, n: int, place: str) -> int:
    _of_estimate(parts, n, place)
    _frequencies(parts, n + 1, place)
    return int(parts["n_components"])


def side_width(side: Node, n: int, place: str) -> int:
    """Features v(s) of a description, for tasks with n columns."""
    same(
        width(side.parts["encoder"], n, f"{place}.encoder"),
        side.parts["n_linear"],
        f"{place}.n_linear",
        "features",
    )
    return len(side.parts["mean"])


def _posterior_width(parts: Parts, n: int, place: str) -> int:
    model = _fitted(parts["model"], f"{place}.model").parts
    mixture, units = model["mixture"].parts, model["units"].parts
    K, d = mixture["means"].shape
    same(d - units["fit_intercept"], n, f"{place}.model.units", "columns")
    k, q = 2 * K, 0
    if model["side"] is not None:
        q = side_width(model["side"], n, f"{place}.model.side")
    if mixture["side"] is not None or mixture["gates"] is not None:
        k += q
    if mixture["averaged"] and K > 1:
        k += d
    summaries = [level.parts["summary"] for level in model["levels"]]
    return k + sum(1 + len(summary.parts["mean"]) for summary in summaries if summary is not None)


WIDTHS: dict[str, Callable[[Parts, int, str], int]] = {
    "MeanEmbedding": lambda parts, n, place: 2 * n,
    "AngleMap": _angle_width,
    "FourierEmbedding": _fourier_width,
    "RidgeEstimate": _ridge_width,
    "SideVector": _vector_width,
    "JoinedMaps": _joined_width,
    "AdaptedWeights": _adapted_width,
    "PosteriorMean": _mean_width,
    "SecondOrder": _second_order_width,
    "FourierEstimate": _fourier_estimate_width,
    "PosteriorMap": _posterior_width,
    "SideMap": lambda parts, n, place: side_width(parts["side"], n, f"{place}.side"),
}


def description_columns(value: Any) -> set[int]:
    """Columns of the side information that the encoders in a part of a model ask for."""
    if isinstance(value, Node):
        if value.kind == "SideVector":
            known = (
                value.parts["categories"]
                if value.parts["categories"] is not None
                else value.parts.get("means")
            )
            return set() if known is None else {len(known)}
        # A learner in a map reads the same description; what its arguments say is no part of what it reads.
        parts = value.parts.get("fitted", value.parts)
        skipped = ("learner", "maps")
        return set().union(
            *(description_columns(part) for name, part in parts.items() if name not in skipped)
        )
    if isinstance(value, list | tuple):
        return set().union(*(description_columns(part) for part in value))
    return set()


def maps(learners: tuple[str, ...]) -> dict[str, Schema]:
    """The schemas; a learner of one of these names may stand in a map."""
    given = specification(learners)
    estimate = {"estimate": ESTIMATES, "source": maybe(node("PosteriorMean", "RidgeEstimate"))}
    estimate["unit"] = maybe(floats(1, 0.0, strict=True))
    waves = {"n_components": whole(1), "random_state": SEED}
    waves |= {"frequencies": maybe(floats(2)), "phases": maybe(floats(1))}
    encoding = either(
        named({"values": sequence(maybe(label), list)}),
        named({"mean": number(), "deviation": positive}, {"indicator": flag}),
    )
    return {
        "Mixture": Schema(
            {
                "proportions": shares,
                "means": floats(2),
                "covariances": psd(3),
                "noise": positive,
                "side": maybe(floats(2)),
                "gates": maybe(floats(2)),
                "averaged": flag,
            },
            agree=_mixture,
        ),
        "MeanEmbedding": Schema(),
        "AngleMap": Schema(
            {"low": maybe(number()), "high": maybe(number()), "scale": maybe(pair(number(), tuple))}
        ),
        "FourierEmbedding": Schema({**waves, "gamma": maybe(number(0.0))}),
        "RidgeEstimate": Schema({"alpha": either(one_of("auto"), positive), "penalty": maybe(positive)}),
        "SideVector": Schema(
            {"categories": maybe(sequence(encoding, list, least=1))},
            {"means": maybe(floats(1)), "indicated": sequence(whole(), tuple)},
            agree=_side_vector,
        ),
        "JoinedMaps": Schema(
            {
                "maps": sequence(given, list),
                "parts": sequence(node(*MAPS), list),
                "norms": sequence(positive, list),
            },
            agree=_joined,
        ),
        "AdaptedWeights": Schema(
            {
                "learner": maybe(node(*learners)),
                "unit_norm": flag,
                "constant": flag,
                "model": maybe(node(*learners)),
                "norm": positive,
            }
        ),
        "PosteriorMean": Schema(
            {
                "fit_intercept": flag,
                "units": maybe(node("Units")),
                "mixture": maybe(node("Mixture")),
                "norm": positive,
            }
        ),
        "SecondOrder": Schema(
            {**estimate, "n_axes": whole(1), "axes": maybe(floats(2)), "norms": pair(positive, tuple)}
        ),
        "FourierEstimate": Schema({**estimate, **waves}),
        "PosteriorMap": Schema(
            {
                "n_components": whole(1),
                "fit_intercept": flag,
                "random_state": SEED,
                "model": maybe(node("PosteriorModel")),
            }
        ),
        "PosteriorModel": Schema(
            {
                "units": node("Units"),
                "mixture": node("Mixture"),
                "levels": sequence(node("Level"), tuple),
                "side": maybe(node("SideFeatures")),
            },
            agree=_posterior,
        ),
        "SideMap": Schema({"side": node("SideFeatures")}),
        "SideFeatures": Schema(
            {
                "encoder": node(*MAPS),
                "mean": floats(1),
                "deviation": floats(1, 0.0, strict=True),
                "n_linear": whole(1),
                "curves": sequence(node("Curve"), tuple),
            },
            agree=_side_features,
        ),
        "Curve": Schema({"column": whole(), "knots": floats(1)}, agree=_curve),
        "Level": Schema({"rows": number(0.0), "summary": maybe(node("TaskSummary"))}),
        "TaskSummary": Schema(
            {
                "centre": floats(1),
                "axes": floats(2),
                "noise": positive,
                "spread": positive,
                "noise_mean": floats(1),
                "noise_deviation": floats(1, 0.0, strict=True),
                "with_side": flag,
                "mean": floats(1),
                "norm": positive,
            }
        ),
    }
