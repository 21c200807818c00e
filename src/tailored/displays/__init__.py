"""Figures of a user's own model, in scikit-learn's manner.

``XDisplay.from_estimator(learner, tasks, ax=None)`` computes the arrays and draws them.  The arrays are attributes.
``plot(ax=None)`` draws them again and returns the display with ``ax_`` and ``figure_``.  matplotlib is imported when
drawing.
"""

from .components import ComponentsDisplay
from .effects import EffectsDisplay, ShrinkageDisplay
from .prior_map import PriorPathDisplay, RepresentationMapDisplay
from .rows import RowsDisplay
from .task_fit import TaskFitDisplay

__all__ = [
    "ComponentsDisplay",
    "EffectsDisplay",
    "PriorPathDisplay",
    "RepresentationMapDisplay",
    "RowsDisplay",
    "ShrinkageDisplay",
    "TaskFitDisplay",
]
