"""Golden values: every case of the table still computes what it did (`tests/goldens/make.py` wrote the file)."""

import numpy as np
import pytest

from goldens.cases import CASES
from goldens.environments import ENVIRONMENTS
from goldens.make import compute, load

#: Relative to the largest number of an array: sums in another order stay within this.
TOLERANCE = 1e-9
#: Of the mean square of the targets: an exact solve ends anywhere below its own tolerance.
GAP_TOLERANCE = 1e-6
#: Errors of what a search rejected: minimisers of a kinked risk that stop early turn the last bit of a sum into
#: the third digit.  What was chosen is compared to `TOLERANCE`, and so is its error.
REJECTED_TOLERANCE = 3e-2
#: EM stops where its evidence hardly grows, and its extrapolated steps amplify rounding on the way there: under other BLAS
#: kernels most numbers agreed to 1e-7, the worst, a quantile's errors, to 2e-4.
EM_TOLERANCE, EM = 1e-3, ("empirical bayes", "baseline, mixed model")
EARLY_STOPPERS = ("empirical bayes",)


@pytest.fixture(scope="module")
def goldens():
    return load()


def same_numbers(found, expected, tolerance=TOLERANCE):
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(
        found, expected, rtol=tolerance, atol=tolerance * finite.max(initial=0.0), equal_nan=True
    )


def same_choice(found, expected):
    """Equal in structure and words; numbers up to rounding."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            same_choice(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same_choice(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=TOLERANCE, nan_ok=True)
    else:
        assert found == expected


def test_file_has_the_cases_of_the_table(goldens):
    assert set(goldens) == set(CASES)


#: Cases of `partial_fit` with one piece are marked `slow`; `make test` compares `fit` and two pieces.
NAMES = [pytest.param(n, marks=pytest.mark.slow) if n.endswith(", one piece") else n for n in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_case(name, goldens):
    case = CASES[name]
    expected, expected_choices = goldens[name]
    numbers, choices = compute(case)
    # First, because other numbers follow where the choice is another.
    assert choices.keys() == expected_choices.keys()
    for key in choices:
        same_choice(choices[key], expected_choices[key])
    assert numbers.keys() == expected.keys()
    scale = float(np.mean(ENVIRONMENTS[case.environment]().train.y ** 2))
    for quantity, array in numbers.items():
        assert array.shape == expected[quantity].shape, quantity
        if quantity.endswith("dual gap"):
            # Rounding decides where below the tolerance an exact solve ends; the one-pass gap is a number.
            assert array >= 0.0
            assert (
                abs(array - expected[quantity])
                <= GAP_TOLERANCE * scale + TOLERANCE * expected[quantity]
            )
        else:
            rejected = quantity == "errors in the search" and name.startswith(EARLY_STOPPERS)
            tolerance = EM_TOLERANCE if name.startswith(EM) else TOLERANCE
            try:
                same_numbers(
                    array, expected[quantity], REJECTED_TOLERANCE if rejected else tolerance
                )
            except AssertionError as error:
                raise AssertionError(f"{quantity}: {error}") from None
