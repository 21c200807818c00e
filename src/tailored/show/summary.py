"""`Summary`: the description of a fitted learner as sentences and tables, and its rendering as
text, HTML and JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from .._utils.progress import one_line, printable
from .._utils.tables import Table, plural, wrap
from .._utils.validation import check_choice
from ..losses import error_name
from ..paper.representation import RANK_TOLERANCE, Given
from ..selection.training_summary import TrainingSummary
from ..tasks.encoding import as_columns
from ..tasks.episodes import SupportSampling
from .model import FittedModel
from .sentences import sentences
from .tables import model_tables


@dataclass(frozen=True)
class Summary:
    """Summary of a fitted learner.

     ``print(summary)`` shows text, and a notebook shows HTML tables.

    ``tables`` contains, where available: "effects" (fixed effects with standard errors,
    random-effect standard deviations, and the R² of the side information), "ratios" (odds ratios or
    rate ratios with intervals), "correlations", "noise", "levels" (effects of the values of
    categorical columns with more than 20 values), "components", "component_effects",
    "side_information", "side_effects", "selection" (the best structure of each kind) and "errors";
    for learners of the paper, "spectrum" and "errors".  The caption of a table defines its numbers.
    """

    title: str  # the learner, and the number of tasks, rows and features it was fitted to
    text: tuple[str, ...]  # sentences about the selected model
    tables: Mapping[str, Table]

    @property
    def frames(self) -> dict[str, Any]:
        """Return all tables with all rows, as data frames if pandas is installed, else as
        structured arrays.
        """
        return {name: table.frame for name, table in self.tables.items()}

    def to_frame(self, table: str = "effects") -> Any:
        """Return one of the ``frames``."""
        return self.tables[check_choice("table", table, self.tables)].frame

    @property
    def printed_tables(self) -> list[Table]:
        """Return the tables that are part of the printed summary."""
        return [table for table in self.tables.values() if table.n_printed]

    @property
    def html_text(self) -> str:
        """Return the sentences as an HTML list."""
        return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in self.text)}</ul>"

    def __str__(self) -> str:
        text = "\n".join(line for sentence in self.text for line in wrap(sentence, "  "))
        parts = ["\n".join(wrap(self.title)), text, *map(str, self.printed_tables)]
        return printable("\n\n".join(part for part in parts if part))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = "".join(table.html for table in self.printed_tables)
        return printable(f"<div><h3>{escape(self.title)}</h3>{self.html_text}{tables}</div>")


def summarise(learner: Any, name: str, event: str, sampling: SupportSampling) -> Summary:
    """Summarise a fitted learner with all available tables.

    ``name`` is that of the learner, and ``event`` is what a binary target of 1 stands for.  The
    support rows of the tasks held out in `fit` were drawn by ``sampling``.
    """
    model = FittedModel.of(learner)
    title = one_line(f"{name}: {_data(learner, model.training)}")
    return Summary(
        title, tuple(sentences(model, learner, event)), model_tables(model, learner, sampling)
    )


def _data(learner: Any, training: TrainingSummary | None) -> str:
    """Count the tasks, rows and features that a learner was fitted to."""
    columns, parts = learner.columns_in_, []
    if training is not None:
        parts = [plural(training.n_tasks, "task"), plural(training.n_rows, "row")]
        parts[0] += (
            f" ({':'.join(as_columns(columns['task']))})" if columns["task"] is not None else ""
        )
        parts[1] += f" of {columns['target']}" if columns["target"] is not None else ""
    return ", ".join([*parts, plural(learner.n_features_in_, "feature")])


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
                "trace "
                f"is due to H. The mean of τ over the training tasks has rank {rank} in {n} "
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
            f"error: mean {error_name(learner.loss_.name)} on query rows, over the tasks held "
            "out in "
            "fit, on which the step was selected. independent: θ = C₀; unconditional: H = 0, "
            "with its "
            "best step."
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
