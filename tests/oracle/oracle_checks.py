"""Checks of one fitted learner: its numbers against definitions, and its methods against
another.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from oracle_definitions import Marginal, posterior
from tailored import load

INTERVAL = ("prediction", "lower", "upper", "std")
#: Coverage of the compared intervals.
COVERAGE = 0.8
#: Noise variances below this part of the targets' variance are near the smallest that is fitted.
NEAR_ZERO = 1e-8


class Checks:
    """Comparisons of one configuration; ``failed`` has a line for each that failed."""

    def __init__(self):
        self.failed, self.passed = [], 0

    def true(self, name, is_true, detail=""):
        self.passed += bool(is_true)
        if not is_true:
            self.failed.append(f"{name}: {detail}")

    def close(self, name, found, expected, tolerance, scale=1.0):
        """Check that two arrays agree up to ``tolerance`` times ``scale`` (an array or a
        number).
        """
        found, expected = np.asarray(found, float), np.asarray(expected, float)
        if found.shape != expected.shape:
            self.true(name, False, f"shapes {found.shape} and {expected.shape}")
            return
        limit = np.broadcast_to(tolerance * np.asarray(scale, float), found.shape)
        with np.errstate(invalid="ignore"):
            agree = (found == expected) | (np.abs(found - expected) <= limit)
        agree |= np.isnan(found) & np.isnan(expected)
        if agree.all():
            self.passed += 1
            return
        at = np.unravel_index(np.argmin(agree), found.shape)
        detail = f"{found[at]!r} and {expected[at]!r} differ by more than {limit[at]:.3g}"
        self.true(name, False, f"{detail}, in {np.count_nonzero(~agree)} of {agree.size}")


class Estimates:
    """The estimates of a learner with one Gaussian, as `summary` and `representation` show them."""

    def __init__(self, learner, tasks):
        self.learner = learner
        summary = learner.summary()
        names = [] if tasks.feature_names is None else [str(name) for name in tasks.feature_names]
        names = names or [f"x{j}" for j in range(tasks.n_features)]
        self.names = [*names, "(intercept)"] if learner.fit_intercept else names
        frame = summary.to_frame("effects").set_index("column").reindex(self.names)
        self.fixed = frame["fixed effect"].to_numpy()
        self.errors = frame["std. error"].to_numpy()
        self.spread = frame["random-effect std"].to_numpy()
        noise = summary.to_frame("noise")
        self.noise = dict(zip(noise["source"], noise.iloc[:, 1], strict=True))
        side = {} if tasks.side_info is None else {"side_info": tasks.side_info[0]}
        self.variance = self.noise.get("noise", 1.0) ** 2
        self.W = self.variance * learner.representation(**side)
        # Rounding can make a variance of zero negative.
        self.deviations = np.sqrt(np.maximum(np.diag(self.W), 0.0))

    @property
    def is_plain(self):
        """Whether there is one Gaussian, without effects that all tasks share."""
        return self.learner.n_components_ == 1 and self.learner.prior_.shared is None

    def means(self, tasks):
        """Return the prior means (T, d) of tasks, as `coefficients` or `adapt` give them."""
        if tasks.side_info is not None:
            return self.learner.coefficients(tasks.side_info)
        model = self.learner.adapt()
        mean = np.append(model.coef_, model.intercept_)[: len(self.names)]
        return np.tile(mean, (len(tasks), 1))

    def effects(self, tasks):
        """Return the posterior means, their standard deviations and the prior means, (T, d)
        each.
        """
        frame = self.learner.effects(tasks)
        found = []
        for column in ("effect", "std", "prior"):
            wide = frame.pivot_table(column, "task", "column", sort=False, dropna=False)
            found.append(wide.reindex(columns=self.names).to_numpy())
        return found


def rows_of(tasks, t):
    return slice(int(tasks.offsets[t]), int(tasks.offsets[t + 1]))


def expanded(table, frame):
    """Return X, y, precisions and task codes, with rows repeated by their frequency."""
    frame = frame.loc[frame.index.repeat(table.values(frame, "frequency_weight").astype(int))]
    X, _ = table.encode(frame, intercept=True)
    task = pd.factorize(frame["task"])[0]
    return X, frame["y"].to_numpy(float), table.values(frame, "sample_weight"), task


def check_reading(checks, table, tasks):
    """Check the encoded columns against the documented rules."""
    X, names = table.encode(table.train)
    order = np.argsort(pd.factorize(table.train["task"])[0], kind="stable")
    order = order[table.values(table.train, "frequency_weight")[order] > 0]
    found = [] if tasks.feature_names is None else [str(name) for name in tasks.feature_names]
    checks.true("encoded names", found == names, f"{found} and {names}")
    checks.close("encoded columns", tasks.X, X[order], 1e-12, np.abs(X).max(initial=1.0))


def check_gaussian(checks, table, learner, tasks):
    """Check estimates and posteriors of one Gaussian without side information.

    Return None if rounding errors are as large as the noise.
    """
    found = Estimates(learner, tasks)
    X, y, w, task = expanded(table, table.train)
    if np.max(found.variance) <= NEAR_ZERO * np.var(y):
        return None
    X = X[:, : len(found.names)]
    d, size = X.shape[1], np.sqrt((X**2).mean(axis=0))
    if np.linalg.matrix_rank(X / np.where(size > 0, size, 1.0)) < d:
        return found
    dense = Marginal(X, y, task, np.arange(d), w)
    is_estimated = learner.structure_.get("pseudo_tasks", 0) == 0 and tasks.side_info is None
    b, C = dense.fixed_effects(found.W, found.variance)
    se = np.sqrt(np.diag(C))
    if is_estimated and dense.n > d and len(tasks) > d:
        rounding = 1e-9 * np.abs(y).max() / size
        checks.close("fixed effects are GLS", found.fixed, b, 1.0, 1e-4 * se + rounding)
        checks.close("standard errors are those of GLS", found.errors, se, 1e-4, se + rounding)
    checks.close(
        "random-effect std", found.spread * size, found.deviations * size, 1e-6, table.unit
    )
    mean, std, prior = found.effects(tasks)
    checks.close(
        "prior means", prior * size, found.means(tasks) * size, 1e-8, table.unit + np.abs(y).max()
    )
    spread = found.deviations
    # Rows that occur zero times are not in the tasks.
    labels = pd.unique(table.train["task"][table.values(table.train, "frequency_weight") > 0])
    for t, label in enumerate(tasks.labels[:12]):
        at = task == np.flatnonzero(labels == label)[0]
        own, cov, R = posterior(X[at], y[at], w[at], prior[t], found.W, found.variance)
        limit = 3e-5 * spread + 1e-8 * np.abs(own) + 1e-10 * np.abs(y).max() / size
        checks.close("posterior means", mean[t], own, 1.0, limit)
        if is_estimated and dense.n > d and len(tasks) > d:
            total = np.sqrt(np.diag(cov + R @ C @ R.T))
            checks.close("standard deviations of coefficients", std[t], total, 1e-4, total + limit)
    return found


def check_maximum(checks, table, learner, tasks, found, varying, *, reml, diagonal):
    """Check that no larger (restricted) likelihood exists."""
    X, y, w, task = expanded(table, table.train)
    X = X[:, : len(found.names)]
    if not len(varying) or len(varying) >= len(tasks) or X.shape[1] > 6:
        return
    size = np.sqrt((X**2).mean(axis=0))
    if not size.all() or np.linalg.matrix_rank(X / size) < X.shape[1] or len(y) <= X.shape[1] + 2:
        return
    intercept_varies = learner.fit_intercept and X.shape[1] - 1 in varying
    centred = intercept_varies and not diagonal and len(varying) == X.shape[1]
    dense = Marginal(X, y, task, varying, w, centred=centred)
    W, noise = dense.scaled(found.W, found.variance)
    others = np.setdiff1d(np.arange(X.shape[1]), varying)
    outside = np.abs((found.W * np.outer(size, size))[others])
    checks.true("W of the other columns is zero", not (outside > 1e-9 * table.unit**2).any())
    reached = dense.log_likelihood(W, noise, reml)
    printed = learner.training_summary_.log_likelihood
    if printed is not None:
        checks.close("log likelihood", printed, reached, 1e-6, abs(reached) + len(y))
    starts = [(W, noise), (np.eye(len(W)), 0.5), (0.01 * np.eye(len(W)), 0.2)]
    best, _, best_noise = dense.maximum(reml, diagonal=diagonal, starts=starts)
    if min(noise, best_noise) > NEAR_ZERO:  # otherwise the likelihood has no maximum
        detail = f"{reached:.6g}, but {best:.6g} exists"
        checks.true("the likelihood is at its maximum", best - reached <= 1e-3, detail)


def check_methods(checks, table, learner, rng, tolerance=1e-9):
    """Check that all methods predict the same for new tasks; return support, query and results."""
    support, query = table.split(rng)
    drop = [c for c in ("y", *table.roles.values()) if c != "exposure"]
    asked = query.drop(columns=[c for c in drop if c in query])
    is_class = hasattr(learner, "classes_")
    options = {} if is_class else {"coverage": COVERAGE}
    columns = ("probability",) if is_class else INTERVAL
    full = learner.predict_tasks(asked, support, **options)
    scale = table.unit + 1e-6 * np.abs(full[columns[0]].to_numpy()).max(initial=0.0)
    if not is_class:
        scale += full["std"].max()
    shuffled = asked.sample(frac=1.0, random_state=1)[rng.permutation(asked.columns)]
    other = support.sample(frac=1.0, random_state=2)[support.columns[::-1]]
    again = learner.predict_tasks(shuffled.assign(other=1.0), other, **options).loc[asked.index]
    for column in columns:
        checks.close(
            f"order of rows and columns: {column}",
            again[column],
            full[column],
            10.0 * tolerance,
            scale,
        )
    for label in query["task"].unique():
        s, q = support[support["task"] == label], asked[asked["task"] == label]
        _check_adapting(checks, table, learner, s, q, full.loc[q.index], scale, tolerance)
    known = table.train[table.values(table.train, "frequency_weight") > 0]
    known = known[known["task"].isin(known["task"].unique()[:5])]
    by_label = learner.predict_tasks(known.drop(columns="y"), **options)
    by_rows = learner.predict_tasks(known.drop(columns="y"), known, **options)
    for column in columns:
        checks.close(f"known tasks: {column}", by_label[column], by_rows[column], 1e-8, scale)
    if rng.random() < 0.3:
        _check_file(checks, learner, asked, support, options, full)
    return support, asked, full


def _check_adapting(checks, table, learner, support, query, expected, scale, tolerance):
    """Check one task: `adapt`, and `update` after the first half of the rows."""
    label = query["task"].iloc[0]
    side = table.side_of(label)
    values = {role: support[column] for role, column in table.roles.items()}
    inputs = support[table.features] if table.features else np.zeros((len(support), 0))
    if len(support):
        model = learner.adapt(inputs, support["y"], **side, **values)
    else:
        model = learner.adapt(**side)
    asked = query[table.features] if table.features else np.zeros((len(query), 0))
    exposure = {"exposure": query["exposure"]} if "exposure" in table.roles else {}
    if hasattr(learner, "classes_"):
        found = model.predict_proba(asked)[:, 1]
        checks.close("adapt: probability", found, expected["probability"], tolerance)
        return
    checks.close(
        "adapt: prediction",
        model.predict(asked, **exposure),
        expected["prediction"],
        tolerance,
        scale,
    )
    interval = model.predict_interval(asked, COVERAGE, **exposure)
    checks.close("adapt: interval", interval, expected[["lower", "upper"]], tolerance, scale)
    std = model.predict_std(asked, **exposure)
    checks.close("adapt: std", std, expected["std"], tolerance, scale)
    wider = model.predict_interval(asked, 0.95, **exposure)
    nested = (wider[:, 0] <= interval[:, 0] + 1e-9 * scale) & (
        wider[:, 1] >= interval[:, 1] - 1e-9 * scale
    )
    checks.true("intervals are nested", nested.all(), f"{interval} and {wider}")
    if len(support) > 1 and table.features and not table.roles:
        half = len(support) // 2
        first = learner.adapt(inputs[:half], support["y"][:half], **side)
        both = first.update(inputs[half:], support["y"][half:])
        checks.close(
            "update: prediction", both.predict(asked), expected["prediction"], tolerance, scale
        )
        found = both.predict_interval(asked, COVERAGE)
        checks.close("update: interval", found, expected[["lower", "upper"]], tolerance, scale)


def _check_file(checks, learner, query, support, options, expected):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.tailored")
        learner.save(path)
        loaded = load(path)
    found = loaded.predict_tasks(query, support, **options)
    checks.true("a loaded model predicts the same bits", found.equals(expected))
    checks.true(
        "a loaded model has the same summary", str(loaded.summary()) == str(learner.summary())
    )


def check_totals(checks, table, learner, support, query, full, rng):
    """Check totals: sums of the predictions, and the mean of draws."""
    weights = np.round(rng.uniform(0.5, 9.0, len(query)), 2)
    by_task = learner.predict_totals(query, support, by="task", coverage=0.9, weights=weights)
    is_class = hasattr(learner, "classes_")
    values = full["probability" if is_class else "prediction"].to_numpy()
    std = np.sqrt(values * (1.0 - values)) if is_class else full["std"].to_numpy()
    labels = query["task"].to_numpy()
    scale = (table.unit + 1e-6 * np.abs(values).max(initial=0.0)) * weights.sum()
    sums = [(weights * values)[labels == label].sum() for label in by_task["task"]]
    checks.close("totals are sums of predictions", by_task["prediction"], sums, 1e-9, scale)
    draws = learner.sample(query, support, n_draws=1500, random_state=3)
    checks.true("shape of draws", draws.shape == (1500, len(query)), draws.shape)
    if is_class or learner.loss != "absolute":
        limit = 6.5 * np.maximum(draws.std(axis=0), std) / np.sqrt(1500) + 1e-6 * table.unit
        # Far outside the data, only draws know that the mean is uncertain.
        near = np.abs(values) < 100.0 * (table.unit + table.train["y"].abs().max())
        found, expected = draws.mean(axis=0)[near], values[near]
        checks.close("mean of draws", found, expected, 1.0, limit[near])


def check_interval(checks, name, draws, table):
    """Check that 5 % of draws are below, and 5 % above, each interval of a table of totals."""
    lower, upper = table["lower"].to_numpy(), table["upper"].to_numpy()
    outside = [(draws < lower, draws <= lower), (draws > upper, draws >= upper)]
    for side, (beyond, or_at) in zip(("below", "above"), outside, strict=True):
        least, most = beyond.mean(axis=0), or_at.mean(axis=0)
        is_right = (least <= 0.05 + 0.03) & (most >= 0.05 - 0.03)
        checks.true(f"{name}: {side} the interval", is_right.all(), f"{least} to {most}")


def check_variances(checks, table, learner, found, support, query, rng):
    """Check the variance of totals of one task; it has one factor, from the calibration."""
    X, y, w, task = expanded(table, table.train)
    d = len(found.names)
    X = X[:, :d]
    if len(y) <= d or table.n_tasks <= d or np.linalg.cond(X / np.sqrt((X**2).mean(axis=0))) > 1e4:
        return
    _, C = Marginal(X, y, task, np.arange(d), w).fixed_effects(found.W, found.variance)
    units = np.round(rng.uniform(0.5, 9.0, len(query)), 2)
    each = learner.predict_totals(query, support, by=np.arange(len(query)))["std"].to_numpy() ** 2
    total = learner.predict_totals(query, support, by="task", weights=units)
    Q = table.encode(query, intercept=True)[0][:, :d]
    for label, std in zip(total["task"], total["std"], strict=True):
        at = (query["task"] == label).to_numpy()
        rows = support[support["task"] == label]
        x, target, precision, _ = expanded(table, rows)
        _, V, R = posterior(x[:, :d], target, precision, np.zeros(d), found.W, found.variance)
        by_row = np.einsum("ni,ij,nj->n", Q[at], V, Q[at]) + found.variance
        shared = np.einsum("ni,ij,nj->n", Q[at] @ R, C, Q[at] @ R)
        factors = (each[at] - shared) / by_row
        factor = factors.mean()
        equal = np.full(len(factors), factor)
        checks.close("one factor of the variances of a task", factors, equal, 1e-3, abs(factor))
        a, h = units[at] @ Q[at], units[at] @ Q[at] @ R
        own = factor * (a @ V @ a + units[at].sum() * found.variance)
        checks.close("std of a total", std, np.sqrt(own + h @ C @ h), 1e-3, std)
