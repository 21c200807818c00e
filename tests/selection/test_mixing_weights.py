"""Gates: proportions that depend on the description, and the posterior mean of the mixture that
they weigh.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import log_softmax

from folds import few_folds
from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import CONSTANT_PENALTY, em, fit_gates, fit_mixed_model, fit_mixture
from tailored.gaussian.mixture import Mixture, Want, log_gates
from tailored.gaussian.moments import Moments
from tailored.gaussian.side import Group
from tailored.selection.data import Training
from tailored.selection.steps import mixtures
from tailored.selection.steps.mixtures import MixtureModel, gate_penalties
from tailored.tasks.rows import Scaling

D, Q, K = 4, 2, 3


def some_mixture(gates=False):
    rng = np.random.default_rng(0)
    covariances = np.repeat(np.eye(D)[None], K, axis=0)
    gates = rng.normal(size=(K, 1 + Q)) if gates else None
    return Mixture(
        rng.dirichlet(np.ones(K)), rng.normal(size=(K, D)), covariances, 0.3, gates=gates
    )


def some_tasks(seed, sizes, d=D, q=Q):
    rng = np.random.default_rng(seed)
    entries = []
    for n in sizes:
        s = rng.normal(size=q)
        X = rng.normal(size=(n, d))
        y = X @ (rng.choice([-1.0, 1.0]) * np.arange(1.0, d + 1) / 2 + s.sum()) + 0.5 * rng.normal(
            size=n
        )
        entries.append((X, y, s))
    return TaskSet.from_tasks(entries)


def statistics_of(tasks):
    return Moments.of(tasks, Scaling.raw(tasks.n_features), tasks.side_info)


# --------------------------------------------------------------------------------------- the gates


def penalised(gates, side, responsibilities, penalty):
    """What `fit_gates` maximises, times T, in the words of its module."""
    logits = gates[:, 0] + side @ gates[:, 1:].T
    fit = np.sum(responsibilities * log_softmax(logits, axis=1))
    return fit - 0.5 * penalty * np.sum(gates[:, 1:] ** 2) - constants(gates)


def constants(gates):
    return 0.5 * CONSTANT_PENALTY * np.sum(gates[:, 0] ** 2)


def drawn(seed=0, T=40):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, Q)), rng.dirichlet(np.ones(K), size=T)


def test_probabilities_add_up_to_one():
    rng = np.random.default_rng(0)
    gates, side = rng.normal(size=(K, 1 + Q)), rng.normal(size=(9, Q))
    log_pi = log_gates(gates, side)
    np.testing.assert_allclose(np.exp(log_pi).sum(axis=1), 1.0, rtol=1e-14)
    np.testing.assert_allclose(
        log_pi, log_softmax(gates[:, 0] + side @ gates[:, 1:].T, axis=1), rtol=1e-12
    )
    # logits of a thousand are no reason to overflow
    far = log_gates(1e4 * gates, side)
    assert np.isfinite(far).all()
    np.testing.assert_allclose(np.exp(far).sum(axis=1), 1.0, rtol=1e-14)


def test_the_gradient_is_that_of_the_objective(monkeypatch):
    side, responsibilities = drawn()
    seen = []
    rng = np.random.default_rng(1)

    def spy(objective, start, **options):
        for _ in range(3):
            at = rng.normal(size=len(start))
            seen.append(check_grad(lambda x: objective(x)[0], lambda x: objective(x)[1], at))
            expected = -penalised(at.reshape(K, -1), side, responsibilities, 2.0) / len(side)
            assert objective(at)[0] == pytest.approx(expected, rel=1e-12)
        return minimize(objective, start, **options)

    monkeypatch.setattr("tailored.gaussian.em.minimize", spy)
    fit_gates(side, responsibilities, 2.0, some_mixture())
    assert len(seen) == 3
    assert max(seen) < 1e-6


@pytest.mark.parametrize("penalty", [1e-2, 1.0, 100.0])
def test_fitted_gates_are_a_maximum(penalty):
    side, responsibilities = drawn()
    found = fit_gates(side, responsibilities, penalty, some_mixture())
    best = penalised(found, side, responsibilities, penalty)
    rng = np.random.default_rng(0)
    for size in (1e-3, 0.1, 1.0):
        for _ in range(5):
            other = found + size * rng.normal(size=found.shape)
            assert penalised(other, side, responsibilities, penalty) < best + 1e-6
    again = fit_gates(side, responsibilities, penalty, some_mixture(gates=True))
    np.testing.assert_allclose(log_gates(again, side), log_gates(found, side), atol=5e-3)


# ------------------------------------------------------------------------------------------- EM


@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_no_step_lowers_the_penalised_evidence(penalty):
    """Σ_t log p(y_t | s_t) − ½ penalty ‖A‖² (less the little pull on the constants) climbs, step by
    step.

    The M-step of the gates maximises Σ r log π − ½ penalty ‖A‖², or at least raises it, and the
    others their parts of the expected log likelihood: a generalised EM of exactly this sum.  It
    holds without shrinkage of W, and the pseudo-tasks only touch the proportions, which gates
    replace.
    """
    statistics = statistics_of(some_tasks(1, [6] * 30))
    single = fit_mixed_model(statistics, max_iter=5)
    rng = np.random.default_rng(0)
    mixture = Mixture(
        np.full(2, 0.5),
        single.means + 0.5 * rng.normal(size=(2, D)),
        np.repeat(single.covariances, 2, axis=0),
        single.noise,
    )
    mixture = replace(
        mixture, gates=np.column_stack([np.log(mixture.proportions), np.zeros((2, Q))])
    )

    def objective(model):
        pull = 0.5 * penalty * np.sum(model.gates[:, 1:] ** 2) + constants(model.gates)
        return statistics.posterior(model).log_evidence.sum() - pull

    values = [objective(mixture)]
    for _ in range(25):
        mixture = em(statistics, mixture, max_iter=1, gate_penalty=penalty).mixture
        values.append(objective(mixture))
    steps = np.diff(values)
    assert steps.min() > -1e-5
    assert values[-1] > values[0] + 1.0


# ----------------------------------------------------------------------------- does it find them


def two_clusters(T, hint, seed, n_rows=16):
    return make_clusters(
        T,
        n_clusters=2,
        n_features=6,
        rank=2,
        n_rows=n_rows,
        noise=0.1,
        hint=hint,
        random_state=seed,
    )


def errors(mixture, tasks, n_support):
    support, query = tasks.support_query(n_support, random_state=0)
    statistics = statistics_of(support)
    weights = statistics.posterior(mixture, Want(means=True)).mean
    prediction = np.einsum("ij,ij->i", query.X, np.repeat(weights, query.sizes, axis=0))
    return np.abs(prediction - query.y).mean()


def test_gates_use_what_a_description_says():
    both = two_clusters(240, 0.9, seed=3)
    train, test = both[:120], both[120:]
    fitter = Training(statistics_of(train), [0], [Group(0, False, np.arange(2), np.eye(2))])
    form = MixtureModel(n_components=2)
    without = fitter.fit(form)
    gated = fitter.fit(replace(form, has_gates=True))
    assert without.gates is None
    # each component is one of the hints: sure on both sides
    pi = np.exp(log_gates(gated.gates, np.eye(2)))
    assert pi.argmax(axis=1).tolist() in ([0, 1], [1, 0])
    assert pi.max(axis=1).min() > 0.8
    for n_support in (1, 2, 3):
        assert errors(gated, test, n_support) < 0.97 * errors(without, test, n_support)


def test_the_learner_gates_where_it_pays(monkeypatch):
    monkeypatch.setattr(mixtures, "COMPONENTS", (2,))
    untold, found = None, []
    for hint in (0.9, 0.0):
        both = two_clusters(200, hint, seed=2, n_rows=12)
        train, test = both[:100], both[100:]
        told = few_folds().fit(train)
        # the rows are the same whatever the hint
        untold = untold or few_folds().fit(train.replace(side_info=None))
        both = (told, test), (untold, test.replace(side_info=None))
        pairs = [[m.task_errors(new, n_support=n).mean() for m, new in both] for n in (1, 2, 3)]
        found.append(np.divide(*np.transpose(pairs)))
        if hint:
            assert told.structure_["kind"] == "mixture"
            assert told.structure_["has_gates"]
            # the hint alone says which subspace
            first, second = (told.representation(side_info=side)[:6, :6] for side in np.eye(2))
            assert np.sum(first * second) < 0.7 * np.linalg.norm(first) * np.linalg.norm(second)
    assert found[0].max() < 0.95
    assert found[1].max() < 1.025


def test_starts_may_come_from_the_description():
    """Clusters that only the description tells apart at first: means differ, covariances do not."""
    rng = np.random.default_rng(0)
    s = rng.integers(2, size=60)
    entries = [
        (
            x := rng.normal(size=(3, 2)),
            x @ ([3.0, -3.0][k] * np.ones(2)) + rng.normal(size=3),
            [float(k)],
        )
        for k in s
    ]
    statistics = statistics_of(TaskSet.from_tasks(entries))
    single = fit_mixed_model(statistics)
    mixture = fit_mixture(statistics, single, 2, seed=[0], max_iter=20)
    r = statistics.posterior(mixture).shares.argmax(axis=1)
    assert max((r == s).mean(), (r != s).mean()) > 0.95


def test_relevant_features_of_mixing_weights():
    rng = np.random.default_rng(0)
    component = rng.integers(3, size=90)
    hint = np.where(rng.random(90) < 0.7, component, rng.integers(3, size=90))
    side = np.hstack([rng.normal(size=(90, 5)), np.eye(3)[hint]])
    groups = [Group(j, False, np.array([j]), np.eye(1)) for j in range(5)]
    groups.append(Group(5, False, np.arange(5, 8), np.eye(3)))
    shares = 0.1 / 3 + 0.9 * np.eye(3)[component]
    penalties = gate_penalties(side, groups, shares)
    # as if the three relevant features were all
    np.testing.assert_allclose(penalties, [np.inf] * 5 + [3 / 8] * 3)
    assert np.isinf(gate_penalties(side, groups, shares[rng.permutation(90)])).all()
