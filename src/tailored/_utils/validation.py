"""Argument checks, whose errors name the argument."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeGuard

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array, check_random_state

from .progress import one_line

#: A seed, a RandomState or None, as in scikit-learn, or a Generator of NumPy.
RandomState = int | np.random.RandomState | np.random.Generator | None


def check_choice(name: str, value: object, registry: Iterable[str], also: str = "") -> str:
    """Return `value` if it is a name in `registry`; otherwise raise ValueError with the names and
    the closest match.

    ``also`` describes further values that the argument may have.
    """
    valid = list(registry)
    if isinstance(value, str) and value in valid:
        return value
    words = [word for word in valid if isinstance(word, str)]  # column names may have any type
    near = difflib.get_close_matches(value.lower(), words, n=1) if isinstance(value, str) else []
    hint = f" Did you mean {near[0]!r}?" if near else ""
    allowed = ", ".join(map(repr, valid)) + (f", or {also}" if also else "")
    allowed = allowed or "the columns, but there are none"
    raise ValueError(f"{name} must be one of {allowed}; got {value!r}.{hint}")


def check_real(
    name: str,
    value: object,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    strict: bool = False,
) -> float:
    """Return `value` as a finite float between `low` and `high`, both excluded if `strict`."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number; got {value!r} of type {type(value).__name__}.")
    number = float(value)
    inside = low < number < high if strict else low <= number <= high
    if not (math.isfinite(number) and inside):
        bounds = f" {'>' if strict else '>='} {low:g}" if low > -math.inf else ""
        if high < math.inf:
            bounds = f" in {'(' if strict else '['}{low:g}, {high:g}{')' if strict else ']'}"
        raise ValueError(f"{name} must be a finite number{bounds}; got {value!r}.")
    return number


def check_positive(name: str, value: object) -> float:
    """Return `value` as a finite float above zero."""
    return check_real(name, value, 0.0, strict=True)


def check_nonnegative(name: str, value: object) -> float:
    """Return `value` as a finite float that is zero or more."""
    return check_real(name, value, 0.0)


def check_fraction(name: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    return check_real(
        name, value, 0.0, 1.0 - 1e-15, strict=True
    )  # (1 + value) / 2 must be below 1, too


def is_integer(value: object) -> TypeGuard[int]:
    """Return whether `value` is a Python or NumPy integer; booleans do not count."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool | np.bool_)


def check_int(name: str, value: object, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`."""
    if not is_integer(value):
        raise TypeError(f"{name} must be an integer; got {value!r} of type {type(value).__name__}.")
    if value < minimum:
        raise ValueError(f"{name} must be an integer >= {minimum}; got {value!r}.")
    return int(value)


def check_rng(random_state: RandomState) -> np.random.RandomState | np.random.Generator:
    """Return a random generator like scikit-learn's `check_random_state`; a NumPy Generator is also
    accepted.
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    try:
        return check_random_state(random_state)
    except ValueError as error:
        raise ValueError(f"random_state: {error}") from None


def check_psd(theta: Any, name: str = "theta", d: int | None = None) -> np.ndarray:
    """Return `theta` symmetrised, after checking that it is a (d, d) positive semidefinite matrix.

    Tolerances for rounding: 1e-8 times the largest entry for asymmetry, and 1e-8 times the largest
    eigenvalue for negative eigenvalues.
    """
    theta = check_array(theta, dtype=np.float64, input_name=name)
    want = theta.shape[0] if d is None else d
    if theta.shape != (want, want):
        raise ValueError(f"{name} must be a ({want}, {want}) matrix; got shape {theta.shape}.")
    gap = float(np.abs(theta - theta.T).max())
    if gap > 1e-8 * float(np.abs(theta).max()):
        raise ValueError(
            f"{name} must be symmetric, but {name} - {name}.T has an entry of size {gap:.3g}. Pass "
            f"({name} + {name}.T) / 2 if that is what you mean."
        )
    # Entries are halved first, because the sum of two entries near the largest float would
    # overflow.
    theta = 0.5 * theta + 0.5 * theta.T
    values = np.linalg.eigvalsh(theta)
    if values[0] < -1e-8 * max(values[-1], 0.0):
        raise ValueError(
            f"{name} must be positive semidefinite, but its smallest eigenvalue is {values[0]:.3g} "
            f"(largest: {values[-1]:.3g}). Set negative eigenvalues to zero, or add "
            f"{-values[0]:.3g} to the diagonal."
        )
    return theta


def check_shape(name: str, array: np.ndarray, *shape: int | None) -> None:
    """Raise a ValueError unless an array has this shape; None stands for any length."""
    fits = array.ndim == len(shape) and all(
        n in (None, m) for m, n in zip(array.shape, shape, strict=True)
    )
    if not fits:
        expected = ", ".join("any" if n is None else str(n) for n in shape)
        raise ValueError(f"{name}: expected an array of shape ({expected}), got {array.shape}")


@contextmanager
def numbers_of(name: str) -> Iterator[None]:
    """Add the argument's name to errors of scikit-learn and NumPy that lack it, and ignore overflow
    in checks for NaN.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    except ValueError as error:
        if re.search(r"\b[Xy]\b", str(error)):
            raise
        raise ValueError(f"{name}: {error}") from error


def refuse_masked(name: str, values: object) -> None:
    """Raise ValueError if a masked array has masked values, because NumPy would ignore the mask."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise ValueError(
            f"{name} is a masked array with {np.ma.count_masked(values)} masked values. Drop or "
            "fill these values."
        )


def check_features(X: Any, min_rows: int = 1) -> Any:
    """Return `X` as a 2-D C-contiguous float64 array, or as a canonical float64 CSR array if it is
    sparse.

    NaN and infinity are accepted here: `check_finite` reports them when their task is known.
    A dense result may share memory with `X`; a sparse one never does.
    """
    # scikit-learn's check costs more than adapting a small task; skip it if it would change nothing
    if (
        type(X) is np.ndarray
        and X.dtype == np.float64
        and X.ndim == 2
        and X.shape[0] >= min_rows
        and X.size
    ):
        return np.ascontiguousarray(X)
    refuse_masked("X", X)
    with numbers_of("X"):
        X = check_array(
            X,
            accept_sparse="csr",
            ensure_all_finite=False,
            ensure_min_samples=min_rows,
            ensure_min_features=0,
            input_name="X",
        )
    if X.dtype.kind not in "biuf":
        raise ValueError(
            f"X must hold numbers, but its dtype is {X.dtype}. Encode its columns as numbers."
        )
    return canonical_csr(X) if sp.issparse(X) else np.ascontiguousarray(X, dtype=np.float64)


def canonical_csr(X: Any) -> sp.csr_array:
    """Return a float64 copy of `X` with sorted, unique column indices, of 32 bits if they fit."""
    X = sp.csr_array(X, dtype=np.float64, copy=True)
    X.sum_duplicates()
    # 32-bit indices wherever possible, so that Numba compiles one specialisation
    if max(X.nnz, *X.shape) < np.iinfo(np.int32).max:
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def check_finite(
    values: Any,
    name: str,
    where: Callable[[int], str] = "row {}".format,
    columns: Sequence[Any] | np.ndarray | None = None,
    advice: str = "Drop those rows, or fill the values in.",
) -> None:
    """Raise ValueError if an array (n,) or (n, d), dense or CSR, has NaN or infinity; the error
    gives the first position.

    ``where`` returns the description of a row from its index.  ``columns`` are column names; the
    default is their numbers.
    """
    flat = values.data if sp.issparse(values) else values
    # A finite sum shows that all values are finite, without a boolean copy of the array.
    with np.errstate(over="ignore", invalid="ignore"):
        if math.isfinite(flat.sum()):
            return
    bad = ~np.isfinite(flat)
    if not bad.any():
        return
    if sp.issparse(values):  # the stored entries have the same order in COO format
        rows, *column = (axis[bad] for axis in values.tocoo().coords)
    else:
        rows, *column = np.nonzero(bad)
    where_column = "".join(
        f", column {j[0] if columns is None else repr(columns[j[0]])}" for j in column
    )
    what = "NaN"
    if not np.isnan(flat[bad][0]):
        what = "infinity or a value too large for dtype('float64')"
        advice = "Remove or replace these values."
    count = len(np.unique(rows))
    more = f" ({count} such rows in all)" if count > 1 else ""
    raise ValueError(
        f"Input {name} contains {what}: {where(int(rows[0]))}{where_column}{more}. {advice}"
    )


def native(labels: np.ndarray) -> list[Any]:
    """Return labels as Python objects, for keys and messages, but dates as NumPy scalars."""
    # datetime64 would come back as an integer or a datetime, depending on its unit
    return list(labels) if labels.dtype.kind in "mM" else labels.tolist()


def name_some(labels: Iterable[Any], limit: int = 5) -> str:
    """Return the first labels, at most ``limit``, and the number of further labels as text."""
    return list_some(
        (
            repr(v.item() if isinstance(v, np.generic) and v.dtype.kind not in "mM" else v)
            for v in labels
        ),
        limit,
    )


def list_some(names: Iterable[str], limit: int = 4) -> str:
    """Return the first few names without quotes, and the number of further names."""
    names = list(names)
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def is_missing(value: object) -> bool:
    """Return whether `value` is None, NaN, NaT or pandas' NA, whose comparisons have no truth
    value.
    """
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):
        return not isinstance(value, np.ndarray)


def label_array(values: list[Any]) -> np.ndarray:
    """Return labels of one type as an array of booleans, integers, floats or strings, if it keeps
    them distinct, and others as objects.
    """
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and issubclass(kinds.pop(), int | float | str | np.number):
        array = np.array(values)
        # NumPy strips trailing NULs of strings, and rounds integers of more than 64 bits.
        if array.tolist() == values:
            return array
    # np.asarray would make a second axis from tuples.
    return np.fromiter(values, dtype=object, count=len(values))


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning for the first caller outside this package."""
    warnings.warn(one_line(message), category, stacklevel=outside())


def outside() -> int:
    """Return the stack level of the first caller outside this package, for warnings."""
    frame, level = inspect.currentframe(), 0
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tailored."):
        frame, level = frame.f_back, level + 1
    return level
