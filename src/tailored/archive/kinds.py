"""Kinds of fields: what a value in a file must be, said once, for the reader and for the writer.

A kind is a function of a value and its place that raises `Wrong` where the value is not of that kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .tree import Node, Regressor

Kind = Callable[[Any, str], None]

#: Of the sizes of things: a number above it is nobody's.
LARGEST = 2**53
#: How far rounding may take a learned matrix from symmetry and from the cone, and shares from their sum.
ROUNDING = 1e-6
#: Letters of a word.
LONGEST = 100_000


class Wrong(ValueError):
    """A value is not what its field asks for: the place, and the reason."""

    def __init__(self, place: str, reason: str) -> None:
        self.place, self.reason = place, reason
        super().__init__(f"{place}: {reason}")


def need(condition: Any, place: str, reason: str) -> None:
    """Raise `Wrong` unless the condition holds."""
    if not condition:
        raise Wrong(place, reason)


# --- single values


def nothing(value: Any, place: str) -> None:
    need(value is None, place, "must be empty")


def flag(value: Any, place: str) -> None:
    need(type(value) is bool, place, "must be true or false")


def word(value: Any, place: str) -> None:
    need(type(value) is str and len(value) <= LONGEST, place, "must be a word")
    need(
        value.isascii() or not any("\ud800" <= c < "\ue000" for c in value), place, "must be whole characters"
    )


def one_of(*words: str) -> Kind:
    def check(value: Any, place: str) -> None:
        need(type(value) is str and value in words, place, f"must be one of {', '.join(map(repr, words))}")

    return check


def number(
    low: float = -math.inf, high: float = math.inf, *, strict: bool = False, finite: bool = True
) -> Kind:
    """A number between two ends, which it may not reach where ``strict``."""

    def check(value: Any, place: str) -> None:
        need(type(value) in (int, float), place, "must be a number")
        try:
            found = float(value)
        except OverflowError:
            raise Wrong(place, "must be a number that fits into 64 bits") from None
        if not finite and math.isnan(found):
            return
        need(math.isfinite(found) or not finite, place, "must be finite")
        inside = low < found < high if strict else low <= found <= high
        need(inside, place, f"must be {'strictly ' if strict else ''}between {low:g} and {high:g}")

    return check


def whole(low: int = 0, high: int = LARGEST) -> Kind:
    def check(value: Any, place: str) -> None:
        need(type(value) is int, place, "must be a whole number")
        need(low <= value <= high, place, f"must be between {low} and {high}")

    return check


positive = number(0.0, strict=True)
#: What numbers are divided by: neither it nor its inverse is beyond the range of numbers.
SMALLEST_UNIT, LARGEST_UNIT = 1e-300, 1e300
unit = number(SMALLEST_UNIT, LARGEST_UNIT)
not_negative = number(0.0)
share = number(0.0, 1.0, strict=True)


# --- several


def maybe(kind: Kind) -> Kind:
    def check(value: Any, place: str) -> None:
        if value is not None:
            kind(value, place)

    return check


def either(*kinds: Kind) -> Kind:
    """Any of these; where none fits, the reason is that of the last one."""

    def check(value: Any, place: str) -> None:
        for kind in kinds[:-1]:
            try:
                kind(value, place)
            except Wrong:
                continue
            return
        kinds[-1](value, place)

    return check


def sequence(kind: Kind, *types: type, least: int = 0, most: int = LARGEST) -> Kind:
    """A list or a tuple (or one of them) of values of one kind."""
    allowed = types or (list, tuple)

    def check(value: Any, place: str) -> None:
        need(type(value) in allowed, place, f"must be a {' or '.join(t.__name__ for t in allowed)}")
        need(least <= len(value) <= most, place, f"has {len(value)} entries")
        for i, item in enumerate(value):
            kind(item, f"{place}.{i}")

    return check


def pair(kind: Kind, *types: type) -> Kind:
    return sequence(kind, *types, least=2, most=2)


def named(kinds: Mapping[str, Kind], optional: Mapping[str, Kind] | None = None) -> Kind:
    """A dictionary with just these names."""
    others = optional or {}

    def check(value: Any, place: str) -> None:
        need(type(value) is dict, place, "must have fields with names")
        check_fields(value, place, kinds, others)

    return check


def mapping(kind: Kind) -> Kind:
    """A dictionary whose names are anyone's."""

    def check(value: Any, place: str) -> None:
        need(type(value) is dict, place, "must have fields with names")
        for name, item in value.items():
            word(name, place)
            kind(item, f"{place}.{name}")

    return check


def check_fields(
    parts: Mapping[str, Any], place: str, kinds: Mapping[str, Kind], optional: Mapping[str, Kind]
) -> None:
    """All of ``kinds``, any of ``optional``, and no others."""
    for name in kinds:
        need(name in parts, f"{place}.{name}", "is missing")
    for name, value in parts.items():
        kind = kinds.get(name) or optional.get(name)
        if kind is None:
            raise Wrong(f"{place}.{name[:60]}", "is unknown")
        kind(value, f"{place}.{name}")


# --- arrays


def floats(
    n_dimensions: int,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    strict: bool = False,
    finite: bool = True,
) -> Kind:
    """An array of doubles, all finite, not below (``strict``: above) ``low``."""

    def check(value: Any, place: str) -> None:
        _check_array(value, place, n_dimensions, "numbers", lambda dtype: dtype == np.float64)
        need(not finite or np.isfinite(value).all(), place, "holds NaN or infinity")
        if low > -math.inf:
            inside = (value > low).all() if strict else (value >= low).all()
            need(inside, place, f"holds a number that is not {'above' if strict else 'at least'} {low:g}")
        if high < math.inf:
            need((value <= high).all(), place, f"holds a number that is not at most {high:g}")

    return check


def units(value: Any, place: str) -> None:
    """A row of numbers that others are divided by."""
    floats(1, SMALLEST_UNIT, LARGEST_UNIT)(value, place)


def integers(low: int = -LARGEST, *, dtypes: str = "i") -> Kind:
    """A row of whole numbers."""

    def check(value: Any, place: str) -> None:
        _check_array(value, place, 1, "whole numbers", lambda dtype: dtype.kind in dtypes)
        need((value >= low).all(), place, f"holds a number below {low}")

    return check


def _check_array(value: Any, place: str, n_dimensions: int, what: str, fits: Callable[[Any], bool]) -> None:
    need(isinstance(value, np.ndarray) and fits(value.dtype), place, f"must be an array of {what}")
    need(value.ndim == n_dimensions, place, f"must have {n_dimensions} dimensions, has {value.ndim}")


def psd(n_dimensions: int = 2) -> Kind:
    """Symmetric positive semidefinite matrices, in the last two of the dimensions."""
    real = floats(n_dimensions)

    def check(value: Any, place: str) -> None:
        real(value, place)
        check_cone(value, place)

    return check


def check_cone(value: np.ndarray, place: str, least: float = 0.0) -> None:
    """Finite matrices in the cone, up to rounding of numbers of size ``least`` where their own are smaller."""
    need(value.shape[-1] == value.shape[-2], place, f"must be square, has the shape {value.shape}")
    if not value.size:
        return
    size = np.maximum(np.abs(value).max(axis=(-2, -1), keepdims=True), least)
    # In units of the largest entry of each: the eigenvalues of one near the largest float would overflow.
    unit = value / np.where(size > 0, size, 1.0)
    need(np.abs(unit - np.swapaxes(unit, -1, -2)).max() <= ROUNDING, place, "must be symmetric")
    try:
        # It exists where no eigenvalue is below −ROUNDING, for a fraction of the eigenvalues' time.
        np.linalg.cholesky(unit + ROUNDING * np.eye(value.shape[-1]))
    except np.linalg.LinAlgError:
        raise Wrong(place, "must be positive semidefinite") from None


def shares(value: Any, place: str) -> None:
    """Numbers that add up to one."""
    floats(1, 0.0)(value, place)
    need(abs(float(value.sum()) - 1.0) <= ROUNDING, place, "must add up to one")


def words(value: Any, place: str) -> None:
    """Names: a list or an array of words."""
    need(
        type(value) in (list, tuple)
        or (isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "OU"),
        place,
        "must be words",
    )
    for i, name in enumerate(value.tolist() if isinstance(value, np.ndarray) else value):
        word(name, f"{place}.{i}")


def label(value: Any, place: str) -> None:
    """A number, a word, or a tuple of these."""
    if type(value) is tuple:
        for i, part in enumerate(value):
            maybe(label)(part, f"{place}.{i}")
    elif type(value) is float:
        need(not math.isnan(value), place, "must not be NaN")
    elif type(value) is str:
        word(value, place)
    else:
        need(type(value) in (int, bool), place, "must be a number, a word or a tuple of these")


def labels(value: Any, place: str) -> None:
    """Different labels of tasks."""
    need(isinstance(value, np.ndarray) and value.ndim == 1, place, "must be a row of labels")
    need(value.dtype.kind in "biufUO", place, "must be numbers, words or tuples of these")
    found = value.tolist()
    if value.dtype.kind in "Of":
        for i, one in enumerate(found):
            label(one, f"{place}.{i}")
    need(len(set(found)) == len(found), place, "must be different labels")


# --- objects


def regressor(value: Any, place: str) -> None:
    need(type(value) is Regressor, place, "must be a regressor in skops' format")


def shape(value: np.ndarray, expected: tuple[int, ...], place: str) -> None:
    """The shape that the rest of the model asks for."""
    need(
        value.shape == expected,
        place,
        f"has the shape {value.shape}, the rest of the model asks for {expected}",
    )


def same(found: Any, expected: Any, place: str, what: str) -> None:
    """Two parts of the model agree."""
    need(found == expected, place, f"{what}: {found} here, {expected} in the rest of the model")


def is_node(value: Any, *kinds: str) -> bool:
    return type(value) is Node and value.kind in kinds
