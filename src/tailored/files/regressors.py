"""Write and read shared scikit-learn regressors in the skops format."""

from __future__ import annotations

from typing import Any

from .checks import Invalid


def is_regressor(value: Any) -> bool:
    """Return whether an object is an estimator, to be stored with skops."""
    return hasattr(value, "predict") and hasattr(value, "get_params") and not isinstance(value, type)


def dump_regressor(value: Any, place: str) -> bytes:
    """Return a regressor as bytes in the skops format."""
    name = type(value).__name__
    try:
        from skops.io import dumps, loads
    except ImportError:
        raise TypeError(
            f"{place}: {name} is saved in the format of skops; install tailored[all], or pickle the learner"
        ) from None
    try:
        content: bytes = dumps(value)
        # Some objects cannot be read back, such as instances of a class defined inside a function.
        loads(content, trusted=_types_in(content))
    except Exception as error:
        raise TypeError(
            f"{place}: skops cannot save {name}: {error}. Pickle the learner, or use another regressor."
        ) from error
    return content


def load_regressor(content: bytes, place: str) -> Any:
    """Read a regressor; this can execute code, so the caller must trust its author."""
    try:
        from skops.io import loads
    except ImportError:
        raise Invalid(place, "is a regressor in skops format; install tailored[all] to read it") from None
    regressor = loads(content, trusted=_types_in(content))
    if not is_regressor(regressor):
        raise Invalid(place, f"must be a regressor, is {type(regressor).__name__}")
    return regressor


def _types_in(content: bytes) -> list[str]:
    from skops.io import get_untrusted_types

    return list(get_untrusted_types(data=content))
