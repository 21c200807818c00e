import pytest

import small_models
from folds import short_fits


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Return the path of the file of a small model by its name."""
    folder = tmp_path_factory.mktemp("models")

    def path(name):
        if not (folder / f"{name}.tailored").exists():
            with short_fits():
                small_models.save_all(folder, [name])
        return folder / f"{name}.tailored"

    return path
