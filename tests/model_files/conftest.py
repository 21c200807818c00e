import warnings

import pytest

import small_models


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Give the path of the file of a small model by its name; models are fitted once."""
    folder, fitted = tmp_path_factory.mktemp("models"), set()

    def path(name):
        if name not in fitted:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                small_models.save_all(folder, [name])
            fitted.add(name)
        return folder / f"{name}.tailored"

    return path
