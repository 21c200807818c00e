"""Atoms: a mixture at the coefficients of training tasks, with one covariance."""

import numpy as np
import pytest

import tailored
from bayes_samples import same_numbers
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.datasets import make_circle
from tailored.displays import ComponentsDisplay
from tailored.empirical_bayes import selection
from tailored.gaussian.atoms import LEAST_SHARE, MULTIPLES, PSEUDO_TASKS, STEPS, fit_atoms
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.priors.mixture import MixturePrior
from tailored.sources.reservoir import Reservoir
from tailored.tasks.rows import Scaling
from tests.reference import mixture_posterior

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def test_atoms_maximise_the_evidence_of_the_other_tasks():
    rng = np.random.default_rng(0)
    d, T, side = 2, 7, rng.normal(size=(7, 1))
    tasks = TaskSet.from_tasks([(rng.normal(size=(n, d)), rng.normal(size=n)) for n in range(1, T + 1)])
    gates = rng.normal(size=(2, 2))
    start = Mixture(
        np.full(2, 0.5), rng.normal(size=(2, d)), np.stack([np.eye(d), 0.1 * np.eye(d)]), 0.3, gates=gates
    )
    found = fit_atoms(Moments.of(tasks, Scaling.raw(d), side), start, [0])
    logits = gates[:, 0] + side @ gates[:, 1:].T
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    first = [
        mixture_posterior(task.X, task.y, pi, start.means, start.covariances, start.noise)
        for task, pi in zip(tasks, weights, strict=True)
    ]
    means, covariance = [e.mean for e in first], np.mean([e.covariance for e in first], axis=0)
    # Mixing weights of an atom relative to those of all tasks, (T, K).
    relative = np.exp((logits - np.log(weights.mean(axis=0))) @ np.array([e.shares for e in first]).T)
    log_densities = {}
    for multiple in MULTIPLES:
        log_densities[multiple] = np.full((T, T), -np.inf)
        for t, task in enumerate(tasks):
            for k in set(range(T)) - {t}:
                one = mixture_posterior(
                    task.X, task.y, [1.0], [means[k]], [multiple * covariance], start.noise
                )
                log_densities[multiple][t, k] = one.log_evidence

    def evidence(multiple):
        joint = relative / relative.sum(axis=1, keepdims=True) * np.exp(log_densities[multiple])
        return np.log(joint.sum(axis=1)).sum()

    best = max(MULTIPLES, key=evidence)
    pi = np.full(T, 1.0 / T)
    for _ in range(STEPS):
        shares = pi * relative * np.exp(log_densities[best])
        counts = (shares / shares.sum(axis=1, keepdims=True)).sum(axis=0)
        pi = (counts + PSEUDO_TASKS) / (T + T * PSEUDO_TASKS)
    # In the order of the sample of the tasks.
    order = np.random.default_rng([0]).permutation(T)
    order = order[counts[order] >= LEAST_SHARE]
    np.testing.assert_allclose(found.covariances, [best * covariance], rtol=1e-9)
    np.testing.assert_allclose(found.means, np.array(means)[order], rtol=1e-9)
    np.testing.assert_allclose(found.proportions, pi[order] / pi[order].sum(), rtol=1e-9)
    # The representation of an atom is that of the components of its task.
    inherited = np.tensordot([first[t].shares for t in order], start.covariances, 1)
    np.testing.assert_allclose(found.mean_covariance(np.eye(len(order))), inherited, rtol=1e-9)
    expected = (pi * relative)[:, order]
    np.testing.assert_allclose(
        np.exp(found.log_proportions(side)), expected / expected.sum(axis=1, keepdims=True), rtol=1e-9
    )


@pytest.fixture(scope="module")
def circle(short_fits_in_module):
    """Coefficients on a circle without side information: training tasks, new tasks, truth, and a learner."""
    tasks, truth = make_circle(
        500, n_features=3, n_rows=6, radius=3.0, spread=0.0, noise=0.5, random_state=61100, return_truth=True
    )
    tasks = tasks.replace(side_info=None, side_names=None, encoding=None)
    return tasks[:400], tasks[400:], truth, EmpiricalBayesLearner(common="linear").fit(tasks[:400])


def test_atoms_find_a_circle(circle):
    _, new, truth, learner = circle
    assert learner.structure_["kind"] == "atoms"
    assert learner.n_components_ == learner.prior_.model.n_components <= 400
    support, query = new.support_query(2, shuffle=False)
    angles = np.linspace(0.0, 2.0 * np.pi, 1000, endpoint=False)
    points = 3.0 * (np.cos(angles)[:, None] * truth.u + np.sin(angles)[:, None] * truth.v)
    oracle = []
    for task in support:
        logits = -0.5 * ((task.y[:, None] - task.X @ points.T) ** 2).sum(axis=0) / truth.noise**2
        p = np.exp(logits - logits.max())
        oracle.append(p @ points / p.sum())
    errors = [
        np.linalg.norm(w - truth.weights[400:], axis=1).mean()
        for w in (learner.adapt_many(support).coef_, oracle)
    ]
    assert errors[0] < 1.12 * errors[1]
    found = learner.predict_tasks(query, support, coverage=0.9)
    inside = (found["lower"] <= query.y) & (query.y <= found["upper"])
    assert 0.86 < np.mean(inside) < 0.94


def test_atoms_are_used_like_other_priors(circle, tmp_path):
    train, new, _, learner = circle
    task = new[0]
    model = learner.adapt(task.X[:2], task.y[:2])
    many = learner.adapt_many(new.support_query(2, shuffle=False)[0])
    np.testing.assert_allclose(model.coef_, many.coef_[0], rtol=1e-10)
    model.update(task.X[2:], task.y[2:])
    np.testing.assert_allclose(model.coef_, learner.adapt(task.X, task.y).coef_, rtol=1e-9)
    # w solves the regularised problem with the representation and the mean that the prior reports.
    prior, statistics = learner.prior_, Moments.of(new, learner.prior_.scaling)
    tau, b = prior.representation(new), prior.mean(new)
    right = b + np.einsum("tij,tj->ti", tau, statistics.cross)
    expected = np.linalg.solve(np.eye(4) + tau @ statistics.gram, right[:, :, None])[:, :, 0]
    np.testing.assert_allclose(learner.adapt_many(new), prior.scaling.raw_weights(expected), atol=1e-7)
    learner.save(tmp_path / "model")
    same_numbers(tailored.load(tmp_path / "model").predict_tasks(new), learner.predict_tasks(new))
    text = str(learner.summary())
    assert "narrow Gaussians with the same covariance" in text
    assert "components" not in learner.summary().tables
    assert len(ComponentsDisplay.from_estimator(learner, train).proportions) == 1


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_one_task_has_the_posterior_mean_of_all_atoms(fit_intercept, outside):
    """The covariance lacks directions; with ``outside``, the means also differ in these."""
    rng = np.random.default_rng(5)
    K, d, n = 30, 4 + fit_intercept, 6
    root = 0.3 * rng.normal(size=(d, 2))
    means = rng.normal(size=d) + 3.0 * rng.normal(size=(K, 2)) @ root.T + outside * rng.normal(size=(K, d))
    mixture = Mixture(rng.dirichlet(np.ones(K)), means, (root @ root.T)[None], 0.5)
    columns, shift = np.append(rng.uniform(0.5, 2.0, 4), [1.0] * fit_intercept), np.zeros(d)
    if fit_intercept:
        shift[:-1] = rng.normal(size=d - 1)
    scaling = Scaling(columns, 3.0, shift, 7.0 * fit_intercept, fit_intercept)
    X, y = rng.normal(size=(n, 4)), 5.0 * rng.normal(size=n)
    prior, task = MixturePrior(scaling=scaling, model=mixture), TaskSet(X, y)
    assert prior._atoms is not None
    rows = (np.column_stack([X, np.ones((n, d - 4))]) - shift) / columns
    targets = (y - scaling.target_shift) / 3.0
    found = mixture_posterior(rows, targets, mixture.proportions, means, [root @ root.T] * K, mixture.noise)
    predicted = scaling.target_shift + 3.0 * rows @ found.mean
    for w in (prior.adapt(task, covariances=False).weights[0], prior.posterior(task).weights[0]):
        np.testing.assert_allclose(np.column_stack([X, np.ones((n, d - 4))]) @ w, predicted, rtol=1e-10)


def test_atoms_of_a_stream_stay_until_the_next_selection(circle):
    train, new, _, learner = circle
    stream = EmpiricalBayesLearner(common="linear").partial_fit(train)
    assert stream.structure_ == learner.structure_
    np.testing.assert_allclose(stream.adapt_many(new).coef_, learner.adapt_many(new).coef_, rtol=1e-12)
    before = stream.prior_.model
    stream.partial_fit(new)
    np.testing.assert_array_equal(stream.prior_.model.means, before.means)


def test_atoms_are_learned_from_a_sample_of_many_tasks(monkeypatch):
    options = {
        "n_features": 3,
        "n_rows": 6,
        "radius": 3.0,
        "spread": 0.0,
        "noise": 0.5,
        "random_state": 61100,
    }
    tasks, truth = make_circle(450, **options, return_truth=True)
    tasks = tasks.replace(side_info=None, side_names=None, encoding=None)
    monkeypatch.setattr(Reservoir.__init__, "__defaults__", (400, *Reservoir.__init__.__defaults__[1:]))
    monkeypatch.setattr(selection, "COMPONENTS", ())  # a mixture may be as good
    learner = EmpiricalBayesLearner(common="linear").fit(tasks)
    assert learner.n_tasks_seen_ == 450
    assert learner.structure_["kind"] == "atoms"
    assert learner.n_components_ <= 400
    # EM over all tasks would give each atom its own covariance, and move it from the circle.
    assert len(learner.prior_.model.covariances) == 1
    atoms = learner.prior_.scaling.raw_weights(learner.prior_.model.means.copy())[:, :-1]
    distances = np.linalg.norm(atoms[:, None] - truth.mean(np.linspace(0.0, 1.0, 1000)), axis=2).min(axis=1)
    assert np.median(distances) < 0.25
