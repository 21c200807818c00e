"""What several files of tests use."""

import pytest

from tailored.mixed_models import fit_mixed_model, forms


@pytest.fixture
def few_steps(monkeypatch):
    """EM stops early in the recommended learner: for statements that do not hang on how far it went."""

    def short(statistics, **given):
        return fit_mixed_model(statistics, **{**given, "max_iter": 5})

    monkeypatch.setattr(forms, "fit_mixed_model", short)
