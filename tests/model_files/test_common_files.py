"""A common regressor in a model file: in the format of skops, and only read if the user trusts it."""

import io
import json
import sys
import time
import zipfile

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import small_models
from forging import forge, nodes
from tailored import EmpiricalBayesLearner, load
from tailored.exceptions import ModelFileError
from tailored.files.tree import dump_regressor, load_regressor

pytest.importorskip("skops.io", reason="a common regressor is saved in the format of skops")

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
Y = X[:, 0] ** 2 + X[:, 1]


@pytest.fixture(scope="module")
def fitted():
    return EmpiricalBayesLearner(common=Ridge()).fit(small_models.described())


@pytest.mark.filterwarnings("ignore:X. column 0 has the value")
def test_learners_and_models_are_read_by_whoever_trusts_them(fitted, tmp_path):
    tasks = small_models.described()
    fitted.save(tmp_path / "a")
    with pytest.raises(ModelFileError, match=r"can execute code. If you trust .*trust_regressor=True"):
        load(tmp_path / "a")
    again = load(tmp_path / "a", trust_regressor=True)
    np.testing.assert_array_equal(again.adapt_many(tasks).weights_, fitted.adapt_many(tasks).weights_)
    groups = [label for label, n in zip(tasks.labels, tasks.sizes, strict=True) for _ in range(n)]
    np.testing.assert_array_equal(again.predict(tasks.X, groups), fitted.predict(tasks.X, groups))
    ((weight, ridge),) = again.common_
    assert weight == fitted.common_[0][0]
    np.testing.assert_array_equal(ridge.coef_, fitted.common_[0][1].coef_)
    assert repr(again) == repr(fitted)
    model = fitted.adapt(X[:5], Y[:5], side_info=small_models.SIDE)
    model.save(tmp_path / "b")
    with pytest.raises(ModelFileError, match="trust_regressor=True"):
        load(tmp_path / "b")
    other = load(tmp_path / "b", trust_regressor=True)
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    np.testing.assert_array_equal(other.predict_interval(X, 0.5), model.predict_interval(X, 0.5))
    np.testing.assert_array_equal(
        other.update(X[5:], Y[5:]).predict(X), model.update(X[5:], Y[5:]).predict(X)
    )


@pytest.mark.parametrize(
    "regressor",
    [
        HistGradientBoostingRegressor(max_iter=5, loss="absolute_error"),
        RandomForestRegressor(5, random_state=0),
        make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()),
    ],
    ids=lambda regressor: type(regressor).__name__,
)
def test_regressors(regressor):
    regressor = regressor.fit(X, Y)
    content = dump_regressor(regressor, "common")
    np.testing.assert_array_equal(load_regressor(content, "common").predict(X), regressor.predict(X))


def test_a_regressor_that_cannot_be_read_again_is_not_saved(tmp_path):
    class Mine(LinearRegression):
        pass

    learner = EmpiricalBayesLearner(common=Mine()).fit(small_models.clusters())
    with pytest.raises(TypeError, match=r"common: skops cannot save Mine: .*Pickle the learner"):
        learner.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_damaged_regressor_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "a")

    def change(tree, arrays):
        name = nodes(tree, "regressor")[-1]
        arrays[name] = arrays[name][:-100].copy()

    forge(tmp_path / "a", change, tmp_path / "b")
    with pytest.raises(ModelFileError):
        load(tmp_path / "b", trust_regressor=True)

    def other(tree, arrays):
        from skops.io import dumps

        arrays[nodes(tree, "regressor")[-1]] = np.frombuffer(dumps([1, 2]), dtype=np.uint8)

    with pytest.raises(ModelFileError, match="must be a regressor, is list"):
        load(forge(tmp_path / "a", other, tmp_path / "b"), trust_regressor=True)


def archive(schema):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", schema)
    return content.getvalue()


def crafted_regressors():
    """Yield contents that end the process, hang, run out of memory or call a function, if they are read and used."""
    boosting = HistGradientBoostingRegressor(max_iter=2).fit(X, Y)
    boosting._predictors[0][0].nodes["feature_idx"] = 10**8
    yield dump_regressor(boosting, "common")
    for child in (0, 10**8):  # a tree whose root is its own child, and one that leaves its arrays
        forest = RandomForestRegressor(2, random_state=0).fit(X, Y)
        forest.estimators_[0].tree_.children_left[:] = child
        yield dump_regressor(forest, "common")
    yield archive(b" " * 2**28)
    called = {
        "__class__": "system",
        "__module__": "os",
        "__loader__": "FunctionNode",
        "__id__": 1,
        "content": "system",
    }
    yield archive(json.dumps({**called, "protocol": 2, "_skops_version": "0.13"}))


def test_crafted_regressors_are_not_read_without_trust(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "a")
    contents = list(crafted_regressors())
    monkeypatch.setitem(sys.modules, "skops.io", None)
    for content in contents:

        def change(tree, arrays, content=content):
            for name in nodes(tree, "regressor"):
                arrays[name] = np.frombuffer(content, dtype=np.uint8).copy()

        path, start = forge(tmp_path / "a", change, tmp_path / "b"), time.process_time()
        with pytest.raises(ModelFileError, match="trust_regressor=True"):
            load(path)
        assert time.process_time() - start < 2.0


def test_without_skops(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(TypeError, match=r"Ridge is saved in the format of skops; install the extra 'all'"):
        fitted.save(tmp_path / "b")
    with pytest.raises(ModelFileError, match=r"install the extra 'all'"):
        load(tmp_path / "a", trust_regressor=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
