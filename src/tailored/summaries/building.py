"""Build the tables and sentences of a `Summary` from a fitted learner."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from ..feature_maps import SideVector
from ..gaussian.mixture import Mixture
from ..losses import Loss, Pinball, error_name
from ..priors.base import Prior
from ..tasks.encoding import list_some
from ..tasks.rows import Array
from ..tasks.task_set import TaskSet
from .effects import INTERCEPT, coefficient_names
from .selection import describe_selection, lme4_formula, selection_table
from .tables import MAX_ROWS, SENTENCE_WIDTH, Summary, Table
from .training import MIXED_MODEL, OWN, POOLED, RIDGE, TASK_MEAN, TrainingSummary, baseline_errors

#: Maximum number of columns of a printed correlation matrix; with more, the N_CORRELATIONS largest are printed.
MATRIX_COLUMNS, N_CORRELATIONS = 6, 10
#: Minimum difference of means (in random-effect std) and minimum ratio of std to mention in the text on a component.
MIN_SHIFT, MIN_RATIO = 0.5, 1.5
#: For each response: name of exp(fixed effect), scale of the coefficients, and name of the regression.
RATIOS = {
    "bernoulli": ("odds ratio", "log odds", "logistic"),
    "poisson": ("rate ratio", "log rates", "Poisson"),
    "negative_binomial": ("rate ratio", "log rates", "negative binomial"),
}
#: Definitions of the baselines.
_BASELINES = {
    TASK_MEAN: "mean of the support rows",
    RIDGE: "each task alone, with the best of 15 penalties",
    POOLED: "one regression for the rows of all tasks",
    MIXED_MODEL: "full random-effect covariance, with the same side information",
}


@dataclass(frozen=True)
class ModelDescription:
    """A fitted prior with the names of its coefficients (``columns``) and of its side information."""

    prior: Prior
    training: TrainingSummary | None
    columns: list[str]
    side_columns: list[str]

    @property
    def mixture(self) -> Mixture:
        assert self.prior.mixture is not None
        return self.prior.mixture

    @property
    def variance_between_tasks(self) -> float | None:
        """Variance of the random effects at a row, averaged over rows, for scaled targets; None if it is unknown."""
        if self.training is None or self.training.row_moment is None:
            return None
        return max(float(np.sum(self.mixture.moments()[1] * self.training.row_moment)), 0.0)


def build_summary(learner: Any, sampling: Any, split: tuple[TaskSet, TaskSet] | None = None) -> Summary:
    """Summarise a fitted learner with all available tables.

    By default, errors are those of the tasks held out in `fit`, and ``sampling`` is the `SupportSampling` of `fit`.  With
    support and query rows ``split``, errors are computed on them, and ``sampling`` is their number or fraction of support
    rows.
    """
    prior, training = learner.prior_, getattr(learner, "training_summary_", None)
    side_names = learner.columns_in_["side_info"] or [f"s{j}" for j in range(learner.n_side_info_in_)]
    columns = coefficient_names(learner)
    description = ModelDescription(prior, training, columns, [str(name) for name in side_names])
    if prior.mixture is None:
        centre = prior.mean_at_centre()
        effects = prior.scaling.raw_weights(np.full(len(columns), np.nan) if centre is None else centre)
        values = {"column": columns, "fixed effect": effects.tolist()}
        table = Table("Fixed effects", values, "fixed effect: prior mean of the coefficient.")
        tables: dict[str, Table | None] = {"effects": table}
    else:
        tables = {
            "effects": (effects := effects_table(description)),
            "ratios": ratios_table(description, effects),
            "correlations": correlations_table(description),
            "noise": noise_table(description),
            "levels": levels_table(description, learner.encoding_),
            **component_tables(description),
            **side_tables(description),
        }
    if split is None:
        errors = {} if training is None else training.errors
        share = "25 to 75 %" if sampling.in_order else "75 %"
        if sampling.support is not None:
            share = " to ".join(dict.fromkeys(map(format_share, sampling.support)))
        which = "first" if sampling.in_order else "random"
        evaluated_on = f"tasks held out in fit, each with {share} of its rows as support ({which})"
        if errors:
            evaluated_on += (
                "; the model was selected on the same tasks, so its error is slightly optimistic. The criterion is the log "
                "predictive density, not the error, so a baseline may have a lower error"
            )
    else:
        errors = baseline_errors(prior, training, *split, learner.loss_, learner.n_jobs)
        evaluated_on = f"the given tasks, each with {format_share(sampling)} of its rows as support"
    loss = training.loss if training is not None and split is None else learner.loss_.name
    n_evaluated = np.isfinite(errors[OWN]).sum() if OWN in errors else 0
    caption = f"error: mean {error_name(loss)} over {n_evaluated:,} {evaluated_on}."
    if len(errors) > 1:
        if getattr(prior, "shared", None) is not None and split is None:
            caption += " All methods have the effects that all tasks share."
        caption += " difference: mean over tasks of the method's error minus that of this learner, with its standard error. "
        texts = dict(_BASELINES)
        if not prior.response.is_gaussian:
            texts[TASK_MEAN] += " and one row at the training mean"
        caption += "; ".join(f"{name}: {text}" for name, text in texts.items() if name in errors) + "."
    if getattr(learner, "structure_", None) is not None:
        tables["selection"] = selection_table(learner, training)
    tables["errors"] = errors_table(errors, "Error on held-out tasks", caption)
    present = {name: table for name, table in tables.items() if table is not None}
    return Summary(_title(learner, training), _sentences(learner, description), present)


def _title(learner: Any, training: TrainingSummary | None) -> str:
    name, columns, n_features = type(learner).__name__, learner.columns_in_, learner.n_features_in_
    features = f"{n_features:,} feature" + "s" * (n_features != 1)
    if training is None:
        return f"{name}: {features}"
    tasks = f"{training.n_tasks:,} tasks" + (f" ({columns['task']})" if columns["task"] is not None else "")
    rows = f"{training.n_rows:,} rows" + (f" of {columns['target']}" if columns["target"] is not None else "")
    return f"{name}: {tasks}, {rows}, {features}"


def effects_table(description: ModelDescription) -> Table:
    """Tabulate fixed effects and random-effect standard deviations."""
    units, training, d = description.prior.scaling, description.training, len(description.columns)
    (centre, covariance), errors = description.mixture.moments(), np.full(d, np.nan)
    # A mean that was fixed at zero has no standard error.
    mean = None if training is None else training.mean
    estimated = mean is not None and bool((mean.column == 0).any())
    if mean is not None and estimated:
        errors = units.raw_deviations(mean.of(d, {0: 1.0}))
    deviations, effects = units.raw_deviations(covariance), units.raw_weights(centre.copy())
    if training is not None and training.n_tasks == 1:
        deviations[:] = np.nan  # one task does not identify differences between tasks
    shared = description.prior.shared
    positions = [] if shared is None else [one.column for one in shared.levels]
    # Categorical columns with an effect for each value do not have a coefficient.
    shown = np.setdiff1d(np.arange(d), positions)
    columns: dict[str, Any] = {
        "column": [description.columns[j] for j in shown],
        "fixed effect": effects[shown].tolist(),
        "std. error": errors[shown].tolist(),
        "random-effect std": deviations[shown].tolist(),
    }
    at_mean = ", at the mean of the side information" if description.side_columns else ""
    caption = (
        f"fixed effect: mean coefficient of the tasks{at_mean}. std. error: generalised least squares under the estimated "
        "covariances. random-effect std: standard deviation of the tasks' coefficients around that mean"
    )
    if description.prior.response.name in RATIOS:
        caption = f"All coefficients are {RATIOS[description.prior.response.name][1]}. {caption}"
    if training is not None and training.side is not None and description.mixture.side is not None:
        explained, rest = training.side.coefficient_std[0], units.centred_deviations(covariance)
        total = np.hypot(explained, rest)
        r2 = np.divide(explained, total, np.zeros(d), where=total > 0) ** 2
        columns["R² of side info"] = r2[shown].tolist()
        caption += (
            ", given the side information. R² of side info: fraction of the coefficient's variance between tasks that the "
            "side information explains"
        )
        if units.shift.any():
            caption += " (of the intercept: at the feature means)"
        if ((rest == 0) & (explained > 0)).any():
            caption += "; it is 100 % where tasks with equal side information have the same coefficient"
    curved = [] if shared is None else {j for one in shared.effects for j in one.columns} - {*positions}
    if curved:
        names = list_some((description.columns[j] for j in sorted(curved)), MOST_NAMED)
        caption += f". Shared curves or products, named above, add to the effects of {names}"
    if not estimated:
        caption += ". There are no standard errors because the selected prior mean is the overall mean of the targets"
    elif np.isnan(errors[shown]).any():
        caption += ". No std. error: the rows identify the fixed effect only jointly with other columns"
    # Coefficients of scaled columns are comparable, so sort by their size.
    order = np.argsort(-(centre**2 + np.diagonal(covariance))[shown], kind="stable").tolist()
    percent, order = ["R² of side info"], order if d > MAX_ROWS else None
    return Table("Fixed effects and random-effect std", columns, caption + ".", percent, order=order)


def levels_table(description: ModelDescription, encoding: Any) -> Table | None:
    """Tabulate the effect of each value of the categorical columns that have many values."""
    shared, names = description.prior.shared, description.columns
    if shared is None or not shared.levels or encoding is None:
        return None
    values = {column.name: column.categories for column in encoding.features}
    rows: list[Any] = []
    for one in shared.levels:
        numbers = values[names[one.column]], one.effects.tolist(), np.sqrt(one.variances).tolist()
        rows += [(names[one.column], *row) for row in zip(*numbers, strict=True)]
    columns = dict(zip(("column", "value", "effect", "std. error"), zip(*rows, strict=True), strict=True))
    caption = "effect: shrunk towards zero, the same in every task. std. error: its posterior std."
    return Table("Effects of the values of categories", columns, caption, n_printed=0)


def ratios_table(description: ModelDescription, effects: Table) -> Table | None:
    """Tabulate exponentials of the fixed effects on log odds or log rates; None for Gaussian targets."""
    if description.prior.response.name not in RATIOS:
        return None
    ratio, signs = RATIOS[description.prior.response.name][0], (0.0, -1.0, 1.0)
    centre, errors = (np.array(effects.columns[name]) for name in ("fixed effect", "std. error"))
    with np.errstate(over="ignore"):
        found = [np.exp(centre + sign * NormalDist().inv_cdf(0.975) * errors) for sign in signs]
    ends = (end.tolist() for end in found)
    columns = dict(zip(("column", ratio, "lower", "upper"), (effects.columns["column"], *ends), strict=True))
    caption = f"{ratio}: exp(fixed effect); lower, upper: its 95 % confidence interval."
    return Table(f"{ratio.capitalize()}s", columns, caption, order=effects.order)


def correlations_table(description: ModelDescription) -> Table | None:
    """Tabulate the correlations of the random effects, as a matrix or as a list of the largest ones."""
    units, training = description.prior.scaling, description.training
    if training is not None and training.n_tasks == 1:
        return None
    covariance = units.raw_representation(description.mixture.moments()[1])
    deviation = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    # Multiply by the scales of the columns: whether a coefficient varies must not depend on the unit of its column.
    relevance = deviation * units.columns
    varying = np.flatnonzero(relevance > 1e-9 * max(float(relevance.max(initial=0.0)), 1e-300))
    if len(varying) < 2:
        return None
    correlations = covariance[np.ix_(varying, varying)] / np.outer(deviation[varying], deviation[varying])
    names = [description.columns[j] for j in varying]
    if not (np.abs(correlations - np.eye(len(names))) > 1e-9).any():
        return None
    caption = "Correlations of the tasks' coefficients around their mean"
    if len(names) > MATRIX_COLUMNS:
        caption += ", largest first"
    if INTERCEPT in names and units.shift.any():
        caption += "; the intercept is the linear predictor where all features are zero, which may be far from the data"
    title = "Correlations of the random effects"
    if len(names) <= MATRIX_COLUMNS:
        np.fill_diagonal(correlations, 1.0)
        matrix = dict(zip(names, correlations.T.round(4).tolist(), strict=True))
        return Table(title, {"column": names, **matrix}, caption + ".")
    rows, others = np.tril_indices(len(names), -1)
    values = correlations[rows, others]
    order = np.argsort(-np.abs(values), kind="stable")
    pairs = {
        "column": [names[j] for j in others[order]],
        "and": [names[j] for j in rows[order]],
        "correlation": values[order].tolist(),
    }
    return Table(title, pairs, caption + ".", n_printed=N_CORRELATIONS)


def noise_table(description: ModelDescription) -> Table | None:
    """Tabulate the noise, or the dispersion of counts, and the standard deviation between tasks."""
    unit, response = description.prior.scaling.target, description.prior.response
    values, captions = {}, []
    if response.is_gaussian:
        values["noise"] = unit * float(np.sqrt(description.mixture.noise))
        captions.append("noise: residuals of the rows around the model of their task")
    elif response.has_dispersion:
        values["dispersion"] = description.mixture.noise
        captions.append("dispersion: a count with mean m has the variance m + dispersion m²")
    if (between := description.variance_between_tasks) is not None:
        values["between tasks"] = unit * float(np.sqrt(between))
        of_models = "difference of the tasks' models to the prior mean, root mean square over rows"
        captions.append(f"between tasks: {of_models}")
    name = "value" if "dispersion" in values else "standard deviation"
    columns: dict[str, list[Any]] = {"source": list(values), name: list(values.values())}
    title = "Noise and differences between tasks" if response.is_gaussian else "Differences between tasks"
    return Table(title, columns, "; ".join(captions) + ".") if values else None


def component_tables(description: ModelDescription) -> dict[str, Table]:
    """Tabulate the proportions, the main differences and the coefficients of the components."""
    mixture, units, training = description.mixture, description.prior.scaling, description.training
    if mixture.n_components == 1 or mixture.has_atoms:
        return {}
    mean, covariance = mixture.moments()
    total = np.maximum(units.raw_deviations(covariance), 1e-300)
    centre, means = units.raw_weights(mean.copy()), units.raw_weights(mixture.means.copy())
    deviations, (K, d) = units.raw_deviations(mixture.covariances), means.shape
    columns: dict[str, Any] = {
        "component": list(range(1, K + 1)),
        "proportion": mixture.proportions.tolist(),
        "main differences": [
            _differences(description.columns, (mean - centre) / total, std / total)
            for mean, std in zip(means, deviations, strict=True)
        ],
    }
    if training is not None and training.side is not None and training.side.component_means is not None:
        side_means = zip(description.side_columns, training.side.component_means.T.tolist(), strict=False)
        columns |= {f"mean of {name}": values for name, values in side_means}
    caption = (
        "proportion: fraction of all tasks. higher, lower: mean coefficient of the component minus that of all tasks, in "
        "random-effect std; wider, narrower: random-effect std of the component, divided by that of all tasks."
    )
    coefficients = {
        "component": np.repeat(columns["component"], d).tolist(),
        "column": list(description.columns) * K,
        "mean coefficient": means.ravel().tolist(),
        "random-effect std": deviations.ravel().tolist(),
    }
    about = "mean coefficient: of the component's tasks; random-effect std: their std around it."
    n_printed = 0 if K * d > MAX_ROWS else K * d
    return {
        "components": Table("Components", columns, caption, ["proportion"], sentences=["main differences"]),
        "component_effects": Table("Coefficients by component", coefficients, about, n_printed=n_printed),
    }


def _differences(names: list[str], shifts: Array, ratios: Array) -> str:
    """Name up to three coefficients in which a component differs most from the average over all tasks."""
    candidates = []
    for name, z, ratio in zip(names, shifts, ratios, strict=True):
        if abs(z) > MIN_SHIFT:
            candidates.append((abs(z), f"{name} {'higher' if z > 0 else 'lower'} ({z:+.1f})"))
        if ratio > MIN_RATIO or 0 < ratio < 1.0 / MIN_RATIO:
            text = f"{name} {'wider' if ratio > 1 else 'narrower'} ({ratio:.1f}x)"
            candidates.append((abs(np.log(ratio)), text))
    text = ""
    for _, part in sorted(candidates, key=lambda pair: -pair[0])[:3]:
        longer = f"{text}, {part}" if text else part
        if not text or len(longer) <= SENTENCE_WIDTH:
            text = longer
    return text or "like all tasks"


def side_tables(description: ModelDescription) -> dict[str, Table]:
    """Tabulate how much each column of the side information explains, and its linear effects."""
    training, between = description.training, description.variance_between_tasks
    if training is None or training.side is None or between is None:
        return {}
    side, mixture, names = training.side, description.mixture, description.side_columns
    if len(names) != len(side.row_variance) - 1:
        names = [f"s{j}" for j in range(len(side.row_variance) - 1)]
    total = description.prior.scaling.target**2 * between + side.row_variance[0]
    r2 = side.row_variance / max(total, 1e-300)
    columns: dict[str, Any] = {"side information": ["all", *names]}
    captions = []
    if mixture.side is not None:
        columns["R²"] = r2.tolist()
        captions.append(
            "R²: fraction of the variance between the tasks' predictions that the side information explains, averaged over "
            "rows; for correlated columns the fractions need not add up"
        )
    if mixture.gates is not None:
        columns["entropy reduction"] = side.entropy_reduction.tolist()
        captions.append(
            "entropy reduction: fraction of the uncertainty about a task's component that it removes before any row is observed"
        )
    order = [0, *(1 + np.argsort(-np.maximum(r2, side.entropy_reduction)[1:], kind="stable")).tolist()]
    caption, percent = ". ".join(captions) + ".", ["R²", "entropy reduction"]
    tables = {"side_information": Table("Side information", columns, caption, percent, order=order)}
    effects = _side_effects_table(description, names)
    return tables if effects is None else {**tables, "side_effects": effects}


def _side_effects_table(description: ModelDescription, names: list[str]) -> Table | None:
    """Tabulate the effects of side information on the coefficients, except columns with splines; None if there are none."""
    features, effects, units = description.prior.side, description.mixture.side, description.prior.scaling
    mean = None if description.training is None else description.training.mean
    if mean is None or features is None or effects is None or not isinstance(features.encoder, SideVector):
        return None
    used = np.unique(mean.column[mean.column > 0]) - 1
    curved = {features.origins[f] for f in used[used >= features.n_linear]}
    rows: list[tuple[str, str, float, float]] = []
    for column, category, change in features.encoder.contrasts():
        if column in curved:
            continue
        scaled = {f: value / features.deviation[f] for f, value in change.items()}
        effect = units.raw_differences(effects[:, list(scaled)] @ list(scaled.values()))
        covariance = mean.of(len(description.columns), {1 + f: value for f, value in scaled.items()})
        error = units.raw_deviations(covariance)
        name = f"{names[column]}={category}" if category else names[column]
        estimated = np.flatnonzero(error > 0)
        rows += [(name, description.columns[j], float(effect[j]), float(error[j])) for j in estimated]
    if not rows:
        return None
    titles = "side information", "coefficient", "effect", "std. error"
    columns = {title: list(values) for title, values in zip(titles, zip(*rows, strict=True), strict=True)}
    caption = "effect: change of the coefficient per unit of the side information, or from its first category to another; "
    caption += "std. error: as above, with the penalty as a Gaussian prior."
    caption += " Columns with a nonlinear effect are not listed." * bool(curved)
    order = sorted(range(len(rows)), key=lambda i: -abs(rows[i][2]) / max(rows[i][3], 1e-300))
    return Table("Effects of the side information", columns, caption, order=order)


def errors_table(errors: Mapping[str, Array], title: str, caption: str) -> Table | None:
    """Tabulate the mean error of each method on the same tasks: this learner first, then by increasing error."""
    own = errors.get(OWN)
    if own is None or not np.isfinite(own).any():
        return None
    rows: list[tuple[str, float, float, float]] = []
    for name, values in errors.items():
        difference = values - own
        difference = difference[np.isfinite(difference)] if name != OWN else np.zeros(0)
        mean = float(difference.mean()) if len(difference) else np.nan
        # Divide by the largest difference, because squares of large errors would overflow.
        size = float(np.abs(difference).max(initial=0.0)) or 1.0
        std_error = np.nan
        if len(difference) > 1:
            std_error = size * float((difference / size).std(ddof=1) / np.sqrt(len(difference)))
        rows.append((name, float(np.nanmean(values)), mean, std_error))
    rows.sort(key=lambda row: (row[0] != OWN, row[1]))
    titles = "method", "error", "difference", "std. error"
    columns = {title: list(values) for title, values in zip(titles, zip(*rows, strict=True), strict=True)}
    return Table(title, columns, caption)


#: Maximum number of columns that a sentence lists.
MOST_NAMED = 10

_STRUCTURES = {
    "none": "One linear regression for all tasks",
    "intercept": "Linear mixed model with a random intercept",
    "diagonal": "Linear mixed model with uncorrelated random effects on every coefficient",
    "full": "Linear mixed model with correlated random effects on every coefficient",
}


def describe_structure(form: Mapping[str, Any], names: Sequence[str]) -> str:
    """Describe ``structure_`` of `EmpiricalBayesLearner` in one sentence; ``names`` are the coefficient names."""
    kind = form["kind"]
    if kind == "independent":
        return "Ridge regression: there is one task, so nothing is pooled."
    if kind == "factors plus diagonal":
        return f"Low-rank plus diagonal prior (for many columns): {form['rank']} factors."
    if kind == "low rank":
        n, k = form["n_components"], form["rank" if form["n_components"] > 1 else "n_factors"]
        models = f"Mixture of {n} linear mixed models, each" if n > 1 else "Linear mixed model"
        return f"{models} with {k} common factor{'s' * (k != 1)} of the coefficients plus independent variation (low rank)."
    gated = " whose mixing weights depend on the side information" if form.get("gate_penalty") else ""
    if kind == "atoms":
        atoms = f"{form['n_components']} narrow Gaussians with the same covariance, centred at the coefficients of training tasks"
        return f"Mixture of {atoms} (atoms){',' * bool(gated)}{gated}."
    varying = names if form.get("varying") is None else [names[j] for j in form["varying"]]
    if kind == "mixture":
        text = f"Mixture of {form['n_components']} linear mixed models{gated}"
    else:
        structure = form.get("structure", "full")
        text = _STRUCTURES[structure]
        if list(varying) == [INTERCEPT] and structure in ("diagonal", "full"):
            text = _STRUCTURES["intercept"]
        elif len(varying) == 1:
            text = re.sub("(un)?correlated random effects.*", f"a random effect on {varying[0]}", text)
        elif len(varying) < len(names):
            text = text.replace("every coefficient", f"these coefficients only: {', '.join(varying)}")
    if form.get("truncation"):
        text += f"; directions with less than {100.0 * form['truncation']:g} % of the largest variance are dropped"
    if form.get("pseudo_tasks") and len(varying) > 1:
        text += f"; random-effect correlations are shrunk towards zero (weight: {form['pseudo_tasks']:g} pseudo-tasks)"
    return text + "."


def _describe_side(learner: Any, description: ModelDescription) -> str:
    """Describe the use of the side information in one sentence."""
    form, names, shared = learner.side_structure_, description.side_columns, description.prior.shared
    if form is None:
        if shared is not None and shared.encoder is not None:
            return "Side information affects shared curves only."
        if learner.structure_.get("gate_penalty"):
            return "Side information affects the mixing weights only."
        return (
            "Side information is not used: the evidence of the training tasks proposed no effect of it, or held-out tasks "
            "did not confirm the effects."
        )
    columns, effects = description.columns, description.mixture.side
    shifted = columns if effects is None else [columns[j] for j in np.flatnonzero(effects.any(axis=1))]
    text = f"coefficients of {list_some(shifted, MOST_NAMED)}"
    if shifted in ([INTERCEPT], columns):
        text = "the intercept" if shifted == [INTERCEPT] else "all coefficients"
    curved = dict.fromkeys(form["curved"], " (nonlinear)")
    chosen = [(names[j] if j < len(names) else f"s{j}") + curved.get(j, "") for j in form["columns"]]
    return f"Columns of the side information that shift {text}: {list_some(chosen, MOST_NAMED)}."


def describe_prediction(loss: Loss) -> str:
    """Describe in one sentence what `EmpiricalBayesLearner` predicts with this loss."""
    if isinstance(loss, Pinball):
        return f"Predictions are {100.0 * loss.quantile:g} % quantiles of the target."
    if loss.name in ("squared", "poisson", "negative_binomial"):
        return "Predictions are means of the target."
    kinds = {"absolute": "are medians of the target", "bernoulli": "are probabilities of the second class"}
    return f"Predictions {kinds.get(loss.name, f'minimise the {error_name(loss.name)}')}."


def _sentences(learner: Any, description: ModelDescription) -> tuple[str, ...]:
    """Return sentences about the selected model."""
    structure: dict[str, Any] | None = getattr(learner, "structure_", None)
    if structure is None:
        return (f"The documentation of {type(learner).__name__} describes its prior.",)
    sentences, training = [], description.training
    if learner.common_ is not None:
        names = " + ".join(f"{weight:.2g} {type(part).__name__}" for weight, part in learner.common_)
        sentences.append(f"{names} is the shared regressor; the numbers below describe the residuals.")
    text = describe_structure(structure, coefficient_names(learner))
    if description.prior.response.name in RATIOS:
        kind = RATIOS[description.prior.response.name][2]
        text = text.replace("Linear", kind[0].upper() + kind[1:]).replace("linear", kind)
    if "with uncorrelated random" in text and description.prior.scaling.shift.any():
        at = "means of the tasks' first rows" if learner.order == "first" else "means of the features"
        text = text.replace("with uncorrelated random", f"with uncorrelated (at the {at}) random")
    sentences.append(text)
    if (formula := lme4_formula(learner)) is not None:
        sentences.append(formula)
    if training is not None and (selection := describe_selection(training.compared)):
        sentences.append(selection)
    if description.prior.shared is not None:
        parts = description.prior.shared.describe(description.columns, description.side_columns)
        sentences.append(f"Effects that all tasks share, not in the printed tables: {parts}.")
        if description.prior.shared.levels:
            sentences[-1] += " Effects of values are in summary().to_frame('levels')."
    if learner.prior_.reads_side_info and learner.n_side_info_in_:
        sentences.append(_describe_side(learner, description))
    if learner.bias_penalty_ is not None:
        sentences.append("Part of the prior mean was learned on query rows, not in the tables of summary().")
    sentences.append(describe_prediction(learner.loss_))
    n_seen = getattr(learner, "n_tasks_seen_", 0)
    if training is not None and n_seen > training.n_tasks:
        errors = "standard errors and held-out errors are those of the last selection"
        sentences.append(f"The stream has {n_seen:,} tasks so far; {errors}, on {training.n_tasks:,} tasks.")
    return tuple(sentences)


def format_share(share: float | int) -> str:
    """Format a number of rows as an integer, or a fraction of rows as a percentage."""
    return f"{share:,}" if isinstance(share, int) else f"{100.0 * share:g} %"
