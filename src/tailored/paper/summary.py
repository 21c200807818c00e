"""Description of the learners of the paper for `summary`: steps, rank and spectrum of τ, errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._utils.tables import Table, plural
from ..losses import error_name
from ..show.summary import Summary
from .representation import RANK_TOLERANCE, Given


def summarise_paper_learner(learner: Any) -> Summary:
    """Summarise a learner of the paper: the selected step, rank and spectrum of τ, and errors on
    held-out tasks.
    """
    conditioning, tables = learner.prior_.conditioning, dict[str, Table]()
    if isinstance(conditioning, Given):
        sentences = ["τ(s) is the function that the user passed."]
    else:
        sentences = [_describe_steps(learner)] if hasattr(learner, "step_size_") else []
        mean = np.array(conditioning.C)
        if conditioning.n_side:
            mean = conditioning.mean(getattr(learner, "feature_moment_", np.zeros((0, 0))))
        values = np.linalg.eigvalsh(mean)[::-1]
        n, total = len(values), float(np.trace(mean)) or 1.0
        rank = int(np.count_nonzero(values > n * RANK_TOLERANCE * max(values[0], 0.0)))
        if conditioning.depends_on_task:
            share = 100.0 * (1.0 - float(np.trace(conditioning.C)) / total)
            sentences.append(
                f"τ(s) depends on φ(s) with k = {conditioning.n_side}; {share:.0f} % of its mean "
                f"trace is due to H. The mean of τ over the training tasks has rank {rank} in {n} "
                "dimensions."
            )
        else:
            sentences.append(f"τ is the same for every task, with rank {rank} in {n} dimensions.")
        columns = {
            "direction": [str(j + 1) for j in range(n)],
            "eigenvalue": values.tolist(),
            "share of trace": (values / total).tolist(),
        }
        caption = "eigenvalue: of the mean of τ over the training tasks, in decreasing order."
        tables["spectrum"] = Table("Spectrum of τ", columns, caption, ["share of trace"])
    if errors := getattr(learner, "held_out_errors_", {}):
        caption = (
            f"error: mean {error_name(learner.loss_.name)} on query rows, over the tasks held out "
            "in fit, on which the step was selected. independent: θ = C₀; unconditional: H = 0, "
            "with its best step."
        )
        table = {"method": list(errors), "error": list(errors.values())}
        tables["errors"] = Table("Error on held-out tasks", table, caption)
    title = f"{type(learner).__name__}: {plural(learner.n_features_in_, 'feature')}"
    return Summary(title, tuple(sentences), tables)


def _describe_steps(learner: Any) -> str:
    """Describe the step sizes of Algorithm 1 in one sentence."""
    steps = learner.step_size_
    n_tried = len({(row["step_C"], row["step_H"]) for row in learner.search_results_})
    text = f"Algorithm 1 with step size {steps.C:.4g} for C"
    if learner.conditioning_.n_side:
        text += f" and {steps.H:.4g} for H"
    if n_tried:
        text += f", selected among {n_tried} on held-out tasks"
    if learner.scale_ != 1.0:
        text += f"; τ is multiplied by {learner.scale_:g}, selected with the step"
    return f"{text}."
