"""EmpiricalBayesLearner: saved, loaded, given another prior, clipped."""

from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import tailored
from bayes_samples import learned, same_numbers
from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    UnconditionalLearner,
)
from tailored.losses import Pinball, Squared
from tailored.priors.representation import RepresentationPrior
from tailored.representation.bias import Bias
from tailored.representation.conditioning import Constant
from tailored.solvers import ProjectedSGD
from tailored.tasks.rows import Scaling


def test_round_trip(with_side, mixture, clusters, tmp_path):
    tasks, learner = with_side
    for learner_, tasks_ in ((learner, tasks), (mixture, clusters)):
        learner_.save(tmp_path / "a")
        again = tailored.load(tmp_path / "a")
        np.testing.assert_array_equal(again.adapt_many(tasks_).weights_, learner_.adapt_many(tasks_).weights_)
        assert again.score(tasks_) == learner_.score(tasks_)
        same_numbers(learned(learner_), learned(again))
        assert repr(again) == repr(learner_)
        assert again.get_params() == learner_.get_params()
        groups = np.repeat(tasks_.labels, tasks_.sizes)
        np.testing.assert_array_equal(again.predict(tasks_.X, groups), learner_.predict(tasks_.X, groups))
        np.testing.assert_array_equal(again.representation(tasks_), learner_.representation(tasks_))
        one = tasks_[1]
        np.testing.assert_array_equal(
            again.adapt(one.X, one.y, side_info=one.side_info).coef_,
            learner_.adapt(one.X, one.y, side_info=one.side_info).coef_,
        )
        with pytest.raises(ValueError, match="partial_fit"):
            again.partial_fit(tasks_)


def test_a_new_fit_of_a_loaded_learner_is_no_continuation(few_steps, mixture, clusters, tmp_path):
    mixture.save(tmp_path / "a")
    again, fresh = tailored.load(tmp_path / "a").fit(clusters[:8]), clone(mixture).fit(clusters[:8])
    same_numbers(learned(fresh), learned(again))


def test_round_trip_of_names_labels_and_arguments(few_steps, tmp_path):
    """What frames bring, and arguments that are not the default ones."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 3)), columns=["price", "speed", "weight"])
    y = frame.to_numpy() @ [1.0, -1.0, 0.5] + 0.1 * rng.normal(size=60) + 2.0
    groups = np.repeat([f"user {t}" for t in range(10)], 6)
    learner = EmpiricalBayesLearner(loss=Pinball(0.7), fit_intercept=True, clip=(-1.0, 4.0))
    learner.fit(frame, y, groups=groups)
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    assert repr(again) == repr(learner)
    assert again.loss_ == learner.loss_
    same_numbers(learned(learner), learned(again))
    assert list(again.feature_names_in_) == ["price", "speed", "weight"]
    np.testing.assert_array_equal(again.predict(frame, groups), learner.predict(frame, groups))
    assert again.score(frame, y, groups=groups) == learner.score(frame, y, groups=groups)
    with pytest.raises(ValueError, match="feature names"):
        again.predict(frame.rename(columns={"price": "cost"}), groups)
    # a task that was not seen is predicted by the prior
    rows = frame[:3]
    prior = again.adapt().predict(rows)
    np.testing.assert_allclose(again.predict(rows, ["user 11", "user 12", "user 11"]), prior)
    mixed = again.predict(rows, ["user 11", "user 0", "user 11"])
    np.testing.assert_allclose(mixed[[0, 2]], prior[[0, 2]])
    assert mixed[1] == learner.predict(frame[:2], groups[:2])[1]


def test_what_was_learned_is_one_record(few_steps, mixture):
    """The views cannot be set, the record cannot be changed, and another one is made by `replace`."""
    prior = mixture.prior_
    assert mixture.calibration_ is prior.calibration
    for name in ("clip_", "calibration_"):
        with pytest.raises(AttributeError):
            setattr(mixture, name, None)
    with pytest.raises(FrozenInstanceError):
        prior.clip = (0.0, 1.0)
    assert mixture.loss_ == Squared()


def test_another_prior_predicts_otherwise(few_steps, mixture, clusters):
    """All that adapting needs is in the record."""
    other = EmpiricalBayesLearner().fit(clusters[:4])
    mean = np.arange(6.0)
    other.prior_ = RepresentationPrior(
        scaling=Scaling.raw(6),
        conditioning=Constant(np.zeros((6, 6))),
        bias=Bias("shared", mean, np.zeros((6, 0))),
        clip=(-1.0, 1.0),
    )
    np.testing.assert_array_equal(other.adapt_many(clusters).weights_, np.tile(mean, (80, 1)))
    model = other.adapt(clusters[0].X, clusters[0].y)
    np.testing.assert_array_equal(model.coef_, mean)
    np.testing.assert_array_equal(model.predict(clusters[1].X), np.clip(clusters[1].X @ mean, -1.0, 1.0))


@pytest.mark.parametrize(
    "learner",
    [
        EmpiricalBayesLearner(clip=(-0.5, 0.25)),
        ConditionalLearner(clip=(-0.5, 0.25), solver=ProjectedSGD(0.3), fit_intercept=False),
        UnconditionalLearner(
            clip=(-0.5, 0.25), solver=ProjectedSGD(step_sizes=(0.1, 1.0)), fit_intercept=False
        ),
        IndependentLearner(clip=(-0.5, 0.25), fit_intercept=False),
    ],
    ids=lambda learner: type(learner).__name__,
)
@pytest.mark.filterwarnings("ignore:X. column 0 has the value")
def test_clip(learner, few_steps, clusters, tmp_path):
    clusters = clusters[:20]
    learner.fit(clusters)
    groups = np.repeat(clusters.labels, clusters.sizes)
    X = 10.0 * clusters.X
    prediction = learner.predict(X, groups=groups)
    assert prediction.min() == -0.5
    assert prediction.max() == 0.25
    model = learner.adapt(clusters[0].X, clusters[0].y)
    assert set(model.predict(100.0 * clusters.X)) >= {-0.5, 0.25}
    far = TaskSet(clusters.X, np.full(len(groups), 9.0), groups)
    np.testing.assert_allclose(learner.task_errors(clusters, far, loss="absolute").min(), 8.75, atol=0.3)
    assert (learner.task_errors(clusters, far, loss="absolute") >= 8.75).all()
    learner.save(tmp_path / "a")
    again = tailored.load(tmp_path / "a")
    assert again.clip_ == (-0.5, 0.25)
    np.testing.assert_array_equal(again.predict(X, groups=groups), prediction)


def test_clip_to_the_training_targets(few_steps, clusters):
    clusters = clusters[:12]
    learner = EmpiricalBayesLearner(clip="train").partial_fit(clusters[:6])
    assert learner.clip_ == (clusters[:6].y.min(), clusters[:6].y.max())
    learner.partial_fit(clusters[6:])
    assert learner.clip_ == (clusters.y.min(), clusters.y.max())
    for clip in ("test", (1.0, 0.0), (0.0,), 3.0, (0.0, np.nan)):
        with pytest.raises((ValueError, TypeError), match="clip"):
            EmpiricalBayesLearner(clip=clip).fit(clusters)
