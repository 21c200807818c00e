"""What the fuzzer of readers found in tables: each is read right, or refused in words that name the
column.
"""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tailored import TaskSet, scan

ROWS = {"task": [0, 0, 1, 1], "y": [1.0, 2.0, 3.0, 4.0]}
LIBRARIES = pytest.mark.parametrize("made", [pd.DataFrame, pl.DataFrame, pa.table])


@LIBRARIES
def test_tables_without_rows_or_features(made):
    empty = made({"task": [], "y": [], "x": []})
    with pytest.raises(ValueError, match="frame has no rows"):
        TaskSet.from_frame(empty, task="task", target="y")
    # without features, and with a constant category, the model is a random intercept alone
    for columns in (ROWS, {**ROWS, "x": ["a"] * 4}):
        assert TaskSet.from_frame(made(columns), task="task", target="y").X.shape == (4, 0)
    frame = made({**ROWS, "x": np.full(4, np.nan)})
    with pytest.raises(ValueError, match="4 have no 'x'"):
        TaskSet.from_frame(frame, task="task", target="y", missing="drop")
    categories = pa.array(["a"] * 4).dictionary_encode()
    unlabelled = pa.table({**ROWS, "task": pa.nulls(4, pa.string()), "x": categories})
    with pytest.raises(ValueError, match="task column 'task' has a missing label"):
        TaskSet.from_frame(unlabelled, task="task", target="y")


@LIBRARIES
def test_whole_numbers_beyond_the_digits_of_floats_are_rounded(made):
    huge = [2**62 + 1, 2**53 + 1, -(2**61), 5]
    tasks = TaskSet.from_frame(made({**ROWS, "x": huge}), task="task", target="y")
    assert tasks.X.ravel().tolist() == [float(value) for value in huge]
    days = [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)] * 2
    read = TaskSet.from_frame(pa.table({**ROWS, "x": days}), task="task", target="y")
    assert read.X.ravel().tolist() == [0.0, float((days[1] - days[0]).days)] * 2


def test_numbers_beyond_floats_and_labels_beyond_64_bits():
    x = pd.Series([10**400, 1, 2, 3], dtype=object)  # an old pandas takes no list of them
    with pytest.raises(ValueError, match="'x' is not numeric"):
        TaskSet.from_frame(pd.DataFrame({**ROWS, "x": x}), task="task", target="y")
    frame = pl.DataFrame({"task": [2**70, 2**70, 1, 1], "y": ROWS["y"], "x": [1.0, 2.0, 3.0, 4.0]})
    assert TaskSet.from_frame(frame, task="task", target="y").labels.tolist() == [2**70, 1]


def test_arguments_that_are_no_names_are_named():
    frame = pd.DataFrame({**ROWS, "x": [1.0, 2.0, 3.0, 4.0]})
    for arguments in ({"task": 3, "target": "y"}, {"task": "task", "target": "y", "features": 3}):
        with pytest.raises(TypeError, match=r"(task|features) must be .*got 3"):
            TaskSet.from_frame(frame, **arguments)
    with pytest.raises(TypeError, match="features must be a list"):
        scan(frame, task="task", target="y", features=3)
    with pytest.raises(TypeError, match="features: column names must be strings; got 7"):
        TaskSet.from_frame(frame.rename(columns={"x": 7}), task="task", target="y")
    # names of columns may be anything, and are listed
    with pytest.raises(ValueError, match="'y', 3; got"):
        TaskSet.from_frame(frame.rename(columns={"x": 3}), task="tasks", target="y")


def test_the_index_that_pandas_puts_into_its_files_is_no_input(tmp_path):
    """Rows that are chosen or shuffled keep their numbers, which become a column of the file."""
    rows = pd.DataFrame({**ROWS, "x": [0.5, 1.5, 2.5, 3.5]}).iloc[[2, 0, 3, 1]]
    about = pd.DataFrame({"task": [0, 1], "age": [30.0, 40.0]}).iloc[[1, 0]]
    rows.to_parquet(tmp_path / "rows.parquet")
    about.to_parquet(tmp_path / "about.parquet")
    stored = pl.read_parquet(tmp_path / "rows.parquet")
    assert "__index_level_0__" in stored.columns
    tasks = TaskSet.from_frame(
        stored, task="task", target="y", side_info=pl.read_parquet(tmp_path / "about.parquet")
    )
    assert list(tasks.feature_names) == ["x"]
    assert tasks.side_info.tolist() == [[40.0], [30.0]]
    (batch,) = scan(tmp_path / "rows.parquet", task="task", target="y").batches()
    assert list(batch.tasks.feature_names) == ["x"]
    named = TaskSet.from_frame(stored, task="task", target="y", features=["__index_level_0__"])
    assert named.X.ravel().tolist() == [2.0, 3.0, 0.0, 1.0]
