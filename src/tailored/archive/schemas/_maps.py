"""Feature maps and the Gaussian models in them."""

from __future__ import annotations

from collections.abc import Mapping
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
    unit,
    units,
    whole,
)
from ..schema import Schema, node

Parts = Mapping[str, Any]

MAPS = (
    "AdaptedWeights",
    "AngleMap",
    "FourierEmbedding",
    "JoinedMaps",
    "MeanEmbedding",
    "PosteriorMap",
    "PosteriorMean",
    "RidgeEstimate",
    "SideMap",
    "SideVector",
)
#: Degree of the splines of `tailored.feature_maps.side_features`.
DEGREE = 3
SEED = maybe(whole(0, 2**32 - 1))


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


def maps(learners: tuple[str, ...]) -> dict[str, Schema]:
    """The schemas; a learner of one of these names may stand in a map."""
    given = specification(learners)
    waves = {"n_components": whole(1), "random_state": SEED}
    waves |= {"frequencies": maybe(floats(2)), "phases": maybe(floats(1))}
    encoding = either(
        named({"values": sequence(maybe(label), list)}),
        named({"mean": number(), "deviation": unit}, {"indicator": flag}),
    )
    return {
        "Mixture": Schema(
            {
                "proportions": shares,
                "means": floats(2),
                "covariances": psd(3),
                "noise": unit,
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
                "norms": sequence(unit, list),
            },
            agree=_joined,
        ),
        "AdaptedWeights": Schema(
            {
                "learner": maybe(node(*learners)),
                "unit_norm": flag,
                "constant": flag,
                "model": maybe(node(*learners)),
                "norm": unit,
            }
        ),
        "PosteriorMean": Schema(
            {
                "fit_intercept": flag,
                "units": maybe(node("Units")),
                "mixture": maybe(node("Mixture")),
                "norm": unit,
            }
        ),
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
                "deviation": units,
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
                "noise": unit,
                "spread": unit,
                "noise_mean": floats(1),
                "noise_deviation": units,
                "with_side": flag,
                "mean": floats(1),
                "norm": unit,
            }
        ),
    }
