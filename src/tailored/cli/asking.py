"""Predictions for tables of rows: the support and the descriptions are read once, the rows as they come."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from .errors import UsageError, telling_of_missing
from .labels import Labels
from .tables import column, read_table

#: Columns that a table of predictions has more.
NUMBERS = ("prediction", "lower", "upper", "std")


class Asked(NamedTuple):
    """A model, and what is given for all rows that it is asked about."""

    learner: Any
    labels: Labels
    columns: list[str]
    support: Any
    side: Any
    coverage: float
    complete: bool

    @classmethod
    def of(
        cls, learner: Any, support: str | None, describe: str | None, coverage: float, missing: str
    ) -> Asked:
        if missing not in ("error", "drop"):
            raise UsageError(f"--missing: it is error or drop; got {missing!r}")
        task = learner.columns_in_["task"]
        columns = [task] if isinstance(task, str) else list(task)
        labels, complete = Labels(getattr(learner, "task_labels_", None)), missing == "error"
        found = cls(learner, labels, columns, None, None, coverage, complete)
        given, side = (
            None if path is None else found.read(read_table(path, option, columns), option, path)
            for path, option in ((support, "--support"), (describe, "--describe"))
        )
        if given is not None and not complete:
            given = given.filter(found._is_complete(given, learner.columns_in_["target"]))
        return found._replace(support=given, side=side)

    def read(self, table: Any, option: str, path: str) -> Any:
        """A table with the labels of the model's kind."""
        for name in self.columns:
            column(table, name, option, path)
        return self.labels.read(table, self.columns[0], option) if len(self.columns) == 1 else table

    def predict(self, table: Any, path: str, *, whole: bool = True) -> Any:
        """The table with the predictions of its rows; it need not be ``whole``."""
        import pyarrow as pa

        query = self.read(table, "data", path)
        known = None if self.complete else self._is_complete(query)
        asked = query if known is None else query.filter(known)
        with telling_of_missing(self.complete), self._telling_of_descriptions():
            found = self.learner.predict_tasks(
                asked, self._of_these(asked, whole), coverage=self.coverage, side_info=self.side
            )
        kept = query.drop_columns([name for name in NUMBERS if name in query.column_names])
        for name in NUMBERS:
            values = found[name].combine_chunks()
            if known is not None:
                # rows that lack something have no prediction, and stay where they are
                places = pa.array(np.cumsum(known) - 1, mask=~known)
                values = values.take(places)
            kept = kept.append_column(name, values)
        return kept

    @contextmanager
    def _telling_of_descriptions(self) -> Iterator[None]:
        try:
            yield
        except ValueError as error:
            if not str(error).startswith("side_info: the learner was fitted with side information"):
                raise
            names = ", ".join(map(repr, self.learner.columns_in_["side_info"] or ()))
            raise UsageError(
                "--describe: the model was learned with descriptions of tasks, and some of these tasks are new; give a table with "
                f"the columns {', '.join(map(repr, self.columns))} and {names}, or these columns in DATA"
            ) from error

    def _is_complete(self, table: Any, *more: str) -> Any:
        """Rows that lack neither their task nor an input."""
        from pyarrow import compute

        features = [each.name for each in self.learner.encoding_.features]
        found = np.ones(table.num_rows, dtype=bool)
        for name in (*self.columns, *features, *more):
            if name in table.column_names:
                found &= np.asarray(
                    compute.is_valid(table[name]).combine_chunks().to_numpy(zero_copy_only=False)
                )
        return found

    def _of_these(self, query: Any, whole: bool) -> Any:
        """Support rows; of the query's tasks alone, where those of others come in other parts."""
        if whole or self.support is None:
            return self.support
        from pyarrow import compute

        name = self.columns[0]
        here = self.support.filter(compute.is_in(self.support[name], value_set=query[name].combine_chunks()))
        return here if here.num_rows else None
