"""`Summary`: the description of a fitted learner as sentences and tables, and its rendering as text, HTML and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

from .._utils.progress import printable
from .._utils.tables import Table, plural, wrap
from .._utils.validation import check_choice
from ..empirical_bayes.training_summary import TrainingSummary
from ..tasks.episodes import SupportSampling
from .errors import Split, held_out_errors, new_errors
from .model import FittedModel
from .sentences import sentences
from .tables import model_tables


@dataclass(frozen=True)
class Summary:
    """Summary of a fitted learner.  ``print(summary)`` shows text, and a notebook shows HTML tables.

    ``tables`` contains, where available: "effects" (fixed effects with standard errors, random-effect standard deviations,
    and the R² of the side information), "ratios" (odds ratios or rate ratios with intervals), "correlations", "noise",
    "levels" (effects of the values of categorical columns with more than 20 values), "components", "component_effects",
    "side_information", "side_effects", "selection" (the best structure of each kind) and "errors".  The caption of a
    table defines its numbers.
    """

    title: str  # the learner, and the number of tasks, rows and features it was fitted to
    text: tuple[str, ...]  # sentences about the selected model
    tables: Mapping[str, Table]

    @property
    def frames(self) -> dict[str, Any]:
        """Return all tables with all rows, as data frames if pandas is installed, else as structured arrays."""
        return {name: table.frame for name, table in self.tables.items()}

    def to_frame(self, table: str = "effects") -> Any:
        """Return one of the ``frames``."""
        return self.tables[check_choice("table", table, self.tables)].frame

    def to_dict(self) -> dict[str, Any]:
        """Return text and numbers for JSON; unknown numbers are None."""
        tables = {name: table.to_dict() for name, table in self.tables.items()}
        captions = {name: table.caption for name, table in self.tables.items() if table.caption}
        return {"title": self.title, "text": list(self.text), **tables, "captions": captions}

    @property
    def printed_tables(self) -> dict[str, Table]:
        """Return the tables that are part of the printed summary, by name."""
        return {name: table for name, table in self.tables.items() if table.n_printed}

    @property
    def html_text(self) -> str:
        """Return the sentences as an HTML list."""
        return f"<ul>{''.join(f'<li>{escape(sentence)}</li>' for sentence in self.text)}</ul>"

    def __str__(self) -> str:
        text = "\n".join(line for sentence in self.text for line in wrap(sentence, "  "))
        parts = ["\n".join(wrap(self.title)), text, *map(str, self.printed_tables.values())]
        return printable("\n\n".join(part for part in parts if part))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        tables = "".join(table.html for table in self.printed_tables.values())
        return f"<div><h3>{escape(self.title)}</h3>{self.html_text}{tables}</div>"


def summarise(
    learner: Any, name: str, event: str, sampling: SupportSampling, split: Split | None = None
) -> Summary:
    """Summarise a fitted learner with all available tables.

    ``name`` is that of the learner, and ``event`` is what a binary target of 1 stands for.  Errors are those of the tasks
    held out in `fit`, or those on the support and query rows ``split``.  Their support rows were drawn by ``sampling``.
    """
    model = FittedModel.of(learner)
    tables, errors = model_tables(model, learner), None
    if split is not None:
        errors = new_errors(learner, model.training, split, sampling.typical)
    elif model.training is not None:
        errors = held_out_errors(model.prior, model.training, sampling)
    if errors is not None and len(errors):
        tables["errors"] = errors
    title = f"{name}: {_data(learner, model.training)}"
    return Summary(title, tuple(sentences(model, learner, event)), tables)


def _data(learner: Any, training: TrainingSummary | None) -> str:
    """Count the tasks, rows and features that a learner was fitted to."""
    columns, parts = learner.columns_in_, []
    if training is not None:
        parts = [plural(training.n_tasks, "task"), plural(training.n_rows, "row")]
        parts[0] += f" ({columns['task']})" if columns["task"] is not None else ""
        parts[1] += f" of {columns['target']}" if columns["target"] is not None else ""
    return ", ".join([*parts, plural(learner.n_features_in_, "feature")])
