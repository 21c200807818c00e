"""Units of columns and targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..kinds import flag, floats, need, number, shape, units
from ..schema import Schema


def _units(parts: Mapping[str, Any], place: str) -> None:
    shape(parts["shift"], parts["columns"].shape, f"{place}.shift")
    if parts["fit_intercept"]:
        constant = len(parts["columns"]) and parts["columns"][-1] == 1.0 and parts["shift"][-1] == 0.0
        need(constant, place, "has no constant column for the intercept")


UNITS = {
    "Units": Schema(
        {
            "columns": units,
            "target": number(1e-153, 1e153),  # its square is a number, too
            "shift": floats(1),
            "target_shift": number(),
            "fit_intercept": flag,
        },
        agree=_units,
    )
}
