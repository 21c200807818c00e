"""Tables of a fitted learner: numbers of a `FittedModel` with captions that define them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from .._utils.tables import MAX_ROWS, Table
from ..gaussian.sites import MOST_DIRECTIONS
from ..losses import error_name
from ..selection.training_summary import MIXED_MODEL, OWN, POOLED, RIDGE, TASK_MEAN
from ..tasks.encoding import list_some
from ..tasks.episodes import SupportSampling
from ..tasks.rows import Array, standard_errors
from .model import INTERCEPT, FittedModel
from .sentences import MAX_NAMED

#: Maximum number of columns of a printed correlation matrix.
MATRIX_COLUMNS = 6


def model_tables(model: FittedModel, learner: Any, sampling: SupportSampling) -> dict[str, Table]:
    """Return all tables of the model by name; tables without content are left out.

    Support rows of held-out tasks were drawn by ``sampling``.
    """
    if model.prior.mixture is None:
        columns = {"column": model.columns, "fixed effect": model.fixed_effects.tolist()}
        caption = "fixed effect: prior mean of the coefficient."
        tables = {"effects": Table("Fixed effects", columns, caption)}
    else:
        tables = {
            "effects": effects_table(model),
            "ratios": ratios_table(model),
            "correlations": correlations_table(model),
            "noise": noise_table(model),
            "levels": levels_table(model, learner.encoding_),
            "components": components_table(model),
            "component_effects": component_effects_table(model),
            "side_information": side_table(model),
            "side_effects": side_effects_table(model),
        }
    tables |= {
        "selection": selection_table(model),
        "errors": errors_table(model, learner, sampling),
    }
    return {name: table for name, table in tables.items() if len(table)}


def _shown(model: FittedModel) -> NDArray[np.intp]:
    """Return the positions of the coefficients in tables."""
    return np.setdiff1d(model.coefficients, model.constant)


def _order(model: FittedModel) -> list[int] | None:
    """Return the rows by decreasing size of the coefficients of scaled columns, which are
    comparable; None for few rows.
    """
    sizes = model.mixture.moments()[0] ** 2 + np.diagonal(model.covariance)
    order = np.argsort(-sizes[_shown(model)], kind="stable").tolist()
    return order if len(model.columns) > MAX_ROWS else None


def effects_table(model: FittedModel) -> Table:
    """Tabulate fixed effects and random-effect standard deviations."""
    shown, errors = _shown(model), model.standard_errors
    columns: dict[str, Any] = {
        "column": [model.columns[j] for j in shown],
        "fixed effect": model.fixed_effects[shown].tolist(),
        "std. error": errors[shown].tolist(),
        "random-effect std": model.random_effect_std[shown].tolist(),
    }
    scale, at_mean = model.scale.coefficients, ""
    if model.mixture.side is not None:
        at_mean = ", at the mean of the side information"
    caption = (
        f"{f'All coefficients are {scale}. ' * bool(scale)}fixed effect: mean coefficient of the "
        f"tasks{at_mean}. std. error: {_source_of_errors(model)}. random-effect std: standard "
        "deviation of the tasks' coefficients around that mean"
    )
    if (r2 := model.r2_of_side_info) is not None:
        columns["R² of side info"] = r2[shown].tolist()
        caption += (
            ", given the side information. R² of side info: fraction of the coefficient's variance "
            "between tasks that the side information explains"
        )
        if model.prior.scaling.shift.any():
            caption += " (of the intercept: at the feature means)"
        if (r2 == 1.0).any():
            caption += (
                "; it is 100 % where tasks with equal side information have the same coefficient"
            )
    effects = () if model.prior.shared is None else model.prior.shared.effects
    if curved := {j for one in effects for j in one.columns} & {*shown.tolist()}:
        names = list_some((model.columns[j] for j in sorted(curved)), MAX_NAMED)
        caption += f". Shared curves or products, named above, add to the effects of {names}"
    if not model.has_estimated_mean:
        mean = "the overall mean of the targets" if model.prior.response.is_gaussian else "zero"
        caption += f". There are no standard errors because the selected prior mean is {mean}"
    elif np.isnan(errors[shown]).any():
        caption += (
            ". No std. error: the rows identify the fixed effect, or one on which it depends, only "
            "jointly with others"
        )
    title, percent = "Fixed effects and random-effect std", ["R² of side info"]
    return Table(title, columns, f"{caption}.", percent, order=_order(model))


def _source_of_errors(model: FittedModel) -> str:
    """Return how the standard errors of the fixed effects are computed.

    See `tailored.gaussian.errors`.
    """
    least_squares = "generalised least squares under the estimated covariances"
    n_directions = np.linalg.matrix_rank(model.covariance)
    if model.prior.response.is_gaussian or n_directions > MOST_DIRECTIONS:
        return least_squares
    return (
        f"observed information of all parameters ({least_squares} if it is not positive definite)"
    )


def ratios_table(model: FittedModel) -> Table:
    """Tabulate exponentials of the fixed effects on log odds or log rates.

    Empty for Gaussian targets.
    """
    ratio = model.scale.ratio
    if not ratio:
        return Table("Ratios", {})
    shown = _shown(model)
    margin = norm.ppf(0.975) * model.standard_errors
    columns: dict[str, Any] = {"column": [model.columns[j] for j in shown]}
    for name, sign in ((ratio, 0.0), ("lower", -1.0), ("upper", 1.0)):
        logs = (model.fixed_effects + sign * margin)[shown]
        columns[name] = np.exp(np.where(logs < 700.0, logs, np.nan)).tolist()
    caption = f"{ratio}: exp(fixed effect); lower, upper: its 95 % confidence interval."
    if np.isnan([columns[ratio], columns["upper"]]).any():
        caption += " Empty: too large for a number, or without a standard error."
    return Table(f"{ratio.capitalize()}s", columns, caption, order=_order(model))


def correlations_table(model: FittedModel) -> Table:
    """Tabulate the correlations of the random effects; empty without any.

    Large matrices are not printed.
    """
    names, correlations = [model.columns[j] for j in model.varying], model.correlations
    title = "Correlations of the random effects"
    if not (np.abs(correlations - np.eye(len(names))) > 1e-9).any():
        return Table(title, {})
    caption = "Correlations of the tasks' coefficients around their mean"
    if INTERCEPT in names and model.prior.scaling.shift.any():
        caption += (
            "; the intercept is the linear predictor where all features are zero, which may be far "
            "from the data"
        )
    columns: dict[str, Any] = {"column": names}
    columns |= dict(zip(names, correlations.T.round(4).tolist(), strict=True))
    n_printed = len(names) if len(names) <= MATRIX_COLUMNS else 0
    return Table(title, columns, f"{caption}.", n_printed=n_printed)


def noise_table(model: FittedModel) -> Table:
    """Tabulate the noise, or the dispersion of counts, and the standard deviation between tasks."""
    response, name = model.prior.response, "standard deviation"
    title = "Noise and differences between tasks"
    values, captions = dict[str, float](), []
    if response.is_gaussian:
        share = 0.0 if model.correlation is None else model.correlation.share
        noise = np.sqrt(model.mixture.noise * (1.0 + share))
        values["noise"] = model.prior.scaling.target * float(noise)
        captions.append(
            "noise: residuals of the rows around the model of their task (of a row with weight 1)"
        )
    else:
        title = "Differences between tasks"
    if response.has_dispersion:
        name, values["dispersion"] = "value", model.mixture.noise
        captions.append("dispersion: a count with mean m has the variance m + dispersion m²")
    if model.std_between_tasks is not None:
        values["between tasks"] = model.std_between_tasks
        captions.append(
            "between tasks: difference of the tasks' models from the prior mean, root mean square "
            "over rows"
        )
    columns: dict[str, Any] = {"source": list(values), name: list(values.values())}
    return Table(title, columns, f"{'; '.join(captions)}.")


def levels_table(model: FittedModel, encoding: Any) -> Table:
    """Tabulate the effect of each value of the categorical columns that have many values."""
    rows = []
    for one in () if model.prior.shared is None else model.prior.shared.levels:
        name = model.columns[one.column]
        if one.values is None:
            (values,) = (c.categories for c in encoding.features if c.name == name)
        else:
            values = one.values.tolist()
        errors = np.sqrt(one.variances).tolist()
        rows += [(name, *row) for row in zip(values, one.effects.tolist(), errors, strict=True)]
    caption = "effect: shrunk towards zero, the same in every task. std. error: its posterior std."
    names = "column", "value", "effect", "std. error"
    return Table.of_rows("Effects of the values of categories", names, rows, caption, n_printed=0)


def components_table(model: FittedModel) -> Table:
    """Tabulate the proportions of the components; empty for one component."""
    mixture = model.mixture
    if mixture.n_components == 1:
        return Table("Components", {})
    columns: dict[str, Any] = {
        "component": list(range(1, mixture.n_components + 1)),
        "proportion": mixture.proportions.tolist(),
    }
    return Table("Components", columns, "proportion: fraction of all tasks.", ["proportion"])


def component_effects_table(model: FittedModel) -> Table:
    """Tabulate the coefficients of the components; empty for one component."""
    mixture, units, title = model.mixture, model.prior.scaling, "Coefficients by component"
    if mixture.n_components == 1:
        return Table(title, {})
    K, d = mixture.means.shape
    columns = {
        "component": np.repeat(np.arange(1, K + 1), d).tolist(),
        "column": list(model.columns) * K,
        "mean coefficient": units.raw_weights(mixture.means.copy()).ravel().tolist(),
        "random-effect std": units.raw_deviations(mixture.covariances).ravel().tolist(),
    }
    caption = "mean coefficient: of the component's tasks; random-effect std: their std around it."
    return Table(title, columns, caption)


def side_table(model: FittedModel) -> Table:
    """Tabulate how much each column of the side information explains; empty if it is not used."""
    side = None if model.training is None else model.training.side
    if side is None or model.std_between_tasks is None:
        return Table("Side information", {})
    r2 = side.row_variance / max(model.std_between_tasks**2 + side.row_variance[0], 1e-300)
    columns: dict[str, Any] = {"side information": ["all", *_side_names(model)]}
    captions = []
    if model.mixture.side is not None:
        columns["R²"] = r2.tolist()
        captions.append(
            "R²: fraction of the variance between the tasks' predictions that the side information "
            "explains, averaged over rows; for correlated columns the fractions need not add up."
        )
    if side.evidence is not None:
        columns["evidence"] = side.evidence.tolist()
        captions.append(
            "evidence: log Bayes factor of the column's effects on the coefficients against "
            "none, in "
            "nats, given the other columns and the estimated covariances; above 3 it is strong."
        )
    if model.mixture.gates is not None:
        columns["entropy reduction"] = side.entropy_reduction.tolist()
        captions.append(
            "entropy reduction: fraction of the uncertainty about a task's component that is "
            "removed "
            "before any row is observed."
        )
    relevance = np.maximum(r2, side.entropy_reduction)
    relevance[0] = np.inf
    order, percent = np.argsort(-relevance, kind="stable").tolist(), ["R²", "entropy reduction"]
    return Table("Side information", columns, " ".join(captions), percent, order=order)


def _side_names(model: FittedModel) -> list[str]:
    """Return the names of the columns of the side information; s0, s1, ...

    If a feature map computes them.
    """
    assert model.training is not None
    assert model.training.side is not None
    n = len(model.training.side.row_variance) - 1
    return model.side_columns if len(model.side_columns) == n else [f"s{j}" for j in range(n)]


def side_effects_table(model: FittedModel) -> Table:
    """Tabulate the effects of side information on the coefficients, except columns with splines;
    empty if there are none.
    """
    title, training, units = "Effects of the side information", model.training, model.prior.scaling
    features, effects = model.prior.side, model.mixture.side
    if training is None or training.mean is None or training.side is None:
        return Table(title, {})
    if features is None or effects is None:
        return Table(title, {})
    mean, side_names = training.mean, _side_names(model)
    used = np.unique(mean.column[mean.column > 0]) - 1
    curved = {features.origins[f] for f in used[used >= features.n_linear]}
    rows: list[tuple[str, str, float, float]] = []
    for column, category, change in features.encoder.contrasts():
        if column in curved:
            continue
        scaled = {f: value / features.deviation[f] for f, value in change.items()}
        effect = units.raw_differences(effects[:, list(scaled)] @ list(scaled.values()))
        covariance = mean.of(len(model.columns), {1 + f: value for f, value in scaled.items()})
        error = units.raw_deviations(covariance)
        name = side_names[column] + (f"={category}" if category else "")
        for j in np.flatnonzero(error > 0):
            rows.append((name, model.columns[j], float(effect[j]), float(error[j])))
    caption = (
        "effect: change of the coefficient per unit of the side information, or from its first "
        "category to another; std. error: as above, with the penalty as a Gaussian prior."
    )
    caption += " Columns with a nonlinear effect are not listed." * bool(curved)
    # By decreasing absolute z value.
    order = sorted(range(len(rows)), key=lambda i: -abs(rows[i][2]) / rows[i][3])
    names = "side information", "coefficient", "effect", "std. error"
    return Table.of_rows(title, names, rows, caption, order=order)


def selection_table(model: FittedModel) -> Table:
    """Tabulate the best structure of each kind, the selected one first.

    Empty if only one was a candidate.
    """
    title, training = "Selection on held-out tasks", model.training
    if training is None or len(training.compared) < 2:
        return Table(title, {})
    rows = list(training.compared.values())
    columns: dict[str, list[Any]] = {
        "structure": list(training.compared),
        "density difference": [row.difference for row in rows],
        "std. error": [np.nan, *(row.std_error for row in rows[1:])],
        "held-out error": [row.error for row in rows],
    }
    caption = (
        "density difference: held-out log predictive density minus that of the selected "
        "structure, in "
        f"nats per task, with its paired standard error. held-out error: mean "
        f"{error_name(training.loss)} given support rows. The page Concepts has the rule of the "
        "selection."
    )
    return Table(title, columns, caption)


def errors_table(model: FittedModel, learner: Any, sampling: SupportSampling) -> Table:
    """Tabulate the errors of the tasks that were held out in `fit`; empty if there are none."""
    title, training, prior = "Error on held-out tasks", model.training, model.prior
    if training is None or not np.isfinite(own := training.errors.get(OWN, np.zeros(0))).any():
        return Table(title, {})
    order = "first" if sampling.in_order else "random"
    share = "75 % of its rows (of fewer than four, all but one)"
    if sampling.support is not None:
        ends = (
            f"{end:,}" if isinstance(end, int) else f"{100.0 * end:g} %" for end in sampling.support
        )
        share = f"{' to '.join(dict.fromkeys(ends))} of its rows"
    elif sampling.in_order:
        share = "25 to 75 % of its rows"
    caption = (
        f"error: mean {error_name(training.loss)} over {np.isfinite(own).sum():,} tasks held out "
        "in "
        f"fit, each with {share} as support ({order})."
    )
    if prior.shared is not None:
        caption += (
            " The effects that all tasks share were fitted to these tasks, too, and all methods "
            "have "
            "them."
        )
    if len(training.compared) > 1 or model.has_curves or prior.reads_side_info:
        caption += (
            " The model was selected on the same tasks, so its error is slightly optimistic. The "
            "criterion is the log predictive density, not the error, so a baseline may have a "
            "lower "
            "error."
        )
    rows = compare_errors(training.errors)
    if len(rows) > 1:
        caption += (
            " difference: mean over tasks of the method's error minus that of this learner, with "
            "its "
            f"standard error. {_describe_methods(model, learner, training.errors)}."
        )
    return Table.of_rows(title, ("method", "error", "difference", "std. error"), rows, caption)


def _describe_methods(model: FittedModel, learner: Any, errors: Mapping[str, Array]) -> str:
    """Define the methods in the table of errors."""
    task_mean, mixed = "mean of the support rows", "full random-effect covariance"
    noise = ", with the same correlation in time" * (model.correlation is not None)
    if not model.prior.response.is_gaussian:
        task_mean += " and one row at the training mean"
    if "varying" in learner.structure_:
        mixed += " of the coefficients that may vary"
    if learner.side_structure_ is not None:
        mixed += ", with the same side information"
    texts = {
        TASK_MEAN: task_mean,
        RIDGE: "each task alone, with the best of 15 penalties",
        POOLED: f"one regression for the rows of all tasks{noise}",
        MIXED_MODEL: f"{mixed}{noise}",
    }
    return "; ".join(f"{name}: {text}" for name, text in texts.items() if name in errors)


def compare_errors(errors: Mapping[str, Array]) -> list[tuple[str, float, float, float]]:
    """Return name, mean error, and mean and standard error of the difference from this learner,
    which is first.
    """
    rows = [(OWN, float(np.nanmean(errors[OWN])), np.nan, np.nan)]
    for name, values in errors.items():
        difference = values - errors[OWN]
        difference = difference[np.isfinite(difference)]
        if name != OWN and len(difference):
            std_error = float(standard_errors(difference)) if len(difference) > 1 else np.nan
            rows.append((name, float(np.nanmean(values)), float(difference.mean()), std_error))
    return [rows[0], *sorted(rows[1:], key=lambda row: row[1])]
