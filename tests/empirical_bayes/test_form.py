"""EmpiricalBayesLearner: representations, posterior means, sizes of tasks."""

import numpy as np
import pytest

from bayes_samples import weights_of
from tailored import TaskSet, UnconditionalLearner
from tailored.gaussian.mixture import Want
from tailored.gaussian.moments import Moments
from tailored.losses import Squared
from tailored.priors.mixture import MeanShift, interpolation
from tailored.solvers import ProjectedSGD
from tailored.within import solving

# ---------------------------------------------------------------- representations


def test_representation_is_the_mixtures_second_moment(clusters, mixture):
    """τ(s) is Σ r_k W_k / σ², in the user's units and times the number of rows."""
    model, units = mixture.prior_.mixture, mixture.prior_.scaling
    for t in range(3):
        task = clusters[t]
        one = TaskSet.from_tasks([(task.X, task.y)])
        r = Moments.of(one, units).posterior(model).shares[0]
        expected = 20 * units.raw_representation(np.tensordot(r, model.covariances / model.noise, 1))
        found = mixture.representation(task.X, task.y)
        np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


def test_adapted_weights_are_posterior_means(clusters, mixture):
    """Of the Gaussian with the task's own τ(s) and b(s), and so of the mixture itself."""
    prior, units = mixture.prior_, mixture.prior_.scaling
    statistics = Moments.of(clusters, units)
    tau, b = prior.representation(clusters), prior.mean(clusters)
    right = b + np.einsum("tij,tj->ti", tau, statistics.cross)
    expected = np.linalg.solve(np.eye(b.shape[1]) + tau @ statistics.gram, right[:, :, None])[:, :, 0]
    found = mixture.adapt_many(clusters).weights_
    np.testing.assert_allclose(found, units.raw_weights(expected), atol=1e-7)
    assert mixture.bias_penalty_ is None  # nothing is added to the model's own mean
    means = statistics.posterior(mixture.prior_.mixture, Want(means=True)).mean
    np.testing.assert_allclose(found, units.raw_weights(means), atol=1e-7)


@pytest.mark.parametrize("which", ["clusters", "skewed"])
def test_adapt_many_is_adapt_for_each(which, clusters, mixture, skewed):
    tasks, learner = (clusters, mixture) if which == "clusters" else skewed
    many = learner.adapt_many(tasks).weights_
    for row, task in zip(many, tasks, strict=True):
        model = learner.adapt(task.X, task.y)
        np.testing.assert_allclose(weights_of(model), row, atol=1e-8)
        assert model.loss == Squared()
        X = np.hstack([task.X, np.ones((len(task.y), 1))])
        assert 0 <= model.dual_gap_ <= 1e-8 * 0.5 * np.mean((task.y - X @ model.bias_) ** 2) + 1e-15
        # the same problem in the user's units, the intercept a constant column
        solution = solving.solve(
            X, task.y, model.representation_, Squared(), offset=X @ model.bias_, tol=1e-13
        )
        np.testing.assert_allclose(solution.coef + model.bias_, row, atol=1e-6)


# ---------------------------------------------------------------- sizes


def test_sizes_rule(skewed):
    """θ = n τ(s) for empirical Bayes, θ = τ(s) for the paper's learners."""
    tasks, bayes = skewed
    assert bayes.n_components_ == 1  # so that τ does not depend on the rows
    paper = UnconditionalLearner(solver=ProjectedSGD(0.5), fit_intercept=False).fit(tasks)
    X, y = tasks[0].X, tasks[0].y
    model = bayes.prior_.model
    C = bayes.prior_.scaling.raw_representation(model.covariances[0] / model.noise)
    for n in (1, 2, 12):
        np.testing.assert_allclose(bayes.representation(X[:n], y[:n]), n * C)
        np.testing.assert_allclose(paper.representation(X[:n], y[:n]), paper.conditioning_.C)
        one = TaskSet.from_tasks([(X[:n], y[:n])])
        np.testing.assert_allclose(
            bayes.adapt_many(one).weights_[0], weights_of(bayes.adapt(X[:n], y[:n])), atol=1e-9
        )
    np.testing.assert_allclose(bayes.representation(), C)


def test_without_rows_the_prior_mean_predicts(skewed):
    _, learner = skewed
    empty = TaskSet.from_tasks([(np.empty((0, 4)), np.empty(0))])
    expected = learner.prior_.scaling.raw_weights(np.array(learner.prior_.mean(empty)[0]))
    np.testing.assert_allclose(weights_of(learner.adapt()), expected)
    np.testing.assert_allclose(learner.adapt_many(empty).weights_[0], expected)
    np.testing.assert_allclose(learner.adapt().coef_, np.ones(4), atol=0.6)
    assert learner.adapt().intercept_ == pytest.approx(0.0, abs=0.3)


def test_levels_hand_over():
    shifts = [MeanShift(0.0), MeanShift(3.0), MeanShift(15.0)]
    found = interpolation(shifts, np.array([0, 3, 15, 400, 1, 7]))
    np.testing.assert_allclose(found.sum(axis=0), 1.0)
    np.testing.assert_allclose(found[:, :4].T, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_allclose(found[:, 4], [0.5, 0.5, 0.0])  # log 2 is half of log 4
    np.testing.assert_allclose(found[:, 5], [0.0, 0.5, 0.5])  # log 8 is between log 4 and log 16
