"""Synthetic environments of tasks in which everything the theory speaks about is known.

An environment is a mixture of m clusters.  A task of cluster j has the weight vector ``w = F_j u``
with u uniform on the unit sphere of R^r, inputs ``x = G_j v`` with v uniform on the unit sphere of
R^q, and targets ``y = <x, w> + noise``.  So ``W_j = F_j F_jᵀ / r``, ``C_j = G_j G_jᵀ / q``, ``‖x‖
<= ‖G_j‖``, and w minimises the risk of its task for every convex loss of the residual, because x
and -x are equally likely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tailored._utils.records import cached_property
from tailored._utils.validation import (
    check_choice,
    check_int,
    check_nonnegative,
    check_positive,
    check_psd,
)
from tailored.datasets import on_sphere
from tailored.losses import get_loss
from tailored.paper.theory import (
    Array,
    Quantities,
    check_probabilities,
    oracle_representation,
    power,
    spectrum,
)
from tailored.tasks.task_set import Task, TaskSet

#: Kinds of side information: the task's own rows, or a point near the centre of the task's cluster.
SIDE_INFO = ("dataset", "center")


@dataclass(frozen=True)
class Sample:
    """Tasks of an environment with their true weights and clusters."""

    tasks: TaskSet
    weights: Array  # (T, d)
    clusters: NDArray[np.int64]  # (T,)


@dataclass(frozen=True)
class Environment:
    """A mixture of m clusters of tasks; see the module's text for the model.

    Parameters
    ----------
    weight_factors : array (m, d, r)
        The ``F_j``.
    input_factors : array (m, d, q)
        The ``G_j``; one for all clusters may be given as (1, d, q).
    noise : float
        Standard deviation of the Gaussian noise.
    probabilities : array (m,), optional
        Of the clusters, uniform by default.
    side_info : {"dataset", "center"}
        "center": s is uniform in the ball of radius 1/2 around the centre ``2j`` of cluster j on a
        line, so that it reveals the cluster and nothing else.  "dataset": tasks come without side
        information other than their own rows; quantities "given s" are then those of an observer
        who knows the cluster, and a data set tells less.
    """

    weight_factors: Array
    input_factors: Array
    noise: float = 0.1
    probabilities: Any = None
    side_info: str = "center"

    def __post_init__(self) -> None:
        F, G = (np.asarray(a, dtype=float) for a in (self.weight_factors, self.input_factors))
        if F.ndim != 3 or G.ndim != 3 or F.shape[1] != G.shape[1] or len(G) not in (1, len(F)):
            raise ValueError(
                "weight_factors must have shape (m, d, r) and input_factors (m, d, q) or (1, d, "
                "q); got "
                f"{F.shape} and {G.shape}."
            )
        check_nonnegative("noise", self.noise)
        check_choice("side_info", self.side_info, SIDE_INFO)
        set_ = object.__setattr__
        set_(self, "weight_factors", F)
        set_(self, "input_factors", np.broadcast_to(G, (len(F), *G.shape[1:])))
        set_(self, "probabilities", check_probabilities(self.probabilities, len(F)))

    # ------------------------------------------------------------------ the environments of the
    # paper

    @classmethod
    def clusters(
        cls,
        m: int = 2,
        *,
        d: int = 20,
        rank: int | None = None,
        norm: float = 1.0,
        noise: float = 0.1,
        side_info: str = "dataset",
        random_state: Any = 0,
    ) -> Environment:
        """The paper's synthetic clusters: orthogonal subspaces, unit weight vectors, inputs on the
        sphere.

        Parameters
        ----------
        m : int
            Clusters; 2 and 6 in the paper's experiments.
        d, rank : int
            Inputs, and dimension of each cluster's subspace (``d // 10``, at least 1, by default).
        norm : float
            Of the weight vectors; 1 in the paper.
        noise, side_info
            See the class.
        random_state : int, Generator or None
            Draws the subspaces.
        """
        m, d = check_int("m", m), check_int("d", d)
        rank = max(d // 10, 1) if rank is None else check_int("rank", rank)
        bases = _orthogonal_bases(np.random.default_rng(random_state), m, d, rank)
        return cls(
            check_positive("norm", norm) * bases, np.eye(d)[None], noise, side_info=side_info
        )

    @classmethod
    def example(
        cls,
        m: int = 2,
        *,
        d: int = 20,
        rank: int = 2,
        C: Any = None,
        norm: float = 1.0,
        spread: float = 0.0,
        noise: float = 0.1,
        random_state: Any = 0,
    ) -> Environment:
        """The exact setting of Example clusters: ``(C^½ W_i C^½)(C^½ W_j C^½) = 0`` for clusters i
        ≠ j.

        Side information is uniform in balls of radius 1/2 around the centres of the clusters.  (The
        paper writes the condition for all ``s ≠ p``; it can only be meant for s and p of different
        clusters.)

        Parameters
        ----------
        m, d, rank, norm, noise, random_state
            As in `clusters` (``norm`` holds where ``C = I / d`` and ``spread = 0``).
        C : array (d, d), optional
            Second moment of the inputs, invertible; ``I / d`` by default.
        spread : float, default=0
            Unequal variances: directions are scaled by factors between ``exp(-spread)`` and
            ``exp(spread)``.
        """
        m, d = check_int("m", m), check_int("d", d)
        rng = np.random.default_rng(random_state)
        bases = _orthogonal_bases(rng, m, d, check_int("rank", rank))
        C = np.eye(d) / d if C is None else check_psd(C, "C", d)
        if len(spectrum(C)[0]) < d:
            raise ValueError(
                "C must be invertible here: every direction may be needed by some cluster."
            )
        scales = np.exp(rng.uniform(-spread, spread, size=(m, 1, rank)))
        # C^½ W_j C^½ = P_j D_j² P_jᵀ / (r d) are orthogonal to each other whatever C is.
        factors = (
            check_positive("norm", norm) * np.matmul(power(C, -0.5), bases * scales) / np.sqrt(d)
        )
        return cls(factors, np.sqrt(d) * power(C, 0.5)[None], noise)

    # ------------------------------------------------------------------ what is known about it

    @property
    def m(self) -> int:
        return len(self.weight_factors)

    @property
    def d(self) -> int:
        return int(self.weight_factors.shape[1])

    @cached_property
    def W(self) -> Array:
        """``E[w wᵀ]`` given each cluster, (m, d, d)."""
        F = self.weight_factors
        return np.matmul(F, F.transpose(0, 2, 1)) / F.shape[2]

    @cached_property
    def C(self) -> Array:
        """``E[x xᵀ]`` given each cluster, (m, d, d)."""
        G = self.input_factors
        return np.matmul(G, G.transpose(0, 2, 1)) / G.shape[2]

    @property
    def R(self) -> float:
        """The largest norm of an input."""
        return float(np.linalg.norm(self.input_factors, ord=2, axis=(1, 2)).max())

    @property
    def centers(self) -> Array:
        """Centres of the clusters' side information, (m, 1)."""
        return 2.0 * np.arange(self.m, dtype=float)[:, None]

    def cluster_of(self, s: Any) -> NDArray[np.intp]:
        """The clusters that points (T, 1) of side information belong to."""
        s = np.asarray(s, dtype=float).reshape(-1, 1)
        return np.argmin(np.abs(s - self.centers.T), axis=1)

    def indicator(self, s: Any) -> Array:
        """Φ(s), the indicator of the cluster (m,): a ``feature_map`` under which Asm. 2 holds, with
        K = 1.
        """
        if isinstance(s, Task):
            raise ValueError(
                "side_info: these tasks have none; make the environment with side_info='center'"
            )
        return np.eye(self.m)[self.cluster_of(s)[0]]

    def quantities(
        self, n: float, T: int = 1, loss: Any = "absolute", initial: Any = None
    ) -> Quantities:
        """Everything the bounds need, exactly: nothing in it is an estimate."""
        K = 1.0 if self.m > 1 else 0.0
        L = get_loss(loss).lipschitz
        return Quantities(self.W, self.C, n, L, self.probabilities, T, self.R, K, initial)

    def oracle(self, n: float, L: float = 1.0) -> Array:
        """τ_ρ at each cluster, (m, d, d) (Prop. 2)."""
        return np.array(
            [oracle_representation(W, C, n, L) for W, C in zip(self.W, self.C, strict=True)]
        )

    # ------------------------------------------------------------------ sampling

    def sample(self, n_tasks: int, n: int, random_state: Any = None) -> Sample:
        """Draw tasks with n rows each."""
        n_tasks, n = check_int("n_tasks", n_tasks), check_int("n", n)
        # A stream for each purpose: the same weight vectors come with any number of rows.
        for_tasks, for_rows, for_side = np.random.default_rng(random_state).spawn(3)
        clusters = for_tasks.choice(self.m, size=n_tasks, p=self.probabilities)
        u = on_sphere(for_tasks, n_tasks, self.weight_factors.shape[2])
        weights = np.einsum("tdr,tr->td", self.weight_factors[clusters], u)
        v = on_sphere(for_rows, n_tasks * n, self.input_factors.shape[2]).reshape(n_tasks, n, -1)
        X = np.matmul(v, self.input_factors[clusters].transpose(0, 2, 1))
        y = np.einsum("tnd,td->tn", X, weights) + self.noise * for_rows.standard_normal(
            (n_tasks, n)
        )
        side = None
        if self.side_info == "center":
            side = self.centers[clusters] + for_side.uniform(-0.5, 0.5, size=(n_tasks, 1))
        labels, offsets = np.arange(n_tasks), n * np.arange(n_tasks + 1)
        tasks = TaskSet.from_arrays(X.reshape(-1, self.d), y.ravel(), offsets, labels, side)
        return Sample(tasks, weights, clusters)


def _orthogonal_bases(rng: np.random.Generator, m: int, d: int, rank: int) -> Array:
    """m orthonormal bases (m, d, rank) of subspaces that are orthogonal to each other."""
    if m * rank > d:
        raise ValueError(
            f"m={m} orthogonal subspaces of rank={rank} need {m * rank} dimensions, but d={d}: "
            "raise d."
        )
    Q, _ = np.linalg.qr(rng.standard_normal((d, m * rank)))
    return np.ascontiguousarray(Q.reshape(d, m, rank).transpose(1, 0, 2))
