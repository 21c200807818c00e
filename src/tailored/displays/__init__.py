"""Figures of a fitted model, with the interface of scikit-learn's displays.

``from_estimator(learner, tasks, ..., ax=None)`` of a display computes arrays, stores them as attributes and draws them.
``from_evaluation`` of `RowsDisplay` and `CalibrationDisplay` draws an `Evaluation`.  ``plot(ax=None)`` draws the arrays
again and returns the display with ``ax_`` and ``figure_``.  matplotlib is imported when drawing.
"""

from .evaluation import CalibrationDisplay, RowsDisplay
from .side_info import PriorPathDisplay, RepresentationDisplay
from .tasks import ComponentsDisplay, EffectsDisplay, ShrinkageDisplay, TaskFitDisplay

__all__ = [
    "CalibrationDisplay",
    "ComponentsDisplay",
    "EffectsDisplay",
    "PriorPathDisplay",
    "RepresentationDisplay",
    "RowsDisplay",
    "ShrinkageDisplay",
    "TaskFitDisplay",
]
