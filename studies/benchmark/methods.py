"""Methods of the benchmark, each with its defaults: no argument depends on the data set.

The one exception is how the rows of a new task come (`Split.arrival`), which only the user can
know.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tailored.learners.base import MetaLearner
from tailored.learners.empirical_bayes import EmpiricalBayesLearner
from tailored.paper.learners import ConditionalLearner, IndependentLearner, UnconditionalLearner
from tailored.tasks import rows
from tailored.tasks.task_set import TaskSet

from ..rivals import RIVALS, SIMPLE
from ..rivals.base import MixedModel
from ..rivals.simple import MixedModelPerCategory, SplineMixedModel
from ..theory.bayes import BayesOracle
from .splits import Split

Array = NDArray[np.float64]

#: Mixed models that read side information; run where it is the point of the data set.
SPLINES, PER_CATEGORY = "mixed model + splines", "mixed model per category"
#: What this library recommends, and its variants.
OURS, IN_ORDER = "tailored", "tailored in order"
#: Where the error of the weights is measured: posterior means.
MEANS = "tailored means"
#: The paper's.
INDEPENDENT, UNTAILORED, ALGORITHM_1 = (
    "independent",
    "algorithm 1, unconditional",
    "algorithm 1, conditional",
)
#: Knows the environment.
ORACLE = "oracle"


@dataclass(frozen=True)
class Method:
    """How a method is made, and where it is run."""

    #: Returns an estimator with ``fit`` and with ``predict_tasks`` or ``predict_rows``.
    make: Callable[[Split], Any]
    label: str  # its name in tables
    is_baseline: bool = False  # whether it existed before this library
    is_asked: bool = False  # whether it is run only on data sets that name it in `Suite.also`
    most_seeds: int | None = None
    #: Says which program is not installed; None if the method can run.
    missing: Callable[[], str | None] = lambda: None


class Known:
    """An oracle behind the learners' interface: there is nothing left to learn."""

    def __init__(self, oracle: BayesOracle | None) -> None:
        self.oracle = oracle

    def fit(self, train: TaskSet) -> Self:
        if self.oracle is None:
            raise ValueError("oracle: the environment of this data set is not known")
        return self

    def adapt_many(self, support: TaskSet) -> Array:
        assert self.oracle is not None
        return self.oracle.adapt_many(support)

    def predict_rows(self, support: TaskSet, query: TaskSet) -> Array:
        weights = self.adapt_many(support)
        return rows.predictions(rows.Rows.of(query, weights.shape[1] > query.n_features), weights)


#: The rival that every split of the multilevel sets is paired with; of the others ten are enough to
#: place them.
PAIRED = "lme4"


def _before(name: str, kind: Callable[..., Any], is_asked: bool = False, **options: Any) -> Method:
    return Method(
        lambda split: kind(**options),
        name,
        is_baseline=True,
        is_asked=is_asked,
        most_seeds=None if name == PAIRED else 10,
        missing=lambda: getattr(kind, "missing", lambda: None)(),
    )


def _ours(**options: Any) -> Method:
    shown = ", ".join(f"{name}={value!r}" for name, value in options.items())
    # The tables show mean absolute errors, so predictions are medians.
    return Method(
        lambda split: EmpiricalBayesLearner(**{"loss": "absolute", **options}),
        f"`EmpiricalBayesLearner({shown})`",
        is_asked=bool(options),
    )


def _in_order(split: Split) -> EmpiricalBayesLearner:
    options: dict[str, Any] = dict(split.arrival)
    return EmpiricalBayesLearner(loss="absolute", **options)


#: Strong and simple rivals first; then the paper's algorithms, and what this library recommends.
METHODS: dict[str, Method] = {
    **{name: _before(name, kind) for name, kind in SIMPLE.items()},
    # Data sets without a level have no use for an intercept; of the paper's methods none has one.
    "mixed model": _before("mixed model", MixedModel, fit_intercept=False),
    SPLINES: _before(SPLINES, SplineMixedModel, is_asked=True),
    PER_CATEGORY: _before(PER_CATEGORY, MixedModelPerCategory, is_asked=True),
    **{name: _before(name, kind) for name, kind in RIVALS.items()},
    INDEPENDENT: Method(
        lambda split: IndependentLearner(fit_intercept=False),
        "the paper's independent learner, θ = I",
    ),
    UNTAILORED: Method(
        lambda split: UnconditionalLearner(fit_intercept=False),
        "Algorithm 1, unconditional: `UnconditionalLearner(fit_intercept=False)`",
        most_seeds=3,
    ),
    ALGORITHM_1: Method(
        lambda split: ConditionalLearner(fit_intercept=False),
        "Algorithm 1, conditional: `ConditionalLearner(fit_intercept=False)`",
        most_seeds=3,
    ),
    OURS: _ours(),
    IN_ORDER: Method(_in_order, '`EmpiricalBayesLearner(n_support=("first", n))`', is_asked=True),
    MEANS: _ours(loss="squared"),
    ORACLE: Method(
        lambda split: Known(split.oracle), "Bayes oracle, knows the environment", is_asked=True
    ),
}


def predictions(method: Any, support: TaskSet, query: TaskSet) -> Array:
    """Predictions of the query rows after adapting to the support rows."""
    if isinstance(method, MetaLearner):
        return np.asarray(method.predict_tasks(query, support, coverage=None)["prediction"])
    return np.asarray(method.predict_rows(support, query))
