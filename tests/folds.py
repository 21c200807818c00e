"""Fits of the recommended learner that take less time, for statements that hold for any fit."""

import contextlib
from functools import partial
from importlib import import_module
from unittest.mock import patch

from tailored import EmpiricalBayesLearner


def few_folds(n_folds=2, **options):
    """Return a learner that selects the model structure on fewer folds."""
    learner = EmpiricalBayesLearner(**options)
    learner._n_folds = n_folds
    return learner


@contextlib.contextmanager
def short_fits(n_steps=5, n_folds=2):
    """Stop EM after a few steps, and select the model structure on few folds."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(EmpiricalBayesLearner, "_n_folds", n_folds))
        for name in ("gaussian.em", "selection.structures", "selection.steps.mixtures"):
            module = import_module(f"tailored.{name}")
            stack.enter_context(
                patch.object(module, "em", partial(_stop_early, module.em, n_steps))
            )
        yield


@contextlib.contextmanager
def no_curves():
    """Propose no shared effects, for tests of a linear model that need a selection."""
    with patch("tailored.selection.steps.shared_effects.LEAST_TASKS", float("inf")):
        yield


def _stop_early(em, n_steps, *arguments, max_iter, **options):
    return em(*arguments, max_iter=min(max_iter, n_steps), **options)
