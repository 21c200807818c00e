"""Binary and count outcomes of new groups: `tailored` next to mixed models in R, boosting and simple methods.

A quarter of the groups is new.  k random rows of each are given, and its other rows are predicted.  The score is the log loss
or half the Poisson deviance: the mean over the rows of a group, then over groups.  The data are not in the project.

    python -m studies.generalized DATA OUT METHOD SPLITS [SET ...]      # METHOD: a key of `METHODS`, glmer or glmmTMB
    python -m studies.generalized DATA OUT table

Scores go to OUT/scores.csv, predictions to OUT/SET-METHOD-SEED.npz.
"""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, gammaln, logsumexp, xlogy
from scipy.stats import t as student

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.gaussian.responses import RESPONSES

from .rivals.responses import RegressionPerTask

Array = NDArray[np.float64]
Index = NDArray[np.int64]
FIRST_SEED = 52000
#: Sets that count as one in the mean over sets, because they have few groups.
SMALL = ("bacteria", "epil", "owls")


class Columns(NamedTuple):
    """Columns of a data set, the category that counts as 1 (None for counts), given rows and the random slope of R."""

    task: str
    target: str
    one: str | None
    features: str
    side: str
    k: int
    slope: str


BANK = (
    "Med_FInt Low_FInt Med_VInt Rewrd_2 Rewrd_3 Rewrd_4 Med_Fee Low_Fee Bank_B Out_State Med_Rebate High_Rebate "
    "High_CredLine Long_Grace"
)
PRENATAL = "childAge motherAge birthOrd indig momEd husEd husEmpl toilet TV"
PERSON = "generalphys specialist mean_samples"
OWLS = "FoodTreatment SexParent ArrivalTime"
SETS = {
    "bacteria": Columns("ID", "y", "y", "week", "trt", 2, "week"),
    "epil": Columns("subject", "y", None, "V4", "trt lbase lage", 2, "V4"),
    "owls": Columns("Nest", "SiblingNegotiation", None, OWLS, "logBroodSize", 8, "ArrivalTime"),
    "respiratory": Columns(
        "subject", "status", "good", "month", "centre treatment gender age", 2, "month"
    ),
    "contraception": Columns("district", "use", "Y", "livch age urban", "", 8, "urban"),
    "guPrenat": Columns("cluster", "prenat", "Modern", PRENATAL, "pcInd81 ssDist", 5, ""),
    "verbagg": Columns("id", "r2", "Y", "btype situ mode", "Anger Gender", 6, "mode"),
    "bank": Columns("id", "choice", "1", BANK, "age income gender", 8, "Low_Fee"),
    "detailing": Columns(
        "id", "scripts", None, "detailing lagged_scripts", PERSON, 5, "lagged_scripts"
    ),
}

#: Fits mixed models in R; see its first lines.
R_SCRIPT = Path(__file__).with_name("mixed_models.R")


class Task(NamedTuple):
    """Numeric columns of a data set, which of them are side information, and the rows of one split."""

    X: Array
    names: list[str]
    side: NDArray[np.bool_]
    y: Array
    group: Index
    train: NDArray[np.bool_]
    given: NDArray[np.bool_]
    query: NDArray[np.bool_]
    is_binary: bool

    def tasks(self, rows: NDArray[np.bool_]) -> TaskSet:
        """Return some rows as tasks with side information."""
        side = self.X[rows][:, self.side] if self.side.any() else None
        return TaskSet(self.X[rows][:, ~self.side], self.y[rows], self.group[rows], side)


def load(data: Path, name: str, seed: int) -> Task:
    """Read a data set, replace categories by indicators, scale by the training rows and split by ``seed``."""
    c = SETS[name]
    file = next(data.glob(f"{name}.csv*"))
    frame = pd.read_csv(file, keep_default_na=False, na_values=["NA"]).sort_values(
        c.task, kind="stable"
    )
    inputs = pd.get_dummies(
        frame[[*c.features.split(), *c.side.split()]], drop_first=True, dtype=float
    )
    names = [column.translate({ord(s): "_" for s in "+- ()"}) for column in inputs.columns]
    target = frame[c.target]
    y = (target if c.one is None else target.astype(str) == c.one).to_numpy(dtype=float)
    group = frame[c.task].factorize()[0].astype(np.int64)
    rng, sizes = np.random.default_rng(seed), np.bincount(group)
    new = rng.permutation(np.flatnonzero(sizes > c.k))[: max(5, round(len(sizes) / 4))]
    given = np.zeros(len(y), dtype=bool)
    for g in np.sort(new):
        given[rng.permutation(np.flatnonzero(group == g))[: c.k]] = True
    train = ~np.isin(group, new)
    X = inputs.to_numpy(dtype=float)
    X = (X - X[train].mean(0)) / np.where((std := X[train].std(0)) > 0, std, 1.0)
    side = np.array(
        [
            column.split("_")[0] in c.side.split() or column in c.side.split()
            for column in inputs.columns
        ]
    )
    return Task(X, names, side, y, group, train, given, ~train & ~given, c.one is not None)


def score(d: Task, predicted: Array) -> float:
    """Return the mean over groups of the mean log loss, or of half the mean Poisson deviance."""
    y, low = d.y[d.query], 1e-6
    if d.is_binary:
        p = np.clip(predicted, low, 1 - low)
        loss = -np.where(y == 1, np.log(p), np.log1p(-p))
    else:
        mean = np.maximum(predicted, low)
        loss = xlogy(y, y / mean) - y + mean
    return float(pd.Series(loss).groupby(d.group[d.query]).mean().mean())


# --- mixed models in R -----------------------------------------------------------------------------------------


def mean_of(d: Task, f: Array) -> Array:
    """Return probabilities or rates at linear predictors."""
    return np.asarray(expit(f) if d.is_binary else np.exp(np.minimum(f, 500.0)))


def log_likelihood(d: Task, y: Array, f: Array, dispersion: float | None) -> Array:
    """Return the log-likelihood of each row."""
    if d.is_binary:
        return np.asarray(y * f - np.logaddexp(0, f))
    if dispersion is None:
        return np.asarray(y * f - mean_of(d, f) - gammaln(y + 1))
    r = 1 / dispersion
    constant = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
    return np.asarray(constant + y * (f - np.log(r)) - (y + r) * np.logaddexp(0, f - np.log(r)))


def integrate(
    d: Task, rows: NDArray[np.bool_], f: Array, A: Array, dispersion: float | None, n: int
) -> Any:
    """Integrate the random effects z ~ N(0, I) of each group out, where its rows have linear predictors f + A z.

    Returns log evidences, nodes (groups, m, q) and their posterior weights (groups, m).  The n nodes on each axis are those of
    adaptive Gauss-Hermite quadrature, at the mode and curvature of each posterior (that of counts without dispersion).
    """
    y, f, A, group, groups, q = (
        d.y[rows],
        f[rows],
        A[rows],
        d.group[rows],
        int(d.group.max()) + 1,
        A.shape[1],
    )
    z = np.zeros((groups, q))

    def value(z: Array) -> Array:
        fitted = log_likelihood(d, y, f + (A * z[group]).sum(1), None)
        return np.bincount(group, fitted, groups) - (z**2).sum(1) / 2

    def derivatives(z: Array) -> tuple[Array, Array]:
        mean = mean_of(d, f + (A * z[group]).sum(1))
        H, gradient = np.tile(np.eye(q), (groups, 1, 1)), -z
        weights = mean * (1 - mean) if d.is_binary else mean
        np.add.at(H, group, A[:, :, None] * A[:, None, :] * weights[:, None, None])
        np.add.at(gradient, group, A * (y - mean)[:, None])
        return H, gradient

    for _ in range(60):
        H, gradient = derivatives(z)
        step, before, size = (
            np.linalg.solve(H, gradient[..., None])[..., 0],
            value(z),
            np.ones((groups, 1)),
        )
        for _ in range(40):
            size[value(z + size * step) < before - 1e-10] /= 2
        z = z + size * step
        if np.abs(step).max(initial=0) < 1e-8:
            break
    spread = 1.0 if dispersion is None else 2.0
    C = spread * np.linalg.inv(np.linalg.cholesky(derivatives(z)[0])).transpose(0, 2, 1)
    t, w = np.polynomial.hermite_e.hermegauss(n)
    T = np.stack(np.meshgrid(*[t] * q), -1).reshape(-1, q)
    logw = np.stack(np.meshgrid(*[np.log(w) + t**2 / 2] * q), -1).reshape(-1, q).sum(1)
    nodes = z[:, None] + T @ C.transpose(0, 2, 1)
    logp = (
        logw - (nodes**2).sum(2) / 2 - q / 2 * np.log(2 * np.pi) + np.linalg.slogdet(C)[1][:, None]
    )
    predictors = f[:, None] + np.einsum("nq,nmq->nm", A, nodes[group])
    np.add.at(logp, group, log_likelihood(d, y[:, None], predictors, dispersion))
    evidence = logsumexp(logp, axis=1)
    return evidence, nodes, np.exp(logp - evidence[:, None])


def predict(
    d: Task, fixed: Array, Z: Array, L: Array, dispersion: float | None
) -> tuple[Array, float]:
    """Return posterior means of the query rows under estimates, and the log-likelihood of the training rows."""
    f, A = d.X @ fixed[1:] + fixed[0], Z @ L
    evidence = integrate(d, d.train, f, A, dispersion, 11)[0]
    _, nodes, weights = integrate(d, d.given, f, A, dispersion, 25)
    group = d.group[d.query]
    mean = mean_of(d, f[d.query, None] + np.einsum("nq,nmq->nm", A[d.query], nodes[group]))
    return (mean * weights[group]).sum(1), float(evidence[np.unique(d.group[d.train])].sum())


def mixed_models(data: Path, out: Path, package: str, name: str, seeds: range) -> None:
    """Fit both structures of an R package to every split; negative binomial counts with glmmTMB."""
    files = {str(out / f"{name}-{seed}.csv"): load(data, name, seed) for seed in seeds}
    names, c = next(iter(files.values())).names, SETS[name]
    slope = next((n for n in names if c.slope and n.startswith(c.slope)), "")
    for file, d in files.items():
        table = pd.DataFrame(d.X[d.train], columns=d.names).assign(
            y=d.y[d.train], g=d.group[d.train]
        )
        table.to_csv(file, index=False)
    found, family = (
        out / f"estimates-{package}-{name}.csv",
        "poisson" if c.one is None else "binomial",
    )
    library = "lme4" if package == "glmer" else package
    subprocess.run(
        ["Rscript", str(R_SCRIPT), library, family, slope, str(found), *files], check=True
    )
    lines = pd.read_csv(
        found, names=["file", "random", "cpu", "name", "value"], dtype={"random": str}
    )
    for (file, random), e in lines.groupby(["file", "random"]):
        d, values = files[file], dict(zip(e["name"], e["value"], strict=True))
        method = f"{package} {'intercept' if random == '1' else 'slope'}"
        seed = int(Path(file).stem.split("-")[-1])
        if "failed" in values:
            record(out, name, method, seed, note="failed")
            continue
        fixed = np.array([values.get(n, 0.0) for n in ["(Intercept)", *d.names]])
        Z = np.ones((len(d.y), 1))
        if random != "1":
            Z = np.column_stack([Z, d.X[:, d.names.index(slope)]])
        L = np.zeros((Z.shape[1], Z.shape[1]))
        L.T[np.triu_indices(len(L))] = [values[n] for n in values if n.startswith("theta")]
        mean, log_evidence = predict(d, fixed, Z, L, values.get("dispersion"))
        record(
            out, name, method, seed, d, mean, e["cpu"].iloc[0], 2 * len(values) - 2 * log_evidence
        )


# --- other methods -----------------------------------------------------------------------------------------------


def own(d: Task) -> tuple[Array, dict[str, Any]]:
    """Fit scikit-learn's logistic or Poisson regression to the given rows of each group, and a pseudo-row."""
    model = RegressionPerTask("bernoulli" if d.is_binary else "poisson").fit(d.tasks(d.train))
    found = model.predict_rows(d.tasks(d.given), d.tasks(d.query))
    return found[:, 1] if d.is_binary else found, {}


def boosting(d: Task) -> tuple[Array, dict[str, Any]]:
    """Fit scikit-learn's gradient boosting to features and side information of the training rows, without groups."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if d.is_binary:
        classifier = HistGradientBoostingClassifier(random_state=0).fit(d.X[d.train], d.y[d.train])
        return classifier.predict_proba(d.X[d.query])[:, 1], {}
    regressor = HistGradientBoostingRegressor(loss="poisson", random_state=0).fit(
        d.X[d.train], d.y[d.train]
    )
    return regressor.predict(d.X[d.query]), {}


def gpboost(d: Task) -> tuple[Array, dict[str, Any]]:
    """Fit boosting with a random intercept to the training rows and the given rows; 100 trees of rate 0.1."""
    import gpboost as gpb

    rows = d.train | d.given
    likelihood = "bernoulli_logit" if d.is_binary else "poisson"
    effects = gpb.GPModel(group_data=d.group[rows], likelihood=likelihood)
    options = {"learning_rate": 0.1, "num_leaves": 15, "verbose": -1}
    model = gpb.train(options, gpb.Dataset(d.X[rows], d.y[rows]), 100, effects)
    found = model.predict(d.X[d.query], group_data_pred=d.group[d.query], pred_latent=False)
    return np.asarray(found["response_mean"]), {}


def tailored(d: Task) -> tuple[Array, dict[str, Any]]:
    """Fit the learner of this package with its defaults; intervals of counts have coverage 90 %."""
    loss = RESPONSES["bernoulli"]() if d.is_binary else "poisson"
    learner = EmpiricalBayesLearner(loss=loss).fit(d.tasks(d.train))
    found = learner.predict_tasks(
        d.tasks(d.query), d.tasks(d.given), coverage=None if d.is_binary else 0.9
    )
    extra: dict[str, Any] = {"note": f"{learner.structure_} {learner.side_structure_}"}
    if not d.is_binary:
        extra |= {"lower": found["lower"], "upper": found["upper"]}
    return np.asarray(found["prediction"]), extra


METHODS: dict[str, Callable[[Task], tuple[Array, dict[str, Any]]]] = {
    function.__name__: function for function in (tailored, own, boosting, gpboost)
}


def record(
    out: Path,
    name: str,
    method: str,
    seed: int,
    d: Task | None = None,
    mean: Array | None = None,
    cpu: float = 0.0,
    aic: float = np.nan,
    note: str = "",
    **ends: Array,
) -> None:
    """Append one line to ``scores.csv`` and store the predictions."""
    found = np.nan
    if d is not None and mean is not None:
        found, query = score(d, mean), d.query
        parts: dict[str, Any] = {"mean": mean, "y": d.y[query], "group": d.group[query], **ends}
        np.savez(out / f"{name}-{method}-{seed}.npz", **parts)
    with (out / "scores.csv").open("a") as file:
        csv.writer(file).writerow(
            [name, method, seed, f"{found:.6f}", f"{cpu:.2f}", f"{aic:.3f}", note]
        )
    print(name, method, seed, f"{found:.4f}", f"{cpu:.1f}", note, flush=True)


# --- tables ------------------------------------------------------------------------------------------------------


def corrected_t(differences: Array) -> float:
    """Return the p-value of the t-test of Nadeau and Bengio; a quarter of the groups is tested."""
    n = len(differences)
    error = np.sqrt((1 / n + 1 / 3) * differences.var(ddof=1))
    return float(2 * student.sf(abs(differences.mean() / error), n - 1))


def table(out: Path) -> None:
    """Print each set's mean score of every method on its splits, next to glmer's of lower AIC on the same splits."""
    columns = ["set", "method", "seed", "loss", "cpu", "aic", "note"]
    lines = pd.read_csv(out / "scores.csv", names=columns)
    lines = lines.drop_duplicates(["set", "method", "seed"], keep="last").dropna(subset="loss")
    loss, aic, cpu = (
        lines.pivot(index=["set", "seed"], columns="method", values=v)
        for v in ("loss", "aic", "cpu")
    )
    for package in ("glmer", "glmmTMB"):
        both = [m for m in (f"{package} intercept", f"{package} slope") if m in loss]
        if both:
            picked = aic[both].fillna(np.inf).to_numpy().argmin(1)
            loss[package] = loss[both].to_numpy()[np.arange(len(loss)), picked]
    rows = []
    for method in loss:
        for name, some in (
            loss[["glmer", method]].dropna().groupby("set") if method != "glmer" else ()
        ):
            change = (some[method] - some["glmer"]).to_numpy()
            p = corrected_t(change) if len(some) > 2 else np.nan
            seconds = cpu[method].get(some.index[0], np.nan) if method in cpu else np.nan
            theirs, ours = some["glmer"].mean(), some[method].mean()
            rows.append(
                [method, name, len(some), theirs, ours, 100 * (ours / theirs - 1), p, seconds]
            )
    names = ["method", "set", "splits", "glmer", "loss", "percent", "p", "CPU s"]
    found = pd.DataFrame(rows, columns=names).set_index(["method", "set"]).sort_index()
    print(found.round(4).to_string())
    for method, some in found.groupby(level=0):
        logs = np.log1p(some["percent"].droplevel(0) / 100)
        small = logs.index.isin(SMALL)
        mean = np.append(logs[~small], logs[small].mean() if small.any() else []).mean()
        print(
            f"{method}: {100 * np.expm1(mean):+.2f} % in the geometric mean, {', '.join(SMALL)} as one"
        )
    for name, c in SETS.items():
        files = [np.load(file) for file in sorted(out.glob(f"{name}-tailored-*.npz"))]
        if not files:
            continue
        y, mean, group = (np.concatenate([f[k] for f in files]) for k in ("y", "mean", "group"))
        if c.one is None:
            covered = np.mean(
                [np.mean((f["lower"] <= f["y"]) & (f["y"] <= f["upper"])) for f in files]
            )
            print(f"{name}: {100 * covered:.1f} % of the rows in 90 % intervals")
        else:
            gaps, errors = calibration(y, mean, group)
            excess = (gaps - 2 * errors).max()
            print(
                f"{name}: {len(y)} rows, largest gap {gaps.max():.1f} points, less two errors {excess:.1f}"
            )


def calibration(y: Array, p: Array, group: Index, n_bins: int = 10) -> tuple[Array, Array]:
    """Return gaps between frequencies and probabilities in bins of equal size, and their standard errors, in percentage points.

    Rows of a group are not independent, so the residuals of each group are summed first.
    """
    edges = np.quantile(p, np.linspace(0.0, 1.0, n_bins + 1)[1:-1])
    bins = np.unique(np.searchsorted(edges, p), return_inverse=True)[1]
    counts = np.bincount(bins)
    observed, predicted = (np.bincount(bins, values) / counts for values in (y, p))
    residuals = np.zeros((group.max() + 1, len(counts)))
    np.add.at(residuals, (group, bins), y - observed[bins])
    errors = np.sqrt((residuals**2).sum(axis=0)) / counts
    return 100 * np.abs(observed - predicted), 100 * errors


def main(
    data: Path, out: Path, method: str, n_splits: int = 20, names: list[str] | None = None
) -> None:
    """Run a method on the first splits of some sets, all by default, or print the tables."""
    if method == "table":
        return table(out)
    out.mkdir(parents=True, exist_ok=True)
    seeds = range(FIRST_SEED, FIRST_SEED + n_splits)
    if method not in METHODS:
        for name in names or SETS:
            mixed_models(data, out, method, name, seeds)
        return None
    for seed in seeds:
        for name in names or SETS:
            d, start = load(data, name, seed), time.process_time()
            mean, extra = METHODS[method](d)
            record(out, name, method, seed, d, mean, time.process_time() - start, **extra)
    return None


if __name__ == "__main__":
    data, out, method, *rest = sys.argv[1:]
    main(Path(data), Path(out), method, int(rest[0]) if rest else 20, rest[1:])
