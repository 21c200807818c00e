"""The common part: a fitted regressor of scikit-learn, in skops' format, of types that are listed here.

skops builds objects from a list of types instead of running a pickle.  Its archive is looked at before it is given to
skops: every type in it must be on our list, which holds no regressor that keeps training rows, and nothing may be larger
than the file.  Trees are walked afterwards: scikit-learn's compiled loops follow their links without looking.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from .container import Broken
from .tree import MOST_JSON, Unstorable

#: Regressors, and what may stand before them in a pipeline.
ESTIMATORS = {
    "sklearn.dummy.DummyRegressor",
    "sklearn.ensemble._forest.ExtraTreesRegressor",
    "sklearn.ensemble._forest.RandomForestRegressor",
    "sklearn.ensemble._gb.GradientBoostingRegressor",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting.HistGradientBoostingRegressor",
    "sklearn.linear_model._base.LinearRegression",
    "sklearn.linear_model._bayes.BayesianRidge",
    "sklearn.linear_model._coordinate_descent.ElasticNet",
    "sklearn.linear_model._coordinate_descent.ElasticNetCV",
    "sklearn.linear_model._coordinate_descent.Lasso",
    "sklearn.linear_model._coordinate_descent.LassoCV",
    "sklearn.linear_model._huber.HuberRegressor",
    "sklearn.linear_model._quantile.QuantileRegressor",
    "sklearn.linear_model._ridge.Ridge",
    "sklearn.linear_model._ridge.RidgeCV",
    "sklearn.pipeline.Pipeline",
    "sklearn.preprocessing._data.MinMaxScaler",
    "sklearn.preprocessing._data.StandardScaler",
    "sklearn.preprocessing._polynomial.PolynomialFeatures",
    "sklearn.tree._classes.DecisionTreeRegressor",
    "sklearn.tree._classes.ExtraTreeRegressor",
}
#: Parts of these.
PARTS = {
    "sklearn._loss.link.IdentityLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.loss.AbsoluteError",
    "sklearn._loss.loss.HalfSquaredError",
    "sklearn._loss.loss.HuberLoss",
    "sklearn._loss.loss.PinballLoss",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
}
#: Compiled losses of these, of `sklearn._loss._loss`.
LOSSES = ("CyAbsoluteError", "CyHalfSquaredError", "CyHuberLoss", "CyPinballLoss")
#: Types by what skops builds them with; anything else in a file, but for the losses, is refused.
TRUSTED: dict[str, set[str]] = {
    "ObjectNode": ESTIMATORS | PARTS,
    "TreeNode": {"sklearn.tree._tree.Tree"},
    "DictNode": {"builtins.dict"},
    "ListNode": {"builtins.list"},
    "TupleNode": {"builtins.tuple"},
    "JsonNode": {"builtins.str"},
    "TypeNode": {"builtins.str"},
    "NdArrayNode": {
        f"numpy.{name}"
        for name in (
            "ndarray",
            "float64",
            "float32",
            "int64",
            "int32",
            "uint64",
            "uint32",
            "uint8",
            "bool",
            "bool_",
        )
    },
    "RandomStateNode": {"numpy.random.mtrand.RandomState"},
    "RandomGeneratorNode": {"numpy.random._generator.Generator"},
}
#: Lists within lists in skops' tree.
DEEPEST = 300


def dump_regressor(value: Any, place: str) -> bytes:
    """Bytes of a regressor in skops' format, if all of its types are listed."""
    try:
        from skops.io import dumps
    except ImportError:
        raise TypeError(
            f"{place}: {type(value).__name__} is saved in skops' format; install tailored[common], or pickle the learner"
        ) from None
    try:
        content: bytes = dumps(value)
        names = _untrusted(_checked_archive(content))
    except (Broken, TypeError, ValueError, AttributeError) as error:
        raise Unstorable(place, value) from error
    if names:
        raise TypeError(
            f"{place}: {type(value).__name__} cannot be saved without pickle: it holds {', '.join(names)}, "
            "which are not among the types that a file may name (tailored.archive.regressors); pickle the learner, or take "
            "a linear model, trees or a booster of scikit-learn as common"
        )
    return content


def load_regressor(content: bytes) -> Any:
    """The regressor that `dump_regressor` wrote."""
    try:
        from skops.io import get_untrusted_types, loads
    except ImportError:
        raise Broken("regressors", "the common part is in skops' format; install tailored[common]") from None
    names = _untrusted(_checked_archive(content))
    if names:
        raise Broken("regressors", f"names types that are not read: {', '.join(names)}")
    try:
        found = loads(content, trusted=[name for name in get_untrusted_types(data=content) if name in _ALL])
    except Exception as error:
        raise Broken("regressors", f"cannot be built: {type(error).__name__}: {error}") from error
    if _type_name(found) not in ESTIMATORS or not hasattr(found, "predict"):
        raise Broken("regressors", "is no regressor")
    _check_trees(found, None, 0)
    return found


_ALL = frozenset().union(*TRUSTED.values())


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


# --- before skops sees it


def _checked_archive(content: bytes) -> Any:
    """skops' tree, if nothing in its archive is deflated, repeated or larger than it may be."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            entries = archive.infolist()
            if len({entry.filename for entry in entries}) != len(entries):
                raise Broken("regressors", "has a member twice")
            for entry in entries:
                if entry.compress_type != zipfile.ZIP_STORED or entry.flag_bits & 1:
                    raise Broken("regressors", "is compressed or encrypted, which save does not do")
            if sum(entry.file_size for entry in entries) > len(content):
                raise Broken("regressors", "is larger than it is")
            for entry in entries:
                if entry.filename != "schema.json":
                    _check_array(archive.read(entry))
            if archive.getinfo("schema.json").file_size > MOST_JSON:
                raise Broken("regressors", "has too large a tree")
            return json.loads(archive.read("schema.json"))
    except Broken:
        raise
    except Exception as error:
        raise Broken("regressors", f"is not in skops' format: {type(error).__name__}: {error}") from error


def _check_array(body: bytes) -> None:
    """A member that is an array holds as many bytes as its header says."""
    file = io.BytesIO(body)
    version = np.lib.format.read_magic(file)
    if version != (1, 0):
        raise Broken("regressors", "holds an array in a format that save does not write")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    if dtype.hasobject or int(np.prod(shape, dtype=object)) * dtype.itemsize != len(body) - file.tell():
        raise Broken("regressors", "holds an array of another size than it says")


def _untrusted(tree: Any) -> list[str]:
    """Names of types in skops' tree that are not on the list."""
    listed = {**TRUSTED, "LossNode": _losses()}
    return sorted({name for loader, name in _types(tree, 0) if name not in listed.get(loader, ())})


@cache
def _losses() -> frozenset[str]:
    """The compiled losses by the address that this scikit-learn gives them: before 1.9 it is that of no package."""
    from sklearn._loss import _loss

    return frozenset(f"{getattr(_loss, name).__module__}.{name}" for name in LOSSES)


def _types(node: Any, depth: int) -> Iterator[tuple[str, str]]:
    """The loader and the type of every object in skops' tree."""
    if depth > DEEPEST:
        raise Broken("regressors", "is nested too deeply")
    if isinstance(node, dict):
        if {"__loader__", "__module__", "__class__"} & set(node):
            loader, module, name = (str(node.get(f"__{part}__")) for part in ("loader", "module", "class"))
            # numpy and scikit-learn give some of their types a shorter address than that of their file
            yield loader[:80], f"{module}.{name}"[:200]
        for part in node.values():
            yield from _types(part, depth + 1)
    elif isinstance(node, list):
        for part in node:
            yield from _types(part, depth + 1)


# --- after skops has built it


def _check_trees(value: Any, n_columns: int | None, depth: int) -> None:
    """Every tree in a regressor ends in leaves and asks for columns that are there."""
    if depth > DEEPEST:
        raise Broken("regressors", "is nested too deeply")
    name = _type_name(value)
    if name == "sklearn.tree._tree.Tree":
        leaf = value.children_left < 0
        same = (value.children_right < 0) == leaf
        _check_links(value.children_left, value.children_right, value.feature, leaf, n_columns)
        if not same.all() or value.n_features != n_columns or value.n_outputs != 1:
            raise Broken("regressors", "holds a tree that is none")
    elif name.endswith(".TreePredictor"):
        _check_predictor(value, n_columns)
    elif isinstance(value, np.ndarray):
        if value.dtype == object:
            for part in value.ravel():
                _check_trees(part, n_columns, depth + 1)
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            _check_trees(part, n_columns, depth + 1)
    elif hasattr(value, "__dict__"):
        own = vars(value).get("n_features_in_")
        if name.startswith(("sklearn.ensemble.", "sklearn.tree.")) and own is not None:
            if type(own) is not int or own < 1 or (n_columns is not None and own != n_columns):
                raise Broken("regressors", "holds trees of other columns than the rest")
            n_columns = own
        elif name == "sklearn.pipeline.Pipeline":
            n_columns = None
        for part in vars(value).values():
            _check_trees(part, n_columns, depth + 1)


def _check_predictor(value: Any, n_columns: int | None) -> None:
    from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE

    nodes = value.nodes
    if not isinstance(nodes, np.ndarray) or nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1:
        raise Broken("regressors", "holds a tree that is none")
    if nodes["is_categorical"].any():
        raise Broken("regressors", "holds a tree of categories, which a common part has none of")
    leaf = nodes["is_leaf"].astype(bool)
    _check_links(nodes["left"], nodes["right"], nodes["feature_idx"], leaf, n_columns)


def _check_links(left: Any, right: Any, feature: Any, leaf: Any, n_columns: int | None) -> None:
    """Children stand behind their parents, so that every way down ends, and no link leads out."""
    own = np.arange(len(leaf))
    inner = ~leaf
    fine = len(leaf) > 0 and n_columns is not None
    for child in (left, right):
        child = np.asarray(child, dtype=np.int64)
        fine = fine and bool(((child > own) & (child < len(leaf)))[inner].all())
    columns = np.asarray(feature, dtype=np.int64)[inner]
    if not fine or (columns < 0).any() or (columns >= (n_columns or 0)).any():
        raise Broken("regressors", "holds a tree whose links lead nowhere")
