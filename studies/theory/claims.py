"""Three studies that make the theory visible; each is a tidy table and a figure drawn from it.

``advantage``: what conditioning gains as the clusters become more.  ``rates``: how fast the learned
function approaches the best one.  ``bounds``: measured excess risk under its bound.
"""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tailored._utils.progress import progress_bar
from tailored._utils.validation import check_choice
from tailored.exceptions import ConstantRepresentationWarning
from tailored.paper import ProjectedSGD
from tailored.paper.learners import ConditionalLearner, UnconditionalLearner
from tailored.paper.theory import Quantities, conditional_optimum, fixed_function, learned_function

from ..earlier_methods.trace_constrained import TraceConstrainedLearner
from ..figures.theory import SIDES, draw_study
from ..files import save_figure, write_text
from .bounds import convergence_rate, previous_oracle, unconditional_optimum
from .environment import Environment
from .risks import RiskEstimate, excess_risk
from .surrogate import MeanSurrogate

Array = NDArray[np.float64]
Row = dict[str, Any]
Item = TypeVar("Item")

#: The step of Thm. 5 divides by the largest gradient there could be, and
#: those met on these environments are much smaller.  The study of rates tries these multiples of it
#: for every method.
STEP_FACTORS = (10.0, 20.0)

#: The methods of the study of rates, and what each multiplies the λ of its theory by.
RATE_METHODS = {"ours": None, "trace-constrained": 1.0, "trace-constrained, λ off by 2": 2.0}


@dataclass(frozen=True)
class Study:
    """The result of a study: one row per measurement, all with the same keys, and settings for
    captions.
    """

    name: str
    rows: list[Row]
    settings: dict[str, Any]

    def column(self, key: str, **where: Any) -> Array:
        """Values of one key over the rows that agree with ``where``, in order."""
        return np.array(
            [row[key] for row in self.rows if all(row[k] == v for k, v in where.items())]
        )

    def to_csv(self) -> str:
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, list(self.rows[0]))
        writer.writeheader()
        writer.writerows(self.rows)
        return text.getvalue()


def advantage(*, quick: bool = False, seed: int = 0, progress: bool = False) -> Study:
    """Conditional against unconditional, in the setting of Example clusters, as m grows.

    Columns: ``clusters``, ``what`` ("bound", "oracle", "learned"), ``conditional``,
    ``unconditional``, their ``ratio`` (the paper: √m for the bounds), and standard errors (0 for
    the bounds, which are exact).
    """
    # fewer rows than inputs: with more, a large multiple of the identity would do for every cluster
    d, n, rank, norm = (8, 6, 1, 3.0) if quick else (24, 16, 1, 3.0)
    n_train, n_test, seeds = (60, 60, 2) if quick else (300, 500, 3)
    steps = np.logspace(1.6, 3.4, 2 if quick else 4)
    clusters = (1, 2, 4) if quick else (1, 2, 4, 8)
    environments = {
        m: Environment.example(m, d=d, rank=rank, norm=norm, random_state=seed) for m in clusters
    }
    sizes = {"n": n, "n_tasks": n_test}

    learned: dict[int, list[list[float]]] = {m: [] for m in clusters}
    for m, draw in _watched("advantage", [*product(clusters, range(seeds))], progress):
        environment = environments[m]
        train = environment.sample(n_train, n, [seed, 2, draw]).tasks
        learners = (
            ConditionalLearner(
                environment.indicator, rank=None, **_search(steps, step_ratios=(0.0, 1.0))
            ),
            UnconditionalLearner(**_search(steps)),
        )
        with warnings.catch_warnings():
            # With one cluster the side information is constant, and small samples may not show an
            # effect.
            warnings.simplefilter("ignore", ConstantRepresentationWarning)
            fitted = [one.fit(train) for one in learners]
        risks = (
            excess_risk(environment, one, **sizes, random_state=[seed, 3, draw]) for one in fitted
        )
        learned[m].append([risk.mean for risk in risks])

    rows: list[Row] = []
    for m, environment in environments.items():
        exact = environment.quantities(n, n_train, initial=np.zeros((d, d)))
        limits = [bound(exact).value for bound in (conditional_optimum, unconditional_optimum)]
        oracles = (
            excess_risk(environment, tau, **sizes, random_state=[seed, 1])
            for tau in (exact.tau, exact.theta)
        )
        rows += [
            _comparison(
                m, "bound", *[RiskEstimate(value, 0.0, np.full(1, value)) for value in limits]
            ),
            _comparison(m, "oracle", *oracles),
            _comparison(m, "learned", *map(RiskEstimate.from_values, np.array(learned[m]).T)),
        ]
    settings = {"d": d, "rank": rank, "n": n, "T": n_train, "norm": norm, "seeds": seeds}
    return Study("advantage", rows, settings)


def rates(*, quick: bool = False, seed: int = 0, progress: bool = False) -> Study:
    """Excess surrogate against T, for our unconditional learner and the trace-constrained one.

    One cluster, so that both methods aim at the same directions.  The minimum is found over the
    very tasks that measure it.  Hyper-parameters are those of each method's bound, with the best of
    `STEP_FACTORS` times the step in hindsight; the trace-constrained method also runs with a λ that
    is off by two, since λ is what it has to be given and ours learns.

    Columns: ``method``, ``T``, ``excess``, ``standard_error`` (over training sets), ``slope`` (of
    log excess in log T, fitted over all T), ``bound`` (the part of the method's bound that T
    decides; for ours, Prop. 12).
    """
    d, n = (4, 10) if quick else (6, 20)
    sizes = (10, 30, 100) if quick else (10, 30, 100, 300, 1000, 3000)
    seeds, n_test = (2, 60) if quick else (3, 400)
    environment = Environment.clusters(1, d=d, rank=2, norm=3.0, random_state=seed)
    exact = environment.quantities(n, initial=np.zeros((d, d)))
    surrogate = MeanSurrogate(environment.sample(n_test, n, [seed, 1]).tasks)
    best = surrogate.minimise(exact.theta)

    found: dict[str, list[RiskEstimate]] = {method: [] for method in RATE_METHODS}
    for method, T in _watched("rates", [*product(RATE_METHODS, sizes)], progress):
        trains = [environment.sample(T, n, [seed, 2, draw]).tasks for draw in range(seeds)]
        learners = [_theory_learner(method, exact, T, factor)[0] for factor in STEP_FACTORS]
        tried = [
            [surrogate(one.fit(train).conditioning_.C) for train in trains] for one in learners
        ]
        found[method].append(
            RiskEstimate.from_values(np.array(min(tried, key=np.mean)) - best.value)
        )

    rows: list[Row] = []
    for method, estimates in found.items():
        slope = np.polyfit(np.log(sizes), np.log([one.mean for one in estimates]), 1)[0]
        for T, one in zip(sizes, estimates, strict=True):
            row = {
                "method": method,
                "T": T,
                "excess": one.mean,
                "standard_error": one.standard_error,
            }
            rows.append(
                {**row, "slope": float(slope), "bound": _theory_learner(method, exact, T)[1]}
            )
    settings = {"d": d, "n": n, "seeds": seeds, "minimum": best.value, "gap": best.gap}
    return Study("rates", rows, settings)


def bounds(*, quick: bool = False, seed: int = 0, progress: bool = False) -> Study:
    """Measured excess risk and its bound, across rows per task (oracles) and training tasks
    (learned).

    Columns: ``against`` ("n" or "T"), ``value`` (of it), ``function`` ("conditional" or
    "unconditional"), ``excess``, ``standard_error``, ``bound`` and ``looseness = bound / excess``.
    """
    d, rank, m, n_fixed = (6, 1, 2, 20) if quick else (10, 2, 2, 40)
    across_n = (5, 20) if quick else (5, 10, 20, 40, 80, 160)
    across_T = (1, 10) if quick else (1, 3, 10, 30, 100, 300, 1000, 3000)
    seeds, n_test = (2, 60) if quick else (4, 300)
    environment = Environment.example(m, d=d, rank=rank, norm=3.0, random_state=seed)
    rows: list[Row] = []
    for n in _watched("bounds, oracles", across_n, progress):
        for function, exact, _ in _settings(environment, n, 1):
            risk = excess_risk(
                environment, exact.tau, n=n, n_tasks=2 * n_test, random_state=[seed, 1]
            )
            bound = fixed_function(exact).value
            rows.append(_measured("n", n, function, risk, bound))

    cases = {T: _settings(environment, n_fixed, T) for T in across_T}
    learned: dict[tuple[int, str], list[float]] = {
        (T, side): [] for T in across_T for side in SIDES
    }
    for T, draw in _watched("bounds, learned", [*product(across_T, range(seeds))], progress):
        train = environment.sample(T, n_fixed, [seed, 2, draw]).tasks
        for function, _, learner in cases[T]:
            function_risk = excess_risk(
                environment,
                learner.fit(train),
                n=n_fixed,
                n_tasks=n_test,
                random_state=[seed, 3, draw],
            )
            learned[T, function].append(function_risk.mean)
    for T, pair in cases.items():
        for function, exact, _ in pair:
            risk = RiskEstimate.from_values(np.array(learned[T, function]))
            bound = learned_function(exact).value
            rows.append(_measured("T", T, function, risk, bound))
    settings = {"d": d, "rank": rank, "clusters": m, "n": n_fixed, "seeds": seeds}
    return Study("bounds", rows, settings)


STUDIES: dict[str, Callable[..., Study]] = {
    "advantage": advantage,
    "rates": rates,
    "bounds": bounds,
}


def write_study(
    name: str, folder: Any, *, quick: bool = False, seed: int = 0, progress: bool = False
) -> tuple[Study, Path, Path]:
    """Run a study and write ``theory-<name>.csv`` and ``theory-<name>.png``; returns it and both
    paths.
    """
    study = STUDIES[check_choice("name", name, STUDIES)](quick=quick, seed=seed, progress=progress)
    table, figure = (Path(folder) / f"theory-{name}{suffix}" for suffix in (".csv", ".png"))
    write_text(table, study.to_csv())
    save_figure(draw_study(study), figure)
    return study, table, figure


# --- pieces


def _watched(name: str, items: Sequence[Item], progress: bool) -> Iterator[Item]:
    """The items one by one, beside a progress bar."""
    with progress_bar(name, len(items), enabled=progress) as tick:
        for item in items:
            yield item
            if tick is not None:
                tick(1)


def _search(steps: Array, **options: Any) -> dict[str, Any]:
    """The paper's algorithm with its one hyper-parameter searched: no calibrated scale on top."""
    solver = ProjectedSGD(step_sizes=steps, **options)
    return {
        "solver": solver,
        "initial_representation": 0.0,
        "tune_scale": False,
        "fit_intercept": False,
    }


def _comparison(m: int, what: str, conditional: RiskEstimate, unconditional: RiskEstimate) -> Row:
    return {
        "clusters": m,
        "what": what,
        "conditional": conditional.mean,
        "conditional_error": conditional.standard_error,
        "unconditional": unconditional.mean,
        "unconditional_error": unconditional.standard_error,
        "ratio": unconditional.mean / conditional.mean,
        "sqrt_m": float(np.sqrt(m)),
    }


def _measured(against: str, value: int, function: str, excess: RiskEstimate, bound: float) -> Row:
    return {
        "against": against,
        "value": value,
        "function": function,
        "excess": excess.mean,
        "standard_error": excess.standard_error,
        "bound": bound,
        "looseness": bound / excess.mean,
    }


def _settings(environment: Environment, n: int, T: int) -> list[tuple[str, Quantities, Any]]:
    """Both functions one may compete with, and the learner with the theorem's step for each."""
    exact = environment.quantities(n, T, initial=np.zeros((environment.d, environment.d)))
    cases = []
    for function, quantities in (("conditional", exact), ("unconditional", exact.unconditional())):
        step = learned_function(quantities).step
        fixed: Any = {
            "solver": ProjectedSGD(step),
            "initial_representation": 0.0,
            "fit_intercept": False,
        }
        learner: Any = (
            ConditionalLearner(environment.indicator, rank=None, **fixed)
            if function == "conditional"
            else UnconditionalLearner(**fixed)
        )
        cases.append((function, quantities, learner))
    return cases


def _theory_learner(
    method: str, exact: Quantities, T: int, factor: float = 1.0
) -> tuple[Any, float]:
    """The learner with the hyper-parameters of its bound, and the part of the bound that T
    decides.
    """
    n, L, R = exact.n, exact.L, exact.R
    off = RATE_METHODS[method]
    if off is None:
        rate = convergence_rate(replace(exact, K=0.0, T=T), distance=exact.distance)
        assert rate.step is not None
        fixed: Any = {"solver": ProjectedSGD(factor * rate.step), "initial_representation": 0.0}
        return UnconditionalLearner(**fixed, fit_intercept=False), rate.value
    # ½λ·A + (2L²B/n + G·distance/√T)/λ with A = Tr(θ†W), B = Tr(θC): the T that is left after λ is
    # chosen stands under a root, which is where the slower rate of the earlier bounds comes from.
    W, C = exact.W[0], exact.C[0]
    theta = previous_oracle(W)
    A, B = np.trace(np.linalg.pinv(theta, 1e-12, hermitian=True) @ W), np.trace(theta @ C)
    distance = float(np.linalg.norm(theta - np.eye(len(theta)) / len(theta)))
    G = 0.5 * (L * R) ** 2
    limit, cost = 2.0 * L**2 * B / n, G * distance / np.sqrt(T)
    balance = float(np.sqrt(2.0 * (limit + cost) / A))
    step = factor * distance * off * balance / (G * np.sqrt(T))
    learner = TraceConstrainedLearner(
        step_size=step, regularization=off * balance, fit_intercept=False
    )
    total = 0.5 * off * balance * A + (limit + cost) / (off * balance)
    return learner, float(total - np.sqrt(2.0 * A * limit))
