"""Sentences about a fitted `EmpiricalBayesLearner`: a verdict, and what `summary(details=True)`
adds to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._utils.tables import format_number, plural
from .._utils.validation import list_some
from ..gaussian.scoring import LARGEST_SCALE
from ..losses import Loss, Pinball, error_name
from ..selection.training_summary import OWN, POOLED, TASK_MEAN
from ..tasks.episodes import SupportSampling
from .model import INTERCEPT, FittedModel, compare_errors

#: Maximum number of columns that a sentence lists.
MAX_NAMED = 10


def verdict(model: FittedModel, event: str) -> Iterator[str]:
    """Yield what was fitted, how good it is on new tasks, what matters, and what is wrong.

    ``event`` is what a binary target of 1 stands for.
    """
    prior, learner = model.prior, model.learner
    centre = "centre of the features" * model.is_at_centre
    yield describe_structure(model.structure, model.columns, model.regression, centre)
    yield describe_prediction(learner.loss_, event)
    yield from _describe_errors(model)
    if prior.mixture is not None:
        yield from _describe_sizes(model)
    if model.effects:
        described = prior.shared.describe(model.columns, model.side_columns)
        yield f"Effects that all tasks share, not in the table of coefficients: {described}."
    if prior.reads_side_info and learner.n_side_info_in_:
        yield describe_side(model)
    yield from _problems(model)


def further_sentences(model: FittedModel) -> Iterator[str]:
    """Yield the formula, the method of estimation, and the selection."""
    learner, structure = model.learner, model.structure
    if model.formula is not None:
        yield f"Formula: {model.formula.text}."
    is_gaussian = model.response.is_gaussian and structure["kind"] == "mixed model"
    if is_gaussian and not structure.get("pseudo_tasks") and structure.get("structure") != "none":
        yield _describe_estimation(model)
    if (noise := model.response.correlation) is not None:
        share = 100.0 * noise.share / (1.0 + noise.share)
        yield (
            f"Noise is correlated in time: {share:.0f} % of its variance has the correlation "
            f"exp(-|t - t'| / {format_number(noise.length)})."
        )
    elif getattr(learner.encoding_, "time", None) is not None:
        yield "Noise correlated in time was a candidate. It was not accepted on held-out tasks."
    if getattr(model.prior, "without_rows", None) is not None:
        yield (
            "Groups without rows are predicted with other means, which the tables of coefficients "
            "do not show."
        )


def _describe_support(n_support: Any) -> str:
    """Describe the support rows of each task that was held out in `fit`."""
    sampling = SupportSampling.of(n_support)
    share = "25 to 75 %" if sampling.in_order else "75 % (of fewer than four rows, all but one)"
    if sampling.support is not None:
        ends = (
            f"{end:,}" if isinstance(end, int) else f"{100.0 * end:g} %" for end in sampling.support
        )
        share = " to ".join(dict.fromkeys(ends))
    return f"{share}, {'the first' if sampling.in_order else 'at random'}"


def _describe_errors(model: FittedModel) -> Iterator[str]:
    """Compare the error on held-out tasks with the simplest baseline and with the best method."""
    if not (rows := compare_errors(model.training.errors)):
        return
    own, *others = rows
    simplest = [row for name in (TASK_MEAN, POOLED) for row in others if row[0] == name][:1]
    texts = [describe_difference(*row) for row in dict.fromkeys(simplest + others[:1])]
    n_tasks = int(np.isfinite(model.training.errors[OWN]).sum())
    text = f"On {plural(n_tasks, 'task')} held out in fit, the mean "
    text += f"{error_name(model.training.loss)} is {format_number(own[1])}"
    text += f": {', and '.join(texts)}" * bool(texts)
    text += f". Support rows of each task: {_describe_support(model.learner.n_support)}."
    if model.effects:
        text += " The effects that all tasks share were fitted to these tasks, too."
    if model.is_selected:
        text += " The model was selected on them, so its error is slightly optimistic."
    yield text


def describe_difference(name: str, error: float, difference: float, std_error: float) -> str:
    """Compare the error of a learner with that of a method, which exceeds it by ``difference``."""
    share = f"{abs(100.0 * difference / error):.1f} % " if error else ""
    if not difference or share == "0.0 % ":
        return f"equal to that of the {name}"
    side = "lower" if difference > 0.0 else "higher"
    close = " (within two standard errors)" * bool(abs(difference) <= 2.0 * std_error)
    return f"{share}{side} than that of the {name}{close}"


def _describe_sizes(model: FittedModel) -> Iterator[str]:
    """Compare the columns, the differences between tasks and the noise."""
    units = model.scaling
    columns = [j for j in model.shown if model.columns[j] != INTERCEPT]
    if units.shift.any() and model.has_estimated_mean and columns:
        sizes = model.fixed_effects * units.columns
        columns.sort(key=lambda j: -abs(sizes[j]))
        shown = ", ".join(f"{model.columns[j]} {sizes[j]:+.3g}" for j in columns[:3])
        scale = f" ({model.scale})" if model.scale else ""
        yield f"Largest effects{scale}, per standard deviation of the column: {shown}."
    if not np.isnan(model.std_between_tasks):
        text = f"Standard deviation between tasks: {format_number(model.std_between_tasks)}"
        if model.response.is_gaussian:
            weighted = getattr(model.learner.encoding_, "sample_weight", None) is not None
            text += f"; of the noise: {format_number(model.noise_std)}"
            text += " (of a row with weight 1)" * weighted
        yield f"{text}."


def _problems(model: FittedModel) -> Iterator[str]:
    """Yield warnings: columns left out, and numbers that are not reliable."""
    training, structure = model.training, model.structure
    left_out = model.named(model.constant)
    if model.learner.encoding_ is not None:
        left_out += [each.name for each in model.learner.encoding_.features if not each.names]
    if left_out:
        names = list_some(left_out, MAX_NAMED)
        yield f"Columns left out of the model (constant, or below 1e-70, in all rows): {names}."
    is_binary = model.response.name == "bernoulli"
    if is_binary and np.abs(model.mixture.moments()[0]).max() >= LARGEST_SCALE:
        yield (
            f"The classes are separable, or nearly so: a coefficient is at least {LARGEST_SCALE:g} "
            "log odds per standard deviation of its column. Fixed effects and their std. errors "
            "are not reliable."
        )
    if structure["kind"] != "mixed model" or structure.get("structure") == "none":
        return
    if training.is_singular:
        yield (
            "Singular fit: a combination of the random effects has an estimated variance of 0, "
            "such as with a standard deviation of 0 or a correlation of 1 or -1."
        )
    # With one row per task, noise and random intercept are confounded.  If the user set the
    # effects, count all, as lme4 does.
    most = 1 if len(training.compared) > 1 else np.inf
    n_effects = training.n_tasks * min(len(model.varying), most)
    if model.response.is_gaussian and training.n_rows <= n_effects:
        yield (
            f"Random effects can hardly be told apart from noise: there are {n_effects:,.0f} for "
            f"{plural(training.n_rows, 'row')}. Their std is not reliable."
        )


def describe_structure(
    structure: Mapping[str, Any], names: Sequence[str], regression: str = "linear", centre: str = ""
) -> str:
    """Describe ``structure_`` of `EmpiricalBayesLearner` in one sentence.

    ``names`` are the names of the coefficients, and ``regression`` is that of the response.
    ``centre`` names the values of the features at which effects are uncorrelated, or have shrunk
    correlations; it is empty if these are zero.
    """
    n, kind = structure.get("n_components", 1), structure["kind"]
    model = f"mixture of {n} {regression} mixed models" if n > 1 else f"{regression} mixed model"
    n_factors = structure.get("rank") or structure.get("n_factors", 0)
    if kind == "independent":
        text = f"{regression} regression with a ridge penalty: there is one task, so nothing is "
        text += "pooled"
    elif kind == "factors plus diagonal":
        text = f"low-rank plus diagonal prior (for many columns): {plural(n_factors, 'factor')}"
    elif kind == "low rank":
        text = (
            f"{model}{', each' * (n > 1)} with {plural(n_factors, 'common factor')} of the "
            "coefficients plus independent variation (low rank)"
        )
    elif kind == "mixture":
        gates = " whose mixing weights depend on the side information"
        text = f"{model}{gates * bool(structure.get('has_gates'))}"
    elif structure.get("structure") == "none":
        text = f"one {regression} regression for all tasks"
    else:
        at = f" at the {centre}" * bool(centre)
        text = f"{model} with {_describe_effects(structure, names, at)}"
    if least := structure.get("truncation"):
        text += (
            f"; directions with less than {100.0 * least:g} % of the largest variance are dropped"
        )
    return f"{text[0].upper()}{text[1:]}."


def _describe_effects(structure: Mapping[str, Any], names: Sequence[str], at: str) -> str:
    """Describe the random effects of a mixed model."""
    varying = [names[j] for j in structure.get("varying", range(len(names)))]
    covariance, pseudo_tasks = structure.get("structure"), structure.get("pseudo_tasks")
    if covariance == "intercept" or varying == [INTERCEPT]:
        return "a random intercept"
    if len(varying) == 1:
        return f"a random effect on {varying[0]}"
    text = "random effects on every coefficient"
    if len(varying) < len(names):
        text = f"random effects on these coefficients only: {list_some(varying, MAX_NAMED)}"
    if covariance == "diagonal":
        return f"uncorrelated ({at.strip()}) {text}" if at else f"uncorrelated {text}"
    if pseudo_tasks:
        text += f"; random-effect correlations{at} are shrunk towards zero (weight: "
        text += f"{pseudo_tasks:g} pseudo-tasks)"
    return f"correlated {text}"


def _describe_estimation(model: FittedModel) -> str:
    """Describe the method of estimation of a Gaussian mixed model, and its log likelihood."""
    how, what = "maximum likelihood", "log likelihood"
    if model.learner.reml:
        how, what = "REML", "restricted log likelihood"
    given = ["the correlation of the noise"] * (model.response.correlation is not None)
    given += ["the effects that all tasks share"] * bool(model.effects)
    text = f"Estimated by {how}{' given ' * bool(given)}{' and '.join(given)}"
    if (value := model.training.log_likelihood) is not None:
        text += f"; the {what} is {value:.6g}"
        if model.learner.side_structure_ is not None:
            text += ", in which effects of side information are shrunk, so lme4's differs"
    return f"{text}."


def describe_side(model: FittedModel) -> str:
    """Describe the use of the side information in one sentence."""
    structure = model.learner.side_structure_
    if structure is None:
        if model.prior.shared is not None and model.prior.shared.encoder is not None:
            return "Side information affects shared curves only."
        if model.structure.get("has_gates"):
            return "Side information affects the mixing weights only."
        return (
            "Side information is not used: no effect was both supported by the evidence and "
            "accepted on held-out tasks."
        )
    shifted, explains = [], "Side information is used"
    if model.mixture is not None:
        shifted = model.named(np.flatnonzero(np.asarray(model.mixture.side).any(axis=1)))
        share = f"{100.0 * model.r2_of_rows[0]:.0f} % of the variance between tasks"
        explains = f"Side information explains {share}"
    text = "the intercept" if shifted == [INTERCEPT] else "coefficients"
    chosen = [
        model.side_columns[j] + " (nonlinear)" * (j in structure["curved"])
        for j in structure["columns"]
    ]
    return f"{explains}; columns that shift {text}: {list_some(chosen, MAX_NAMED)}."


def describe_prediction(loss: Loss, event: str) -> str:
    """Describe in one sentence what `EmpiricalBayesLearner` predicts with this loss."""
    if isinstance(loss, Pinball):
        return f"Predictions are {100.0 * loss.quantile:g} % quantiles of the target."
    predicted = {
        "squared": "are means of the target",
        "absolute": "are medians of the target",
        "bernoulli": f"are probabilities of {event}",
        "poisson": "are means of the target",
        "negative_binomial": "are means of the target",
    }
    return f"Predictions {predicted.get(loss.name, f'minimise the {error_name(loss.name)}')}."
