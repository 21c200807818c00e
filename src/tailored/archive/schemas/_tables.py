"""How tables were read, and what is kept of tasks for a summary."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kinds import (
    either,
    floats,
    integers,
    mapping,
    maybe,
    need,
    not_negative,
    number,
    one_of,
    pair,
    psd,
    same,
    sequence,
    shape,
    whole,
    word,
)
from ..schema import Schema, node

Parts = Mapping[str, Any]

KINDS = ("number", "boolean", "categorical", "ordered", "date")
#: One column of labels, or several.
TASK = maybe(either(sequence(word, tuple, least=1), word))


def _column(parts: Parts, place: str) -> None:
    categories, means, coded = parts["categories"], parts["means"], ("categorical", "ordered")
    need(len(set(categories)) == len(categories), f"{place}.categories", "must be distinct")
    need(bool(categories) == (parts["kind"] in coded), f"{place}.categories", "do not fit the kind")
    need(not means or parts["kind"] in coded, f"{place}.means", "do not fit the kind")
    wanted = len(categories) - 1 if parts["kind"] == "categorical" else 1
    need(not means or len(means) == wanted, f"{place}.means", "have another number of columns")


def _encoding(parts: Parts, place: str) -> None:
    for name in ("features", "side_info"):
        found = [column.parts["name"] for column in parts[name]]
        need(len(set(found)) == len(found), f"{place}.{name}", "names a column twice")


def _covariance(parts: Parts, place: str) -> None:
    p = len(parts["row"])
    shape(parts["column"], (p,), f"{place}.column")
    shape(parts["covariance"], (p, p), f"{place}.covariance")


def _training_summary(parts: Parts, place: str) -> None:
    sizes = {len(errors) for errors in parts["errors"].values()}
    need(len(sizes) <= 1, f"{place}.errors", "are of different tasks")
    if parts["mean"] is not None and parts["row_moment"] is not None:
        d = len(parts["row_moment"])
        need((parts["mean"].parts["row"] < d).all(), f"{place}.mean.row", "is not there")


def _side_summary(parts: Parts, place: str) -> None:
    m = len(parts["row_variance"])
    same(len(parts["coefficient_std"]), m, f"{place}.coefficient_std", "columns")
    shape(parts["entropy_reduction"], (m,), f"{place}.entropy_reduction")
    if parts["component_means"] is not None:
        same(parts["component_means"].shape[1], m - 1, f"{place}.component_means", "columns")


TABLES = {
    "ColumnEncoding": Schema(
        {
            "name": word,
            "kind": one_of(*KINDS),
            "categories": sequence(word, tuple),
            "origin": number(-1e7, 1e7),
            "means": sequence(number(), tuple),
        },
        agree=_column,
    ),
    "Encoding": Schema(
        {
            "task": TASK,
            "target": maybe(word),
            "features": sequence(node("ColumnEncoding"), tuple),
            "side_info": sequence(node("ColumnEncoding"), tuple),
            "dropped": sequence(pair(either(whole(), word), tuple), tuple),
        },
        agree=_encoding,
    ),
    "MeanCovariance": Schema(
        {"row": integers(0), "column": integers(0), "covariance": floats(2, finite=False)}, agree=_covariance
    ),
    "SideSummary": Schema(
        {
            "coefficient_std": floats(2, 0.0),
            "row_variance": floats(1),
            "entropy_reduction": floats(1),
            "component_means": maybe(floats(2)),
        },
        agree=_side_summary,
    ),
    "TrainingSummary": Schema(
        {
            "n_tasks": whole(),
            "n_rows": whole(),
            "target_mean": number(),
            "loss": word,
            "errors": mapping(floats(1, finite=False)),
            "row_moment": maybe(psd()),
            "mean": maybe(node("MeanCovariance")),
            "mixed_model": maybe(node("Mixture")),
            "ridge": maybe(not_negative),
            "side": maybe(node("SideSummary")),
        },
        agree=_training_summary,
    ),
}
