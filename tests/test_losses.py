"""Losses: derivatives by finite differences, conjugates by brute force, Lipschitz constants, domains."""

import numpy as np
import pytest

from tailored.losses import LOSSES, get_loss

CASES = [
    "absolute",
    ("pinball", {"quantile": 0.2}),
    ("epsilon_insensitive", {"epsilon": 0.3}),
    ("huber", {"delta": 0.7}),
    "squared",
    "logistic",
    "hinge",
]
LOSS_CASES = pytest.mark.parametrize("loss", [get_loss(case) for case in CASES], ids=str)


def targets(loss, rng, size):
    y = rng.normal(size=size)
    return np.where(y > 0, 1.0, -1.0) if type(loss).__name__ in ("Logistic", "Hinge") else y


def test_every_loss_is_here():
    assert {case if isinstance(case, str) else case[0] for case in CASES} == set(LOSSES)


@LOSS_CASES
def test_subgradient_by_finite_differences(loss):
    rng = np.random.default_rng(0)
    y, p = targets(loss, rng, 400), 2.0 * rng.normal(size=400)
    h = 1e-6
    slopes = [(loss.value(p + s, y) - loss.value(p, y)) / s for s in (h, -h)]
    smooth = np.abs(slopes[0] - slopes[1]) < 1e-4  # away from kinks
    assert smooth.mean() > 0.95
    np.testing.assert_allclose(loss.subgradient(p, y)[smooth], np.mean(slopes, axis=0)[smooth], atol=1e-5)


@LOSS_CASES
def test_subgradient_supports_the_loss_everywhere_and_is_smallest_at_a_kink(loss):
    rng = np.random.default_rng(1)
    y = targets(loss, rng, 50)
    kinks = [y, y + getattr(loss, "epsilon", 0.0), y - getattr(loss, "epsilon", 0.0)]
    grid = np.linspace(-5, 5, 301)[:, None]
    for p in [*kinks, rng.normal(size=50)]:
        g = loss.subgradient(p, y)
        # convexity: ℓ(q) ≥ ℓ(p) + g (q − p)
        assert (loss.value(grid, y) - loss.value(p, y) - g * (grid - p)).min() > -1e-12
    if loss.piecewise_linear:
        # 0 is a subgradient wherever the loss vanishes, and is then the one chosen
        flat = loss.value(y, y) == 0
        np.testing.assert_array_equal(loss.subgradient(y, y)[flat], 0.0)


@LOSS_CASES
def test_conjugate_is_the_supremum(loss):
    rng = np.random.default_rng(2)
    y = targets(loss, rng, 30)
    width = getattr(loss, "epsilon", 0.0)
    grid = np.concatenate([np.linspace(-60, 60, 240_001), y - width, y, y + width])
    for alpha in (-0.15, -0.05, 0.0, 0.05, 0.15):
        a = (
            alpha * np.sign(-y) * np.sign(-alpha or 1.0)
            if type(loss).__name__ in ("Logistic", "Hinge")
            else alpha
        )
        a = np.broadcast_to(np.asarray(a, dtype=float), y.shape)
        inside = np.isfinite(loss.conjugate(a, y))
        brute = np.array([(ai * grid - loss.value(grid, yi)).max() for ai, yi in zip(a, y, strict=True)])
        np.testing.assert_allclose(loss.conjugate(a, y)[inside], brute[inside], atol=2e-5)
        assert (brute[~inside] > 2.0).all()  # unbounded: it grows with the grid


@LOSS_CASES
def test_fenchel_young_is_an_equality_at_subgradients(loss):
    rng = np.random.default_rng(3)
    y, p = targets(loss, rng, 200), 3.0 * rng.normal(size=200)
    a = loss.subgradient(p, y)
    np.testing.assert_allclose(loss.value(p, y) + loss.conjugate(a, y), a * p, atol=1e-12)
    other = loss.subgradient(rng.normal(size=200), y)
    assert (loss.value(p, y) + loss.conjugate(other, y) - other * p).min() > -1e-12


@LOSS_CASES
def test_conjugate_derivative_by_finite_differences(loss):
    """free_curvature: where the conjugate is smooth, and its second derivative there."""
    rng = np.random.default_rng(4)
    y = targets(loss, rng, 100)
    a = loss.subgradient(rng.normal(size=100), y) * rng.uniform(0.2, 0.8, size=100)
    free, curvature = loss.free_curvature(a, y)
    assert free.any()
    h = 1e-4
    second = (loss.conjugate(a + h, y) - 2 * loss.conjugate(a, y) + loss.conjugate(a - h, y)) / h**2
    usable = free & np.isfinite(second)
    np.testing.assert_allclose(second[usable], curvature[usable], rtol=1e-3, atol=1e-3)


@LOSS_CASES
def test_lipschitz_constant_is_reached_and_never_passed(loss):
    rng = np.random.default_rng(5)
    y, p = targets(loss, rng, 2000), 50.0 * rng.normal(size=2000)
    largest = np.abs(loss.subgradient(p, y)).max()
    if np.isinf(loss.lipschitz):
        assert largest > 50
    else:
        assert largest == pytest.approx(loss.lipschitz, rel=1e-6)
        assert largest <= loss.lipschitz + 1e-12


@pytest.mark.parametrize("name", ["logistic", "hinge"])
def test_labels_outside_the_domain(name):
    get_loss(name).check_targets(np.array([-1.0, 1.0]))
    with pytest.raises(ValueError, match=r"-1.*1"):
        get_loss(name).check_targets(np.array([0.0, 1.0]), "y")


def test_large_arguments_do_not_overflow():
    loss = get_loss("logistic")
    p, y = np.array([-1e4, 1e4]), np.array([1.0, 1.0])
    np.testing.assert_allclose(loss.value(p, y), [1e4, 0.0])
    np.testing.assert_allclose(loss.subgradient(p, y), [-1.0, 0.0])


def test_names_and_parameters():
    assert get_loss(get_loss("huber")) == get_loss("huber")
    assert get_loss(("pinball", {"quantile": 0.9})).quantile == 0.9
    with pytest.raises(ValueError, match=r"absolute.*hinge"):
        get_loss("abs")
    for bad in [
        ("pinball", {"quantile": 1.5}),
        ("huber", {"delta": 0.0}),
        ("epsilon_insensitive", {"epsilon": -1.0}),
    ]:
        with pytest.raises(ValueError, match=next(iter(bad[1]))):
            get_loss(bad)
