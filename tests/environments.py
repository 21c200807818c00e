"""Environments of tasks that tests draw."""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.theory.environment import Environment


def random_environment(
    random_state: Any = None, *, max_clusters: int = 3, max_d: int = 6
) -> Environment:
    """Return an environment with random ranks, scales, noise and overlap."""
    rng = np.random.default_rng(random_state)
    m, d = int(rng.integers(1, max_clusters + 1)), int(rng.integers(1, max_d + 1))
    F = rng.standard_normal((m, d, rng.integers(1, d + 1))) * np.exp(rng.normal(size=(m, 1, 1)))
    G = rng.standard_normal((m, d, d)) * np.exp(0.5 * rng.normal(size=(m, 1, 1)))
    return Environment(F, G, float(rng.choice([0.0, 0.1, 1.0])), rng.dirichlet(np.full(m, 3.0)))
