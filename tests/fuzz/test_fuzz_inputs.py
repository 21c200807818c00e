"""A few seconds of `inputs.py`, whose long run is `python tests/fuzz/inputs.py --count 100000 --fits 20000`."""

import pytest

from inputs import run

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_odd_inputs_give_finite_results_or_a_named_refusal() -> None:
    fits = run(1, range(0, 12), n_fits=12)
    questions = run(1, range(1000, 1150), n_fits=0)
    assert fits.failed + questions.failed == []
    # that the drawing reached results and refusals alike
    for found in (fits, questions):
        assert found.tried["outcome of a call", "a result"] > 20
        assert found.tried["outcome of a call", "refused"] > 5
