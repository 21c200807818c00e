"""What a user holds is a snapshot."""

import copy
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tailored import ConditionalLearner, EmpiricalBayesLearner, UnconditionalLearner
from tailored.paper import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

SNAPSHOTS = [
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=5, fit_intercept=False),
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=None, fit_intercept=False),
    UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False),
    EmpiricalBayesLearner(),
]


def arrays_of(prior):
    """Return every array of the parameters of a prior."""
    return {
        (part, name): value
        for part in ("conditioning", "model")
        for name, value in vars(getattr(prior, part, None) or object.__new__(Empty)).items()
        if isinstance(value, np.ndarray)
    }


class Empty:
    """A part that a prior does not have."""


@pytest.mark.parametrize(
    "learner", SNAPSHOTS, ids=lambda e: f"{type(e).__name__}-{e.get_params().get('solver')}"
)
def test_what_a_user_holds_is_a_snapshot(clusters, learner):
    """Going on makes a new prior; the old one keeps every bit."""
    learner = copy.deepcopy(learner)
    more = getattr(learner, "partial_fit", learner.fit)
    more(clusters[:25])
    prior = learner.prior_
    before = {key: value.copy() for key, value in arrays_of(prior).items()}
    assert ("conditioning", "C") in before or ("model", "means") in before
    tau = learner.representation(clusters).copy()
    more(clusters[25:])
    for (part, name), value in arrays_of(prior).items():
        np.testing.assert_array_equal(value, before[part, name])
    assert learner.prior_ is not prior
    assert np.abs(learner.representation(clusters) - tau).max() > 1e-9
    with pytest.raises(FrozenInstanceError):
        prior.offset = 1.0
    with pytest.raises(AttributeError):
        learner.calibration_ = None
