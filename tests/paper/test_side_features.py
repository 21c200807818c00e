"""Features of the side information: centred columns, indicators and curves."""

import numpy as np
import pytest

from tailored import TaskSet
from tailored.priors.side_features import DEGREE, KNOTS, LEAST_VALUES, Curve, SideFeatures


def test_a_curve_is_a_partition_of_unity():
    values = np.random.default_rng(0).exponential(size=200)
    curve = Curve.fit(values, 1)
    assert curve.column == 1
    assert len(curve.knots) == KNOTS + 2 * DEGREE
    x = np.linspace(values.min(), values.max(), 101)
    basis = curve(np.column_stack([np.full(101, 99.0), x]))
    assert basis.shape == (101, KNOTS + DEGREE - 2)
    assert basis.min() >= 0.0
    # The first spline is left out: it is what is missing, and is zero beyond the first inner knot.
    first, second = curve.knots[DEGREE : DEGREE + 2]
    missing = np.clip((second - x) / (second - first), 0.0, None) ** DEGREE
    np.testing.assert_allclose(1.0 - basis.sum(axis=1), missing, atol=1e-12)


def test_a_curve_is_constant_beyond_its_knots():
    curve = Curve.fit(np.linspace(2.0, 5.0, 40), 0)
    low, high = curve(np.array([[-100.0], [1e9]]))
    np.testing.assert_array_equal(low, np.zeros(len(low)))
    np.testing.assert_array_equal(high, np.eye(len(high))[-1])


@pytest.mark.parametrize(
    ("values", "curved"),
    [
        (np.arange(LEAST_VALUES - 1.0), False),
        (np.arange(float(LEAST_VALUES)), True),
        (np.repeat(3.0, 50), False),
        (
            np.append(np.zeros(95), np.arange(1.0, 10.0)),
            False,
        ),  # most are equal: hardly any quantiles
        (np.append(1e-310 * np.arange(30.0), 1.0), False),  # knots that differ by subnormal numbers
    ],
)
def test_a_number_with_few_values_is_not_curved(values, curved):
    assert (Curve.fit(values, 0) is not None) == curved


@pytest.mark.parametrize("n_values", [3, 4, 7, 30])
def test_the_smoothest_function_is_nearly_linear(n_values):
    """With fewer values than splines too: otherwise a shared curve has a slope, and the fixed
    effect compensates it.
    """
    x = np.repeat(np.arange(float(n_values)), 5)
    curve = Curve.fit(x, 0, least_values=3)
    features = curve(x[:, None])
    functions = (features - features.mean(axis=0)) @ curve.smooth_basis(
        features - features.mean(axis=0)
    )
    assert functions.shape[1] == min(n_values - 1, curve.n_features)
    slopes = np.corrcoef(x, functions, rowvar=False)[0, 1:]
    assert abs(slopes[0]) > 0.97
    assert np.abs(slopes[1:]).max() < 0.2


@pytest.fixture
def tasks():
    """Side information of a number, a word and a flag."""
    rng = np.random.default_rng(0)
    ages, words = rng.uniform(20, 60, size=30), rng.choice(["red", "green", "blue"], size=30)
    side = [
        {"age": a, "colour": str(w), "old": bool(a > 40)} for a, w in zip(ages, words, strict=True)
    ]
    return TaskSet.from_tasks(
        [(rng.normal(size=(4, 2)), rng.normal(size=4), each) for each in side]
    )


def test_features_are_centred_and_of_comparable_size(tasks):
    features = SideFeatures.fit(tasks)
    assert features.n_linear == 5  # age, the flag, three words
    assert [curve.column for curve in features.curves] == [0]
    v = features(tasks)
    assert v.shape == (30, 5 + KNOTS + DEGREE - 2)
    np.testing.assert_allclose(v.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(v[:, 0].std(), 1.0 / np.sqrt(5))
    np.testing.assert_allclose(v[:, 5:].std(axis=0), 1.0 / np.sqrt(KNOTS + DEGREE - 2))
    # Indicators have two values, with a half range of one.
    for column in v[:, 1:5].T:
        assert len(np.unique(column.round(9))) == 2
        assert np.ptp(column) == pytest.approx(2.0 / np.sqrt(5))
    assert np.linalg.norm(v[:, :5], axis=1).max() < 4.0


@pytest.mark.filterwarnings("ignore::tailored.exceptions.UnknownCategoryWarning")
def test_values_that_training_did_not_have(tasks):
    features = SideFeatures.fit(tasks)

    def of(age, word):
        side = {"age": age, "colour": word, "old": False}
        return features(TaskSet.from_tasks([(np.zeros((0, 2)), np.zeros(0), side)]))[0]

    unseen, known = of(30.0, "violet"), of(30.0, "red")
    np.testing.assert_allclose(unseen[2:5], (0.0 - features.mean[2:5]) / features.deviation[2:5])
    assert (unseen != known).sum() == 1
    # A number beyond those of training: the linear feature grows, the curve is constant.
    far, end = of(1e3, "red"), of(60.0, "red")
    assert far[0] > 10 * end[0]
    assert np.abs(far[5:]).max() < 10.0
    message = r"side_info: column 'age' of task 0 is .* times as large as in fit"
    with pytest.raises(ValueError, match=message):
        of(1e40, "red")
