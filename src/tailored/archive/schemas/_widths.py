"""How many features a fitted map gives, and what it reads: so that the rest of a model can be held against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..kinds import need, same, shape
from ..tree import Node

Parts = Mapping[str, Any]


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
