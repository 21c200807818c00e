"""A bounded random sample of whole tasks, whatever order their rows come in."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.records import Record, cached_property
from ..tasks import TaskSet
from ..tasks.pieces import Keys, check_alike, label_keys, merged

#: Tasks of a sample that forms are chosen on, as many as `fit` looks at, and numbers in their rows (64 MB).
SAMPLE_TASKS, SAMPLE_NUMBERS = 5_000, 8_000_000
#: No key is as large, or one label in 2⁶⁴ is never drawn.
EVERY = np.iinfo(np.uint64).max
#: Pieces of a sample that stand side by side before they are put together.
MANY = 32


class Register(NamedTuple):
    """Who is in a sample: small arrays, so that a piece is taken in without a look at the rows that came before.

    ``keys`` are those of its tasks, ascending, and ``held`` the numbers in their rows; ``of_pieces`` are the keys of each
    piece's tasks, let go or not.
    """

    keys: Keys
    held: NDArray[np.int64]
    of_pieces: tuple[Keys, ...] = ()

    def knows(self, keys: Keys) -> NDArray[np.bool_]:
        at = np.searchsorted(self.keys, keys)
        return np.asarray(np.append(self.keys, np.uint64(EVERY))[at] == keys)

    def with_piece(self, of_piece: Keys, numbers: NDArray[np.int64]) -> Register:
        order = np.argsort(of_piece, kind="stable")
        new = ~self.knows(of_piece[order])
        at = np.searchsorted(self.keys, of_piece[order[new]])
        keys = np.insert(self.keys, at, of_piece[order[new]])
        held = np.insert(self.held, at, 0)
        np.add.at(held, np.searchsorted(keys, of_piece), numbers)
        return Register(keys, held, (*self.of_pieces, of_piece))


@dataclass(frozen=True)
class Reservoir(Record):
    """The tasks with the smallest keys (`label_keys`): a random sample that only depends on the labels.

    A task that is in it has been in it since its first row, so that its rows are all there.  Taking more in makes a
    new one.  The rows are put together, and those of tasks that were let go are dropped, when enough have come to be worth
    it: the time that a piece takes does not grow with the sample.

    Attributes
    ----------
    size, numbers : int
        Tasks, and numbers in their rows, that it may hold.
    seed : int
        Of the keys.
    pieces : tuple of TaskSet
        The rows in the order in which they came; the first holds two thirds of them or more.
    limit : int
        Tasks with this key or a larger one are let go.
    """

    size: int = SAMPLE_TASKS
    numbers: int = SAMPLE_NUMBERS
    seed: int = 0
    pieces: tuple[TaskSet, ...] = ()
    limit: int = EVERY

    def __len__(self) -> int:
        return len(self._register.keys)

    @cached_property
    def tasks(self) -> TaskSet | None:
        """The sample in the order in which its tasks came; None before the first."""
        if not self.pieces:
            return None
        if self.is_whole:
            return merged(self.pieces)
        inside = [keys < np.uint64(self.limit) for keys in self._register.of_pieces]
        return merged(
            piece if here.all() else piece[here]
            for piece, here in zip(self.pieces, inside, strict=True)
            if here.any()
        )

    @property
    def sample(self) -> TaskSet:
        """The tasks, of which there are some."""
        assert self.tasks is not None
        return self.tasks

    @property
    def is_whole(self) -> bool:
        """Whether no task was let go yet."""
        return self.limit == EVERY

    @cached_property
    def _register(self) -> Register:
        found = Register(np.zeros(0, dtype=np.uint64), np.zeros(0, dtype=np.int64))
        for piece in self.pieces:
            found = found.with_piece(label_keys(piece.labels, self.seed), _numbers(piece))
        n = int(np.searchsorted(found.keys, np.uint64(self.limit)))
        return Register(found.keys[:n], found.held[:n], found.of_pieces)

    def knows(self, tasks: TaskSet) -> NDArray[np.bool_]:
        """Which of these tasks have rows in the sample."""
        return self._register.knows(label_keys(tasks.labels, self.seed))

    def with_earlier(self, tasks: TaskSet) -> TaskSet:
        """The same tasks, each with its rows in the sample before those it has here."""
        keys = label_keys(tasks.labels, self.seed)
        keys = keys[self._register.knows(keys)]
        found = [np.isin(of_piece, keys) for of_piece in self._register.of_pieces]
        earlier = [piece[here] for piece, here in zip(self.pieces, found, strict=True) if here.any()]
        whole = merged([*earlier, tasks])
        return whole[whole.index_of(tasks.labels)]

    def take(self, piece: TaskSet) -> Reservoir:
        """The sample after these tasks, or further rows of earlier ones."""
        keys = label_keys(piece.labels, self.seed)
        if not self.is_whole:
            inside = keys < np.uint64(self.limit)
            piece, keys = piece[inside], keys[inside]
        if not len(piece):
            return self
        self._check(piece)
        register, limit = self._register.with_piece(keys, _numbers(piece)), self.limit
        fits = int(np.searchsorted(np.cumsum(register.held), self.numbers, side="right"))
        # One task is always kept, however many rows it has.
        fits = max(min(fits, self.size), 1)
        if fits < len(register.keys):
            limit = int(register.keys[fits])
            register = register._replace(keys=register.keys[:fits], held=register.held[:fits])
        after = replace(self, pieces=(*self.pieces, piece), limit=limit)
        vars(after)["_register"] = register
        return _tidied(after)

    def _check(self, piece: TaskSet) -> None:
        """Refuse now what could not be put together later."""
        if self.pieces:
            check_alike([self.pieces[0], piece])
        if piece.side_info is not None and self.knows(piece).any():
            self.with_earlier(piece)


def _tidied(scattered: Reservoir) -> Reservoir:
    """The same sample; in one piece, if what came later is half as much as what stood there, or in many pieces."""
    first, *later = (len(piece.y) for piece in scattered.pieces)
    if not later or (2 * sum(later) <= first and len(scattered.pieces) <= MANY):
        return scattered
    return replace(scattered, pieces=(scattered.sample,))


def _numbers(tasks: TaskSet) -> NDArray[np.int64]:
    """Numbers in the rows of each task."""
    if tasks.is_sparse:
        return np.asarray(np.diff(tasks.X.indptr[tasks.offsets]) + tasks.sizes, dtype=np.int64)
    return np.asarray(tasks.sizes * (tasks.n_features + 1), dtype=np.int64)
