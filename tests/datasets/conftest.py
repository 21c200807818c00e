"""Fixtures of these tests."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def quiet_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAILORED_DATA", "TAILORED_DATA_HOME", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
