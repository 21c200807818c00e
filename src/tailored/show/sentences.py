"""Sentences about a fitted `EmpiricalBayesLearner`: the selected structure, its formula, the
selection, the predictions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._utils.tables import format_number, plural
from ..gaussian.scoring import LARGEST_SCALE
from ..losses import Loss, Pinball, error_name
from ..selection.training_summary import ComparedStructure
from ..tasks.encoding import as_columns, list_some
from ..tasks.episodes import SupportSampling
from .model import INTERCEPT, FittedModel

#: Maximum number of columns that a sentence lists, and of terms in each part of a formula.
MAX_NAMED, MAX_TERMS = 10, 6
#: Densities that differ by less, in nats per task, are those of equal models.
EQUAL_DENSITIES = 1e-4


def sentences(model: FittedModel, learner: Any, event: str) -> Iterator[str]:
    """Yield sentences about the selected model.

    ``event`` is what a binary target of 1 stands for.
    """
    prior, training, structure = model.prior, model.training, getattr(learner, "structure_", None)
    if structure is None:
        yield f"The documentation of {type(learner).__name__} describes its prior."
        return
    centre = ""
    if prior.scaling.shift.any():
        centre = "means of the features"
        if SupportSampling.of(learner.n_support).in_order:
            centre = "means of the tasks' first rows"
    yield describe_structure(structure, model.columns, model.scale.regression, centre)
    if (formula := lme4_formula(model, learner)) is not None:
        yield formula
    if model.constant:
        names = list_some((model.columns[j] for j in model.constant), MAX_NAMED)
        yield f"Columns left out of the model (constant, or below 1e-70, in all rows): {names}."
    is_gaussian = prior.response.is_gaussian and structure["kind"] == "mixed model"
    if training is not None and is_gaussian:
        if not structure.get("pseudo_tasks") and structure.get("structure") != "none":
            yield _describe_estimation(model, learner)
        # With one row per task, noise and random intercept are confounded.  If the user set the
        # effects, count all, as lme4 does.
        is_selected = len(training.compared) > 1
        n_effects = training.n_tasks * (min(len(model.varying), 1 if is_selected else np.inf))
        if training.n_rows <= n_effects:
            counts = f"there are {n_effects:,.0f} for {plural(training.n_rows, 'row')}"
            yield (
                f"Random effects can hardly be told apart from noise: {counts}. "
                "Their std is not reliable."
            )
    is_binary = prior.response.name == "bernoulli"
    if is_binary and np.abs(model.mixture.moments()[0]).max() >= LARGEST_SCALE:
        size = f"{LARGEST_SCALE:g} log odds per standard deviation of its column"
        yield (
            f"The classes are separable, or nearly so: a coefficient is at least {size}. Fixed "
            "effects and their std. errors are not reliable."
        )
    if (noise := model.correlation) is not None:
        share = 100.0 * noise.share / (1.0 + noise.share)
        kernel = f"exp(-|t - t'| / {format_number(noise.length)})"
        yield (
            f"Noise is correlated in time: {share:.0f} % of its variance has the correlation "
            f"{kernel}."
        )
    elif getattr(learner.encoding_, "time", None) is not None:
        yield (
            "Noise that is correlated in time was a candidate. It was not accepted on held-out "
            "tasks."
        )
    if training is not None and len(training.compared) > 1:
        yield describe_selection(training.compared)
    if prior.shared is not None:
        described = prior.shared.describe(model.columns, model.side_columns)
        where = " Effects of values are in summary().to_frame('levels')."
        where *= bool(prior.shared.levels)
        yield f"Effects that all tasks share, not in the printed tables: {described}.{where}"
    if prior.reads_side_info and learner.n_side_info_in_:
        yield _describe_side(model, learner)
    if getattr(prior, "without_rows", None) is not None:
        yield (
            "Groups without rows are predicted with other means, which the tables of coefficients "
            "do not show."
        )
    yield describe_prediction(learner.loss_, event)


def describe_structure(
    structure: Mapping[str, Any], names: Sequence[str], regression: str = "linear", centre: str = ""
) -> str:
    """Describe ``structure_`` of `EmpiricalBayesLearner` in one sentence.

    ``names`` are the names of the coefficients, and ``regression`` is that of the response.
    ``centre`` names the values of the features at which effects are uncorrelated, or have shrunk
    correlations; it is empty if these are zero.
    """
    kind, n = structure["kind"], structure.get("n_components", 1)
    covariance = structure.get("structure", "full")
    several = f"{regression} mixed model"
    if n > 1:
        several = f"mixture of {n} {regression} mixed models"
    varying = [names[j] for j in structure.get("varying", range(len(names)))]
    at = f" at the {centre}" * bool(centre)
    if kind == "independent":
        ridge = f"{regression} regression with a ridge penalty"
        text = f"{ridge}: there is one task, so nothing is pooled"
    elif kind == "factors plus diagonal":
        factors = plural(structure["rank"], "factor")
        text = f"low-rank plus diagonal prior (for many columns): {factors}"
    elif kind == "low rank":
        factors = plural(structure.get("rank") or structure.get("n_factors", 0), "common factor")
        text = (
            f"{several}{', each' * (n > 1)} with {factors} of the coefficients plus independent "
            "variation (low rank)"
        )
    elif kind == "mixture":
        gates = " whose mixing weights depend on the side information"
        text = several + gates * bool(structure.get("has_gates"))
    elif covariance == "none":
        text = f"one {regression} regression for all tasks"
    elif covariance == "intercept" or varying == [INTERCEPT]:
        text = f"{several} with a random intercept"
    elif len(varying) == 1:
        text = f"{several} with a random effect on {varying[0]}"
    else:
        which = "every coefficient"
        if len(varying) < len(names):
            which = f"these coefficients only: {', '.join(varying)}"
        how = (
            f"uncorrelated{f' ({at[1:]})' * bool(at)}" if covariance == "diagonal" else "correlated"
        )
        text = f"{several} with {how} random effects on {which}"
    if structure.get("truncation"):
        least = f"{100.0 * structure['truncation']:g} % of the largest variance"
        text += f"; directions with less than {least} are dropped"
    if structure.get("pseudo_tasks") and len(varying) > 1:
        weight = f"weight: {structure['pseudo_tasks']:g} pseudo-tasks"
        text += f"; random-effect correlations{at} are shrunk towards zero ({weight})"
    return f"{text[0].upper()}{text[1:]}."


def _describe_estimation(model: FittedModel, learner: Any) -> str:
    """Describe the method of estimation and, if it is known, the log likelihood of a Gaussian mixed
    model.
    """
    how, what = "maximum likelihood", "log likelihood"
    if learner.reml:
        how, what = "REML", "restricted log likelihood"
    parts = {
        "the correlation of the noise": model.correlation is not None,
        "the effects that all tasks share": model.prior.shared is not None,
    }
    given = " and ".join(part for part, is_known in parts.items() if is_known)
    text = f"Estimated by {how}{f' given {given}' * bool(given)}"
    assert model.training is not None
    if (value := model.training.log_likelihood) is None:
        return f"{text}."
    shrunk = ""
    if learner.side_structure_ is not None:
        shrunk = ", with shrunk effects of side information, so lme4's differs"
    return f"{text}; the {what} is {value:.6g}{shrunk}."


def lme4_formula(model: FittedModel, learner: Any) -> str | None:
    """Return a sentence with the formula, or the random effects in the notation of lme4.

    None without a formula for them.
    """
    structure, encoding = learner.structure_, learner.encoding_
    covariance, names = structure.get("structure", "full"), model.columns
    if structure["kind"] != "mixed model" or covariance == "none":
        return None
    if encoding is not None and encoding.formula is not None:
        return None if learner.varying is not None else f"Formula: {encoding.formula.text}."
    varying = structure.get("varying", range(len(names)))
    if covariance == "intercept":
        varying = [len(names) - 1]
    left_out = (*model.categories, *model.constant)
    effects = [names[j] for j in varying if j not in left_out]
    bar = "||" if covariance == "diagonal" and len(effects) > 1 else "|"
    sources: dict[str, str] = {}
    if encoding is not None and bar == "|":  # || does not separate the indicators of a category
        for column in encoding.features:
            if set(column.names) <= set(effects):
                sources |= dict.fromkeys(column.names, column.name)
    terms = [_quoted(sources.get(name, name)) for name in effects if name != INTERCEPT]
    terms = list(dict.fromkeys(terms))
    if len(terms) > MAX_TERMS:
        terms = [*terms[: MAX_TERMS - 1], "…"]
    if INTERCEPT not in effects:
        terms.insert(0, "0")
    task = learner.columns_in_["task"] or "g"
    group = ":".join(map(_quoted, as_columns(task)))
    parts = [f"({' + '.join(terms) or '1'} {bar} {group})"]
    parts += [f"(1 | {_quoted(names[j])})" for j in model.categories]
    shrunk = ", with the correlations shrunk" * bool(structure.get("pseudo_tasks"))
    return f"Random effects in the notation of lme4: {' + '.join(parts)}{shrunk}."


def _quoted(name: object) -> str:
    """Return a column name as R writes it."""
    text = str(name)
    is_name = text.replace(".", "_").isidentifier() and not text.startswith("_")
    return text if is_name else f"`{text}`"


def describe_selection(compared: Mapping[str, ComparedStructure]) -> str:
    """Describe the difference between the selected structure, which is the first, and the
    runner-up.
    """
    others = {
        name: row
        for name, row in list(compared.items())[1:]
        if abs(row.difference) > EQUAL_DENSITIES
    }
    if not others:
        return "Selected on held-out tasks; the other kinds of structures predict equally well."
    name, runner_up = max(others.items(), key=lambda item: item[1].difference)
    text = f"Selected on held-out tasks among {len(others) + 1} kinds of structures"
    other = f"the runner-up ({name}; error {format_number(runner_up.error)})"
    gain = f"{abs(runner_up.difference):.2g} ± {runner_up.std_error:.1g} nats per task"
    if runner_up.difference <= 0.0:
        return f"{text}: the log predictive density exceeds that of {other} by {gain}."
    rule = (
        "a covariance may not have a higher total error (with plus without support rows) than the "
        "simplest"
    )
    if name.startswith("mixture"):
        rule = "a mixture has to raise the density by two standard errors without a higher error"
    elif name.startswith("rank"):
        rule = "with a low-rank covariance, no error may rise by two standard errors"
    return (
        f"{text}. The log predictive density of {other} is higher by {gain}. It is not selected "
        f"because {rule}."
    )


def _describe_side(model: FittedModel, learner: Any) -> str:
    """Describe the use of the side information in one sentence."""
    structure, names, columns = learner.side_structure_, model.side_columns, model.columns
    if structure is None:
        if model.prior.shared is not None and model.prior.shared.encoder is not None:
            return "Side information affects shared curves only."
        if learner.structure_.get("has_gates"):
            return "Side information affects the mixing weights only."
        return (
            "Side information is not used: no effect was both supported by the evidence and "
            "accepted "
            "on held-out tasks."
        )
    text = "all coefficients"
    if model.prior.mixture is not None:
        effects = np.asarray(model.prior.mixture.side) != 0
        shifted = [columns[j] for j in np.flatnonzero(effects.any(axis=1))]
        if not effects[effects.any(axis=1)][:, effects.any(axis=0)].all():
            text = "some or all coefficients"
        elif shifted == [INTERCEPT]:
            text = "the intercept"
        elif shifted != columns:
            text = f"coefficients of {list_some(shifted, MAX_NAMED)}"
    chosen = [
        (names[j] if j < len(names) else f"s{j}") + " (nonlinear)" * (j in structure["curved"])
        for j in structure["columns"]
    ]
    return f"Columns of the side information that shift {text}: {list_some(chosen, MAX_NAMED)}."


def describe_prediction(loss: Loss, event: str) -> str:
    """Describe in one sentence what `EmpiricalBayesLearner` predicts with this loss."""
    if isinstance(loss, Pinball):
        return f"Predictions are {100.0 * loss.quantile:g} % quantiles of the target."
    predicted = dict.fromkeys(
        ("squared", "poisson", "negative_binomial"), "are means of the target"
    )
    predicted |= {
        "absolute": "are medians of the target",
        "bernoulli": f"are probabilities of {event}",
    }
    return f"Predictions {predicted.get(loss.name, f'minimise the {error_name(loss.name)}')}."
