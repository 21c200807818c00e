"""What was learned, for people: tables of effects, of what tasks differ by, and of errors beside those of others."""

from .account import OWN, Account, SideAccount, side_account
from .building import Facts, summarise
from .effects import INTERCEPT, TaskEffects, column_names, posterior_model, task_effects
from .rivals import MIXED_MODEL, POOLED, RIDGE, TASK_MEAN, rival_errors, rival_predictions
from .summary import Summary
from .tables import Table

__all__ = [
    "INTERCEPT",
    "MIXED_MODEL",
    "OWN",
    "POOLED",
    "RIDGE",
    "TASK_MEAN",
    "Account",
    "Facts",
    "SideAccount",
    "Summary",
    "Table",
    "TaskEffects",
    "column_names",
    "posterior_model",
    "rival_errors",
    "rival_predictions",
    "side_account",
    "summarise",
    "task_effects",
]
