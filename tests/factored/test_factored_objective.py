"""The objective over factors of H and C: its value, gradient and coordinates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

import reference as ref
from factored_samples import LOSSES, L, objective_of, random_batch, random_factors
from tailored.solvers import factored as factored_module
from tailored.solvers.base import concatenate
from tailored.solvers.factored import Coordinates, FactoredObjective


@pytest.mark.parametrize("bias", ["none", "shared", "conditional"])
@pytest.mark.parametrize("kind", ["surrogate", "query"])
@pytest.mark.parametrize("name", LOSSES)
def test_value_is_the_mean_over_the_tasks_and_the_gradient_its_difference(name, kind, bias):
    loss, reference = LOSSES[name]
    rng = np.random.default_rng(3)
    batch, factors, unit = random_batch(rng), random_factors(rng, bias=bias), 1.7
    objective = FactoredObjective(objective_of(kind, loss), unit)
    value, gradient = objective(factors, batch)

    H = factors.M.reshape(6, 2) @ factors.M.reshape(6, 2).T
    expected = []
    for t, phi in enumerate(batch.phis):
        (X, y), (Xq, yq) = (
            (r.X[r.offsets[t] : r.offsets[t + 1]], r.y[r.offsets[t] : r.offsets[t + 1]])
            for r in (batch.support, batch.query)
        )
        theta = ref.tau(H, factors.F @ factors.F.T, phi)
        b = np.zeros(3)
        if bias != "none":
            b = unit * (factors.b0 + (factors.B @ phi if bias == "conditional" else 0.0))
        if kind == "query":
            expected.append(ref.query_risk(theta, X, y, Xq, yq, reference, b))
        else:
            expected.append(ref.surrogate(theta, X, y, reference, L, X @ b))
    assert value == pytest.approx(np.mean(expected), rel=1e-8)

    # every coordinate by itself: a wrong sign in one part cannot hide behind another
    vector, slopes = factors.pack(), gradient.pack()
    assert slopes.shape == vector.shape
    for j in range(len(vector)):
        e = 1e-5 * (np.arange(len(vector)) == j)
        ends = [objective(factors.unpack(vector + sign * e), batch)[0] for sign in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slopes[j], rel=1e-5, abs=1e-7)
    assert np.abs(gradient.M).max() > 1e-3
    assert np.abs(gradient.F).max() > 1e-3


def test_no_H_at_all():
    """k = 0 is the unconditional learner's case: only F moves."""
    rng = np.random.default_rng(4)
    batch = random_batch(rng, k=0)
    factors = random_factors(rng, k=0, r=0, bias="none")
    objective = FactoredObjective(objective_of("query", LOSSES["squared"][0]))
    _, gradient = objective(factors, batch)
    E = rng.normal(size=(3, 3))
    ends = [objective(factors._replace(F=factors.F + h * E), batch)[0] for h in (1e-5, -1e-5)]
    assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(np.sum(gradient.F * E), rel=1e-5)
    assert gradient.M.size == gradient.b0.size == 0


def test_M_equal_to_zero_is_a_saddle():
    """Why no start is there: the gradient in M vanishes though H would help."""
    rng = np.random.default_rng(5)
    batch, factors = random_batch(rng), random_factors(rng)
    at_zero = factors._replace(M=np.zeros_like(factors.M))
    _, gradient = FactoredObjective(objective_of("query", LOSSES["squared"][0]))(at_zero, batch)
    assert not gradient.M.any()


@pytest.mark.parametrize("kind", ["surrogate", "query"])
def test_sparse_tasks_pieces_and_jobs(kind, monkeypatch):
    rng = np.random.default_rng(6)
    batch, factors = random_batch(rng, d=5, k=3), random_factors(rng, d=5, k=3, r=4)
    for rows in (batch.support, batch.query):
        rows.X[rng.uniform(size=rows.X.shape) < 0.6] = 0.0
    objective = FactoredObjective(objective_of(kind, LOSSES["absolute"][0]))
    value, gradient = objective(factors, batch)

    columns = []
    for t in range(len(batch)):
        one = batch.slice(t, t + 1)
        columns.append(np.flatnonzero(np.vstack([one.support.X, one.query.X]).any(axis=0)))
    assert any(len(own) < 5 for own in columns)
    support, query = (r._replace(X=sp.csr_array(r.X)) for r in (batch.support, batch.query))
    thin = replace(batch, support=support, query=query, columns=columns)
    sparse_value, sparse_gradient = objective(factors, thin)
    assert sparse_value == pytest.approx(value, rel=1e-9)
    np.testing.assert_allclose(sparse_gradient.pack(), gradient.pack(), atol=1e-8)

    monkeypatch.setattr(factored_module, "BLOCK_TASKS", 1)
    one_job = objective(factors, batch)
    two_jobs = replace(objective, n_jobs=2)(factors, batch)
    np.testing.assert_allclose(one_job[1].pack(), gradient.pack(), atol=1e-12)
    assert one_job[0] == two_jobs[0]
    np.testing.assert_array_equal(one_job[1].pack(), two_jobs[1].pack())


@pytest.mark.parametrize("is_sparse", [False, True])
def test_coordinates_change_nothing_but_the_numbers(is_sparse):
    rng = np.random.default_rng(7)
    batch, factors = random_batch(rng), random_factors(rng)
    transform = np.diag([0.5, 2.0, 3.0]) if is_sparse else rng.normal(size=(3, 3))
    if is_sparse:
        support, query = (r._replace(X=sp.csr_array(r.X)) for r in (batch.support, batch.query))
        batch = replace(batch, support=support, query=query, columns=[np.arange(3)] * 4)
    objective = objective_of("query", LOSSES["squared"][0])
    coordinates = Coordinates(transform, 1.9, 0.3)
    inside, _ = FactoredObjective(objective, 0.3)(factors, coordinates.batch(batch))
    raw = coordinates.original(factors)
    assert FactoredObjective(objective)(raw, batch)[0] == pytest.approx(inside, rel=1e-9)
    conditioning, bias = raw.conditioning(rank=2), raw.bias("conditional")
    np.testing.assert_allclose(conditioning.basis.T @ conditioning.basis, np.eye(2), atol=1e-12)
    for phi in batch.phis:
        V = raw.slices(phi[None])[0]
        np.testing.assert_allclose(conditioning(phi), V @ V.T + raw.F @ raw.F.T, atol=1e-10)
        np.testing.assert_allclose(bias(phi), raw.means(phi[None])[0], atol=1e-12)


def test_slices_of_a_batch_are_joined_again():
    batch = random_batch(np.random.default_rng(8))
    joined = concatenate([batch.slice(t, t + 1) for t in range(len(batch))])
    for rows, others in ((joined.support, batch.support), (joined.query, batch.query)):
        for one, other in zip(rows, others, strict=True):
            np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(joined.phis, batch.phis)
    assert joined.columns is None
