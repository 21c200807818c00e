"""Compiled functions as plain Python, from the moment this is imported: before anything of the package."""

from types import SimpleNamespace
from typing import Any

import numba
import numba.extending

numba.config.DISABLE_JIT = 1


def _overload(stub: Any, **options: Any) -> Any:
    """As Numba's, but the version is looked up at every call, by the type of the first argument."""

    def register(choose: Any) -> Any:
        def call(first: Any, *others: Any) -> Any:
            return choose(SimpleNamespace(instance_class=type(first)), *others)(first, *others)

        stub.__globals__[stub.__name__] = call
        return choose

    return register


numba.extending.overload = _overload
