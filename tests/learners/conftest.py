"""Fixtures of these tests."""

import pytest

from tailored.datasets import make_clusters


@pytest.fixture(scope="session")
def clusters():
    return make_clusters(40, n_clusters=3, n_rows=20, n_features=6, rank=2, random_state=1)


@pytest.fixture
def nothing_on_the_terminal(capfd):
    """Fail if LAPACK writes a message past Python."""
    yield
    assert "".join(capfd.readouterr()) == ""
