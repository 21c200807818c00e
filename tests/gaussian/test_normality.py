"""The test of Gaussian coefficients, compared with explicit Hermite tensors and by simulation."""

from itertools import combinations

import numpy as np
import pytest

from tailored import TaskSet
from tailored.datasets import make_clusters
from tailored.gaussian.em import fit_mixed_model
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.gaussian.normality import _hermite_score, _standardised, _whitened, non_normality
from tailored.tasks.rows import Scaling


def statistics(tasks):
    return Moments.of(tasks, Scaling.raw(tasks.n_features))


def ragged(seed, sizes=tuple(range(13)), n_tasks=80):
    """Gaussian coefficients of three columns; the number of rows of each task is drawn from
    ``sizes``.
    """
    rng = np.random.default_rng(seed)
    root, b = (
        np.array([[1.0, 0.0, 0.0], [0.6, 0.5, 0.0], [0.0, 0.3, 0.2]]),
        np.array([1.0, -1.0, 0.5]),
    )
    entries = []
    for n in rng.choice(sizes, n_tasks):
        X = rng.normal(size=(n, 3))
        entries.append((X, X @ (b + root @ rng.normal(size=3)) + 0.7 * rng.normal(size=n)))
    return statistics(TaskSet.from_tasks(entries)), Mixture(
        np.ones(1), b[None], (root @ root.T)[None], 0.49
    )


def hermite_tensors(e):
    """Return H₃(e) and H₄(e)."""
    I = np.eye(len(e))
    third = np.einsum("i,j,k->ijk", e, e, e)
    for one in ("ij,k->ijk", "ik,j->ijk", "jk,i->ijk"):
        third -= np.einsum(one, I, e)
    fourth = np.einsum("i,j,k,l->ijkl", e, e, e, e)
    for pair, rest in (
        ("ij", "kl"),
        ("ik", "jl"),
        ("il", "jk"),
        ("jk", "il"),
        ("jl", "ik"),
        ("kl", "ij"),
    ):
        fourth -= np.einsum(f"{pair},{rest[0]},{rest[1]}->ijkl", I, e, e)
    for pair, rest in (("ij", "kl"), ("ik", "jl"), ("il", "jk")):
        fourth += np.einsum(f"{pair},{rest}->ijkl", I, I)
    return third, fourth


def test_products_are_those_of_weighted_hermite_tensors():
    rng = np.random.default_rng(0)
    e, D = rng.normal(size=(7, 3)), np.array([1.3, 0.4, 0.05])
    tensors, products = [hermite_tensors(each) for each in e], []
    for (third, fourth), (other_third, other_fourth) in combinations(tensors, 2):
        cubic = np.einsum("ijk,ijk,i,j,k->", third, other_third, D, D, D) / 6.0
        products.append(
            cubic + np.einsum("ijkl,ijkl,i,j,k,l->", fourth, other_fourth, D, D, D, D) / 24.0
        )
    expected = np.sum(products) / np.sqrt(np.sum(np.square(products)))
    assert _hermite_score(e * np.sqrt(D), D) == pytest.approx(expected, rel=1e-9)


def test_standardised_posterior_means_are_standard_normal():
    """Also those of tasks with fewer rows than coefficients, or without rows."""
    e = np.concatenate([_standardised(*_whitened(*ragged(seed))) for seed in range(25)])
    np.testing.assert_allclose(e.mean(axis=0), 0.0, atol=0.1)
    np.testing.assert_allclose(np.cov(e.T), np.eye(3), atol=0.1)


@pytest.mark.parametrize("sizes", [tuple(range(13)), (0, 8), (2,), (20,)])
def test_gaussian_coefficients_rarely_exceed_two_standard_errors(sizes):
    found = np.array([non_normality([ragged(seed, sizes)]) for seed in range(40)])
    assert abs(found.mean()) < 0.5
    assert (found > 2.0).sum() <= 4


def test_clusters_are_far_from_gaussian():
    tasks = make_clusters(160, n_clusters=2, n_rows=15, n_features=4, rank=1, random_state=0)
    train, new = statistics(tasks[:80]), statistics(tasks[80:])
    assert non_normality([(new, fit_mixed_model(train))]) > 10.0


def test_without_rows_or_variance_there_is_no_evidence():
    tasks, model = ragged(0)
    none = tasks.take(np.flatnonzero(tasks.sizes == 0))
    assert len(none) > 1
    assert non_normality([(none, model)]) == 0.0
    flat = Mixture(np.ones(1), model.means, np.zeros((1, 3, 3)), model.noise)
    assert non_normality([(tasks, flat)]) == 0.0
