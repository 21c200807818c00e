"""The tables of a `Summary`, from what a learner knows when its tasks are gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..feature_maps import PosteriorModel
from ..gaussian import Mixture
from ..gaussian.uncertainty import as_one
from ..prior import Prior
from .account import OWN, Account
from .effects import INTERCEPT, posterior_model
from .rivals import MIXED_MODEL, POOLED, RIDGE, TASK_MEAN
from .summary import Summary
from .tables import LONGEST_WORDS, MOST_ROWS, Table
from .words import strength

Array = NDArray[np.float64]

#: Columns up to which all correlations are printed; of more, the largest.
FEW_COLUMNS, LARGEST = 6, 10
#: Differences between components worth a word: in deviations between tasks, and ratios of deviations.
DIFFERENT, WIDER = 0.5, 1.5
#: What the rivals are.
_RIVALS = {
    TASK_MEAN: "the mean of the rows given",
    RIDGE: "each task alone, with the best of 15 penalties",
    POOLED: "least squares on all rows",
    MIXED_MODEL: "full covariance between tasks, with the same side information",
}


@dataclass(frozen=True)
class Facts:
    """What a fitted learner knows.

    ``columns`` are the names of its weights, ``side_columns`` those of the description.
    """

    prior: Prior
    account: Account | None
    columns: list[str]
    side_columns: list[str]
    scale: float = 1.0

    @property
    def model(self) -> PosteriorModel | None:
        return posterior_model(self.prior)

    @property
    def mixture(self) -> Mixture:
        """The model as it was estimated: with the covariances that calibration took a multiple of."""
        assert self.model is not None
        return self.model.mixture.scaled(1.0 / self.scale)


def effects_table(facts: Facts) -> Table:
    """Common effects, and how far tasks differ in them."""
    units, account, d = facts.prior.units, facts.account, len(facts.columns)
    columns: dict[str, Any] = {"column": list(facts.columns)}
    if facts.model is None:
        columns["effect"] = units.raw_weights(np.array(facts.prior.bias.constant, dtype=float)).tolist()
        return Table("Common effects", columns, "effect: the prior mean of a task's weight.")
    one = as_one(facts.mixture)
    known = None if account is None or account.mean is None else account.mean
    deviations = facts.prior.units.raw_deviations(one.covariances[0])
    columns["effect"] = units.raw_weights(one.means[0].copy()).tolist()
    errors = np.full(d, np.nan) if known is None else facts.prior.units.raw_deviations(known.of(d, 0))
    # Where b was not learned it has no error.
    estimated = known is not None and bool((known.column == 0).any())
    columns["std. error"] = (errors if estimated else np.full(d, np.nan)).tolist()
    columns["std. between tasks"] = deviations.tolist()
    caption = (
        "effect: mean of the tasks' weights"
        + (", at the mean of the side information" if facts.side_columns else "")
        + ". "
        "std. error: by generalised least squares under the estimated covariance between tasks and noise. "
        "std. between tasks: standard deviation of the tasks' own weights about that mean"
    )
    percent = []
    if account is not None and account.side is not None and one.side is not None:
        moved = account.side.moved[0]
        total = np.hypot(moved, deviations)
        columns["explained"] = (
            np.where(total > 0, moved / np.where(total > 0, total, 1.0), 0.0) ** 2
        ).tolist()
        percent.append("explained")
        caption += ", beyond side information. explained: share of the variance between tasks that side information explains"
    if not estimated:
        caption += ". No std. error: the effect was not learned"
    elif np.isnan(errors).any():
        caption += ". No std. error: rows determine the effect together with those of other columns only"
    order = _by_size(one) if d > MOST_ROWS else None
    return Table("Common effects, and how much they vary", columns, caption + ".", percent, order=order)


def _by_size(one: Mixture) -> list[int]:
    """Weights by what they matter for a typical row: mean and deviation in units in which columns have size one."""
    size = one.means[0] ** 2 + np.diagonal(one.covariances[0])
    return [int(j) for j in np.argsort(-size, kind="stable")]


def correlations_table(facts: Facts) -> Table | None:
    """Of the tasks' weights; a matrix, or the largest where there are many."""
    units = facts.prior.units
    covariance = units.raw_representation(as_one(facts.mixture).covariances[0])
    deviation = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    # What a weight does to a typical row says whether it varies, not its unit.
    matters = deviation * units.columns
    varies = np.flatnonzero(matters > 1e-9 * max(float(matters.max(initial=0.0)), 1e-300))
    if len(varies) < 2:
        return None
    found = covariance[np.ix_(varies, varies)] / np.outer(deviation[varies], deviation[varies])
    names = [facts.columns[j] for j in varies]
    if not (np.abs(found - np.eye(len(found))) > 1e-9).any():
        return None
    caption = "Correlations of the tasks' weights about their mean"
    if len(names) > FEW_COLUMNS:
        caption += ", largest first"
    if INTERCEPT in names and facts.prior.units.shift.any():
        caption += "; the intercept is the level where all columns are zero, which may be far from any row"
    if len(names) <= FEW_COLUMNS:
        columns: dict[str, Any] = {"column": names}
        for j, name in enumerate(names):
            columns[name] = [round(float(v), 4) if i != j else 1.0 for i, v in enumerate(found[:, j])]
        return Table("Correlations between tasks", columns, caption + ".")
    rows, others = np.tril_indices(len(names), -1)
    values = found[rows, others]
    order = np.argsort(-np.abs(values), kind="stable")
    pairs = {
        "column": [names[a] for a in others[order]],
        "and": [names[a] for a in rows[order]],
        "correlation": values[order].tolist(),
    }
    return Table("Correlations between tasks", pairs, caption + ".", most=LARGEST)


def noise_table(facts: Facts) -> Table:
    """The noise of rows beside what tasks differ by at a typical row."""
    target = facts.prior.units.target
    one = as_one(facts.mixture)
    columns: dict[str, list[Any]] = {
        "of a row": ["noise"],
        "standard deviation": [target * float(np.sqrt(one.noise))],
    }
    caption = "noise: of a row's target about its task's own model"
    if facts.account is not None and facts.account.row_moment is not None:
        between = target * float(np.sqrt(max(np.sum(one.covariances[0] * facts.account.row_moment), 0.0)))
        columns["of a row"].append("between tasks")
        columns["standard deviation"].append(between)
        caption += (
            "; between tasks: of the tasks' own models about the prior mean, root mean square over rows"
        )
    return Table("Noise, and differences between tasks", columns, caption + ".")


def component_tables(facts: Facts) -> dict[str, Table]:
    """Proportions of the components and what distinguishes them, in words and in numbers."""
    mixture = facts.mixture
    if mixture.n_components == 1:
        return {}
    units, one = facts.prior.units, as_one(mixture)
    total = facts.prior.units.raw_deviations(one.covariances[0])
    means = units.raw_weights(mixture.means.copy())
    deviations = facts.prior.units.raw_deviations(mixture.covariances)
    centre = units.raw_weights(one.means[0].copy())
    shares = mixture.proportions
    said = [
        _distinct(facts.columns, (m - centre) / np.maximum(total, 1e-300), s / np.maximum(total, 1e-300))
        for m, s in zip(means, deviations, strict=True)
    ]
    number_of = list(range(1, len(shares) + 1))
    table: dict[str, Any] = {
        "component": number_of,
        "proportion": shares.tolist(),
        "what distinguishes it": said,
    }
    caption = (
        "proportion: part of all tasks. higher, lower: its mean effect less that of all tasks, in standard deviations "
        "between tasks; wider, narrower: its own standard deviation over that of all tasks."
    )
    K, d = means.shape
    columns = {
        "component": np.repeat(number_of, d).tolist(),
        "column": list(facts.columns) * K,
        "effect": means.ravel().tolist(),
        "std. between tasks": deviations.ravel().tolist(),
    }
    sentences = ["what distinguishes it"]
    out = {"components": Table("Components", table, caption, ["proportion"], sentences=sentences)}
    told = facts.account.side if facts.account is not None else None
    if told is not None and told.shares is not None:
        for j, name in enumerate(facts.side_columns[: told.shares.shape[1]]):
            table[f"mean of {name}"] = told.shares[:, j].tolist()
    detail = "effect: mean of the weights of the component's tasks; std.: their standard deviation about it."
    most = 0 if K * d > MOST_ROWS else K * d
    out["component_effects"] = Table("Effects by component", columns, detail, most=most)
    return out


def _distinct(names: list[str], shifts: Array, widths: Array) -> str:
    """Up to three effects in which a component is most unlike all tasks."""
    said = [
        (abs(z), f"{names[j]} {'higher' if z > 0 else 'lower'} ({z:+.1f})")
        for j, z in enumerate(shifts)
        if abs(z) > DIFFERENT
    ]
    for j, ratio in enumerate(widths):
        if ratio > WIDER or (0 < ratio < 1.0 / WIDER):
            said.append(
                (abs(np.log(ratio)), f"{names[j]} {'wider' if ratio > 1 else 'narrower'} ({ratio:.1f}x)")
            )
    said.sort(key=lambda pair: -pair[0])
    words = ""
    for _, text in said[:3]:
        longer = f"{words}, {text}" if words else text
        # Two whole words say more than three without their middle.
        words = longer if not words or len(longer) <= LONGEST_WORDS else words
    return words or "near the mean of all"


def side_tables(facts: Facts) -> dict[str, Table]:
    """Which columns of the description mattered; and the effect of each, where they act along lines."""
    account = facts.account
    if account is None or account.side is None or facts.model is None:
        return {}
    side, mixture, units = account.side, facts.mixture, facts.prior.units
    m = len(side.at_rows) - 1
    names = facts.side_columns if len(facts.side_columns) == m else [f"s{j}" for j in range(m)]
    assert account.row_moment is not None
    between = units.target**2 * float(np.sum(as_one(mixture).covariances[0] * account.row_moment))
    share = side.at_rows / max(between + side.at_rows[0], 1e-300)
    columns: dict[str, Any] = {"side information": ["all", *names]}
    captions, percent = [], []
    if mixture.side is not None:
        columns["explains"] = share.tolist()
        percent.append("explains")
        captions.append(
            "explains: share of the variance of the tasks' predictions about the common ones, averaged over rows; columns "
            "that go together explain the same, and shares need not add up"
        )
    if mixture.gates is not None:
        columns["tells component"] = side.told.tolist()
        percent.append("tells component")
        captions.append(
            "tells component: share of the uncertainty (entropy) about a task's component that it takes away before any row"
        )
    columns["in a word"] = [strength(max(float(a), float(b))) for a, b in zip(share, side.told, strict=True)]
    order = [0, *(1 + np.argsort(-np.maximum(share, side.told)[1:], kind="stable")).tolist()]
    out = {
        "side_information": Table(
            "Which side information mattered", columns, ". ".join(captions) + ".", percent, order=order
        )
    }
    effects = _side_effects(facts, names)
    if effects is not None:
        out["side_effects"] = effects
    return out


def _side_effects(facts: Facts, names: list[str]) -> Table | None:
    """Effects of the description on the weights, with their errors, where they are linear."""
    account, model, units = facts.account, facts.model, facts.prior.units
    assert account is not None
    assert model is not None
    if account.mean is None or model.mixture.side is None or model.side is None:
        return None
    features = np.unique(account.mean.column[account.mean.column > 0]) - 1
    if not len(features) or features.max() >= model.side.n_linear or not model.side.is_plain:
        return None
    d, rows = len(facts.columns), []
    for f in features:
        effect = units.raw_differences(model.mixture.side[:, f]) / model.side.deviation[f]
        error = facts.prior.units.raw_deviations(account.mean.of(d, 1 + int(f))) / model.side.deviation[f]
        moved = np.flatnonzero(error > 0)
        rows += [(names[f], facts.columns[j], float(effect[j]), float(error[j])) for j in moved]
    if not rows:
        return None
    whose, which, effects, errors = zip(*rows, strict=True)
    table = {
        "side information": list(whose),
        "moves": list(which),
        "effect": list(effects),
        "std. error": list(errors),
    }
    ratio = np.abs(np.array(effects)) / np.maximum(np.array(errors), 1e-300)
    caption = (
        "effect: what one unit more of the column adds to a task's weight; std. error: as above, Γ's penalty taken as the "
        "prior that it stands for."
    )
    return Table(
        "Effects of side information", table, caption, order=np.argsort(-ratio, kind="stable").tolist()
    )


def errors_table(errors: Mapping[str, Array], title: str, caption: str) -> Table | None:
    """Mean errors of the same tasks by several methods, best first, beside those of the learner."""
    own = errors.get(OWN)
    if own is None or not np.isfinite(own).any():
        return None
    rows = []
    for name, found in errors.items():
        gap = found - own
        gap = gap[np.isfinite(gap)]
        worse = float(gap.mean()) if len(gap) else float("nan")
        # squares of errors may be no numbers
        size = float(np.abs(gap).max(initial=0.0)) or 1.0
        known = len(gap) > 1 and name != OWN
        se = size * float((gap / size).std(ddof=1) / np.sqrt(len(gap))) if known else float("nan")
        rows.append((float(np.nanmean(found)), name, worse if name != OWN else float("nan"), se))
    rows.sort(key=lambda row: (row[1] != OWN, row[0]))
    mean, names, worse_by, se_of = (list(column) for column in zip(*rows, strict=True))
    columns = {"method": names, "error": mean, "worse by": worse_by, "std. error": se_of}
    return Table(title, columns, caption)


def title_of(name: str, account: Account | None, task: Any, target: Any, n_columns: int) -> str:
    """The learner and what it was fitted to."""
    columns = f"{n_columns:,} column" + ("s" if n_columns != 1 else "")
    if account is None:
        return f"{name}: {columns}"
    tasks = f"{account.n_tasks:,} tasks" + (f" ({task})" if task is not None else "")
    rows = f"{account.n_rows:,} rows" + (f" of {target}" if target is not None else "")
    return f"{name}: {tasks}, {rows}, {columns}"


def summarise(
    title: tuple[str, Any, Any],
    words: tuple[str, ...],
    facts: Facts,
    errors: Mapping[str, Array],
    loss: str,
    how: str,
) -> Summary:
    """All tables that there are.

    ``title`` is the learner's name and those of the columns of tasks and targets; ``errors`` are measured by ``loss`` on
    tasks that ``how`` says.
    """
    name, task, target = title
    tables: dict[str, Table | None] = {"effects": effects_table(facts)}
    if facts.model is not None:
        tables["correlations"] = correlations_table(facts)
        tables["noise"] = noise_table(facts)
        tables.update(component_tables(facts))
        tables.update(side_tables(facts))
    judged = np.isfinite(errors[OWN]).sum() if OWN in errors else 0
    caption = f"error: mean {loss} loss over {judged:,} {how}."
    if len(errors) > 1:
        caption += " worse by: the mean of the tasks' differences to this learner, and its standard error. "
        caption += "; ".join(f"{name}: {said}" for name, said in _RIVALS.items() if name in errors) + "."
    tables["errors"] = errors_table(errors, "Error on held-out tasks", caption)
    n_columns = len(facts.columns) - facts.prior.fit_intercept
    heading = title_of(name, facts.account, task, target, n_columns)
    return Summary(heading, words, {key: table for key, table in tables.items() if table is not None})
