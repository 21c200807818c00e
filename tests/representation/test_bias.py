"""The prior mean b(s) = Bφ + b₀: running means and overflow.  Runs with a bias are in tests/solvers."""

import numpy as np
import pytest

from representations import close
from tailored.representation.bias import Bias


@pytest.mark.parametrize("kind", ["shared", "conditional"])
def test_a_running_mean_of_b_is_the_mean(kind):
    rng = np.random.default_rng(1)
    k = 2 if kind == "conditional" else 0
    given = [Bias(kind, rng.normal(size=3), rng.normal(size=(3, k))) for _ in range(4)]
    mean = given[0].copy()
    for n, other in enumerate(given[1:], start=2):
        mean.accumulate(other, 1.0 / n)
    close(mean.constant, np.mean([b.constant for b in given], axis=0), 1e-14)
    close(mean.linear, np.mean([b.linear for b in given], axis=0), 1e-14)


@pytest.mark.parametrize("steps", [(1e200, 0.0), (1.0, 1e200)])
def test_a_step_of_b_that_overflows(steps):
    """One of b₀ and B is enough."""
    bias = Bias.zero("conditional", 2, 1)
    with np.errstate(over="ignore"), pytest.raises(OverflowError, match="b is no longer finite"):
        bias.step(np.full(2, 1e200), np.ones(1), *steps)
