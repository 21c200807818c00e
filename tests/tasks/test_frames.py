"""TaskSet from the dataframes of three libraries, and the words of its errors."""

import datetime

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from tailored import TaskSet, scan
from task_samples import FIELDS, assert_same

FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


def long_columns(rng, n=30):
    user = rng.permutation(np.repeat(["u3", "u1", "u2"], n // 3))
    return {
        "user": user.tolist(),
        "rating": rng.normal(size=n).tolist(),
        "price": rng.normal(size=n).tolist(),
        "new": (rng.random(n) < 0.5).tolist(),
        "stock": rng.integers(0, 9, n).tolist(),
    }


USERS = {"age": [20, 30, 40, 50], "city": ["X", "Y", "Z", "W"], "user": ["u2", "u9", "u3", "u1"]}


@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("side_kind", FRAMES)
def test_frames_of_all_kinds_agree(rng, kind, side_kind):
    data = long_columns(rng)
    reference = TaskSet(
        np.column_stack([data["price"], data["new"], data["stock"]]),
        data["rating"],
        data["user"],
        {"u1": [50, "W"], "u2": [20, "X"], "u3": [40, "Z"]},
    )
    tasks = TaskSet.from_frame(
        FRAMES[kind](data), task="user", target="rating", side_info=FRAMES[side_kind](USERS)
    )
    assert_same(tasks, reference, FIELDS[:5])
    assert tasks.labels.dtype.kind == "U"
    assert tasks.side_names == ["age", "city"]
    assert tasks.feature_names.tolist() == ["price", "new", "stock"]
    assert tasks.feature_names.dtype == object
    assert tasks.side_info.dtype == object
    assert [type(v) for v in tasks.side_info[0]] == [float, str]


@pytest.mark.parametrize("kind", FRAMES)
def test_frame_features_and_numeric_side_columns(rng, kind):
    data = long_columns(rng)
    ages = {"u1": 50, "u2": 20, "u3": 40}
    data["age"] = [ages[u] for u in data["user"]]
    frame = FRAMES[kind](data)
    tasks = TaskSet.from_frame(frame, task="user", target="rating", side_columns=["age"])
    assert tasks.feature_names.tolist() == ["price", "new", "stock"]
    assert tasks.side_info.dtype == np.float64
    assert tasks.side_info[:, 0].tolist() == [ages[u] for u in tasks.labels]
    few = TaskSet.from_frame(frame, task="user", target="rating", features=["stock", "price"])
    assert few.feature_names.tolist() == ["stock", "price"]
    assert_array_equal(few.X, tasks.X[:, [2, 0]])


@pytest.mark.parametrize("kind", FRAMES)
def test_X_and_y_from_frames_keep_names(rng, kind):
    data = long_columns(rng)
    frame = FRAMES[kind]({k: data[k] for k in ("price", "stock")})
    column = FRAMES[kind]({"y": data["rating"]})["y"]
    label = FRAMES[kind]({"g": data["user"]})["g"]
    tasks = TaskSet(frame, column, label)
    assert tasks.feature_names.tolist() == ["price", "stock"]
    plain = TaskSet(np.column_stack([data["price"], data["stock"]]), data["rating"], data["user"])
    assert_same(tasks, plain, FIELDS[:4])
    for part in (tasks[:1], tasks[[0]], tasks.split([1])[0], tasks.support_query()[0]):
        assert part.feature_names is tasks.feature_names


def test_pandas_frame_without_string_columns_has_no_names():
    assert TaskSet(pd.DataFrame(np.eye(2)), [0, 1]).feature_names is None


def test_pandas_extension_and_object_columns():
    frame = pd.DataFrame(
        {"a": pd.array([1, 2], dtype="Int64"), "b": np.array([1.5, 2], dtype=object)}
    )
    frame["c"] = pd.arrays.SparseArray([0.0, 3.0])
    assert_array_equal(TaskSet(frame, [0, 1]).X, [[1, 1.5, 0], [2, 2, 3]])


@pytest.mark.parametrize("kind", FRAMES)
def test_frame_errors(rng, kind):
    data = long_columns(rng)
    data["city"] = ["X"] * 29 + ["Y"]
    frame = FRAMES[kind](data)

    def build(**changes):
        TaskSet.from_frame(frame, **{"task": "user", "target": "rating"} | changes)

    message = r"task must be one of 'user'.*got 'usr'. Did you mean 'user'\?"
    with pytest.raises(ValueError, match=message):
        build(task="usr")
    message = "task must be one of the columns, but there are none; got 'user'"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(pd.DataFrame(), task="user", target="rating")
    with pytest.raises(ValueError, match="target must be one of"):
        build(target="score")
    with pytest.raises(ValueError, match=r"features must be one of .* got 'pric'"):
        build(features=["pric"])
    with pytest.raises(TypeError, match=r"features must be a list of column names; got 'price'"):
        build(features="price")
    with pytest.raises(ValueError, match="features names the column 'price' twice"):
        build(features=["price", "price"])
    message = r"features names the column 'rating', as another argument does"
    with pytest.raises(ValueError, match=message):
        build(features=["rating"])
    message = r"frequency_weight names the column 'price', as another argument does"
    with pytest.raises(ValueError, match=message):
        build(frequency_weight="price", sample_weight="price")
    with pytest.raises(ValueError, match=r"column 'city' of task '\w+' has the values 'X' and 'Y'"):
        build(side_columns=["city"])
    with pytest.raises(ValueError, match="side_info or side_columns, not both"):
        build(side_columns=["city"], side_info={})


@pytest.mark.parametrize("kind", FRAMES)
def test_side_frame_errors(rng, kind):
    frame = FRAMES[kind](long_columns(rng))

    def build(side):
        TaskSet.from_frame(frame, task="user", target="rating", side_info=side)

    message = r"side_info has no row for task 'u1' \(it has labels such as 'u2'"
    with pytest.raises(ValueError, match=message):
        build(FRAMES[kind]({k: v[:3] for k, v in USERS.items()}))
    with pytest.raises(ValueError, match="side_info has several rows for task 'u3'"):
        build(FRAMES[kind](USERS | {"user": ["u2", "u3", "u3", "u1"]}))
    message = r"infinite or very large value \(inf\) for task 'u3', column 'age'"
    with pytest.raises(ValueError, match=message):
        build(FRAMES[kind](USERS | {"age": [1.0, 2.0, np.inf, 3.0]}))
    with pytest.raises(ValueError, match="side_info has no columns"):
        build(FRAMES[kind]({"user": USERS["user"]}))
    # what an unused label holds, or how often, does not matter
    build(FRAMES[kind](USERS | {"age": [1.0, None, 2.0, 3.0]}))
    with pytest.raises(
        (TypeError, ValueError),
        match=r"side_info .*(in the column of the task|column 'user' of labels)",
    ):
        build(FRAMES[kind]({"age": [1, 2, 3]}))


def test_side_frame_by_pandas_index(rng):
    frame = pl.DataFrame(long_columns(rng))
    by_column = TaskSet.from_frame(
        frame, task="user", target="rating", side_info=pd.DataFrame(USERS)
    )
    indexed = pd.DataFrame(USERS).set_index("user")
    by_index = TaskSet.from_frame(frame, task="user", target="rating", side_info=indexed)
    assert_same(by_index, by_column)
    again = TaskSet(by_index.X, by_index.y, np.repeat(by_index.labels, by_index.sizes), indexed)
    assert_same(again, by_column, FIELDS[:6])


def test_side_series_and_unnamed_columns():
    frame = pl.DataFrame({"g": [3, 1, 3], "y": [0.0, 1, 2], "x": [1.0, 2, 3]})
    for side in (pd.Series([10, 30], index=[1, 3]), pd.DataFrame([[10], [30]], index=[1, 3])):
        tasks = TaskSet.from_frame(frame, task="g", target="y", side_info=side)
        assert_array_equal(tasks.side_info, [[30], [10]])
        assert tasks.side_names is None
    with pytest.raises(TypeError, match=r"side_info is of type ndarray.*not by the order of tasks"):
        TaskSet.from_frame(frame, task="g", target="y", side_info=np.array([[10], [30]]))


def test_dates_as_side_information_stay_dates():
    days = np.array([["2024-05-02"], ["2024-05-01"]], dtype="datetime64[ns]")
    tasks = TaskSet(np.eye(2), [0, 1], ["a", "b"], days)
    assert tasks.side_info.dtype == object
    assert tasks.side_info[1, 0] == days[1, 0]
    assert isinstance(tasks.side_info[1, 0], np.datetime64)


def test_lazy_and_wrong_frames():
    with pytest.raises(TypeError, match=r"frame must be a dataframe .*LazyFrame.*collect"):
        TaskSet.from_frame(pl.LazyFrame({"a": [1]}), task="a", target="a")
    with pytest.raises(TypeError, match=r"frame must be a dataframe .* got ndarray"):
        TaskSet.from_frame(np.eye(2), task="a", target="a")


@pytest.mark.parametrize("values", [["1", "2", "1"], [1, 2, 1]])
def test_categories_stay_categories(values):
    frame = pd.DataFrame({"g": [0, 1, 2], "y": 0.0, "x": 1.0, "c": pd.Categorical(values)})
    tasks = TaskSet.from_frame(frame, task="g", target="y", side_columns=["c"])
    assert tasks.side_info.tolist() == [["1"], ["2"], ["1"]]


def test_integer_labels_match_across_kinds():
    frame = pl.DataFrame({"g": [3, 1, 3], "y": [0.0, 1, 2], "x": [1.0, 2, 3]})
    for side in (
        {1: 10, 3: 30},
        {np.int32(3): 30, np.int64(1): 10},
        pa.table({"g": [1, 3], "s": [10, 30]}),
    ):
        tasks = TaskSet.from_frame(frame, task="g", target="y", side_info=side)
        assert_array_equal(tasks.side_info, [[30], [10]])
    with pytest.raises(ValueError, match=r"no row for task 3, 1 .*7 is not '7'"):
        TaskSet.from_frame(frame, task="g", target="y", side_info={"1": 10, "3": 30})


# ------------------------------------------------------- columns that are constant within tasks


def table_of_tasks(n_tasks, n_single=0):
    """Two rows per task, then tasks of one row; "kind" and "size" belong to the tasks."""
    task = np.append(np.repeat(np.arange(n_tasks), 2), np.arange(n_tasks, n_tasks + n_single))
    x = np.random.default_rng(0).normal(size=len(task))
    kind = np.array(["a", "b", None], dtype=object)[task % 3]
    return {
        "task": task,
        "x": x,
        "kind": kind,
        "size": task / 2.0,
        "same": np.ones(len(task)),
        "y": x,
    }


@pytest.mark.parametrize("kind", FRAMES)
def test_columns_that_are_constant_within_tasks_are_side_information(kind):
    data = table_of_tasks(10, n_single=1)
    frame = FRAMES[kind](data)
    with pytest.warns(UserWarning, match="so read as side information: 'kind', 'size'. To keep"):
        tasks = TaskSet.from_frame(frame, task="task", target="y")
    assert (tasks.feature_names.tolist(), tasks.side_names) == (["x", "same"], ["kind", "size"])
    first = np.unique(data["task"], return_index=True)[1]
    assert tasks.side_info.tolist() == [[data["kind"][i], data["size"][i]] for i in first]
    again = TaskSet.from_frame(frame, task="task", target="y", encoding=tasks.encoding)
    assert_same(again, tasks, FIELDS)
    # What the user names is used as it is.
    named = TaskSet.from_frame(frame, task="task", target="y", features=["x", "size"])
    assert (named.feature_names.tolist(), named.side_names) == (["x", "size"], None)
    pair = FRAMES[kind]({name: data[name] for name in ("task", "x", "size", "y")})
    assert TaskSet.from_frame(pair, task="task", target="y", side_columns=[]).side_info is None


@pytest.mark.parametrize("change", ["nine tasks", "varies once", "tasks of one row"])
def test_other_columns_stay_features(change):
    n_tasks, n_single = {
        "nine tasks": (9, 0),
        "varies once": (1_000, 0),
        "tasks of one row": (9, 99),
    }[change]
    data = table_of_tasks(n_tasks, n_single)
    del data["kind"]
    if change == "varies once":
        data["size"][-1] += 1.0
    tasks = TaskSet.from_frame(pd.DataFrame(data), task="task", target="y")
    assert (tasks.feature_names.tolist(), tasks.side_names) == (["x", "size", "same"], None)


def test_constant_columns_are_side_information_unless_it_is_given():
    frame = pd.DataFrame(table_of_tasks(12))
    side = pd.DataFrame({"task": np.arange(12), "age": np.arange(12.0)})
    tasks = TaskSet.from_frame(frame.drop(columns="kind"), task="task", target="y", side_info=side)
    assert (tasks.feature_names.tolist(), tasks.side_names) == (["x", "size", "same"], ["age"])
    # Rows without a feature are dropped, rows without side information are not.
    frame.loc[frame["task"] == 3, "size"] = np.nan
    frame.loc[0, "x"] = np.nan
    with pytest.warns(UserWarning, match="read as side information: 'kind', 'size'"):
        tasks = TaskSet.from_frame(frame, task="task", target="y", missing="drop")
    assert (len(tasks.y), tasks.encoding.dropped) == (23, (("no 'x'", 1),))
    assert tasks.side_info[3].tolist()[0] == "a"
    assert np.isnan(tasks.side_info[3, 1])


@pytest.mark.parametrize("role", ["features", "side_columns"])
def test_a_part_of_the_label_can_have_a_second_role(role):
    """The result is that of a copy of the column, without advice against it."""
    frame = pd.DataFrame({"farm": list("aabbccdd") * 3, "plot": list("uv") * 12})
    frame["x"], frame["y"] = np.arange(24) % 7, np.arange(24) % 5 + 1.0 * (frame["farm"] > "b")
    names = ["x", "farm"] if role == "features" else ["farm"]
    tasks = TaskSet.from_frame(
        frame, task=["farm", "plot"], target="y", **{"features": ["x"], role: names}
    )
    copied = [name.replace("farm", "copy") for name in names]
    options = {"task": ["farm", "plot"], "target": "y", "features": ["x"], role: copied}
    other = TaskSet.from_frame(frame.assign(copy=frame["farm"]), **options)
    np.testing.assert_array_equal(tasks.X, other.X)
    assert (tasks.side_info is None) == (role == "features")
    if role == "side_columns":
        assert tasks.side_info.tolist() == other.side_info.tolist()
    assert tasks.describe().caption == "note: each combination of farm and plot is one task"
    again = TaskSet.from_frame(frame, task=["farm", "plot"], target="y", encoding=tasks.encoding)
    np.testing.assert_array_equal(again.X, tasks.X)
    message = "features names the column 'farm', as another argument does"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame, task="farm", target="y", features=["farm", "x"])


ROWS = {"task": [0, 0, 1, 1], "y": [1.0, 2.0, 3.0, 4.0]}
LIBRARIES = pytest.mark.parametrize("made", [pd.DataFrame, pl.DataFrame, pa.table])


@LIBRARIES
def test_tables_without_rows_or_features(made):
    empty = made({"task": [], "y": [], "x": []})
    with pytest.raises(ValueError, match="frame has no rows that can be used"):
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
    ((read, _),) = scan(tmp_path / "rows.parquet", task="task", target="y").batches()
    assert list(read.feature_names) == ["x"]
    named = TaskSet.from_frame(stored, task="task", target="y", features=["__index_level_0__"])
    assert named.X.ravel().tolist() == [2.0, 3.0, 0.0, 1.0]
