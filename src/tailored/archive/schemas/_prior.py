"""What learning ends in: the prior and its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...losses import LOSSES
from ...representation import BIASES
from ...within import WITHIN
from ..kinds import (
    check_cone,
    floats,
    integers,
    is_node,
    maybe,
    need,
    not_negative,
    number,
    one_of,
    pair,
    positive,
    psd,
    regressor,
    same,
    sequence,
    shape,
    share,
    unit,
    whole,
)
from ..schema import Schema, node
from ._maps import MAPS
from ._units import UNITS
from ._widths import width

Parts = Mapping[str, Any]

CONDITIONINGS = ("BlockDiagonal", "Constant", "Dense", "Factored", "LowRank")
LOSS_NODES = tuple(kind.__name__ for kind in LOSSES.values())
SPREADS = ("TaskSpreads", "FactorSpreads")
#: A pair (low, high) that predictions are clipped to.
RANGE = maybe(pair(number(), tuple))


def _bias(parts: Parts, place: str) -> None:
    d, conditional = len(parts["constant"]), BIASES[parts["kind"]][1]
    shape(parts["linear"], (d, parts["linear"].shape[1] if conditional else 0), f"{place}.linear")
    need(BIASES[parts["kind"]][0] or not parts["constant"].any(), place, "is no mean and moves all the same")


def _blocks(parts: Parts, place: str) -> None:
    d, m = len(parts["C"]), len(parts["features"])
    shape(parts["blocks"], (m, d, d), f"{place}.blocks")
    need(
        (parts["features"] < parts["n_side"]).all(), f"{place}.features", "names features that are not there"
    )


def _dense(parts: Parts, place: str) -> None:
    H, C = parts["H"], parts["C"]
    need(len(C) and len(H) % len(C) == 0, f"{place}.H", "does not fit C")
    # An H that never left zero is the rounding of steps as large as C.
    check_cone(H, f"{place}.H", 1e-8 * float(np.abs(C).max()))


def _factored(parts: Parts, place: str) -> None:
    r, rank = len(parts["eigenvalues"]), parts["rank"]
    shape(parts["basis"], (len(parts["C"]) * parts["n_side"], r), f"{place}.basis")
    need(rank is None or r <= rank, f"{place}.eigenvalues", "are more than the rank")


def _low_rank(parts: Parts, place: str) -> None:
    shape(parts["factors"], (len(parts["diagonal"]), parts["factors"].shape[1]), f"{place}.factors")


def _calibration(parts: Parts, place: str) -> None:
    rows, scores, weights = parts["rows"], parts["scores"], parts["weights"]
    need(len(rows) and (np.diff(rows) > 0).all(), f"{place}.rows", "must increase")
    need(len(scores) == len(weights) == len(rows), place, "has levels without scores or weights")
    for i, (score, weight) in enumerate(zip(scores, weights, strict=True)):
        need(len(score) and (np.diff(score) >= 0).all(), f"{place}.scores.{i}", "must not decrease")
        shape(weight, score.shape, f"{place}.weights.{i}")
        need(0.0 < weight.sum() <= 1.0 + 1e-6, f"{place}.weights.{i}", "must add up to at most one")


def _spreads(parts: Parts, place: str) -> None:
    T, n = len(parts["n_rows"]), parts["covariances"].shape[-1]
    shape(parts["squares"], (T,), f"{place}.squares")
    shape(parts["covariances"], (T, n, n), f"{place}.covariances")


def n_columns(conditioning: Any) -> int:
    """d of a conditioning function."""
    return len(conditioning.parts["diagonal" if conditioning.kind == "LowRank" else "C"])


def n_side(conditioning: Any) -> int:
    """k of a conditioning function."""
    if conditioning.kind == "Dense":
        return len(conditioning.parts["H"]) // len(conditioning.parts["C"])
    return int(conditioning.parts["n_side"])


def _prior(parts: Parts, place: str) -> None:
    units, conditioning, bias = parts["units"].parts, parts["conditioning"], parts["bias"].parts
    d, k, features = len(units["columns"]), n_side(conditioning), parts["feature_map"]
    same(n_columns(conditioning), d, f"{place}.conditioning", "columns")
    shape(bias["constant"], (d,), f"{place}.bias.constant")
    inputs = d - units["fit_intercept"]
    need(inputs > 0, f"{place}.units", "has no columns")
    given = 0 if features is None else width(features, inputs, f"{place}.feature_map")
    same(k, given, f"{place}.conditioning", "features of a task")
    if BIASES[bias["kind"]][1]:
        shape(bias["linear"], (d, k), f"{place}.bias.linear")
    clip = parts["clip"]
    need(clip is None or clip[0] <= clip[1], f"{place}.clip", "ends before it begins")
    wide = conditioning.kind == "LowRank"
    gaussian = is_node(parts["loss"], "Squared") and parts["inner"] == "exact" and parts["size_exponent"] == 1
    need(gaussian or not wide, f"{place}.conditioning", "of many columns is for the squared loss")
    need(not wide or features is None or features.kind == "SideMap", f"{place}.feature_map", "does not fit")
    need(
        parts["quantile"] is None or parts["calibration"] is not None,
        f"{place}.quantile",
        "was never counted",
    )
    need(parts["quantile"] is None or gaussian, f"{place}.quantile", "is for the models of empirical Bayes")


SPREAD_FIELDS = {"n_rows": integers(0), "squares": floats(1, 0.0), "covariances": psd(3)}

PRIOR = {
    "Absolute": Schema(),
    "Pinball": Schema({"quantile": share}),
    "EpsilonInsensitive": Schema({"epsilon": not_negative}),
    "Huber": Schema({"delta": positive}),
    "Squared": Schema(),
    "Logistic": Schema(),
    "Hinge": Schema(),
    "Bias": Schema({"kind": one_of(*BIASES), "constant": floats(1), "linear": floats(2)}, agree=_bias),
    "Constant": Schema({"C": psd(), "n_side": whole()}),
    "BlockDiagonal": Schema(
        {"blocks": psd(3), "features": integers(0), "C": psd(), "n_side": whole()}, agree=_blocks
    ),
    "Dense": Schema({"H": floats(2), "C": psd()}, agree=_dense),
    "Factored": Schema(
        {
            "basis": floats(2),
            "eigenvalues": floats(1, 0.0),
            "C": psd(),
            "n_side": whole(),
            "rank": maybe(whole(1)),
        },
        agree=_factored,
    ),
    "LowRank": Schema({"factors": floats(2), "diagonal": floats(1, 0.0), "n_side": whole()}, agree=_low_rank),
    **UNITS,
    "Calibration": Schema(
        {
            "rows": floats(1, 0.0),
            "scores": sequence(floats(1)),
            "weights": sequence(floats(1, 0.0)),
            "noise": unit,
        },
        agree=_calibration,
    ),
    "TaskSpreads": Schema(SPREAD_FIELDS, agree=_spreads),
    "FactorSpreads": Schema(SPREAD_FIELDS, agree=_spreads),
    "CommonPart": Schema({"regressor": regressor, "encoder": maybe(node("SideVector"))}),
    "Prior": Schema(
        {
            "conditioning": node(*CONDITIONINGS),
            "bias": node("Bias"),
            "units": node("Units"),
            "feature_map": maybe(node(*MAPS)),
            "loss": node(*LOSS_NODES),
            "inner": one_of(*WITHIN),
            "tol": positive,
            "max_iter": whole(1),
            "size_exponent": whole(0, 1),
            "clip": RANGE,
            "calibration": maybe(node("Calibration")),
            "common": maybe(node("CommonPart")),
            "quantile": maybe(share),
        },
        agree=_prior,
    ),
}
