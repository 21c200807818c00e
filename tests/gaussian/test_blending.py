"""Models blended by shares: what adds up are proportions and the moments of every component."""

from __future__ import annotations

import numpy as np
import pytest

from tailored.gaussian.mixture import Mixture
from tailored.gaussian.stepwise import blend


def random_mixture(rng: np.random.Generator, K: int = 3, d: int = 2) -> Mixture:
    roots = rng.normal(size=(K, d, d))
    return Mixture(rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1), 0.7)


def moments(model: Mixture) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    p, m = model.proportions, model.means
    second = model.covariances + m[:, :, None] * m[:, None, :]
    return p, p[:, None] * m, p[:, None, None] * second


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_moments_of_a_blend_are_those_of_both(share: float) -> None:
    rng = np.random.default_rng(0)
    one, other = random_mixture(rng), random_mixture(rng)
    found = blend(one, other, share)
    for ours, a, b in zip(moments(found), moments(one), moments(other), strict=True):
        np.testing.assert_allclose(ours, (1.0 - share) * a + share * b, rtol=1e-12, atol=1e-14)
