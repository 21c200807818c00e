"""A mixture of many narrow Gaussians (*atoms*) as the prior, for coefficients on a curve or in clusters of any shape.

An atom is a narrow Gaussian centred at the posterior mean of a training task.  All atoms share one covariance, so each task
needs only one linear system for all of them (`Moments.posterior`).  The covariance is a multiple of the mean posterior
covariance of the tasks.  The multiple is selected by the evidence of the tasks, and the proportions are estimated by EM.
In these two steps, each task is evaluated without its own atom.  The representation of a task uses the covariances of the
components that the atoms were derived from, because the atoms themselves are too narrow.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .mixture import AtomMixture, Mixture, Want
from .moments import Moments

#: Maximum number of atoms, and maximum number of tasks used to estimate their proportions and covariance.
MOST_ATOMS, MOST_TASKS = 500, 2000
#: Candidate multiples of the mean posterior covariance.  With 1, atoms have in total about the covariance of the initial mixture.
MULTIPLES = (1.0, 0.25, 0.0625)
#: Number of EM steps for the proportions, and number of pseudo-tasks added to the count of each atom.
STEPS, PSEUDO_TASKS = 10, 0.5
#: An atom is dropped if its expected number of tasks is below this fraction of the average over atoms.
LEAST_SHARE = 0.01


def first_atoms(tasks: Moments, start: Mixture) -> AtomMixture:
    """Return atoms with equal proportions, centred at the posterior means of the first `MOST_ATOMS` tasks.

    If ``start`` has gates, the gates of an atom are those of the components, averaged with the responsibilities of its task as
    weights.  Before this, the log of its mean mixing weight is subtracted from the intercept of each component.
    """
    expected, gates = tasks.posterior(start, Want(means=True, covariances=True)), None
    K = min(len(tasks), MOST_ATOMS)
    if start.gates is not None:
        relative = start.gates.copy()
        relative[:, 0] -= np.log(np.exp(start.log_proportions(tasks.side)).mean(axis=0))
        gates = expected.shares[:K] @ relative
        gates[:, 0] -= np.log(K)
    means, covariance = expected.mean[:K], expected.mixture_covariance().mean(axis=0, keepdims=True)
    covariance = 0.5 * (covariance + covariance.transpose(0, 2, 1))
    proportions, shares = np.full(K, 1.0 / K), expected.shares[:K]
    return AtomMixture(
        proportions,
        means,
        covariance,
        start.noise,
        None,
        gates,
        parents=start.covariances,
        parent_shares=shares,
    )


def fit_atoms(tasks: Moments, start: Mixture, seed: list[int]) -> AtomMixture:
    """Fit atoms to at most `MOST_TASKS` tasks, which are drawn at random."""
    tasks = tasks.take(np.random.default_rng(seed).permutation(len(tasks))[:MOST_TASKS])
    model = first_atoms(tasks, start)
    T, K = len(tasks), model.n_components
    others = ~np.eye(T, K, dtype=bool)
    found = [tasks.posterior(model.scaled(multiple), among=others) for multiple in MULTIPLES]
    best = int(np.argmax([expected.log_evidence.sum() for expected in found]))
    shares, proportions = found[best].shares, model.proportions
    for _ in range(STEPS):
        # Responsibilities were computed for equal proportions; rescale them to the current proportions.
        current = shares * (K * proportions)
        counts = (1.0 / current.sum(axis=1)) @ current
        proportions = (counts + PSEUDO_TASKS) / (T + K * PSEUDO_TASKS)
    kept = counts >= LEAST_SHARE * T / K
    gates = model.gates
    if gates is not None:
        gates = np.column_stack([gates[:, 0] + np.log(K * proportions), gates[:, 1:]])[kept]
    return replace(
        model.scaled(MULTIPLES[best]),
        proportions=proportions[kept] / proportions[kept].sum(),
        means=model.means[kept],
        gates=gates,
        parent_shares=model.parent_shares[kept],
    )
