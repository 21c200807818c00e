"""Sums over parts of the tasks, and EM on all tasks."""

from dataclasses import replace

import numpy as np
import pytest

from tailored.datasets import make_clusters
from tailored.gaussian.moments import Moments
from tailored.gaussian.side import Group
from tailored.selection.data import Training
from tailored.selection.steps import mixtures
from tailored.selection.steps.covariance import covariance_structures, ridge_structures
from tailored.selection.steps.mixtures import TRUNCATIONS, MixtureModel
from tailored.selection.structures import Independent
from tailored.tasks.rows import Scaling


@pytest.mark.parametrize("has_side", [False, True])
@pytest.mark.parametrize("has_intercept", [False, True])
def test_every_form_can_be_fitted(has_intercept, has_side, monkeypatch):
    tasks = make_clusters(30, n_clusters=2, n_rows=12, n_features=4, rank=1, random_state=0)
    units = Scaling.of(tasks, has_intercept, centre=True)
    v = np.random.default_rng(0).normal(size=(30, 2)) if has_side else None
    statistics, d = Moments.of(tasks, units, v), 4 + has_intercept
    groups = [Group(0, False, np.arange(2), np.eye(2))] if has_side else []
    monkeypatch.setattr(mixtures, "least_gain", lambda n: -np.inf)  # every group is relevant
    fitter = Training(statistics, [0], groups)
    forms = [*covariance_structures(d, has_intercept), *ridge_structures()]
    forms += [
        MixtureModel(n_components=2, has_gates=has_gates, truncation=threshold)
        for has_gates in {False, has_side}
        for threshold in TRUNCATIONS
    ]
    assert len(set(forms)) == len(forms)
    for form in forms:
        mixture = fitter.fit(form)
        assert mixture.n_components == form.n_components
        assert (mixture.gates is not None) == ("has_gates" in form.describe())
        assert np.linalg.eigvalsh(mixture.covariances).min() > -1e-9
        assert np.isfinite(statistics.posterior(mixture).log_evidence).all()
        W, covariance = mixture.covariances[0], form.describe().get("structure")
        if covariance == "none":
            assert not W.any()
        elif covariance == "diagonal":
            np.testing.assert_array_equal(W, np.diag(np.diag(W)))
        elif covariance == "intercept":
            assert W[-1, -1] > 0
            np.testing.assert_allclose(W[:-1], 0.0, atol=1e-12 * W[-1, -1])
    alone = fitter.fit(Independent(3.0))
    np.testing.assert_allclose(alone.covariances[0] / alone.noise, 3.0 * np.eye(d))
    # their noise is the most likely one for this ridge, so that its evidence can be compared
    evidence = [
        statistics.posterior(
            replace(alone, noise=f * alone.noise, covariances=f * alone.covariances)
        ).log_evidence.sum()
        for f in (0.9, 1.0, 1.1)
    ]
    assert evidence[1] > max(evidence[0], evidence[2])
