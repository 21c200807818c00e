"""What is kept of the tasks for `summary`, once a prior has been learned from them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..gaussian import Mixture, TaskStatistics, mean_covariance
from ..gaussian.forms import Form, FormFitter
from ..summaries import MIXED_MODEL, OWN, POOLED, RIDGE, TASK_MEAN, Account, SideAccount, side_account
from .data import ACCOUNT_TASKS, TrainingData
from .selection import Candidate, Choice

Array = NDArray[np.float64]

#: Operations that standard errors may take; beyond, a random sample of the tasks stands for all of them.
MOST_WORK = 1e8


def plain_account(data: TrainingData, errors: Array, own_means: Array) -> Account:
    """Of any form: numbers of tasks and rows, and errors beside those of the tasks' means."""
    y = data.tasks.y
    mean = float(y.mean()) if len(y) else 0.0
    judged = {OWN: errors, TASK_MEAN: own_means} if len(data) > 1 else {}
    return Account(len(data), len(y), mean, data.settings.loss.name, judged)


def take_account(
    data: TrainingData, choice: Choice, fitter: FormFitter, model: Mixture, errors: Array, n_tasks: int
) -> Account:
    """Of a form that was fitted to ``n_tasks`` tasks, of which ``data`` are all or a sample."""
    account = plain_account(data, errors, choice.own_means)
    rows = float(account.n_rows) * n_tasks / max(len(data), 1)
    account = replace(account, n_tasks=n_tasks, n_rows=round(rows))
    if len(data) == 1:
        return account
    form = choice.best.form
    totals = data.statistics.totals()
    moment = totals.gram / max(totals.n_rows, 1.0)
    sample = _sample(data)
    n_linear = 0 if data.side is None else data.side.n_linear
    mean = mean_covariance(
        model,
        data.statistics if sample is None else data.statistics.take(sample),
        learn_mean=form.learn_mean,
        side=choice.side if form.kind != "independent" else None,
        n_linear=n_linear,
        repeated=1.0 if sample is None else len(data) / len(sample),
        times=n_tasks / len(data),
    )
    rivals, plain = _rivals(choice.candidates), None
    if MIXED_MODEL in rivals:
        plain = replace(fitter, starts=choice.starts).fit(rivals[MIXED_MODEL].form)
    return replace(
        account,
        errors={**account.errors, **{name: rival.errors for name, rival in rivals.items()}},
        row_moment=moment,
        mean=mean,
        plain=plain,
        ridge=rivals[RIDGE].form.ridge if RIDGE in rivals else None,
        side=_side(data, model, moment),
    )


def _rivals(candidates: list[Candidate]) -> dict[str, Candidate]:
    """What a practitioner would try first, of all that was judged."""
    unscaled = [c for c in candidates if c.scale == 1.0]
    kinds = {
        RIDGE: [c for c in unscaled if c.form.kind == "independent"],
        POOLED: [c for c in unscaled if c.form.structure == "none"],
        MIXED_MODEL: [c for c in unscaled if _is_classical(c.form)],
    }
    return {name: min(found, key=lambda c: c.error) for name, found in kinds.items() if found}


def _is_classical(form: Form) -> bool:
    """A mixed model with a full covariance, as it is (or with the one pseudo-task that few tasks are given)."""
    return (
        form.kind == "mixed model"
        and form.structure == "full"
        and form.pseudo_tasks <= 1.0
        and not form.truncation
    )


def _sample(data: TrainingData) -> NDArray[np.intp] | None:
    """Some of the tasks, where all would take long; None are all."""
    most = max(200, int(MOST_WORK / data.statistics.n_features**3))
    if len(data) <= most:
        return None
    return np.sort(np.random.default_rng(data.seed(ACCOUNT_TASKS)).permutation(len(data))[:most])


def _side(data: TrainingData, model: Mixture, moment: Array) -> SideAccount | None:
    if not data.has_description or (model.side is None and model.gates is None):
        return None
    assert data.side is not None
    statistics: TaskStatistics = data.statistics
    assert statistics.side is not None
    table = data.tasks.side_info
    numbers = None if table is None or table.dtype == object else table.astype(float)
    return side_account(model, data.units, data.side, statistics.side, moment, numbers)
