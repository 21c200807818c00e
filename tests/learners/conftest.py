"""Fixtures of these tests."""

import pytest

from tailored.datasets import make_clusters


@pytest.fixture(scope="session")
def clusters():
    return make_clusters(40, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)
