"""The learned function of a task's features φ: its representation τ(s) and its prior mean b(s).

`Constant` has H = 0, `Dense` stores H, `Factored` an eigenbasis of limited rank, `Exact` every direction of an
iterate of Algorithm 1, `BlockDiagonal` one block for each feature, `LowRank`
factors and a diagonal.  The dense one is the oracle of the others.
"""

from ._base import RANK_TOLERANCE, Conditioning, Iterate, in_cone, project_psd
from .bias import BIASES, Bias
from .block_diagonal import BlockDiagonal
from .constant import Constant
from .dense import Dense
from .exact import Change, Exact, slices
from .factored import Factored
from .low_rank import LowRank
from .stacks import subtract_squares

__all__ = [
    "BIASES",
    "RANK_TOLERANCE",
    "Bias",
    "BlockDiagonal",
    "Change",
    "Conditioning",
    "Constant",
    "Dense",
    "Exact",
    "Factored",
    "Iterate",
    "LowRank",
    "in_cone",
    "project_psd",
    "slices",
    "subtract_squares",
]
