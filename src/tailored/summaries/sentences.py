"""Sentences about a fitted `EmpiricalBayesLearner`: the selected structure, its formula, the selection, the predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._utils.tables import format_number, plural
from ..empirical_bayes.rule import RICHER
from ..empirical_bayes.training_summary import ComparedStructure
from ..gaussian.scoring import LARGEST_SCALE
from ..losses import Loss, Pinball, error_name
from ..tasks.encoding import list_some
from ..tasks.episodes import SupportSampling
from .model import INTERCEPT, FittedModel
from .tables import MAX_NAMED

#: Maximum number of terms in each part of a formula.
MAX_TERMS = 6


def sentences(model: FittedModel, learner: Any, event: str) -> Iterator[str]:
    """Yield sentences about the selected model; ``event`` is what a binary target of 1 stands for."""
    prior, training = model.prior, model.training
    if getattr(learner, "structure_", None) is None:
        yield f"The documentation of {type(learner).__name__} describes its prior."
        return
    centre = ""
    if prior.scaling.shift.any():
        centre = (
            "means of the tasks' first rows"
            if SupportSampling.of(learner.n_support).in_order
            else "means of the features"
        )
    yield describe_structure(learner.structure_, model.columns, model.scale.regression, centre)
    if (formula := lme4_formula(model, learner)) is not None:
        yield formula
    if model.constant:
        names = list_some((model.columns[j] for j in model.constant), MAX_NAMED)
        yield f"Columns left out of the model (constant, or below 1e-70, in all rows): {names}."
    if training is not None and training.log_likelihood is not None:
        how, what = "maximum likelihood", "log likelihood"
        if learner.reml:
            how, what = "REML", "restricted log likelihood"
        parts = {
            "the correlation of the noise": prior.response.correlation is not None,
            "the effects that all tasks share": prior.shared is not None,
        }
        known = " and ".join(part for part, is_known in parts.items() if is_known)
        given = f" given {known}" if known else ""
        yield f"Estimated by {how}{given}; the {what} is {training.log_likelihood:.6g}."
    if (
        training is not None
        and prior.response.is_gaussian
        and learner.structure_["kind"] == "mixed model"
    ):
        # With one row per task, noise and random intercept are confounded.  If the user set the effects, count all, as
        # lme4 does.
        n_effects = training.n_tasks * min(
            len(model.varying), 1 if len(training.compared) > 1 else np.inf
        )
        if training.n_rows <= n_effects:
            counts = f"there are {n_effects:,.0f} for {plural(training.n_rows, 'row')}"
            yield f"Random effects can hardly be told apart from noise: {counts}. Their std is not reliable."
    if (
        prior.response.name == "bernoulli"
        and np.abs(model.mixture.moments()[0]).max() >= LARGEST_SCALE
    ):
        size = f"a coefficient is at least {LARGEST_SCALE:g} log odds per standard deviation of its column"
        yield f"The classes are separable, or nearly so: {size}. Fixed effects and their std. errors are not reliable."
    if (noise := prior.response.correlation) is not None:
        share = 100.0 * noise.share / (1.0 + noise.share)
        kernel = f"exp(-|t - t'| / {format_number(noise.length)})"
        yield f"Noise is correlated in time: {share:.0f} % of its variance has the correlation {kernel}."
    elif learner.encoding_ is not None and learner.encoding_.time is not None:
        yield "Noise that is correlated in time was a candidate. It was not accepted on held-out tasks."
    if training is not None and len(training.compared) > 1:
        yield describe_selection(training.compared)
    if prior.shared is not None:
        described = prior.shared.describe(model.columns, model.side_columns)
        where = " Effects of values are in summary().to_frame('levels')." * bool(
            prior.shared.levels
        )
        yield f"Effects that all tasks share, not in the printed tables: {described}.{where}"
    if prior.reads_side_info and learner.n_side_info_in_:
        yield _describe_side(model, learner)
    if getattr(prior, "without_rows", None) is not None:
        yield "Groups without rows are predicted with other means, which the tables of coefficients do not show."
    yield describe_prediction(learner.loss_, event)


def describe_structure(
    structure: Mapping[str, Any], names: Sequence[str], regression: str = "linear", centre: str = ""
) -> str:
    """Describe ``structure_`` of `EmpiricalBayesLearner` in one sentence.

    ``names`` are the names of the coefficients, and ``regression`` is that of the response.  ``centre`` names the values of the
    features at which effects are uncorrelated, or have shrunk correlations; it is empty if these are zero.
    """
    kind, n = structure["kind"], structure.get("n_components", 1)
    several = f"mixture of {n} {regression} mixed models" if n > 1 else f"{regression} mixed model"
    gated = (
        " whose mixing weights depend on the side information" if structure.get("has_gates") else ""
    )
    varying = [names[j] for j in structure.get("varying", range(len(names)))]
    if kind == "independent":
        ridge = (
            "ridge regression"
            if regression == "linear"
            else f"{regression} regression with a ridge penalty"
        )
        text = f"{ridge}: there is one task, so nothing is pooled"
    elif kind == "factors plus diagonal":
        text = f"low-rank plus diagonal prior (for many columns): {plural(structure['rank'], 'factor')}"
    elif kind == "low rank":
        factors = plural(structure.get("rank") or structure.get("n_factors", 0), "common factor")
        each = ", each" * (n > 1)
        text = f"{several}{each} with {factors} of the coefficients plus independent variation (low rank)"
    elif kind == "mixture":
        text = f"{several}{gated}"
    elif structure.get("structure") == "none":
        text = f"one {regression} regression for all tasks"
    else:
        is_diagonal = structure.get("structure") == "diagonal"
        text = f"{several} with {_random_effects(structure, varying, len(names), centre * is_diagonal)}"
    if structure.get("truncation"):
        least = f"{100.0 * structure['truncation']:g} % of the largest variance"
        text += f"; directions with less than {least} are dropped"
    if structure.get("pseudo_tasks") and len(varying) > 1:
        weight = f"weight: {structure['pseudo_tasks']:g} pseudo-tasks"
        at = f" at the {centre}" if centre else ""
        text += f"; random-effect correlations{at} are shrunk towards zero ({weight})"
    return f"{text[0].upper()}{text[1:]}."


def _random_effects(
    structure: Mapping[str, Any], varying: Sequence[str], d: int, centre: str
) -> str:
    """Name the random effects of a mixed model with ``d`` coefficients."""
    if structure.get("structure") == "intercept" or varying == [INTERCEPT]:
        return "a random intercept"
    if len(varying) == 1:
        return f"a random effect on {varying[0]}"
    which = (
        "every coefficient"
        if len(varying) == d
        else f"these coefficients only: {', '.join(varying)}"
    )
    if structure.get("structure", "full") == "full":
        return f"correlated random effects on {which}"
    at = f" (at the {centre})" if centre else ""
    return f"uncorrelated{at} random effects on {which}"


def lme4_formula(model: FittedModel, learner: Any) -> str | None:
    """Return a sentence with the lme4 formula closest to the selected model, and the differences; None without such a formula."""
    structure, prior, task_columns = learner.structure_, model.prior, learner.columns_in_
    levels = model.categories
    is_serial = prior.response.correlation is not None
    if structure["kind"] != "mixed model" or model.has_curves or is_serial:
        return None
    covariance, names = structure.get("structure", "full"), model.columns
    if covariance == "none":
        return None
    has_intercept = names[-1:] == [INTERCEPT]
    fixed = [j for j in range(learner.n_features_in_) if j not in (*levels, *model.constant)]
    varying = [] if covariance == "intercept" else structure.get("varying", fixed)
    slopes = [j for j in varying if j in fixed]
    is_diagonal = covariance == "diagonal" and len(slopes) + has_intercept > 1
    sources, encoding = names, learner.encoding_
    offset, has_side = "", learner.side_structure_ is not None
    notes = ", with shrunk effects of the side information" * has_side
    if prior.has_exposure:
        exposure = encoding.exposure if encoding is not None and encoding.exposure else "exposure"
        offset = f" + offset(log({_quoted(exposure)}))"
    if encoding is not None and encoding.formula is not None:
        text = f"{encoding.formula.text}{offset}{notes}"
        return f"Formula: {text}." if learner.varying is None else None
    if encoding is not None and not is_diagonal:
        sources = [
            c.name if c.kind == "categorical" else name
            for c in encoding.features
            for name in c.names
        ]
    task, target = task_columns["task"], task_columns["target"]
    group = (
        "g" if task is None else ":".join(map(_quoted, [task] if isinstance(task, str) else task))
    )
    operator = "||" if is_diagonal else "|"
    effects = f"({_terms(slopes, names, sources, has_intercept)} {operator} {group})"
    if structure.get("pseudo_tasks") and len(slopes) + has_intercept > 1:
        return f"As {effects} of lme4, with the correlations shrunk."
    effects = " + ".join([effects, *(f"(1 | {_quoted(names[j])})" for j in levels)])
    text = f"{_quoted(target or 'y')} ~ {_terms(fixed, names, sources, has_intercept)}{offset} + {effects}"
    notes = ", with centred columns" * bool(is_diagonal and prior.scaling.shift.any()) + notes
    return f"Formula of lme4: {text}{notes}."


def _terms(
    positions: Sequence[int], names: Sequence[str], sources: Sequence[str], has_intercept: bool
) -> str:
    """Return the terms of a formula, joined by "+"; a categorical column is one term if ``positions`` has all its indicators."""
    all_of = {
        source: {j for j in range(len(sources)) if sources[j] == source} for source in sources
    }
    terms = [sources[j] if all_of[sources[j]] <= {*positions} else names[j] for j in positions]
    terms = [_quoted(term) for term in dict.fromkeys(terms)]
    if len(terms) > MAX_TERMS:
        terms = [*terms[: MAX_TERMS - 1], "…"]
    if not terms:
        return "1" if has_intercept else "0"
    return " + ".join(terms if has_intercept else ["0", *terms])


def _quoted(name: object) -> str:
    """Return a column name as R writes it."""
    text = str(name)
    is_name = text.replace(".", "_").isidentifier() and not text.startswith("_")
    return text if is_name else f"`{text}`"


def describe_selection(compared: Mapping[str, ComparedStructure]) -> str:
    """Describe the difference between the selected structure, which is the first, and the runner-up."""
    name, runner_up = max(list(compared.items())[1:], key=lambda item: item[1].difference)
    text = f"Selected on held-out tasks among {len(compared)} kinds of structures"
    other = f"the runner-up ({name}; error {format_number(runner_up.error)})"
    gain = f"{abs(runner_up.difference):.2g} ± {runner_up.std_error:.1g} nats per task"
    if runner_up.difference <= 0.0:
        return f"{text}: the log predictive density exceeds that of {other} by {gain}."
    is_richer = name.startswith("mixture")
    is_significant = runner_up.difference > RICHER * runner_up.std_error
    reason = (
        "of its errors"
        if is_significant or not is_richer
        else "the gain is below two standard errors"
    )
    if not is_richer and not name.startswith("rank"):
        reason = "of its total error (given support rows plus without)"
    return f"{text}. The log predictive density of {other} is higher by {gain}. It is not selected because {reason}."


def _describe_side(model: FittedModel, learner: Any) -> str:
    """Describe the use of the side information in one sentence."""
    structure, names, columns = learner.side_structure_, model.side_columns, model.columns
    if structure is None:
        if model.prior.shared is not None and model.prior.shared.encoder is not None:
            return "Side information affects shared curves only."
        if learner.structure_.get("has_gates"):
            return "Side information affects the mixing weights only."
        return (
            "Side information is not used: no effect had enough evidence to be proposed, or the proposed effects were rejected "
            "on held-out tasks."
        )
    effects = model.prior.mixture.side if model.prior.mixture is not None else None
    shifted = (
        columns if effects is None else [columns[j] for j in np.flatnonzero(effects.any(axis=1))]
    )
    text = f"coefficients of {list_some(shifted, MAX_NAMED)}"
    if shifted in ([INTERCEPT], columns):
        text = "the intercept" if shifted == [INTERCEPT] else "all coefficients"
    if effects is not None and not effects[effects.any(axis=1)][:, effects.any(axis=0)].all():
        text = "some or all coefficients"
    curved = dict.fromkeys(structure["curved"], " (nonlinear)")
    chosen = [
        (names[j] if j < len(names) else f"s{j}") + curved.get(j, "") for j in structure["columns"]
    ]
    return f"Columns of the side information that shift {text}: {list_some(chosen, MAX_NAMED)}."


def describe_prediction(loss: Loss, event: str) -> str:
    """Describe in one sentence what `EmpiricalBayesLearner` predicts with this loss."""
    if isinstance(loss, Pinball):
        return f"Predictions are {100.0 * loss.quantile:g} % quantiles of the target."
    if loss.name in ("squared", "poisson", "negative_binomial"):
        return "Predictions are means of the target."
    kinds = {"absolute": "are medians of the target", "bernoulli": f"are probabilities of {event}"}
    return f"Predictions {kinds.get(loss.name, f'minimise the {error_name(loss.name)}')}."
