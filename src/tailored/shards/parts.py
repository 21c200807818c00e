"""Tasks in several parts, each with its own sums: added in the order of the parts, wherever the parts are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, TypeVar

from .._utils.threads import single_threaded_blas
from ..gaussian import Source
from ..gaussian.moments import Model, Moments, Summed, Totals

Sums = TypeVar("Sums", Totals, Moments)


def in_order(parts: Iterable[Sums]) -> Sums:
    """The sum from the first part to the last: the same parts give the same bits."""
    return reduce(add, parts)


@dataclass(frozen=True)
class Parts:
    """Parts of the tasks in this process: the same parts on the workers of a cluster give the same bits."""

    parts: Sequence[Source]

    @property
    def n_features(self) -> int:
        return self.parts[0].n_features

    def totals(self) -> Totals:
        return in_order(part.totals() for part in self.parts)

    def moments(self, model: Model, responsibilities: Any = None) -> Summed:
        earlier = [None] * len(self.parts) if responsibilities is None else responsibilities
        with single_threaded_blas():
            found = [part.moments(model, r) for part, r in zip(self.parts, earlier, strict=True)]
        return Summed(in_order(one.moments for one in found), [one.responsibilities for one in found])
