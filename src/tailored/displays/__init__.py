"""Displays hold the arrays of a figure and draw them; matplotlib is imported when drawing.

``from_...`` computes, ``plot`` draws (on given axes, or on new ones), and the arrays stay on the object.
"""

from .curves import CurvesDisplay
from .demo import DemoDisplay
from .representation import RepresentationDisplay
from .step_sizes import StepSizeDisplay

__all__ = ["CurvesDisplay", "DemoDisplay", "RepresentationDisplay", "StepSizeDisplay"]
