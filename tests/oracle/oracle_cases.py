"""Random configurations by kind: a table, options, a fit, and what must hold.

python tests/oracle/oracle_cases.py KIND SEED [N]       # repeat one configuration, or run N
"""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pandas as pd

from oracle_checks import (
    INTERVAL,
    NEAR_ZERO,
    Checks,
    Estimates,
    check_gaussian,
    check_interval,
    check_maximum,
    check_methods,
    check_reading,
    check_totals,
    check_variances,
    rows_of,
)
from oracle_definitions import (
    generalised_draws,
    generalised_errors,
    generalised_evidence,
    generalised_maximum,
    generalised_task,
    kriging,
    mixture_posterior,
    response_mean,
)
from oracle_tables import draw
from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored.losses import Pinball


def gaussian(rng, checks):
    """One Gaussian with a stated covariance: the textbook model."""
    table = draw(rng, side=False)
    options = _stated(rng, table)
    learner, tasks = _fit(table, options)
    check_reading(checks, table, tasks)
    found = check_gaussian(checks, table, learner, tasks)
    if found is None:
        return
    varying = _varying(table, options)
    diagonal = options["covariance"] == "diagonal"
    check_maximum(
        checks, table, learner, tasks, found, varying, reml=options["reml"], diagonal=diagonal
    )
    support, query, full = check_methods(checks, table, learner, rng)
    check_totals(checks, table, learner, support, query, full, rng)
    check_variances(checks, table, learner, found, support, query, rng)
    changes = [rename, affine_target, shuffle, affine_columns, permute, arrays, constant_weight]
    changes += [repeat] * ("frequency_weight" in table.roles)
    change = changes[rng.integers(len(changes))]
    change(rng, checks, table, options, support, query, full, 1e-4)


def selected(rng, checks):
    """The selected model, with side information and the losses for numbers."""
    table = draw(rng, n_tasks=int(rng.choice([6, 10, 16, 30])))
    losses = ["squared", "squared", "squared", "absolute", Pinball(float(rng.choice([0.2, 0.8])))]
    options = {"loss": losses[rng.integers(len(losses))], **_sampling(rng)}
    learner, tasks = _fit(table, options)
    check_reading(checks, table, tasks)
    if learner.n_components_ == 1 and learner.prior_.shared is None and not table.roles:
        _check_posteriors(checks, table, learner, tasks)
    is_interpolating = learner.prior_.mixture.noise < NEAR_ZERO
    tolerance = 1e-6 if is_interpolating else 1e-8
    support, query, full = check_methods(checks, table, learner, rng, tolerance)
    if options["loss"] in ("squared", "absolute"):
        check_totals(checks, table, learner, support, query, full, rng)
    rename(rng, checks, table, options, support, query, full, 1e-7)


def counts(rng, checks):
    """Counts, with stated random effects."""
    table = draw(rng, target="count", n_tasks=int(rng.choice([6, 10, 16])), most=2, wild=False)
    loss = str(rng.choice(["poisson", "negative_binomial"]))
    options = {"loss": loss, "covariance": "full", **_few(rng, table)}
    learner, tasks = _fit(table, options)
    _check_generalised(checks, table, learner, tasks, "poisson", options)
    support, query, full = check_methods(checks, table, learner, rng, 1e-8)
    check_totals(checks, table, learner, support, query, full, rng)
    _check_generalised_totals(checks, table, learner, tasks, "poisson", support, query, rng)
    changes = [rename, shuffle, *[repeat] * ("frequency_weight" in table.roles)]
    change = changes[rng.integers(len(changes))]
    # The likelihood may be flat: estimates that differ by 3 % may differ by .01 nats.
    change(rng, checks, table, options, support, query, full, 3e-2)


def classes(rng, checks):
    """Two classes, with stated random effects."""
    table = draw(rng, target="class", n_tasks=int(rng.choice([8, 12, 20])), most=2, wild=False)
    options = _few(rng, table)
    learner, tasks = _fit(table, options, EmpiricalBayesClassifier)
    checks.true("classes", list(learner.classes_) == [0, 1], learner.classes_)
    _check_generalised(checks, table, learner.learners_[0], tasks, "bernoulli", options)
    support, query, full = check_methods(checks, table, learner, rng, 1e-8)
    check_totals(checks, table, learner, support, query, full, rng)
    one = learner.learners_[0]
    _check_generalised_totals(checks, table, one, tasks, "bernoulli", support, query, rng)
    flip = {0: 1, 1: 0}
    flipped = table.train.assign(y=table.train["y"].map(flip))
    other = EmpiricalBayesClassifier(**options).fit(table.tasks(flipped))
    if other.learners_[0].structure_ != one.structure_:  # a tie, decided by rounding errors
        return
    found = other.predict_tasks(query, support.assign(y=support["y"].map(flip)))
    checks.close("exchanged classes", 1.0 - found["probability"], full["probability"], 1e-3)


def mixtures(rng, checks):
    """Clusters of tasks; predictions against the mixture's definition."""
    T, n, d = 60, int(rng.integers(3, 9)), int(rng.integers(1, 4))
    g = np.repeat(np.arange(T), n)
    X = rng.normal(size=(T * n, d))
    centres = 6.0 * rng.normal(size=(3, d + 1))
    U = centres[rng.integers(0, int(rng.integers(2, 4)), T)] + 0.3 * rng.normal(size=(T, d + 1))
    unit = 10.0 ** rng.uniform(-4, 4)
    one = np.ones((T * n, 1))
    y = unit * ((np.hstack([X, one]) * U[g]).sum(axis=1) + 0.4 * rng.normal(size=T * n))
    learner = EmpiricalBayesLearner().fit(X, y, groups=g)
    if learner.prior_.shared is not None:
        return
    mixture, scaling = learner.prior_.mixture, learner.prior_.scaling

    def scaled(rows):
        rows = (rows - scaling.shift[:d]) / scaling.columns[:d]
        return np.column_stack([rows, np.ones(len(rows))])

    covariances = np.broadcast_to(mixture.covariances, (learner.n_components_, d + 1, d + 1))
    for t in range(6):
        rows, k = np.flatnonzero(g == t), int(rng.integers(1, n + 1))
        rows = rows[:k]
        target = (y[rows] - scaling.target_shift) / scaling.target
        r, means, _ = mixture_posterior(
            scaled(X[rows]),
            target,
            np.ones(k),
            mixture.proportions,
            mixture.means,
            covariances,
            mixture.noise,
        )
        query = rng.normal(size=(4, d))
        expected = scaling.target_shift + scaling.target * scaled(query) @ (r @ means)
        found = learner.adapt(X[rows], y[rows]).predict(query)
        checks.close("prediction of a mixture", found, expected, 1e-4, y.std())


def times(rng, checks):
    """Noise that is correlated in time; predictions against kriging."""
    T, n = int(rng.choice([12, 20, 30])), int(rng.integers(5, 11))
    g = np.repeat(np.arange(T + 4), n)
    t = np.concatenate([np.sort(rng.uniform(0, 10, n)) for _ in range(T + 4)])
    length, share = float(rng.uniform(0.5, 3.0)), float(rng.choice([3.0, 10.0]))
    y = np.empty(len(g))
    for task in range(T + 4):
        rows = g == task
        K = share * np.exp(-np.abs(np.subtract.outer(t[rows], t[rows])) / length) + np.eye(n)
        y[rows] = rng.normal() + np.linalg.cholesky(K) @ rng.normal(size=n)
    frame = pd.DataFrame({"task": g, "t": t, "y": y})
    train, new = frame[g < T], frame[g >= T].reset_index(drop=True)
    learner = EmpiricalBayesLearner(covariance="diagonal", varying=[]).fit(
        TaskSet.from_frame(train, task="task", target="y", time="t")
    )
    share = getattr(learner.prior_.response, "share", None)
    if share is None:
        return
    length = learner.prior_.response.length
    prior = learner.adapt()
    b = np.append(prior.coef_, prior.intercept_)
    total = learner.summary().to_frame("noise").set_index("source").iloc[:, 0]["noise"] ** 2
    noise = total / (1.0 + share)
    W = total / (1.0 + share) * learner.representation()
    support = new[rng.random(len(new)) < 0.5]
    query = new.drop(index=support.index)
    full = learner.predict_tasks(query.drop(columns="y"), support, coverage=0.8)
    for task in query["task"].unique():
        s, q = support[support["task"] == task], query[query["task"] == task]
        X, Q = (np.column_stack([part["t"], np.ones(len(part))]) for part in (s, q))
        ts, tq = s["t"].to_numpy(), q["t"].to_numpy()
        expected = kriging(X, ts, s["y"].to_numpy(), Q, tq, b, W, noise, share, length)
        checks.close("kriging", full.loc[q.index, "prediction"], expected, 1e-6, y.std())
        if len(s):
            model = learner.adapt(s[["t"]], s["y"])
            found = model.predict_interval(q[["t"]], 0.8)
            expected = full.loc[q.index, ["lower", "upper"]]
            checks.close("adapt: interval with serial noise", found, expected, 1e-9, y.std())


KINDS = {each.__name__: each for each in (gaussian, selected, counts, classes, mixtures, times)}


# ------------------------------------------------------------------ options


def _stated(rng, table):
    options = {
        "fit_intercept": bool(rng.random() < 0.85) or not table.features,
        "covariance": str(rng.choice(["full", "diagonal"])),
        "reml": bool(rng.random() < 0.6),
        **_sampling(rng),
    }
    chosen = [name for name in table.features if rng.random() < 0.5]
    if rng.random() < 0.45 and (chosen or options["fit_intercept"]):
        options["varying"] = chosen
    return options


def _sampling(rng):
    choices = [None, None, None, 1, 2, 0.5, (1, 3), 1]
    return {"n_support": choices[rng.integers(len(choices))]}


def _few(rng, table):
    """Draw options with at most one random slope, so that quadrature is exact."""
    options = {"varying": [name for name in table.features if rng.random() < 0.4][:1]}
    if len(table.encode(table.train)[1]) > len(table.features):
        options["varying"] = []
    return options


def _varying(table, options):
    _, names = table.encode(table.train)
    if "varying" not in options:
        return list(range(len(names) + options["fit_intercept"]))
    found = [j for j, name in enumerate(names) if name.split("=")[0] in options["varying"]]
    return found + [len(names)] * options["fit_intercept"]


def _fit(table, options, learner=EmpiricalBayesLearner):
    tasks = table.tasks()
    return learner(**options).fit(tasks), tasks


# ------------------------------------------------------------------ further checks


def _check_posteriors(checks, table, learner, tasks):
    """Check the coefficients of training tasks given their prior means."""
    found = Estimates(learner, tasks)
    mean, _, prior = found.effects(tasks)
    from oracle_definitions import posterior

    X = np.column_stack([tasks.X, np.ones(len(tasks.y))])
    for t in range(min(len(tasks), 10)):
        x, y = X[rows_of(tasks, t)], tasks.y[rows_of(tasks, t)]
        own, _, _ = posterior(x, y, np.ones(len(y)), prior[t], found.W, found.variance)
        checks.close(
            "fit of a task", x @ mean[t], x @ own, 1e-5, table.unit + np.abs(y).max() * 1e-6
        )


def _check_generalised(checks, table, learner, tasks, kind, options):
    """Check posteriors, predictions and the likelihood of classes or counts by quadrature."""
    if learner.n_components_ > 1 or learner.prior_.shared is not None or table.side:
        return
    found = Estimates(learner, tasks)
    X = np.column_stack([tasks.X, np.ones(len(tasks.y))])
    y, ones = np.asarray(tasks.y, float), np.ones(len(tasks.y))
    offset = np.log(tasks.exposure) if tasks.exposure is not None else 0.0 * ones
    w = ones if tasks.row_weights is None else tasks.row_weights
    dispersion = found.noise.get("dispersion", 0.0)
    name = "negative_binomial" if dispersion else kind
    spread = found.deviations
    varying = np.flatnonzero(spread > 1e-7 * max(spread.max(), 1e-300))
    values, vectors = np.linalg.eigh(found.W[np.ix_(varying, varying)])
    L = vectors * np.sqrt(np.maximum(values, 0.0))
    b = found.means(tasks)[0]
    mean = found.effects(tasks)[0]
    rows = [rows_of(tasks, t) for t in range(len(tasks))]
    for t in range(min(len(tasks), 8)):
        x, at = X[rows[t]], rows[t]
        size = np.sqrt(np.einsum("ni,ij,nj->n", x, found.W, x).max(initial=0.0))
        if size > 8.0:  # the classes are separable, and this quadrature is not exact either
            continue
        _, v, C = generalised_task(name, x, y[at], offset[at], w[at], b, L, varying, dispersion, 31)
        own = b.copy()
        own[varying] += L @ v
        checks.close(f"{kind}: posterior", x @ mean[t], x @ own, 3e-3, size + 1e-3)
        variance = np.einsum("ni,ij,nj->n", x[:, varying], L @ C @ L.T, x[:, varying])
        expected = response_mean(kind, x @ own, variance) * np.exp(offset[at])
        result = learner.predict_tasks(tasks[[t]], tasks[[t]], coverage=None)["prediction"]
        checks.close(f"{kind}: prediction", result, expected, 5e-3, expected + 1e-3)
    is_estimated = learner.structure_.get("pseudo_tasks", 0) == 0 and not dispersion
    if options["varying"] == [] and is_estimated and len(tasks) <= 16 and X.shape[1] <= 3:
        units = [(X[r], y[r], offset[r], w[r]) for r in rows]
        last = [X.shape[1] - 1]
        L = np.array([[spread[-1]]])
        reached = generalised_evidence(name, units, b, L, last)
        best = generalised_maximum(name, units, last, (b, L))
        if np.abs(b).max() < 8:  # otherwise the classes are separable, and no maximum exists
            detail = f"{reached:.5g}, but {best:.5g} exists"
            checks.true(f"{kind}: likelihood", best - reached < 0.02, detail)


def _check_generalised_totals(checks, table, learner, tasks, kind, support, query, rng):
    """Check standard errors, and the intervals of totals of classes or counts, by quadrature."""
    if learner.n_components_ > 1 or learner.prior_.shared is not None or table.side:
        return
    found, X = Estimates(learner, tasks), np.column_stack([tasks.X, np.ones(len(tasks.y))])
    dispersion = found.noise.get("dispersion", 0.0)
    name = "negative_binomial" if dispersion else kind
    b = found.means(tasks)[0]
    spread = found.deviations
    varying = np.flatnonzero(spread > 1e-3 * max(spread.max(), 1e-300))
    W = found.W[np.ix_(varying, varying)]
    correlations = W / np.outer(spread[varying], spread[varying])
    is_singular = np.linalg.eigvalsh(correlations).min(initial=1.0) < 1e-3
    is_estimated = learner.structure_.get("pseudo_tasks", 0) == 0 and not is_singular
    # The definition has a free correlation.
    is_estimated &= learner.structure_.get("structure") != "diagonal" or len(varying) < 2
    if not is_estimated or len(b) > 3 or np.abs(b).max() > 8 or rng.random() < 0.5:
        return
    L = np.linalg.cholesky(W)

    def part(X, frame):
        offset = np.log(table.values(frame, "exposure"))
        return X, frame["y"].to_numpy(float), offset, table.values(frame, "frequency_weight")

    y, w = np.asarray(tasks.y, float), tasks.row_weights
    offset = np.zeros(len(y)) if tasks.exposure is None else np.log(tasks.exposure)
    w = np.ones(len(y)) if w is None else w
    rows = [rows_of(tasks, t) for t in range(len(tasks))]
    units = [(X[r], y[r], offset[r], w[r]) for r in rows]
    C = generalised_errors(name, units, b, L, varying, dispersion)
    if C is None or not np.isfinite(found.errors).all():
        return
    checks.close("standard errors", found.errors, np.sqrt(np.diag(C)), 0.05, found.errors)
    S, Q = (table.encode(frame, intercept=True)[0] for frame in (support, query))
    labels, given = query["task"].unique(), []
    for label in labels:
        s, q = ((frame["task"] == label).to_numpy() for frame in (support, query))
        query_offset = np.log(table.values(query[q], "exposure"))
        given.append((*part(S[s], support[s]), Q[q], query_offset))
    draws = generalised_draws(name, given, b, L, varying, C, dispersion, rng, 4000)
    sizes = [len(each[4]) for each in given]
    by_task = np.add.reduceat(draws, np.append(0, np.cumsum(sizes)[:-1]), axis=1)
    for name, by, total in (("task", "task", by_task), ("all", None, by_task.sum(1)[:, None])):
        totals = learner.predict_totals(query, support, by=by, n_draws=4000)
        check_interval(checks, f"total of {name}", total, totals)


# ------------------------------------------------------------------ refits to changed tables


def _refit(checks, name, table, options, train, support, query, full, tolerance, back=None):
    learner = EmpiricalBayesLearner(**options).fit(table.tasks(train))
    found = learner.predict_tasks(query, support, coverage=0.8)["prediction"].to_numpy()
    found = found if back is None else back(found)
    expected = full["prediction"].to_numpy()
    scale = table.unit + 1e-6 * np.abs(expected).max(initial=0.0)
    checks.close(f"refit: {name}", found, expected, tolerance, scale)


def rename(rng, checks, table, options, support, query, full, tolerance):
    labels = {
        label: f"n{i}" for i, label in enumerate(rng.permutation(table.train["task"].unique()))
    }
    train = table.train.assign(task=table.train["task"].map(labels))
    train = pd.concat([train[train["task"] == label] for label in sorted(labels.values())])
    support, query = (f.assign(task="m" + f["task"].astype(str)) for f in (support, query))
    _refit(checks, "new labels", table, options, train, support, query, full, 1e-7)


def shuffle(rng, checks, table, options, support, query, full, tolerance):
    if str(options.get("n_support", "")).find("first") >= 0:
        return
    train = table.train.sample(frac=1.0, random_state=5)
    _refit(checks, "order of rows", table, options, train, support, query, full, tolerance)


def affine_target(rng, checks, table, options, support, query, full, tolerance):
    a = float(rng.choice([1e-3, 17.0, -1.0]))
    c = 5.0 * table.unit * abs(a) * options.get("fit_intercept", True)
    train, support = (f.assign(y=a * f["y"] + c) for f in (table.train, support))
    args = table, options, train, support, query, full, tolerance
    _refit(checks, "unit of the target", *args, back=lambda p: (p - c) / a)


def affine_columns(rng, checks, table, options, support, query, full, tolerance):
    scale = {n: float(rng.choice([0.01, 200.0])) for n, k in table.kinds.items() if k == "number"}
    frames = (
        f.assign(**{n: a * f[n] for n, a in scale.items()}) for f in (table.train, support, query)
    )
    _refit(checks, "units of columns", table, options, *frames, full, tolerance)


def permute(rng, checks, table, options, support, query, full, tolerance):
    order = rng.permutation(table.features).tolist()
    learner = EmpiricalBayesLearner(**options).fit(table.tasks(features=order))
    found = learner.predict_tasks(query, support, coverage=0.8)["prediction"]
    checks.close("refit: order of columns", found, full["prediction"], tolerance, table.unit)


def repeat(rng, checks, table, options, support, query, full, tolerance):
    times = table.train["count"].astype(int)
    train = table.train.loc[table.train.index.repeat(times)].assign(count=1.0)
    _refit(checks, "repeated rows", table, options, train, support, query, full, tolerance)


def constant_weight(rng, checks, table, options, support, query, full, tolerance):
    if "sample_weight" not in table.roles:
        return
    train, support = (f.assign(precision=37.0 * f["precision"]) for f in (table.train, support))
    _refit(checks, "unit of weights", table, options, train, support, query, full, tolerance)


def arrays(rng, checks, table, options, support, query, full, tolerance):
    X, names = table.encode(table.train)
    if not names or table.roles:
        return
    options = dict(options)
    if "varying" in options:
        chosen = options["varying"]
        options["varying"] = [j for j, name in enumerate(names) if name.split("=")[0] in chosen]
    learner = EmpiricalBayesLearner(**options)
    learner.fit(X, table.train["y"].to_numpy(), groups=table.train["task"].to_numpy())
    S, Q = (table.encode(frame)[0] for frame in (support, query))
    given = TaskSet(S, support["y"].to_numpy(), support["task"].to_numpy())
    asked = TaskSet(Q, np.zeros(len(Q)), query["task"].to_numpy())
    found = learner.predict_tasks(asked, given, coverage=0.8)
    order = np.argsort(pd.factorize(query["task"])[0], kind="stable")
    for column in INTERVAL:
        expected = full[column].to_numpy()[order]
        checks.close(
            f"arrays: {column}", found[column], expected, 1e-8, table.unit + np.abs(expected)
        )


# ------------------------------------------------------------------ running


def run(kind, seed):
    """Run one configuration; return the checks, with an unexpected error among the failures."""
    checks = Checks()
    rng = np.random.default_rng([seed, [*KINDS].index(kind)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        KINDS[kind](rng, checks)
    return checks


def main(kind, seed, n=1):
    import traceback

    n_failed = 0
    for each in range(int(seed), int(seed) + int(n)):
        for name in [*KINDS] if kind == "all" else [kind]:
            try:
                failed = run(name, each).failed
            except Exception as error:
                where = traceback.extract_tb(error.__traceback__)[-1]
                failed = [f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"]
                if int(n) == 1:
                    traceback.print_exc()
            n_failed += bool(failed)
            for line in failed:
                print(f"{name} {each}: {line[:300]}", flush=True)
    print(f"{n_failed} configurations failed")


if __name__ == "__main__":
    main(*sys.argv[1:])
