"""Learners in files and pickles."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from .. import archive
from .._version import __version__


class Saved:
    """Mixed into the meta-learners: `save`, and what `tailored.load` and pickles take."""

    get_params: Any
    #: Whether `partial_fit` was called: then a pickle holds where the stream stands, some rows included.
    _goes_on = False

    def save(self, path: Any) -> None:
        """Write the learner to one file without pickle, whole or not at all; `tailored.load` reads it back.

        The file holds what adapting, predicting and scoring need, and no training rows.  A feature map that is
        a callable or a scikit-learn transformer is code, not numbers, and is refused with the alternatives; so are
        labels of tasks that are neither numbers nor words nor tuples of these.
        """
        check_is_fitted(self, "prior_")
        archive.write(path, self, __version__)

    def __getstate__(self) -> dict[str, Any]:
        """For pickles: as `save` does, they hold no training rows, except where `partial_fit` is to go on."""
        state: dict[str, Any] = dict(super().__getstate__())  # type: ignore[call-overload]
        if not self._goes_on:
            state.pop("_stream", None)
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        # In memory nothing is left out.
        made = memo[id(self)] = type(self).__new__(type(self))
        made.__dict__.update(deepcopy(self.__dict__, memo))
        return made

    def state(self) -> dict[str, Any]:
        """Arguments and fitted attributes; not where a stream stands."""
        fitted = {k: v for k, v in vars(self).items() if k.endswith("_") and not k.startswith("_")}
        return {"parameters": self.get_params(deep=False), "fitted": fitted}

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """The learner that `state` was taken of."""
        made = cls(**state["parameters"])
        made.__dict__.update(state["fitted"])
        return made
