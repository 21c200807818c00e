"""The prior mean of a task's weights: b(s) = B φ(s) + b₀.

`"none"` keeps it at zero (the paper), `"shared"` learns b₀, `"conditional"` learns both (the companion method of
biased regularisation).  The mean is unconstrained, so gradient steps need no projection.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np

from .._utils.records import Stored
from .._utils.validation import check_choice, check_shape
from .conditioning import Array

#: For each value of a learner's ``bias``: whether the mean is learned, and whether it depends on φ.
BIASES = {"none": (False, False), "shared": (True, False), "conditional": (True, True)}


class Bias(Stored):
    """b(s) = B φ(s) + b₀ with the parts that ``kind`` selects: ``constant`` is b₀ (d,), ``linear`` is B (d, k).

    B is (d, 0) unless the kind is "conditional".
    """

    def __init__(self, kind: str, constant: Array, linear: Array) -> None:
        self.kind = kind
        self.moves, self.conditional = BIASES[check_choice("bias", kind, BIASES)]
        check_shape("constant", constant, None)
        check_shape("linear", linear, len(constant), None if self.conditional else 0)
        if not self.moves and constant.any():
            raise ValueError("constant: must be zero when kind is 'none'")
        self.constant = constant
        self.linear = linear

    @classmethod
    def zero(cls, kind: str, n_features: int, n_side: int) -> Bias:
        """Return b = 0, the initial value."""
        conditional = BIASES[kind][1]
        return cls(kind, np.zeros(n_features), np.zeros((n_features, n_side if conditional else 0)))

    def __call__(self, phi: Array) -> Array:
        return self.constant + self.linear @ phi if self.conditional else self.constant

    def evaluate(self, phis: Array) -> Array:
        """Return b at many feature vectors (T, k): an array (T, d)."""
        if self.conditional:
            return self.constant + phis @ self.linear.T
        return np.broadcast_to(self.constant, (len(phis), len(self.constant)))

    def step(self, gradient: Array, phi: Array, step: float, step_linear: float) -> None:
        """Take a gradient step of b₀ and one of B, in place."""
        if not self.moves or step == 0:
            return
        self.constant -= step * gradient
        if self.conditional:
            self.linear -= step_linear * np.outer(gradient, phi)
        if not (np.isfinite(self.constant).all() and np.isfinite(self.linear).all()):
            raise OverflowError("the iterate b is no longer finite")

    def accumulate(self, other: Bias, weight: float) -> None:
        """Update a running average, in place."""
        if self.moves:
            self.constant = (1.0 - weight) * self.constant + weight * other.constant
            self.linear = (1.0 - weight) * self.linear + weight * other.linear

    def copy(self) -> Bias:
        """Return an independent copy."""
        return deepcopy(self)
