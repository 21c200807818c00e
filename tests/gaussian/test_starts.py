"""Where EM starts: groups of tasks by k-means, against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.cluster import KMeans

from tailored.gaussian.starts import _group, _kmeans


def test_groups_are_those_of_k_means():
    """Clusters at very different distances from the origin, which enters the squared distances."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [3.0, 1.0], [12.0, -9.0]])
    points = np.repeat(centres, 20, axis=0) + 0.3 * rng.normal(size=(60, 2))
    expected = KMeans(3, n_init=10, random_state=0).fit(points)
    tries = [_kmeans(points, 3, np.random.default_rng(seed)) for seed in range(8)]
    assert min(spread for _, spread in tries) == pytest.approx(expected.inertia_, rel=1e-9)
    labels = _group(points, 3, np.random.default_rng(0), n_tries=8)
    assert len({(int(a), int(b)) for a, b in zip(labels, expected.labels_, strict=True)}) == 3
