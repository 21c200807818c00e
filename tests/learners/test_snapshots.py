"""What a user holds is a snapshot."""

import copy
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from tailored import ConditionalLearner, EmpiricalBayesLearner, UnconditionalLearner
from tailored.solvers import ProjectedSGD

SNAPSHOTS = [
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), bias="conditional", rank=5, fit_intercept=False),
    ConditionalLearner("ridge", solver=ProjectedSGD(0.3), rank=None, fit_intercept=False),
    UnconditionalLearner(solver=ProjectedSGD(step_sizes=(0.1, 1.0)), bias="shared", fit_intercept=False),
    EmpiricalBayesLearner(),
]


def arrays_of(prior):
    """Every array of the conditioning function and the prior mean."""
    return {
        (part, name): value
        for part in ("conditioning", "bias")
        for name, value in vars(getattr(prior, part)).items()
        if isinstance(value, np.ndarray)
    }


@pytest.mark.parametrize(
    "learner", SNAPSHOTS, ids=lambda e: f"{type(e).__name__}-{e.get_params().get('solver')}"
)
def test_what_a_user_holds_is_a_snapshot(few_steps, clusters, learner):
    """Going on makes a new prior; the old one keeps every bit, and cannot be written to."""
    learner = copy.deepcopy(learner).partial_fit(clusters[:25])
    prior, conditioning, bias = learner.prior_, learner.conditioning_, learner.bias_
    assert conditioning is prior.conditioning
    assert bias is prior.bias
    before = {key: value.copy() for key, value in arrays_of(prior).items()}
    assert {("conditioning", "C"), ("bias", "constant"), ("bias", "linear")} <= before.keys()
    tau = learner.representations(clusters).copy()
    learner.partial_fit(clusters[25:])
    for key, value in arrays_of(prior).items():
        np.testing.assert_array_equal(value, before[key])
        assert not value.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            value[...] = 0.0
    assert learner.prior_ is not prior
    assert np.abs(learner.representations(clusters) - tau).max() > 1e-9
    for value in arrays_of(learner.prior_).values():
        assert not value.flags.writeable
    with pytest.raises(FrozenInstanceError):
        prior.clip = (0.0, 1.0)
    for name in ("conditioning_", "bias_", "feature_map_", "clip_", "calibration_"):
        with pytest.raises(AttributeError):
            setattr(learner, name, None)
