"""Gates: proportions that depend on the description, and the posterior mean of the mixture that
they weigh.
"""

import numpy as np
import pytest
from scipy.special import log_softmax

from folds import few_folds
from tailored.datasets import make_clusters
from tailored.gaussian.em import CONSTANT_PENALTY, fit_gates
from tailored.gaussian.mixture import Mixture, log_gates
from tailored.gaussian.side import Group
from tailored.selection.steps import mixtures
from tailored.selection.steps.mixtures import gate_penalties

D, Q, K = 4, 2, 3


def some_mixture(gates=False):
    rng = np.random.default_rng(0)
    covariances = np.repeat(np.eye(D)[None], K, axis=0)
    gates = rng.normal(size=(K, 1 + Q)) if gates else None
    return Mixture(
        rng.dirichlet(np.ones(K)), rng.normal(size=(K, D)), covariances, 0.3, gates=gates
    )


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
