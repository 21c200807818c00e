"""A common part in a model file: skops' format, of types that are listed."""

import json
import re
import sys
import zipfile
from io import BytesIO

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import golden_models
from forging import members_of, put_together
from tailored import EmpiricalBayesLearner, load
from tailored.archive.regressors import dump_regressor, load_regressor
from tailored.common import default_regressor
from tailored.exceptions import ModelFileError

pytest.importorskip("skops.io", reason="a common part is saved in skops' format")

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
Y = X[:, 0] ** 2 + X[:, 1]


@pytest.fixture(scope="module")
def fitted():
    return EmpiricalBayesLearner(common=Ridge()).fit(golden_models.described())


def test_learners_and_models_are_read_back(fitted, tmp_path):
    tasks = golden_models.described()
    fitted.save(tmp_path / "a")
    again = load(tmp_path / "a")
    np.testing.assert_array_equal(again.adapt_many(tasks), fitted.adapt_many(tasks))
    groups = [label for label, n in zip(tasks.labels, tasks.sizes, strict=True) for _ in range(n)]
    np.testing.assert_array_equal(again.predict(tasks.X, groups), fitted.predict(tasks.X, groups))
    np.testing.assert_array_equal(again.common_.coef_, fitted.common_.coef_)
    assert repr(again) == repr(fitted)
    side = {"age": 31.0, "job": "clerk"}
    model = fitted.adapt(X[:5], Y[:5], side_info=side)
    model.save(tmp_path / "b")
    other = load(tmp_path / "b")
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    np.testing.assert_array_equal(other.predict_interval(X, 0.5), model.predict_interval(X, 0.5))
    np.testing.assert_array_equal(
        other.update(X[5:], Y[5:]).predict(X), model.update(X[5:], Y[5:]).predict(X)
    )


@pytest.mark.parametrize(
    "regressor",
    [
        default_regressor(),
        HistGradientBoostingRegressor(max_iter=5, loss="absolute_error"),
        RandomForestRegressor(5, random_state=0),
        GradientBoostingRegressor(n_estimators=5),
        LinearRegression(),
        make_pipeline(StandardScaler(), PolynomialFeatures(2), Ridge()),
    ],
    ids=lambda regressor: type(regressor).__name__,
)
def test_regressors_of_the_list(regressor):
    regressor = regressor.fit(X, Y)
    content = dump_regressor(regressor, "common")
    np.testing.assert_array_equal(load_regressor(content).predict(X), regressor.predict(X))
    assert not any(row.tobytes() in content for row in X[:50])


def test_others_are_refused_at_save(tmp_path):
    """One that keeps the training rows, and one of the user's own."""
    learner = EmpiricalBayesLearner(common=KNeighborsRegressor(2)).fit(golden_models.clusters())
    with pytest.raises(
        TypeError, match=r"common: KNeighborsRegressor cannot be saved.*not among the types.*pickle"
    ):
        learner.save(tmp_path / "a")

    class Mine(LinearRegression):
        pass

    with pytest.raises(TypeError, match=r"common: Mine cannot be saved"):
        EmpiricalBayesLearner(common=Mine()).fit(golden_models.clusters()).save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def rezipped(content, change, method=zipfile.ZIP_STORED):
    """skops' archive with other members."""
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    file = BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, body in members.items():
            archive.writestr(name, body)
    return file.getvalue()


def renamed(**names):
    def change(members):
        tree = json.loads(members["schema.json"])
        tree.update(names)
        members["schema.json"] = json.dumps(tree).encode()

    return change


def function(members):
    """A node that would call a function of the system."""
    tree = json.loads(members["schema.json"])
    node = {
        "__loader__": "FunctionNode",
        "__module__": "os",
        "__class__": "system",
        "content": {},
        "__id__": 7,
    }
    tree["content"]["content"]["alpha"] = node
    members["schema.json"] = json.dumps(tree).encode()


def huge_array(members):
    name = next(
        name for name in members if b"'shape': (" in members[name] and b"'shape': ()" not in members[name]
    )
    shape = re.search(rb"\((\d+),", members[name])[0]
    members[name] = members[name].replace(shape, shape[:-1] + b"000000000,").replace(b" " * 9 + b"\n", b"\n")


@pytest.mark.parametrize(
    ("change", "method"),
    [
        (renamed(__module__="os", __class__="system"), zipfile.ZIP_STORED),
        (
            renamed(__module__="sklearn.neighbors._regression", __class__="KNeighborsRegressor"),
            zipfile.ZIP_STORED,
        ),
        (renamed(__loader__="MethodNode"), zipfile.ZIP_STORED),
        (renamed(__class__=["Ridge"]), zipfile.ZIP_STORED),
        (function, zipfile.ZIP_STORED),
        (huge_array, zipfile.ZIP_STORED),
        (lambda members: members.pop("schema.json"), zipfile.ZIP_STORED),
        (lambda members: members.update({"schema.json": b"[" * 100_000}), zipfile.ZIP_STORED),
        (lambda members: None, zipfile.ZIP_DEFLATED),
    ],
    ids=["system", "neighbours", "method", "a list", "function", "huge", "no tree", "deep", "deflated"],
)
def test_forged_regressors_are_refused(fitted, change, method, tmp_path):
    fitted.save(tmp_path / "a")
    members = members_of(tmp_path / "a")
    name = [name for name in members if name.endswith(".skops")][-1]  # a fitted one
    members[name] = rezipped(members[name], change, method)
    with pytest.raises(ModelFileError) as caught:
        load(put_together(tmp_path / "b", members))
    assert "cannot be read:" not in caught.value.reason


@pytest.mark.parametrize(
    "regressor",
    [
        HistGradientBoostingRegressor(max_iter=3, early_stopping=False),
        RandomForestRegressor(3, random_state=0),
    ],
    ids=lambda regressor: type(regressor).__name__,
)
def test_trees_whose_links_lead_nowhere_are_refused(regressor):
    """Compiled loops would follow them out of the array, or for ever."""
    content = dump_regressor(regressor.fit(X, Y), "common")
    with zipfile.ZipFile(BytesIO(content)) as archive:
        arrays = {
            name: np.load(BytesIO(archive.read(name))) for name in archive.namelist() if name.endswith(".npy")
        }
    forged = 0
    for name, nodes in arrays.items():
        left = "left" if "left" in (nodes.dtype.names or ()) else "left_child"
        if left not in (nodes.dtype.names or ()):
            continue
        feature = "feature_idx" if left == "left" else "feature"
        for field, value in ((left, 0), (left, len(nodes)), (feature, 77)):
            changed = nodes.copy()
            changed[field][0] = value
            file = BytesIO()
            np.save(file, changed)
            with pytest.raises(ValueError, match="regressors: holds a tree whose links lead nowhere"):
                load_regressor(
                    rezipped(content, lambda members, f=file, n=name: members.update({n: f.getvalue()}))
                )
            forged += 1
    assert forged >= 9


def test_without_skops(fitted, tmp_path, monkeypatch):
    fitted.save(tmp_path / "a")
    monkeypatch.setitem(sys.modules, "skops.io", None)
    with pytest.raises(TypeError, match=r"Ridge is saved in skops' format; install tailored\[common\]"):
        fitted.save(tmp_path / "b")
    with pytest.raises(ModelFileError, match=r"skops' format; install tailored\[common\]"):
        load(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
