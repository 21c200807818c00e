"""A prior of atoms, for coefficients on a curve or in groups of any shape.

An atom is a narrow Gaussian at the posterior mean of a training task.  All atoms have one covariance, so that a task needs one
system of equations for all of them (`Moments.posterior`).  It is a multiple of the mean posterior covariance of the tasks.
The multiple and the proportions maximise the evidence of the tasks, each without its own atom.  The representation of a task
has the directions of the components that its atoms come from: the atoms are too narrow to show any.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .mixture import Mixture, Want
from .moments import Moments

Array = NDArray[np.float64]

#: Largest number of atoms, and of the tasks that their proportions and covariance are learned from.
MOST_ATOMS, MOST_TASKS = 500, 2000
#: Multiples of the mean posterior covariance of the tasks; with 1, atoms have about the covariance of the start.
MULTIPLES = (1.0, 0.25, 0.0625)
#: Steps of EM for the proportions, and pseudo-tasks of each atom.
STEPS, PSEUDO_TASKS = 10, 0.5
#: An atom with a smaller part of its expected number of tasks is dropped.
LEAST_SHARE = 0.01


def first_atoms(tasks: Moments, start: Mixture) -> Mixture:
    """Return atoms of equal proportions at the posterior means under ``start`` of the first tasks.

    An atom inherits the mixing weights of the components of ``start`` that its task belongs to.
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
    return Mixture(
        np.full(K, 1.0 / K),
        means,
        covariance,
        start.noise,
        gates=gates,
        parents=start.covariances,
        parent_shares=expected.shares[:K],
    )


def fit_atoms(tasks: Moments, start: Mixture, seed: list[int]) -> Mixture:
    """Return atoms of a random sample of the tasks."""
    tasks = tasks.take(np.random.default_rng(seed).permutation(len(tasks))[:MOST_TASKS])
    model = first_atoms(tasks, start)
    T, K = len(tasks), model.n_components
    others = ~np.eye(T, K, dtype=bool)
    found = [tasks.posterior(model.scaled(multiple), among=others) for multiple in MULTIPLES]
    best = int(np.argmax([expected.log_evidence.sum() for expected in found]))
    shares, proportions = found[best].shares, model.proportions
    for _ in range(STEPS):
        # Responsibilities are proportional to the proportions.
        current = shares * (K * proportions)
        counts = (1.0 / current.sum(axis=1)) @ current
        proportions = (counts + PSEUDO_TASKS) / (T + K * PSEUDO_TASKS)
    kept = counts >= LEAST_SHARE * T / K
    assert model.parent_shares is not None
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
