"""Learners in one file, without pickle: parameters as JSON, arrays as NPZ, and a format version."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, feature_maps, losses
from .intervals import Calibration
from .representation.bias import Bias
from .representation.conditioning import Conditioning, Constant, Dense, Factored

FORMAT = 1

_ADVICE = (
    "compute the features yourself and pass them as side_info with feature_map='vector', "
    "or pickle the learner"
)


#: Fitted attributes that are kept where a learner has them.
_ATTRIBUTES = (
    "n_features_in_",
    "feature_names_in_",
    "n_side_",
    "validation_error_",
    "n_tasks_seen_",
    "within_loss_",
    "size_exponent_",
    "clip_",
    "scale_",
    "n_components_",
    "form_",
    "side_penalty_",
    "bias_penalty_",
)


def save(learner: Any, path: Any) -> None:
    """Write a fitted learner: what it needs to adapt, and no training rows.

    A feature map that is a callable or a scikit-learn transformer is code, not numbers; it cannot be
    written this way and is refused with the alternatives.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(learner, "conditioning_")
    arrays: dict[str, np.ndarray] = {}
    content = {"format": FORMAT, "version": __version__, **_Writer(arrays).learner("", learner)}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)  # type: ignore[arg-type]
    target = Path(path)
    # Written aside and moved into place: a run that dies while saving leaves the old file whole.
    partial = target.with_name(target.name + ".part")
    with zipfile.ZipFile(partial, "w") as archive:
        archive.writestr("learner.json", json.dumps(content, indent=1))
        archive.writestr("arrays.npz", buffer.getvalue())
    os.replace(partial, target)


def load(path: Any) -> Any:
    """Read a learner written by `save`: it adapts, represents and scores; it cannot go on learning."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read("learner.json"))
            with np.load(io.BytesIO(archive.read("arrays.npz")), allow_pickle=False) as stored:
                arrays = dict(stored)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ValueError(f"path: {path} is not a file written by tailored's save ({error})") from error
    if content["format"] > FORMAT:
        raise ValueError(
            f"path: {path} was written by tailored {content['version']} in format {content['format']}; "
            f"this version reads up to format {FORMAT}, please upgrade"
        )
    return _Reader(arrays).learner(content)


class _Writer:
    """Values as JSON; arrays go aside, under the name of the place they were found at."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def learner(self, prefix: str, learner: Any) -> dict[str, Any]:
        """A learner's arguments, and what it has learned if it is fitted."""
        content: dict[str, Any] = {
            "learner": type(learner).__name__,
            "parameters": self._items(f"{prefix}parameters", learner.get_params(deep=False)),
        }
        if not hasattr(learner, "conditioning_"):
            return content
        conditioning: Conditioning = learner.conditioning_
        bias: Bias = learner.bias_
        kept = {key: getattr(learner, key) for key in _ATTRIBUTES if hasattr(learner, key)}
        calibration = vars(learner.calibration_) if hasattr(learner, "calibration_") else None
        return content | {
            "feature_map": self.put(f"{prefix}feature_map", learner.feature_map_),
            "conditioning": {
                "kind": type(conditioning).__name__,
                "n_side": conditioning.n_side,
                "rank": getattr(conditioning, "rank", None),
                "arrays": self._items(f"{prefix}conditioning", conditioning.arrays()),
            },
            "bias": {"kind": bias.kind, "arrays": self._items(f"{prefix}bias", bias.arrays())},
            "attributes": self._items(f"{prefix}attributes", kept),
            "calibration": self.put(f"{prefix}calibration", calibration),
        }

    def put(self, name: str, value: Any) -> Any:
        """JSON for ``value``."""
        if isinstance(value, np.ndarray) and value.dtype != object:
            self.arrays[name] = value
            return {"array": name}
        if isinstance(value, np.ndarray | list | tuple):
            items = [self.put(f"{name}.{i}", item) for i, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, dict):
            return {"dict": self._items(name, value)}
        if isinstance(value, losses.Loss):
            return {"loss": [_name_of(losses.LOSSES, value), vars(value)]}
        if isinstance(value, feature_maps.FeatureMap):
            kind = _name_of(feature_maps.kinds(), value)
            return {"feature_map": [kind, self._items(name, value.state())]}
        if hasattr(value, "adapt_many") and not isinstance(value, type):
            return {"learner": self.learner(f"{name}.", value)}
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, str | int | float | bool):
            return value
        raise TypeError(
            f"{name}: {type(value).__name__} is code and cannot be saved without pickle; {_ADVICE}"
        )

    def _items(self, name: str, values: dict[str, Any]) -> dict[str, Any]:
        return {key: self.put(f"{name}.{key}", value) for key, value in values.items()}


class _Reader:
    """The way back."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def get(self, value: Any) -> Any:
        """The value that `_Writer.put` was given."""
        if isinstance(value, list):
            return [self.get(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, body),) = value.items()
        if kind == "array":
            return self.arrays[body]
        if kind == "tuple":
            return tuple(self.get(item) for item in body)
        if kind == "dict":
            return self._items(body)
        if kind == "loss":
            return losses.LOSSES[body[0]](**body[1])
        if kind == "learner":
            return self.learner(body)
        feature_map = feature_maps.kinds()[body[0]]()
        feature_map.restore(self._items(body[1]))
        return feature_map

    def _items(self, values: dict[str, Any]) -> dict[str, Any]:
        return {key: self.get(value) for key, value in values.items()}

    def learner(self, content: dict[str, Any]) -> Any:
        from . import learners
        from .baselines import earlier as rivals

        kind = getattr(learners, content["learner"], None) or getattr(rivals, content["learner"])
        learner = kind(**self._items(content["parameters"]))
        if "conditioning" not in content:
            return learner
        for key, value in self._items(content["attributes"]).items():
            setattr(learner, key, value)
        if hasattr(learner, "feature_names_in_"):
            learner.feature_names_in_ = np.asarray(learner.feature_names_in_, dtype=object)
        learner.loss_ = losses.get_loss(learner.loss)
        for key, default in (("within_loss_", learner.loss_), ("size_exponent_", 0), ("clip_", None)):
            if not hasattr(learner, key):
                setattr(learner, key, default)  # a file from before there was a practical algorithm
        calibration = self.get(content.get("calibration"))
        if calibration is not None:
            learner.calibration_ = Calibration(**calibration)
        learner.feature_map_ = self.get(content["feature_map"])
        learner.conditioning_ = self._conditioning(content["conditioning"])
        means = self._items(content["bias"]["arrays"])
        learner.bias_ = Bias(content["bias"]["kind"], len(means["constant"]), learner.conditioning_.n_side)
        learner.bias_.constant, learner.bias_.linear = means["constant"], means["linear"]
        return learner

    def _conditioning(self, content: dict[str, Any]) -> Conditioning:
        parts, n_side = self._items(content["arrays"]), content["n_side"]
        if content["kind"] == "Constant":
            return Constant(parts["C"], n_side)
        if content["kind"] == "Dense":
            return Dense(parts["H"], parts["C"])
        return Factored(parts["basis"], parts["eigenvalues"], parts["C"], n_side, content["rank"])


def _name_of(registry: dict[str, Any], value: Any) -> str:
    for name, kind in registry.items():
        if type(value) is kind:
            return name
    raise TypeError(
        f"feature_map: {type(value).__name__} is code and cannot be saved without pickle; {_ADVICE}"
    )
