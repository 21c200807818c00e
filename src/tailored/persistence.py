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
from .bias import Bias
from .conditioning import Conditioning, Constant, Dense, Factored

FORMAT = 1

_ADVICE = (
    "compute the features yourself and pass them as side_info with feature_map='vector', "
    "or pickle the learner"
)


def save(learner: Any, path: Any) -> None:
    """Write a fitted learner: what it needs to adapt, and no training rows.

    A feature map that is a callable or a scikit-learn transformer is code, not numbers; it cannot be
    written this way and is refused with the alternatives.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(learner, "conditioning_")
    arrays: dict[str, np.ndarray] = {}

    def put(name: str, value: Any) -> Any:
        """JSON for ``value``; arrays go aside under ``name``."""
        if isinstance(value, np.ndarray) and value.dtype != object:
            arrays[name] = value
            return {"array": name}
        if isinstance(value, np.ndarray | list | tuple):
            items = [put(f"{name}.{i}", item) for i, item in enumerate(value)]
            return {"tuple": items} if isinstance(value, tuple) else items
        if isinstance(value, dict):
            return {"dict": {key: put(f"{name}.{key}", item) for key, item in value.items()}}
        if isinstance(value, losses.Loss):
            return {"loss": [_name_of(losses.LOSSES, value), vars(value)]}
        if isinstance(value, feature_maps.FeatureMap):
            state = {key: put(f"{name}.{key}", item) for key, item in value.state().items()}
            return {"feature_map": [_name_of(feature_maps.kinds(), value), state]}
        if isinstance(value, np.generic):
            return value.item()
        if value is None or isinstance(value, str | int | float | bool):
            return value
        raise TypeError(
            f"{name}: {type(value).__name__} is code and cannot be saved without pickle; {_ADVICE}"
        )

    conditioning: Conditioning = learner.conditioning_
    bias: Bias = learner.bias_
    content = {
        "format": FORMAT,
        "version": __version__,
        "learner": type(learner).__name__,
        "parameters": {key: put(f"parameters.{key}", value) for key, value in learner.get_params().items()},
        "feature_map": put("feature_map", learner.feature_map_),
        "conditioning": {
            "kind": type(conditioning).__name__,
            "n_side": conditioning.n_side,
            "rank": getattr(conditioning, "rank", None),
            "arrays": {k: put(f"conditioning.{k}", v) for k, v in conditioning.arrays().items()},
        },
        "bias": {"kind": bias.kind, "arrays": {k: put(f"bias.{k}", v) for k, v in bias.arrays().items()}},
        "attributes": {
            key: put(f"attributes.{key}", getattr(learner, key))
            for key in (
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
            if hasattr(learner, key)
        },
    }
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
    from . import learners, rivals

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

    def get(value: Any) -> Any:
        if isinstance(value, list):
            return [get(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((kind, body),) = value.items()
        if kind == "array":
            return arrays[body]
        if kind == "tuple":
            return tuple(get(item) for item in body)
        if kind == "dict":
            return {key: get(item) for key, item in body.items()}
        if kind == "loss":
            return losses.LOSSES[body[0]](**body[1])
        feature_map = feature_maps.kinds()[body[0]]()
        feature_map.restore({key: get(item) for key, item in body[1].items()})
        return feature_map

    kind = getattr(learners, content["learner"], None) or getattr(rivals, content["learner"])
    learner = kind(**{key: get(value) for key, value in content["parameters"].items()})
    for key, value in content["attributes"].items():
        setattr(learner, key, get(value))
    if hasattr(learner, "feature_names_in_"):
        learner.feature_names_in_ = np.asarray(learner.feature_names_in_, dtype=object)
    learner.loss_ = losses.get_loss(learner.loss)
    for key, default in (("within_loss_", learner.loss_), ("size_exponent_", 0), ("clip_", None)):
        if not hasattr(learner, key):
            setattr(learner, key, default)  # a file from before there was a practical algorithm
    learner.feature_map_ = get(content["feature_map"])
    stored_conditioning = content["conditioning"]
    parts = {key: get(value) for key, value in stored_conditioning["arrays"].items()}
    n_side = stored_conditioning["n_side"]
    kinds: dict[str, Any] = {
        "Constant": lambda: Constant(parts["C"], n_side),
        "Dense": lambda: Dense(parts["H"], parts["C"]),
        "Factored": lambda: Factored(
            parts["basis"], parts["eigenvalues"], parts["C"], n_side, stored_conditioning["rank"]
        ),
    }
    learner.conditioning_ = kinds[stored_conditioning["kind"]]()
    means = {key: get(value) for key, value in content["bias"]["arrays"].items()}
    learner.bias_ = Bias(content["bias"]["kind"], len(means["constant"]), n_side)
    learner.bias_.constant, learner.bias_.linear = means["constant"], means["linear"]
    return learner


def _name_of(registry: dict[str, Any], value: Any) -> str:
    for name, kind in registry.items():
        if type(value) is kind:
            return name
    raise TypeError(
        f"feature_map: {type(value).__name__} is code and cannot be saved without pickle; {_ADVICE}"
    )
