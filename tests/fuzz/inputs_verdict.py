"""What counts as a failure: see `FAILURES`."""

from __future__ import annotations

import os
import re
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

FAILURES = """an exception that is no ValueError or TypeError, or one that another library raised inside (LinAlgError
is a ValueError and counts); a message that names no argument; a RuntimeWarning; a warning before an error; NaN or infinity in
a result (but an interval that a warning says is not kept);
crossed ends of an interval; anything on the terminal; a failed call that changed the learner"""

#: Arguments that messages name.
ARGUMENTS = re.compile(
    r"\b(X|y|groups|side_info|tasks|query|support|labels|coverage|loss|validation|validation_fraction|step_size|"
    r"step|solver|task|target|feature_map|sample_weight|frequency_weight|exposure|columns|order|representation|bias|frame|partial_fit|fit)\b"
)
#: Where an exception may come from: this package, or scikit-learn's own checks of arguments.
OURS = re.compile(r"[/\\]tailored[/\\]|sklearn[/\\]utils[/\\]|sklearn[/\\]base\.py")
#: scikit-learn's checks of shapes, whose messages name no argument.
OF_SCIKIT_LEARN = (
    "Expected 2D array",
    "Found array with",
    "dtype='numeric'",
    "Reshape your data",
    "inconsistent numbers of samples",
)


#: Of the calls of this process.
OUTCOMES: Counter[str] = Counter()


class Failure(AssertionError):
    """What went wrong, in words."""


class Terminal:
    """The file descriptors of the terminal, which LAPACK writes to by itself."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.size = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Keep what is written meanwhile in a file."""
        kept = [os.dup(1), os.dup(2)]
        for stream in (1, 2):
            os.dup2(self.file.fileno(), stream)
        try:
            yield
        finally:
            for stream, old in zip((1, 2), kept, strict=True):
                os.dup2(old, stream)
                os.close(old)

    def written(self) -> str:
        """What came since the last question."""
        size = os.fstat(self.file.fileno()).st_size
        if size == self.size:
            return ""
        text = os.pread(self.file.fileno(), size - self.size, self.size).decode(errors="replace")
        self.size = size
        return text

    def close(self) -> None:
        self.file.close()


def attempt(call: Callable[[], Any], learner: Any = None) -> Any:
    """The result of a call; None where it refused in the way it should; `Failure` otherwise."""
    before = dict(vars(learner)) if learner is not None else {}
    refusal = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            found = call()
            OUTCOMES["a result"] += 1
        except Failure:
            raise
        except Exception as error:
            check_refusal(error)
            OUTCOMES["refused"] += 1
            refusal = str(error)[:160]
            if learner is not None:
                check_unchanged(before, vars(learner))
            found = None
    for warning in caught:
        if issubclass(warning.category, RuntimeWarning) or "LinAlg" in warning.category.__name__:
            raise Failure(
                f"{warning.category.__name__}: {warning.message} ({short(warning.filename)}:{warning.lineno})"
            )
        if refusal:
            raise Failure(f"a warning before an error: {warning.message} | {refusal}")
    return found


def check_refusal(error: Exception) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    at = f"{short(frames[-1].filename)}:{frames[-1].lineno}"
    text = f"{type(error).__name__}: {str(error)[:160]} ({at})"
    if not isinstance(error, ValueError | TypeError) or isinstance(
        error, np.linalg.LinAlgError | UnicodeError
    ):
        raise Failure(text) from error
    if not OURS.search(frames[-1].filename):
        raise Failure(f"from elsewhere: {text}") from error
    if not ARGUMENTS.search(str(error)) and not any(
        words in str(error) for words in OF_SCIKIT_LEARN
    ):
        raise Failure(f"names no argument: {text}") from error


def check_unchanged(before: dict[str, Any], after: dict[str, Any]) -> None:
    changed = {k for k in before.keys() | after.keys() if before.get(k) is not after.get(k)}
    if changed:
        raise Failure(f"a failed call changed {sorted(changed)}")


def short(path: str) -> str:
    return "/".join(path.replace("\\", "/").split("/")[-2:])


def check_finite(what: str, values: Any) -> None:
    values = np.asarray(values, dtype=float)
    if not np.isfinite(values).all():
        worst = values[~np.isfinite(values)].ravel()[0]
        raise Failure(f"{what} has {worst}")


def check_ends(ends: np.ndarray) -> None:
    check_finite("interval", ends)
    if (ends[:, 0] > ends[:, 1]).any():
        raise Failure("ends of an interval are crossed")
