"""Summary of the paper's learners: the selected step, rank and spectrum of τ, and errors on held-out tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._utils.tables import Table, plural
from ..losses import error_name
from ..representation.conditioning import RANK_TOLERANCE, Given
from .summary import Summary


def summarise_paper_learner(learner: Any, errors: Mapping[str, float]) -> Summary:
    """Summarise a fitted learner of the paper; ``errors`` are those on tasks of the user, if any were passed."""
    conditioning, name = learner.prior_.conditioning, type(learner).__name__
    sentences, tables = [], dict[str, Table]()
    if isinstance(conditioning, Given):
        sentences.append("τ(s) is a function of the user.")
    else:
        moment = getattr(learner, "feature_moment_", np.zeros((0, 0)))
        mean = conditioning.mean(moment) if conditioning.n_side else np.array(conditioning.C)
        values = np.linalg.eigvalsh(mean)[::-1]
        rank = int(np.count_nonzero(values > len(values) * RANK_TOLERANCE * max(values[0], 0.0)))
        if hasattr(learner, "step_size_"):
            sentences.append(_describe_steps(learner))
        total = float(np.trace(mean))
        share = 1.0 - float(np.trace(conditioning.C)) / total if total > 0 else 0.0
        if not conditioning.depends_on_task:
            sentences.append(f"τ is the same for every task, with rank {rank} in {len(values)} dimensions.")
        else:
            sentences.append(
                f"τ(s) depends on φ(s) with k = {conditioning.n_side}; {100.0 * share:.0f} % of its mean trace is due "
                f"to H. The mean of τ over the training tasks has rank {rank} in {len(values)} dimensions."
            )
        cumulative = np.cumsum(values) / total if total > 0 else np.zeros(len(values))
        columns = {
            "direction": [str(j + 1) for j in range(len(values))],
            "eigenvalue": values.tolist(),
            "share of trace": np.diff(cumulative, prepend=0.0).tolist(),
        }
        caption = "eigenvalue: of the mean of τ over the training tasks, in decreasing order."
        tables["spectrum"] = Table("Spectrum of τ", columns, caption, ["share of trace"])
    shown = errors or getattr(learner, "held_out_errors_", {})
    if shown:
        where = "the given tasks" if errors else "the tasks held out in fit, on which the step was selected"
        caption = f"error: mean {error_name(learner.loss_.name)} on query rows, over {where}."
        if not errors:
            caption += " independent: θ = C₀; unconditional: H = 0, with its best step."
        table = {"method": list(shown), "error": list(shown.values())}
        tables["errors"] = Table("Error on held-out tasks", table, caption)
    return Summary(f"{name}: {plural(learner.n_features_in_, 'feature')}", tuple(sentences), tables)


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
    return text + "."
