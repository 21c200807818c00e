"""Losses against their definitions: finite differences, the supremum in the conjugate,
Fenchel-Young.
"""

import numpy as np
import pytest
from scipy.special import entr

from tailored.losses import (
    LOSSES,
    Huber,
    Loss,
    Pinball,
    Squared,
    error_name,
    get_loss,
)

CASES = {
    "absolute": get_loss("absolute"),
    "pinball": Pinball(0.3),
    "huber": Huber(0.7),
    "squared": get_loss("squared"),
    "logistic": get_loss("logistic"),
    "hinge": get_loss("hinge"),
}
BINARY = {"logistic", "hinge"}
losses = pytest.mark.parametrize("loss", CASES.values(), ids=CASES.keys())


def conjugate(loss, alpha, y):
    """l*(alpha, y) = sup over p of alpha p - l(p, y), infinite outside its domain."""
    alpha = np.asarray(alpha, dtype=float)
    if loss.name == "logistic":
        b = -alpha * np.asarray(y, dtype=float)
        return np.where(
            (b >= 0.0) & (b <= 1.0),
            -entr(np.clip(b, 0.0, 1.0)) - entr(np.clip(1.0 - b, 0.0, 1.0)),
            np.inf,
        )
    linear, lower, upper, quadratic, _ = loss.dual_box(y)
    inside = alpha * linear + 0.5 * quadratic * alpha**2
    return np.where((alpha >= lower) & (alpha <= upper), inside, np.inf)


def targets(loss, rng, n):
    return rng.choice([-1.0, 1.0], n) if loss.name in BINARY else rng.normal(scale=2.0, size=n)


def kinks(loss, y):
    """Predictions at which the loss is not differentiable."""
    if loss.name == "hinge":
        return [y]
    return [] if loss.dual_box(y).quadratic else [y]


def test_every_loss_is_a_case():
    assert set(CASES) == set(LOSSES)
    assert all(LOSSES[name].name == name for name in LOSSES)


@losses
def test_errors_in_tables(loss):
    """They are the values, except for the half of the squared loss."""
    y = targets(loss, np.random.default_rng(0), 3)
    expected = (y - 0.4) ** 2 if loss.name == "squared" else loss.value(0.4, y)
    np.testing.assert_array_equal(loss.error(0.4, y), expected)
    assert error_name(loss.name).endswith(" error") == (loss.name in {"absolute", "squared"})


def test_errors_of_responses_have_the_names_of_scikit_learn():
    """`test_evaluation` compares their values with its log_loss and with half of its
    mean_poisson_deviance.
    """
    assert error_name("bernoulli") == "log loss"
    assert error_name("poisson") == error_name("negative_binomial") == "half Poisson deviance"


@losses
def test_values_of_the_definition(loss):
    rng = np.random.default_rng(0)
    p, y = rng.normal(scale=3.0, size=200), targets(loss, rng, 200)
    by_hand = {
        "absolute": lambda p, y: abs(p - y),
        "pinball": lambda p, y: 0.3 * max(y - p, 0) + 0.7 * max(p - y, 0),
        "huber": lambda p, y: 0.5 * (p - y) ** 2 if abs(p - y) <= 0.7 else 0.7 * abs(p - y) - 0.245,
        "squared": lambda p, y: 0.5 * (p - y) ** 2,
        "logistic": lambda p, y: np.log(1 + np.exp(-y * p)),
        "hinge": lambda p, y: max(0, 1 - y * p),
    }[loss.name]
    np.testing.assert_allclose(
        loss.value(p, y), [by_hand(*pair) for pair in zip(p, y, strict=True)], rtol=1e-13
    )


@losses
def test_subgradient_against_finite_differences(loss):
    rng = np.random.default_rng(1)
    p, y = rng.normal(scale=3.0, size=500), targets(loss, rng, 500)
    step = 1e-6
    smooth = np.ones(500, dtype=bool)
    for k in kinks(loss, y):
        smooth &= np.abs(p - k) > 2 * step
    difference = (loss.value(p + step, y) - loss.value(p - step, y)) / (2 * step)
    assert smooth.sum() > 400
    np.testing.assert_allclose(loss.subgradient(p, y)[smooth], difference[smooth], atol=2e-6)


@losses
def test_subgradient_at_a_kink_is_the_admissible_value_nearest_zero(loss):
    y = targets(loss, np.random.default_rng(2), 7)
    for p in kinks(loss, y):
        step = 1e-7
        left = (loss.value(p, y) - loss.value(p - step, y)) / step
        right = (loss.value(p + step, y) - loss.value(p, y)) / step
        np.testing.assert_allclose(loss.subgradient(p, y), np.clip(0.0, left, right), atol=1e-6)


@losses
def test_fenchel_young(loss):
    rng = np.random.default_rng(5)
    p, y = rng.normal(scale=3.0, size=300), targets(loss, rng, 300)
    a = loss.subgradient(p, y)
    np.testing.assert_allclose(
        loss.value(p, y) + conjugate(loss, a, y), a * p, atol=1e-12, rtol=1e-12
    )
    other = loss.subgradient(rng.normal(scale=3.0, size=300), y)
    assert (loss.value(p, y) + conjugate(loss, other, y) - other * p > -1e-12).all()


@losses
def test_lipschitz_constant(loss):
    rng = np.random.default_rng(7)
    p, y = rng.normal(scale=50.0, size=2000), targets(loss, rng, 2000)
    steepest = np.abs(loss.subgradient(p, y)).max()
    if loss.name == "squared":
        assert loss.lipschitz == np.inf
    else:
        assert steepest <= loss.lipschitz
        assert steepest > 0.99 * loss.lipschitz


def test_a_new_loss_is_defined_by_its_box():
    """The maximum over a of a (p - y) - a² is (p - y)²/4, at a = (p - y)/2."""

    class Quarter(Squared):
        value = Loss.value

        def dual_box(self, y):
            return super().dual_box(y)._replace(quadratic=2.0)

    p, y = np.array([-1.0, 0.5, 2.0]), np.array([0.0, 0.5, -1.0])
    np.testing.assert_allclose(Quarter().subgradient(p, y), (p - y) / 2)
    np.testing.assert_allclose(Quarter().value(p, y), (p - y) ** 2 / 4)


def test_logistic_does_not_overflow():
    loss = get_loss("logistic")
    p = np.array([-1e4, 1e4])
    np.testing.assert_array_equal(loss.value(p, 1.0), [1e4, 0.0])
    np.testing.assert_array_equal(loss.subgradient(p, 1.0), [-1.0, 0.0])


def test_defaults_are_those_of_the_literature():
    """Huber's 1.35 has 95 % efficiency under Gaussian noise."""
    assert (Huber().delta, Pinball().quantile) == (1.35, 0.5)


def test_names_that_do_not_exist():
    with pytest.raises(ValueError, match=r"'absolute'.*'hinge'.*Did you mean 'squared'"):
        get_loss("squarred")
    with pytest.raises(ValueError, match=r"loss must be one of 'absolute'.*; got 3"):
        get_loss(3)


@pytest.mark.parametrize(
    ("name", "parameters", "argument"),
    [
        ("pinball", {"quantile": 0.0}, "quantile"),
        ("pinball", {"quantile": 1.0}, "quantile"),
        ("pinball", {"quantile": np.nan}, "quantile"),
        ("huber", {"delta": 0.0}, "delta"),
        ("huber", {"delta": np.inf}, "delta"),
        ("huber", {"delta": "1"}, "delta"),
    ],
)
def test_parameters_out_of_range(name, parameters, argument):
    with pytest.raises((TypeError, ValueError), match=f"{argument} must be"):
        LOSSES[name](**parameters)


@losses
def test_targets(loss):
    loss.check_targets(np.array([-1, 1, 1]))
    loss.check_targets(np.empty(0))
    if loss.name in BINARY:
        message = rf"{loss.name} loss needs targets.*ratings contains 0\.0.*np.where"
        with pytest.raises(ValueError, match=message):
            loss.check_targets([0.0, 1.0], name="ratings")
        with pytest.raises(ValueError, match=r"contains 0, 2, 3, 4, 5\."):
            loss.check_targets([0, 2, 3, 4, 5, 1, -1])
        with pytest.raises(ValueError, match="contains 0, 2, 3, 4, 5 and 3 more"):
            loss.check_targets(np.arange(9))
    else:
        loss.check_targets([0.0, 0.5])
