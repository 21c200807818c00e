"""Tables of a fitted learner: numbers of a `FittedModel` with captions that define them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import norm

from .._utils.tables import Table
from ..gaussian.sites import MOST_DIRECTIONS
from ..losses import error_name
from ..selection.training_summary import MIXED_MODEL, POOLED, RIDGE, TASK_MEAN
from .model import FittedModel, compare_errors

#: A table without content, which is left out.
_NOTHING = Table("", {})


def model_tables(model: FittedModel) -> dict[str, Table]:
    """Return all tables of the model by name; tables without content are left out."""
    tables = {"effects": effects_table(model)}
    if model.mixture is not None:
        tables |= {
            "ratios": ratios_table(model),
            "correlations": correlations_table(model),
            "noise": noise_table(model),
            "levels": levels_table(model),
            "components": components_table(model),
            "side_information": side_table(model),
            "side_effects": side_effects_table(model),
        }
    tables |= {"selection": selection_table(model), "errors": errors_table(model)}
    return {name: table for name, table in tables.items() if len(table)}


def _order(model: FittedModel) -> list[int]:
    """Return rows by decreasing size of the coefficients of scaled columns, which are
    comparable.
    """
    sizes = model.mixture.moments()[0] ** 2 + np.diagonal(model.covariance)
    return [int(i) for i in np.argsort(-sizes[model.shown], kind="stable")]


def effects_table(model: FittedModel) -> Table:
    """Tabulate fixed effects and random-effect standard deviations."""
    shown = model.shown
    columns: dict[str, Any] = {
        "column": model.named(shown),
        "fixed effect": model.fixed_effects[shown],
    }
    if model.mixture is None:
        return Table("Fixed effects", columns, "fixed effect: prior mean of the coefficient.")
    columns |= {
        "std. error": model.standard_errors[shown],
        "random-effect std": model.random_effect_std[shown],
    }
    source = "generalised least squares under the estimated covariances"
    is_large = np.linalg.matrix_rank(model.covariance) > MOST_DIRECTIONS
    if not model.response.is_gaussian and not is_large:
        source = f"observed information of all parameters ({source} if it is not positive definite)"
    at_mean = given = explained = ""
    if model.r2_of_coefficients is not None:
        columns["R² of side info"] = model.r2_of_coefficients[shown]
        at_mean, given = ", at the mean of the side information", ", given the side information"
        explained = (
            " R² of side info: fraction of the coefficient's variance between tasks that the side "
            "information explains (of the intercept: at the feature means)."
        )
    caption = (
        f"fixed effect: mean coefficient of the tasks{at_mean}. std. error: {source}. "
        "random-effect std: standard deviation of the tasks' coefficients around that mean"
        f"{given}.{explained}"
    )
    if model.scale:
        caption += f" All coefficients are {model.scale}."
    if len(model.effects) > len(model.categories):
        caption += " Shared curves or products, named above, add to the effects of columns."
    if np.isnan(columns["std. error"]).any():
        caption += (
            " No std. error: the mean was not estimated, but is that of all targets or zero; or "
            "the rows identify the fixed effect only jointly with others."
        )
    title, percent = "Fixed effects and random-effect std", ["R² of side info"]
    return Table(title, columns, caption, percent, order=_order(model))


def ratios_table(model: FittedModel) -> Table:
    """Tabulate exponentials of the fixed effects on log odds or log rates; empty for numbers."""
    if not model.ratio:
        return _NOTHING
    margin = norm.ppf(0.975) * model.standard_errors
    columns: dict[str, Any] = {"column": model.named(model.shown)}
    # The ratio of 1 euro would be 1.000 if incomes differ by thousands.
    scale, of = model.scaling.columns[model.shown], ""
    unit = np.where((scale > 0.01) & (scale < 100.0), 1.0, 10.0 ** np.floor(np.log10(scale)))
    if (unit != 1.0).any():
        columns["unit"], of = unit, " times unit"
    for name, sign in ((model.ratio, 0.0), ("lower", -1.0), ("upper", 1.0)):
        logs = unit * (model.fixed_effects + sign * margin)[model.shown]
        columns[name] = np.exp(np.where(logs < 700.0, logs, np.nan))
    caption = (
        f"{model.ratio}: exp(fixed effect{of}); lower, upper: its 95 % confidence interval. Empty: "
        "too large for a number, or without a standard error."
    )
    return Table(f"{model.ratio.capitalize()}s", columns, caption, order=_order(model))


def correlations_table(model: FittedModel) -> Table:
    """Tabulate the correlations of the random effects; empty without any.

    Large matrices are not printed.
    """
    names, correlations = model.named(model.varying), model.correlations.round(4)
    if (correlations == np.eye(len(names))).all():
        return _NOTHING
    caption = (
        "Correlations of the tasks' coefficients around their mean. The intercept is the linear "
        "predictor where all features are zero, which may be far from the data."
    )
    label = "" if "column" in names else "column"
    columns: dict[str, Any] = {label: names, **dict(zip(names, correlations, strict=True))}
    n_printed = len(names) if len(names) <= 6 else 0  # wider ones do not fit on a line
    title = "Correlations of the random effects"
    return Table(title, columns, caption, n_printed=n_printed)


def noise_table(model: FittedModel) -> Table:
    """Tabulate the noise, or the dispersion of counts, and the standard deviation between tasks."""
    response, rows = model.response, [("between tasks", model.std_between_tasks)]
    caption = (
        "between tasks: difference of the tasks' models from the prior mean, root mean square over "
        "rows."
    )
    if response.is_gaussian:
        rows.insert(0, ("noise", model.noise_std))
        caption += " noise: residuals of the rows around the model of their task (with weight 1)."
    if response.has_dispersion:
        rows.insert(0, ("dispersion", model.mixture.noise))
        caption += " dispersion: a count with mean m has the variance m + dispersion m²."
    names = "source", "value" if response.has_dispersion else "standard deviation"
    return Table.of_rows("Noise and differences between tasks", names, rows, caption)


def levels_table(model: FittedModel) -> Table:
    """Tabulate effects of values: of categorical columns with many values, and of numeric columns
    whose values have shared effects.
    """
    rows = []
    for one in () if model.prior.shared is None else model.prior.shared.levels:
        name, values = model.columns[one.column], one.values
        if values is None:
            features = model.learner.encoding_.features
            (values,) = (column.categories for column in features if column.name == name)
        effects = zip(values, one.effects, np.sqrt(one.variances), strict=True)
        rows += [(name, value, float(effect), float(std)) for value, effect, std in effects]
    caption = "effect: shrunk towards zero, the same in every task. std. error: its posterior std."
    names = "column", "value", "effect", "std. error"
    return Table.of_rows("Effects of the values of columns", names, rows, caption, n_printed=0)


def components_table(model: FittedModel) -> Table:
    """Tabulate the coefficients of the components; empty for one component."""
    mixture, units = model.mixture, model.scaling
    K, d = mixture.means.shape
    columns: dict[str, Any] = {
        "component": np.repeat(np.arange(1, K + 1), d),
        "proportion": np.repeat(mixture.proportions, d),
        "column": model.columns * K,
        "mean coefficient": units.raw_weights(mixture.means.copy()).ravel(),
        "random-effect std": units.raw_deviations(mixture.covariances).ravel(),
    }
    caption = (
        "proportion: fraction of all tasks. mean coefficient: of the component's tasks. "
        "random-effect std: of the component's tasks around that mean."
    )
    return Table("Components", columns, caption, ["proportion"]) if K > 1 else _NOTHING


def side_table(model: FittedModel) -> Table:
    """Tabulate how much each column of the side information explains; empty if it is not used."""
    side, mixture, caption = model.training.side, model.mixture, ""
    if side is None:
        return _NOTHING
    names = ["all", *model.side_columns][: len(side.row_variance)]
    columns: dict[str, Any] = {"side information": names}
    if mixture.side is not None:
        columns["R²"] = model.r2_of_rows
        caption = (
            "R²: fraction of the variance between the tasks' predictions that the side information "
            "explains, averaged over rows; for correlated columns the fractions need not add up. "
        )
    if side.evidence is not None:
        columns["evidence"] = side.evidence
        caption += (
            "evidence: log Bayes factor of the column's effects on the coefficients against none, "
            "in nats, given the other columns and the estimated covariances; above 3 it is strong. "
        )
    if mixture.gates is not None:
        columns["entropy reduction"] = side.entropy_reduction
        caption += (
            "entropy reduction: fraction of the uncertainty about a task's component that is "
            "removed before any row is observed."
        )
    relevance = np.maximum(model.r2_of_rows, side.entropy_reduction)[1:]
    order = [0, *(1 + np.argsort(-relevance, kind="stable"))]
    percent = ["R²", "entropy reduction"]
    return Table("Side information", columns, caption.strip(), percent, order=order)


def side_effects_table(model: FittedModel) -> Table:
    """Tabulate the effects of side information on the coefficients, except columns with splines;
    empty if there are none.
    """
    features, effects, units = model.prior.side, model.mixture.side, model.scaling
    mean = model.training.mean
    if mean is None or model.training.side is None or features is None or effects is None:
        return _NOTHING
    rows = []
    used = np.unique(mean.column[mean.column > 0]) - 1
    curved = {features.origins[f] for f in used[used >= features.n_linear]}
    for column, category, change in features.encoder.contrasts():
        if column in curved:
            continue
        scaled = {f: value / features.deviation[f] for f, value in change.items()}
        effect = units.raw_differences(effects[:, list(scaled)] @ list(scaled.values()))
        covariance = mean.of(len(model.columns), {1 + f: value for f, value in scaled.items()})
        error = units.raw_deviations(covariance)
        name = model.side_columns[column] + (f"={category}" if category else "")
        for j in np.flatnonzero(error > 0):
            rows.append((name, model.columns[j], float(effect[j]), float(error[j])))
    caption = (
        "effect: change of the coefficient per unit of the side information, or from its first "
        "category to another. std. error: as above, with the penalty as a known Gaussian prior, so "
        "it is too small where slopes hardly differ between tasks or are highly correlated. "
        "Columns with a nonlinear effect are not listed."
    )
    # By decreasing absolute z value.
    order = sorted(range(len(rows)), key=lambda i: -abs(rows[i][2]) / rows[i][3])
    names = "side information", "coefficient", "effect", "std. error"
    return Table.of_rows("Effects of the side information", names, rows, caption, order=order)


def selection_table(model: FittedModel) -> Table:
    """Tabulate the best structure of each kind, the selected one first; empty for one candidate."""
    compared = model.training.compared
    if len(compared) < 2:
        return _NOTHING
    rows = [
        (name, round(row.difference, 4), round(row.std_error, 4), row.error, row.prior_error)
        for name, row in compared.items()
    ]
    names = "structure", "density difference", "std. error", "held-out error", "without rows"
    caption = (
        "The first structure is selected. density difference: held-out log predictive density "
        "minus that of the selected structure, in nats per task, with its paired standard error. "
        f"held-out error: mean {error_name(model.training.loss)} given support rows; without rows: "
        "the same without them. A structure with a higher density is not selected if its errors "
        "exclude it, or if a low-rank covariance is as good; a mixture, if its density is not "
        "higher by two standard errors. Pooled regression is never selected. The page Concepts has "
        "the whole rule."
    )
    return Table.of_rows("Selection on held-out tasks", names, rows, caption)


def errors_table(model: FittedModel) -> Table:
    """Tabulate the errors of the tasks that were held out in `fit`; empty if there are none."""
    training, learner = model.training, model.learner
    noise = ", with the same correlation in time" * (model.response.correlation is not None)
    varying = " of the coefficients that may vary" * ("varying" in learner.structure_)
    side = ", with the same side information" * (learner.side_structure_ is not None)
    more = " and one row at the training mean" * (not model.response.is_gaussian)
    methods = {
        TASK_MEAN: f"mean of the support rows{more}",
        RIDGE: "each task alone, with the best of 15 penalties",
        POOLED: f"one regression for the rows of all tasks{noise}",
        MIXED_MODEL: f"full random-effect covariance{varying}{side}{noise}",
    }
    caption = (
        f"error: mean {error_name(training.loss)} over the tasks held out in fit. difference: mean "
        "over tasks of the method's error minus that of this learner, with its standard error."
    )
    if model.is_selected:
        caption += (
            " The model was selected by the log predictive density, so a baseline may have a lower "
            "error."
        )
    if model.effects:
        caption += " All methods have the effects that all tasks share."
    caption += "".join(f" {name}: {methods[name]}." for name in methods if name in training.errors)
    names = "method", "error", "difference", "std. error"
    rows = compare_errors(training.errors)
    return Table.of_rows("Error on held-out tasks", names, rows, caption)
