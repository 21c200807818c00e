"""Figures of a fitted model, with the interface of scikit-learn's displays.

``from_estimator(learner, tasks, ..., ax=None)`` of a display computes arrays, stores them as
attributes and draws them; ``from_evaluation`` of `RowsDisplay` draws an `Evaluation`.
``plot(ax=None)`` draws the arrays again and returns the display with ``ax_`` and ``figure_``.
"""

from .evaluation import RowsDisplay
from .prior import PriorPathDisplay
from .tasks import EffectsDisplay, ShrinkageDisplay, TaskFitDisplay

__all__ = [
    "EffectsDisplay",
    "PriorPathDisplay",
    "RowsDisplay",
    "ShrinkageDisplay",
    "TaskFitDisplay",
]
