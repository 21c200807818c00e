"""`Summary`: the description of a fitted learner as sentences and tables, and its rendering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any

from .._utils.progress import one_line, printable
from .._utils.tables import Table, plural, wrap
from .._utils.validation import check_choice
from ..tasks.encoding import as_columns
from .model import FittedModel
from .sentences import further_sentences, verdict
from .tables import model_tables


@dataclass(frozen=True)
class Summary:
    """Summary of a fitted learner.

    ``print(summary)`` shows a title, the verdict (what was fitted, how good it is on new tasks, and
    what matters) and the first table. ``learner.summary(details=True)`` shows all of it, and a
    notebook shows HTML.

    ``tables`` contains, where available: "effects" (fixed effects with standard errors,
    random-effect standard deviations, and the R² of the side information), "ratios" (odds ratios or
    rate ratios with intervals), "correlations", "noise", "levels" (effects of the values of
    columns that all tasks share), "components", "side_information",
    "side_effects", "selection" (the best structure of each kind) and "errors"; for learners of the
    paper, "spectrum" and "errors".  The caption of a table defines its numbers.
    """

    title: str  # the learner, and the number of tasks, rows and features it was fitted to
    verdict: tuple[str, ...]  # sentences
    tables: Mapping[str, Table]
    further: tuple[str, ...] = ()  # sentences that only details show
    details: bool = True  # whether everything is shown

    @property
    def text(self) -> tuple[str, ...]:
        """All sentences."""
        return (*self.verdict, *self.further)

    def to_frame(self, table: str = "effects") -> Any:
        """Return all rows of a table, as a data frame if pandas is installed, else as a structured
        array.
        """
        return self.tables[check_choice("table", table, self.tables)].frame

    @property
    def _shown(self) -> tuple[tuple[str, ...], list[Table]]:
        """The sentences and tables that are shown."""
        tables = [table for table in self.tables.values() if table.n_printed]
        if self.details:
            return self.text, tables
        short = [replace(table, title="", caption="", n_printed=8) for table in tables[:1]]
        return (
            *self.verdict,
            "All tables: summary(details=True), or --details in the shell.",
        ), short

    def __str__(self) -> str:
        sentences, tables = self._shown
        text = "\n".join(line for sentence in sentences for line in wrap(sentence, "  "))
        parts = ["\n".join(wrap(self.title)), text, *map(str, tables)]
        return printable("\n\n".join(part for part in parts if part))

    __repr__ = __str__

    @property
    def html(self) -> str:
        """The sentences and tables that are shown, without the title."""
        sentences, tables = self._shown
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
        return f"<ul>{items}</ul>{''.join(table.html for table in tables)}"

    def _repr_html_(self) -> str:
        return printable(f"<div><h3>{escape(self.title)}</h3>{self.html}</div>")


class Summaries(dict[Any, Summary]):
    """The summary of each class; ``print`` shows them one after the other."""

    def __str__(self) -> str:
        return "\n\n\n".join(map(str, self.values()))

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "".join(summary._repr_html_() for summary in self.values())


def summarise(learner: Any, name: str, event: str, *, details: bool = False) -> Summary:
    """Summarise a fitted `EmpiricalBayesLearner`.

    ``name`` is that of the learner, and ``event`` is what a binary target of 1 stands for.
    """
    model, roles = FittedModel(learner), learner.columns_in_
    task = f" ({':'.join(as_columns(roles['task']))})" if roles["task"] else ""
    target = f" of {roles['target']}" if roles["target"] else ""
    counts = f"{plural(model.training.n_tasks, 'task')}{task}, "
    counts += f"{plural(model.training.n_rows, 'row')}{target}, "
    title = one_line(f"{name}: {counts}{plural(learner.n_features_in_, 'feature')}")
    sentences, further = tuple(verdict(model, event)), tuple(further_sentences(model))
    return Summary(title, sentences, model_tables(model), further, details)
