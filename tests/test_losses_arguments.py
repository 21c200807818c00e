"""Losses at the ends of what they take: defaults of the literature, parameters, targets, dual variables."""

import numpy as np
import pytest

from tailored.losses import EpsilonInsensitive, Huber, Logistic, MarginLoss, Pinball, get_loss


def test_defaults_are_those_of_the_literature():
    """Huber's 1.35 has 95 % efficiency under Gaussian noise; 0.1 is that of support vector regression."""
    assert (Huber().delta, EpsilonInsensitive().epsilon, Pinball().quantile) == (1.35, 0.1, 0.5)


def test_a_tube_of_no_width_is_the_absolute_loss():
    p, y = np.array([-1.0, 0.5, 2.0]), np.array([0.0, 0.5, -1.0])
    tube, absolute = EpsilonInsensitive(0.0), get_loss("absolute")
    np.testing.assert_array_equal(tube.value(p, y), absolute.value(p, y))
    np.testing.assert_array_equal(tube.subgradient(p, y), absolute.subgradient(p, y))
    # without a kink zero is inside a smooth piece of the conjugate, with one it is not
    assert tube.free_curvature([0.0, 0.5, 1.0], [3.0, 3.0, 3.0])[0].tolist() == [True, True, False]
    assert EpsilonInsensitive(0.5).free_curvature([0.0, 0.5, 1.0], [3.0] * 3)[0].tolist() == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (Pinball, 0.0),
        (Pinball, 1.0),
        (EpsilonInsensitive, -1e-9),
        (EpsilonInsensitive, np.inf),
        (Huber, 0.0),
        (Huber, np.inf),
    ],
)
def test_parameters_at_the_ends_are_refused(kind, bad):
    with pytest.raises(ValueError, match=str(bad)):
        kind(bad)


def test_the_curvature_of_the_logistic_conjugate_is_that_of_its_entropy():
    """l*'' = 1/b + 1/(1 - b), by second differences, inside the interval only."""
    loss, step = Logistic(), 1e-4
    alpha, y = np.array([-0.2, -0.5, -0.9]), np.ones(3)
    free, curvature = loss.free_curvature(alpha, y)
    around = (
        loss.conjugate(alpha + step, y) - 2.0 * loss.conjugate(alpha, y) + loss.conjugate(alpha - step, y)
    )
    assert free.all()
    np.testing.assert_allclose(curvature, around / step**2, rtol=1e-4)
    outside = np.array([0.0, -1.0, 0.3, -1.3])
    assert not loss.free_curvature(outside, np.ones(4))[0].any()
    assert loss.conjugate(outside[2:], np.ones(2)).tolist() == [np.inf, np.inf]


@pytest.mark.parametrize(("found", "more"), [([0, 2, 3, 4, 5], False), ([0, 2, 3, 4, 5, 6], True)])
def test_targets_that_are_no_signs_are_listed_up_to_five(found, more):
    for loss in (get_loss("hinge"), get_loss("logistic")):
        assert isinstance(loss, MarginLoss)
        loss.check_targets([-1, 1, 1])
        with pytest.raises(
            ValueError, match=r"also contains 0, 2, 3, 4, 5" + (r", \.\.\." if more else r"\.")
        ):
            loss.check_targets([*found, 1, -1])
