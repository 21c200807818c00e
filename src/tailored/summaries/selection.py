"""What a summary says about the selection of the model: a table, a sentence, and the formula of lme4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..losses import error_name
from .effects import INTERCEPT, coefficient_names
from .tables import Table, format_number
from .training import ComparedStructure, TrainingSummary

#: Maximum number of columns in a formula, and of rows that are printed.
MOST_COLUMNS, MOST_ROWS = 6, 6
#: Short forms of the rule in `tailored.empirical_bayes.rule`.
_RULE = (
    "Of one Gaussian (random intercept, uncorrelated, correlated), the highest density is selected, unless the sum of its "
    "errors with and without support rows exceeds that of the simplest. A mixture or atoms have to raise the density by two "
    "standard errors, and their errors must not be higher; low rank must not lower it. Mixtures are listed if short fits "
    "support more than one component."
)
_RULE_OF_FACTORS = (
    "More factors have to raise the density by two standard errors, and their error must not be higher; effects of side "
    "information must not lower it."
)


def selection_table(learner: Any, training: TrainingSummary | None) -> Table | None:
    """Tabulate the best structure of each kind, the selected one first; None if only one was a candidate."""
    if training is None or len(training.compared) < 2:
        return None
    rows = list(training.compared.values())
    columns: dict[str, Any] = {
        "structure": list(training.compared),
        "density difference": [row.difference for row in rows],
        "std. error": [np.nan, *(row.std_error for row in rows[1:])],
        "held-out error": [row.error for row in rows],
    }
    shift = "" if learner.bias_penalty_ is None else ", before the shift of the prior mean"
    caption = (
        "density difference: held-out log predictive density minus that of the selected structure, in nats per task, with "
        f"its paired standard error. held-out error: mean {error_name(training.loss)} given support rows{shift}. "
    )
    many_columns = learner.structure_["kind"] == "factors plus diagonal"
    caption += _RULE_OF_FACTORS if many_columns else _RULE
    return Table("Selection on held-out tasks", columns, caption, n_printed=MOST_ROWS)


def describe_selection(compared: Mapping[str, ComparedStructure]) -> str:
    """Describe the difference of the selected structure to the runner-up; empty if only one was a candidate."""
    others = list(compared.items())[1:]
    if not others:
        return ""
    name, runner_up = max(others, key=lambda item: item[1].difference)
    text = f"Selected on held-out tasks among {len(compared)} kinds of structures"
    other = f"the runner-up ({name}; error {format_number(runner_up.error)})"
    gain = f"{abs(runner_up.difference):.2g} ± {runner_up.std_error:.1g} nats per task"
    if runner_up.difference <= 0.0:
        return f"{text}: the log predictive density exceeds that of {other} by {gain}."
    reason = "It is not selected because of its errors, or because the gain is below two standard errors"
    return f"{text}. The log predictive density of {other} is higher by {gain}. {reason}."


def lme4_formula(learner: Any) -> str | None:
    """Return a sentence with lme4's formula of the selected model; None if lme4 does not have this model."""
    structure, prior, task_columns = learner.structure_, learner.prior_, learner.columns_in_
    levels = [] if prior.shared is None else [one.column for one in prior.shared.levels]
    is_curved = prior.shared is not None and len(levels) < len(prior.shared.effects)
    if structure["kind"] != "mixed model" or is_curved or prior.regressor is not None:
        return None
    covariance, names = structure.get("structure", "full"), coefficient_names(learner)
    if covariance == "none":
        return None
    has_intercept = names[-1:] == [INTERCEPT]
    fixed = [j for j in range(learner.n_features_in_) if j not in levels]
    varying = [] if covariance == "intercept" else structure.get("varying", fixed)
    slopes = [j for j in varying if j < learner.n_features_in_]
    is_diagonal = covariance == "diagonal" and len(slopes) + has_intercept > 1
    sources, encoding = names, learner.encoding_
    if encoding is not None and not is_diagonal:
        sources = [c.name if c.kind == "categorical" else name for c in encoding.features for name in c.names]
    task, target = task_columns["task"], task_columns["target"]
    group = "g" if task is None else ":".join(map(_quoted, [task] if isinstance(task, str) else task))
    operator = "||" if is_diagonal else "|"
    effects = f"({_terms(slopes, names, sources, has_intercept)} {operator} {group})"
    if structure.get("pseudo_tasks") and len(slopes) + has_intercept > 1:
        return f"As {effects} of lme4, with the correlations shrunk."
    effects = " + ".join([effects, *(f"(1 | {_quoted(names[j])})" for j in levels)])
    if prior.has_exposure:
        effects = f"offset(log(exposure)) + {effects}"
    text = f"{_quoted(target or 'y')} ~ {_terms(fixed, names, sources, has_intercept)} + {effects}"
    notes = ", with centred columns" * bool(is_diagonal and prior.scaling.shift.any())
    notes += ", with the effects of the side information" * (learner.side_structure_ is not None)
    return f"Formula of lme4: {text}{notes}."


def _terms(
    positions: Sequence[int], names: Sequence[str], sources: Sequence[str], has_intercept: bool
) -> str:
    """Return the sum of columns; a category is one term if all its indicators are in ``positions``."""
    all_of = {source: {j for j in range(len(sources)) if sources[j] == source} for source in sources}
    terms = [sources[j] if all_of[sources[j]] <= {*positions} else names[j] for j in positions]
    terms = [_quoted(term) for term in dict.fromkeys(terms)]
    if len(terms) > MOST_COLUMNS:
        terms = [*terms[: MOST_COLUMNS - 1], "…"]
    if not terms:
        return "1" if has_intercept else "0"
    return " + ".join(terms if has_intercept else ["0", *terms])


def _quoted(name: Any) -> str:
    """Return a column name as R writes it."""
    text = str(name)
    is_name = text.replace(".", "_").isidentifier() and not text.startswith("_")
    return text if is_name else f"`{text}`"
