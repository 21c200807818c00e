"""Anderson's acceleration of a fixed-point iteration: fewer steps to where the plain ones lead.

A step of EM for a mixed model takes off a constant part of what is missing, and that part is small where tasks
say little about a direction of W.  The last steps show how the map bends, and their combination that would
have moved least says where it comes to rest (D. G. Anderson, 1965; Walker and Ni, 2011).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: Steps that are remembered.
MEMORY = 10
#: Added to the normal equations, relative to their trace: differences that are rounding do not speak.
DAMPING = 1e-8


class Anderson:
    """The last steps ``x → g(x)`` of an iteration, and the point that they lead to."""

    def __init__(self) -> None:
        self._images: list[Array] = []
        self._moves: list[Array] = []

    def propose(self, x: Array, image: Array) -> Array:
        """The next point after ``g(x) = image``; the image itself while there is nothing to combine."""
        self._images = [*self._images, image][-MEMORY - 1 :]
        self._moves = [*self._moves, image - x][-MEMORY - 1 :]
        if len(self._moves) == 1:
            return image
        images, moves = np.diff(self._images, axis=0), np.diff(self._moves, axis=0)
        normal = moves @ moves.T
        normal += DAMPING * np.trace(normal) * np.eye(len(normal))
        weights = np.linalg.lstsq(normal, moves @ self._moves[-1], rcond=None)[0]
        return np.asarray(image - weights @ images)

    def forget(self) -> None:
        """Keep the last step alone: the earlier ones misled."""
        self._images, self._moves = self._images[-1:], self._moves[-1:]
