"""Displays hold the arrays of a figure, computed elsewhere, and draw them on request.

``plot`` draws on given axes, or on new ones, and returns the figure; matplotlib is imported when drawing.
"""

from .benchmark import BenchmarkDisplay
from .curves import CurvesDisplay
from .demo import DemoDisplay
from .representation import RepresentationDisplay
from .step_sizes import StepSizeDisplay
from .theory import AdvantageDisplay, BoundsDisplay, RatesDisplay

__all__ = [
    "AdvantageDisplay",
    "BenchmarkDisplay",
    "BoundsDisplay",
    "CurvesDisplay",
    "DemoDisplay",
    "RatesDisplay",
    "RepresentationDisplay",
    "StepSizeDisplay",
]
