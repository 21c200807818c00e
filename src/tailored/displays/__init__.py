"""Figures of a user's own model, with the interface of scikit-learn's displays.

``XDisplay.from_estimator(learner, tasks, ax=None)`` computes the arrays and draws them.  The arrays are attributes.
`RowsDisplay` is drawn from an `Evaluation`, as `CalibrationDisplay` may be.
``plot(ax=None)`` draws them again and returns the display with ``ax_`` and ``figure_``.  matplotlib is imported when
drawing.
"""

from .calibration import CalibrationDisplay
from .coefficients import ComponentsDisplay, EffectsDisplay, PriorPathDisplay, ShrinkageDisplay
from .rows import RowsDisplay
from .task_fit import TaskFitDisplay

__all__ = [
    "CalibrationDisplay",
    "ComponentsDisplay",
    "EffectsDisplay",
    "PriorPathDisplay",
    "RowsDisplay",
    "ShrinkageDisplay",
    "TaskFitDisplay",
]
