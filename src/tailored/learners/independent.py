"""Independent learning: every task alone, with one fixed representation."""

from __future__ import annotations

from typing import Any, Self

from ..priors.representation import RepresentationPrior
from ..representation.bias import Bias
from ..representation.dense import Constant
from .base import MetaLearner
from .reading import refuse_arguments


class IndependentLearner(MetaLearner):
    """Independent task learning, θ = I (ITL in the paper): a baseline that shares nothing between tasks.

    Parameters
    ----------
    initial_representation : float or array (d, d), optional
        θ of every task; by default the identity, and a number gives a multiple of it.
    loss : str or Loss, default="absolute"
    inner : {"exact", "online"}, default="exact"
    fit_intercept : bool, default=True
    clip : None, "train" or pair (low, high), default=None
        Clip predictions to this range, or to the range of the training targets.
    tol, max_iter
        Tolerance and iterations of the within-task solver, see `TaskRegressor`.
    n_jobs : int, optional
        Threads for many tasks at once; results do not depend on it.
    random_state : int, RandomState or None, default=0
        Draws the support and query rows of `score`.
    """

    def __init__(
        self,
        *,
        initial_representation: Any = None,
        loss: Any = "absolute",
        inner: str = "exact",
        fit_intercept: bool = True,
        clip: Any = None,
        tol: float = 1e-8,
        max_iter: int = 1000,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.initial_representation = initial_representation
        self.loss = loss
        self.inner = inner
        self.fit_intercept = fit_intercept
        self.clip = clip
        self.tol = tol
        self.max_iter = max_iter
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None, **others: Any) -> Self:
        """Solve the given tasks; nothing is learned across them."""
        refuse_arguments(self, others)
        return self._learn(X, y, groups, side_info, reset=True)

    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None, side_info: Any = None) -> Self:
        """Solve the given tasks as `fit` does; there is no state to continue."""
        return self._learn(X, y, groups, side_info, reset=not hasattr(self, "prior_"))

    def _learn(self, X: Any, y: Any, groups: Any, side_info: Any, *, reset: bool) -> Self:
        with self._all_or_nothing(reset=reset):
            self._check_common()
            tasks = self._read(X, y, groups, side_info, reset=reset)
            theta = self._initial_representation(self.initial_representation)
            self.prior_ = RepresentationPrior(
                scaling=self._raw_units(),
                conditioning=Constant(theta),
                bias=Bias.zero("none", len(theta), 0),
                clip=self._clip(tasks.y),
                **self._within_settings(),
            )
            self.n_iter_ = 1
            self._remember(tasks)
        return self
