"""Tables that are handed to the user: frames of pandas where it is installed, structured arrays otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def as_frame(columns: Mapping[str, Any]) -> Any:
    """Columns of equal length as one table."""
    try:
        import pandas
    except ImportError:
        arrays = [np.asarray(values) for values in columns.values()]
        names = zip(columns, arrays, strict=True)
        table = np.empty(len(arrays[0]), dtype=[(name, array.dtype) for name, array in names])
        for name, array in zip(columns, arrays, strict=True):
            table[name] = array
        return table
    return pandas.DataFrame(dict(columns))
