import pytest

import small_models


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Return the path of the file of a small model by its name."""
    folder = tmp_path_factory.mktemp("models")

    def path(name):
        if not (folder / name).exists():
            small_models.model(name).save(folder / name)
        return folder / name

    return path
