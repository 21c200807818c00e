"""Displays hold the arrays of a figure, computed elsewhere, and draw them on request.

Of one's own model, in scikit-learn's manner: ``XDisplay.from_estimator(learner, tasks, ax=None)`` computes and draws, the
arrays are attributes, and ``plot(ax=None)`` draws them again and returns the display with ``ax_`` and ``figure_``.
Of the studies: ``plot`` draws on given axes, or on new ones, and returns the figure.  matplotlib is imported when drawing.
"""

from .benchmark import BenchmarkDisplay
from .components import ComponentsDisplay
from .curves import CurvesDisplay
from .demo import DemoDisplay
from .effects import EffectsDisplay, ShrinkageDisplay
from .prior_map import PriorPathDisplay, RepresentationMapDisplay
from .representation import RepresentationDisplay
from .rows import RowsDisplay
from .step_sizes import StepSizeDisplay
from .task_fit import TaskFitDisplay
from .theory import AdvantageDisplay, BoundsDisplay, RatesDisplay

__all__ = [
    "AdvantageDisplay",
    "BenchmarkDisplay",
    "BoundsDisplay",
    "ComponentsDisplay",
    "CurvesDisplay",
    "DemoDisplay",
    "EffectsDisplay",
    "PriorPathDisplay",
    "RatesDisplay",
    "RepresentationDisplay",
    "RepresentationMapDisplay",
    "RowsDisplay",
    "ShrinkageDisplay",
    "StepSizeDisplay",
    "TaskFitDisplay",
]
