"""Nothing may be written past Python: LAPACK has messages of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _nothing_on_the_terminal(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    assert "".join(capfd.readouterr()) == ""
