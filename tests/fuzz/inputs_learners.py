"""The learners that are fitted to odd tasks, with odd options, and how often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    UnconditionalLearner,
)
from tailored.feature_maps import FEATURE_MAPS
from tailored.losses import Pinball
from tailored.solvers import ProjectedSGD

Rng = np.random.Generator


#: One or two steps are enough to see what numbers do.
def _steps(rng: Rng) -> Any:
    solvers: list[Any] = [
        ProjectedSGD(step_sizes=[1e-3, 1.0]),
        ProjectedSGD(0.1),
    ]
    return solvers[rng.integers(len(solvers))]


def _paper(rng: Rng, kind: Callable[..., Any], **options: Any) -> Any:
    return kind(
        solver=_steps(rng),
        loss=str(rng.choice(["absolute", "squared", "huber"])),
        bias=str(rng.choice(["none", "shared"])),
        fit_intercept=bool(rng.random() < 0.7),
        **options,
    )


def _bayes(rng: Rng) -> Any:
    loss: Any = rng.choice(
        np.array(["absolute", "squared", Pinball(0.8)], dtype=object), p=[0.7, 0.2, 0.1]
    )
    support = [None, None, 1, 0.5][rng.integers(4)]
    return EmpiricalBayesLearner(
        loss=loss, fit_intercept=bool(rng.random() < 0.8), n_support=support
    )


def _conditional(rng: Rng) -> Any:
    maps = ["auto", "auto", *(name for name in FEATURE_MAPS if name != "vector")]
    return _paper(rng, ConditionalLearner, feature_map=str(rng.choice(maps)))


#: How often each is fitted, and how it is made; a fit of empirical Bayes takes as long as ten others.
LEARNERS: dict[str, tuple[float, Callable[[Rng], Any]]] = {
    "empirical Bayes": (1.0, _bayes),
    "conditional": (2.0, _conditional),
    "unconditional": (2.0, lambda rng: _paper(rng, UnconditionalLearner)),
    "independent": (
        2.0,
        lambda rng: IndependentLearner(loss=str(rng.choice(["absolute", "squared"]))),
    ),
    "classifier": (
        0.7,
        lambda rng: EmpiricalBayesClassifier(fit_intercept=bool(rng.random() < 0.8)),
    ),
    "poisson": (
        0.7,
        lambda rng: EmpiricalBayesLearner(loss="poisson", fit_intercept=bool(rng.random() < 0.8)),
    ),
    "negative binomial": (0.4, lambda rng: EmpiricalBayesLearner(loss="negative_binomial")),
}


def response_of(name: str) -> str | None:
    """The targets that a learner takes: "classes", "counts", or None for numbers."""
    if name in ("poisson", "negative binomial") or name.endswith(", counts"):
        return "counts"
    return "classes" if name == "classifier" or name.endswith(", classes") else None


NAMES = list(LEARNERS)


SHARES = np.array([share for share, _ in LEARNERS.values()]) / sum(
    share for share, _ in LEARNERS.values()
)
