"""One pass without its certificate, and what the exact solution may be asked for at a corner of its loss."""

import numpy as np
import pytest

from tailored.losses import Huber, get_loss
from tailored.within.solving import solve, solve_many


@pytest.mark.parametrize("name", ["absolute", "squared", "logistic"])
def test_one_pass_without_a_certificate_is_the_same_pass(name):
    rng = np.random.default_rng(0)
    X, offsets = rng.normal(size=(9, 3)), np.array([0, 4, 4, 9])
    y, theta = np.sign(rng.normal(size=9)), np.eye(3)
    whole = solve_many(X, y, offsets, theta, get_loss(name), inner="online")
    bare = solve_many(X, y, offsets, theta, get_loss(name), inner="online", certify=False)
    np.testing.assert_array_equal(bare.coef, whole.coef)
    np.testing.assert_array_equal(bare.alpha, whole.alpha)
    # value and gap are left at zero, and everything else is said
    assert not bare.value.any()
    assert not bare.gap.any()
    assert bare.converged.all()
    assert (whole.gap[[0, 2]] > 0).all()


def test_a_huber_loss_at_its_corner():
    """One row, one column: P(v) = huber(xv - y) + v²/2; with x = 2, y = 3 and delta = 1 the residual ends at the corner."""
    loss = Huber(1.0)
    # x v - y = -1 at v = 1, and -x·(-1) = 2 v there if theta is 1/2: v = theta · x · 1
    found = solve(np.array([[2.0]]), np.array([3.0]), np.array([[0.5]]), loss)
    assert found.coef[0] == pytest.approx(1.0, abs=1e-8)
    assert found.alpha[0] == pytest.approx(-1.0, abs=1e-8)
    assert found.value == pytest.approx(0.5 + 1.0, abs=1e-8)  # huber(-1) = 1/2, and v'theta⁺v/2 = 1
