"""Mixed models fitted by lme4 of R.

It estimates a linear mixed model, with the task's columns and its description as fixed effects and
a random effect of each column and of the intercept:

    y = ⟨x, b⟩ + b₀ + ⟨s, g⟩ + ⟨x, u⟩ + u₀ + noise,   (u, u₀) ~ N(0, W),  noise of variance σ²

New tasks are ours: the best linear predictor of their random effects given their rows, from those
estimates. A program that is not there is no error: `missing` says what is, and the benchmark leaves
the rival out.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import tempfile
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tailored.tasks.rows import dense, dense_rows
from tailored.tasks.task_set import TaskSet

from .base import LinearBaseline

Array = NDArray[np.float64]

#: The random effects that are compared; the one of least AIC is used.
INTERCEPT, DIAGONAL, FULL = "random intercept", "uncorrelated slopes", "full slopes"


class Estimates(NamedTuple):
    """A linear mixed model: weights of the fixed effects, W with the intercept last, and σ²."""

    form: str
    fixed: Array
    covariance: Array
    noise: float


class Rows(NamedTuple):
    """What a program gets: columns of unit deviation, the fixed effects that are independent, task
    numbers.
    """

    X: Array
    fixed: Array
    y: Array
    task: NDArray[np.int64]


def random_effects(Z: Array, left: Array, covariance: Array, noise: float) -> Array:
    """The best linear predictor of u given ``left = Z u + noise``: ``W Zᵀ (Z W Zᵀ + σ² I)⁻¹
    left``.
    """
    if not len(left):
        return np.zeros(Z.shape[1])
    spread = Z @ covariance
    # W may be singular, and is where an estimate ended at zero: nothing here inverts it.
    return np.asarray(spread.T @ np.linalg.solve(spread @ Z.T + noise * np.eye(len(left)), left))


class DescribedMixedModel(LinearBaseline):
    """A linear mixed model fitted by another program; new tasks by the best linear predictor."""

    form_: str  # the selected random effects
    weights_: Array  # fixed effects of the columns, the intercept last, (d + 1,)
    description_: Array  # fixed effects of the side information, (q,)
    covariance_: Array  # of the random effects, the intercept last, (d + 1, d + 1)
    noise_: float
    aic_: dict[str, float]  # of each form that could be fitted

    @classmethod
    @abstractmethod
    def missing(cls) -> str | None:
        """What is not installed that this needs, in words; None where it can run."""

    @abstractmethod
    def _estimate(self, rows: Rows) -> Estimates:
        """Fit by the program, and leave ``aic_``."""

    def _fit(self, tasks: TaskSet) -> None:
        reason = self.missing()
        if reason is not None:
            raise RuntimeError(reason)
        self._fit_side(tasks)
        X, side = dense(tasks.X), self._side(tasks)
        task = np.repeat(np.arange(len(tasks)), tasks.sizes)
        fixed = np.hstack([X, np.ones((len(X), 1)), side[task]])
        # Optimisers of variances stop early on columns of very different size.  Dividing leaves the
        # models as they are; subtracting would not leave uncorrelated slopes uncorrelated.
        units, unit_y = _deviations(fixed), float(tasks.y.std()) or 1.0
        kept = independent_columns(fixed / units)
        d = tasks.n_features
        rows = Rows(X / units[:d], (fixed / units)[:, kept], tasks.y / unit_y, task)
        found = self._estimate(rows)
        weights = np.zeros(fixed.shape[1])
        weights[kept] = unit_y * found.fixed / units[kept]
        self.form_, self.weights_, self.description_ = (
            found.form,
            weights[: d + 1],
            weights[d + 1 :],
        )
        self.covariance_ = unit_y**2 * found.covariance / np.outer(units[: d + 1], units[: d + 1])
        self.noise_ = unit_y**2 * found.noise

    def _adapt(self, tasks: TaskSet) -> Array:
        """The effect of the side information is part of the intercept."""
        weights = np.tile(self.weights_, (len(tasks), 1))
        weights[:, -1] += self._side(tasks) @ self.description_
        for own, task in zip(weights, tasks, strict=True):
            Z = dense_rows(task.X, True)
            own += random_effects(Z, task.y - Z @ own, self.covariance_, self.noise_)
        return weights


def independent_columns(columns: Array) -> NDArray[np.int64]:
    """Positions of the columns that are no combination of earlier ones, first come, first kept."""
    kept: list[int] = []
    basis = np.zeros((len(columns), 0))
    for j, column in enumerate(columns.T):
        left = column - basis @ (basis.T @ column)
        left -= basis @ (basis.T @ left)
        length = np.linalg.norm(left)
        if length > 1e-8 * np.linalg.norm(column):
            kept.append(j)
            basis = np.column_stack([basis, left / length])
    return np.array(kept, dtype=np.int64)


def _deviations(columns: Array) -> Array:
    found = columns.std(axis=0)
    return np.where(found > 0, found, 1.0)


# --- lme4

_LME4 = """
suppressPackageStartupMessages(library(lme4))
rows <- read.csv("rows.csv")
rows$g <- factor(rows$g)
forms <- read.csv("forms.csv", stringsAsFactors = FALSE)
reml <- commandArgs(trailingOnly = TRUE)[1] == "reml"

lines <- list()
put <- function(kind, name, other, value) lines[[length(lines) + 1]] <<-
  data.frame(kind = kind, name = name, other = other, value = value)
# A fit at the boundary, or one that stopped a little early, is warned about; AIC judges it all the
# same.
quietly <- function(expression) suppressWarnings(suppressMessages(expression))
fit <- function(formula, reml) quietly(lmer(as.formula(formula), rows, REML = reml))

fits <- list()
for (i in seq_len(nrow(forms))) fits[[i]] <- tryCatch(fit(forms$formula[i], FALSE), error = function(problem) {
  put("failure", forms$name[i], conditionMessage(problem), "")
  NULL
})
fitted <- which(!vapply(seq_len(nrow(forms)), function(i) i > length(fits) || is.null(fits[[i]]), TRUE))
aic <- vapply(fitted, function(i) AIC(fits[[i]]), 0)
number <- function(value) formatC(value, digits = 17, format = "g")
for (j in seq_along(fitted)) put("aic", forms$name[fitted[j]], "", number(aic[j]))

if (length(fitted)) {
  best <- fitted[which.min(aic)]
  chosen <- if (reml) tryCatch(fit(forms$formula[best], TRUE), error = function(problem) fits[[best]]) else fits[[best]]
  put("form", forms$name[best], "", "")
  fixed <- fixef(chosen)
  for (name in names(fixed)) put("fixed", name, "", number(fixed[[name]]))
  for (block in VarCorr(chosen)) for (a in rownames(block)) for (b in rownames(block))
    put("covariance", a, b, number(block[a, b]))
  put("noise", "", "", number(sigma(chosen)^2))
}
write.csv(do.call(rbind, lines), "result.csv", row.names = FALSE)
"""


@cache
def _r_with_lme4() -> str | None:
    """What of R and lme4 is missing; asked once, since starting R takes a second."""
    program = shutil.which("Rscript")
    if program is None:
        return "Rscript is not installed (on Debian: r-base-core, r-cran-lme4)"
    found = subprocess.run(
        [program, "-e", "library(lme4)"], capture_output=True, text=True, check=False
    )
    return (
        None
        if found.returncode == 0
        else "the R package lme4 is not installed (on Debian: r-cran-lme4)"
    )


class Lme4(DescribedMixedModel):
    """lme4's linear mixed model: random intercept, uncorrelated or full slopes, by the AIC of
    maximum likelihood.

    One process of R fits the three.  See `DescribedMixedModel` for the attributes.

    Parameters
    ----------
    reml : bool, default=True
        Estimate the chosen one again by restricted maximum likelihood, which is lme4's default.
    forms : sequence of str
        The random effects to compare.

    Attributes
    ----------
    failures_ : dict
        lme4's message for each form that it refused.
    """

    def __init__(
        self, reml: bool = True, forms: Sequence[str] = (INTERCEPT, DIAGONAL, FULL)
    ) -> None:
        self.reml = reml
        self.forms = forms

    @classmethod
    def missing(cls) -> str | None:
        return _r_with_lme4()

    def _estimate(self, rows: Rows) -> Estimates:
        names = [f"x{j}" for j in range(rows.X.shape[1])]
        table = _run_r(
            _r_columns(rows, names), self._formulas(names, rows.fixed.shape[1]), self.reml
        )
        self.failures_ = {line["name"]: line["other"] for line in table["failure"]}
        self.aic_ = {line["name"]: float(line["value"]) for line in table["aic"]}
        if not self.aic_:
            raise RuntimeError(f"lme4 fitted none of its models: {self.failures_}")
        fixed = np.zeros(rows.fixed.shape[1])
        for line in table["fixed"]:
            fixed[int(line["name"].removeprefix("f"))] = float(line["value"])
        place = {name: j for j, name in enumerate([*names, "(Intercept)"])}
        covariance = np.zeros((len(place), len(place)))
        for line in table["covariance"]:
            covariance[place[line["name"]], place[line["other"]]] = float(line["value"])
        noise = float(table["noise"][0]["value"])
        return Estimates(table["form"][0]["name"], fixed, covariance, noise)

    def _formulas(self, names: Sequence[str], n_fixed: int) -> dict[str, str]:
        fixed = " + ".join(f"f{j}" for j in range(n_fixed))
        slopes = " + ".join(["1", *names])
        parts = {INTERCEPT: "(1 | g)", DIAGONAL: f"({slopes} || g)", FULL: f"({slopes} | g)"}
        # The intercept is one of the fixed columns.
        return {form: f"y ~ 0 + {fixed} + {parts[form]}" for form in self.forms}


def _r_columns(rows: Rows, names: Sequence[str]) -> dict[str, Array]:
    fixed = {f"f{j}": column for j, column in enumerate(rows.fixed.T)}
    return {"g": rows.task, "y": rows.y, **dict(zip(names, rows.X.T, strict=True)), **fixed}


def _run_r(
    columns: Mapping[str, Array], formulas: Mapping[str, str], reml: bool
) -> dict[str, list[dict[str, str]]]:
    """Fit the models in one process of R; the lines of its answer by their kind."""
    program = shutil.which("Rscript") or "Rscript"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # repr is the shortest text that reads back as the same number.
        _write_csv(
            folder / "rows.csv",
            list(columns),
            zip(*(c.tolist() for c in columns.values()), strict=True),
        )
        _write_csv(folder / "forms.csv", ["name", "formula"], formulas.items())
        (folder / "fit.R").write_text(_LME4, encoding="utf-8")
        ran = subprocess.run(
            [program, "--vanilla", "fit.R", "reml" if reml else "ml"],
            cwd=folder,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if ran.returncode != 0:
            raise RuntimeError(
                f"R stopped with status {ran.returncode}: {ran.stderr.strip()[-1000:]}"
            )
        with (folder / "result.csv").open(newline="", encoding="utf-8") as stream:
            lines = list(csv.DictReader(stream))
    kinds = ("failure", "aic", "form", "fixed", "covariance", "noise")
    return {kind: [line for line in lines if line["kind"] == kind] for kind in kinds}


def _write_csv(path: Path, head: Sequence[str], lines: Any) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(head)
        writer.writerows(lines)
