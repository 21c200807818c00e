"""The learned function of a task's features φ: its representation τ(s) and its prior mean b(s)."""

from .base import Conditioning, Iterate
from .bias import BIASES, Bias
from .blocks import BlockDiagonal, LowRank
from .dense import Constant, Dense
from .exact import Exact
from .factored import Factored

__all__ = [
    "BIASES",
    "Bias",
    "BlockDiagonal",
    "Conditioning",
    "Constant",
    "Dense",
    "Exact",
    "Factored",
    "Iterate",
    "LowRank",
]
