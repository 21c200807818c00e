"""Words, categories, dates and booleans of tables: what they become, and that later tables are read
the same way.
"""

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from folds import few_folds
from tailored import TaskSet, load, scan
from tailored.exceptions import UnknownCategoryWarning
from tailored.tasks.encoding import CategoryEncoding

SIZES = ["small", "middle", "large"]
DAYS = [dt.date(2020, 1, 3), dt.date(2020, 1, 1), dt.date(2020, 2, 1), dt.date(2020, 1, 2)]


def table(library, n=40, seed=0):
    """Rows with a column of every kind, in a library's own types."""
    rng = np.random.default_rng(seed)
    data = {
        "school": [f"s{i}" for i in rng.integers(0, 8, n)],
        "score": rng.standard_normal(n),
        "ses": rng.standard_normal(n),
        "sex": rng.choice(["male", "female"], n).tolist(),
        "track": rng.choice(["a", "c", "b"], n).tolist(),
        "size": [SIZES[i] for i in rng.integers(0, 3, n)],
        "day": [DAYS[i] for i in rng.integers(0, 4, n)],
        "free": (rng.random(n) > 0.5).tolist(),
    }
    data["sex"][:2], data["track"][:3], data["size"][:3] = ["male", "female"], list("abc"), SIZES
    data["day"][:4] = DAYS
    if library == "pandas":
        frame = pd.DataFrame(data)
        frame["size"] = pd.Categorical(frame["size"], categories=SIZES, ordered=True)
        return frame.assign(day=pd.to_datetime(frame["day"]))
    if library == "polars":
        return pl.DataFrame(data, schema_overrides={"size": pl.Enum(SIZES)})
    codes = pa.array([SIZES.index(size) for size in data["size"]], pa.int32())
    return pa.table({**data, "size": pa.DictionaryArray.from_arrays(codes, SIZES, ordered=True)})


LIBRARIES = ("pandas", "polars", "pyarrow")
NAMES = ["ses", "sex=male", "track=b", "track=c", "size", "day", "free"]
ROLES = {"task": "school", "target": "score"}


@pytest.mark.parametrize("library", LIBRARIES)
def test_every_kind_is_numbers(library):
    tasks = TaskSet.from_frame(table(library), **ROLES)
    plain = table("pandas")
    expected = np.column_stack(
        [
            plain["ses"],
            plain["sex"] == "male",
            plain["track"] == "b",
            plain["track"] == "c",
            plain["size"].cat.codes,
            (plain["day"] - pd.Timestamp("2020-01-01")).dt.days,
            plain["free"],
        ]
    ).astype(float)
    order = np.argsort(pd.factorize(plain["school"])[0], kind="stable")
    assert tasks.feature_names.tolist() == NAMES
    np.testing.assert_array_equal(tasks.X, expected[order])
    kinds = [column.kind for column in tasks.encoding.features]
    assert kinds == ["number", "categorical", "categorical", "ordered", "date", "number"]
    assert tasks.encoding.positions("track") == [2, 3]
    assert tasks.encoding.positions("track=c") == [3]
    assert tasks.encoding.positions("nothing") == []


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_table_is_read_like_the_first(library):
    tasks = TaskSet.from_frame(table("pandas"), **ROLES)
    later = table(library, seed=1)
    names = list(later.columns if library != "pyarrow" else later.column_names)
    turned = later[names[::-1]] if library == "pandas" else later.select(names[::-1])
    read = TaskSet.from_frame(turned, encoding=tasks.encoding, **ROLES)
    assert read.encoding == tasks.encoding
    assert read.feature_names.tolist() == NAMES
    # this table happens to have the same levels and first day
    np.testing.assert_array_equal(read.X, TaskSet.from_frame(table("pandas", seed=1), **ROLES).X)
    with pytest.raises(ValueError, match="features: the encoding determines"):
        TaskSet.from_frame(later, encoding=tasks.encoding, features=["ses"], **ROLES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_unknown_words_stand_at_the_mean_and_are_said(library):
    tasks = TaskSet.from_frame(table("pandas"), **ROLES)
    columns = {name: table("pandas")[name].tolist()[:4] for name in table("pandas").columns}
    columns["day"] = DAYS
    columns["track"] = ["a", "z", "y", "b"]
    columns["size"] = ["large", "huge", "small", "small"]
    if library == "pandas":
        columns["day"] = pd.to_datetime(DAYS)
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]
    with pytest.warns(UnknownCategoryWarning) as seen:
        read = TaskSet.from_frame(make(columns), encoding=tasks.encoding, **ROLES)
    said = [str(one.message) for one in seen]
    assert said[0] == (
        "column 'track': 'z', 'y' did not appear in training, where the column held 'a', 'b', 'c'; "
        "replaced by "
        "an average category"
    )
    assert "column 'size': 'huge'" in said[1]
    assert seen[0].filename == __file__
    order = np.argsort(pd.factorize(np.array(columns["school"]))[0], kind="stable")
    row = order.tolist().index(1)
    np.testing.assert_allclose(read.X[row, 2:5], tasks.X[:, 2:5].mean(axis=0))


def test_the_first_word_is_the_users_where_categories_have_an_order():
    frame = table("pandas")
    frame["track"] = pd.Categorical(frame["track"], categories=["c", "unused", "a", "b"])
    assert TaskSet.from_frame(frame, **ROLES).feature_names[2:4].tolist() == ["track=a", "track=b"]
    frame["track"] = pd.Categorical(frame["track"].map({"a": 3, "b": 1, "c": 2}).astype(int))
    found = TaskSet.from_frame(frame, **ROLES)
    assert found.feature_names[2:4].tolist() == ["track=2", "track=3"]
    # numbers are these categories, whatever their type
    again = TaskSet.from_frame(
        frame.assign(track=frame["track"].astype(float)), encoding=found.encoding, **ROLES
    )
    np.testing.assert_array_equal(again.X, found.X)


def test_dates_with_times_and_zones():
    frame = table("pandas")
    expected = TaskSet.from_frame(frame, **ROLES)
    noon = frame.assign(day=(frame["day"] + pd.Timedelta(hours=13)).dt.tz_localize("Europe/Paris"))
    zoned = TaskSet.from_frame(frame.assign(day=frame["day"].dt.tz_localize("UTC")), **ROLES)
    read = TaskSet.from_frame(noon, encoding=zoned.encoding, **ROLES)
    np.testing.assert_allclose(read.X[:, 5], expected.X[:, 5] + 0.5)
    message = "Feature column 'day' held dates in the training table and is String now"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame.assign(day="soon"), encoding=expected.encoding, **ROLES)


def test_columns_that_changed_their_kind():
    tasks = TaskSet.from_frame(table("pandas"), **ROLES)
    frame = table("pandas")
    message = r"Feature column 'ses' is not numeric \(it has 'high' in row 0\)"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame.assign(ses="high"), encoding=tasks.encoding, **ROLES)
    message = "column 'sex': '1.5' did not appear in training"
    with pytest.warns(UnknownCategoryWarning, match=message):
        TaskSet.from_frame(frame.assign(sex=1.5), encoding=tasks.encoding, **ROLES)
    message = "frame: the frame has no column 'sex', 'free'; it has 'school'"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame.drop(columns=["sex", "free"]), encoding=tasks.encoding, **ROLES)


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_columns_of_one_name_are_named(library):
    columns = ["school", "score", "ses", "ses"]
    rows = [["a", "b"], [1.0, 2.0], [1.0, 2.0], [3.0, 4.0]]
    frame = pa.table(rows, names=columns)
    if library == "pandas":
        frame = pd.DataFrame(dict(enumerate(rows))).set_axis(columns, axis=1)
    message = r"frame: Expected unique column names, got:\n- 'ses' 2 times"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame, **ROLES)


def test_more_mistakes():
    frame = table("pandas")
    with pytest.raises(ValueError, match=r"'note' has 40 categories .* Identifiers do not predict"):
        TaskSet.from_frame(frame.assign(note=[f"row {i}" for i in range(40)]), **ROLES)
    with pytest.raises(ValueError, match="the name 'sex=male' of an indicator"):
        TaskSet.from_frame(frame.assign(**{"sex=male": 1.0}), **ROLES)
    with pytest.raises(ValueError, match="missing must be one of 'error', 'drop'"):
        TaskSet.from_frame(frame, missing="skip", **ROLES)
    with pytest.raises(ValueError, match="'span' is not numeric"):
        TaskSet.from_frame(frame.assign(span=pd.Timedelta(days=1)), **ROLES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_missing_class_is_a_missing_target(library):
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]
    frame = make({"g": list("aabb"), "x": [1.0, 2.0, 3.0, 4.0], "y": ["u", "v", None, "u"]})
    with pytest.raises(
        ValueError,
        match=r"Input y contains NaN: task 'b', row 2\. [^.]* missing='drop'\.$",
    ):
        TaskSet.from_frame(frame, task="g", target="y")
    assert TaskSet.from_frame(frame, task="g", target="y", missing="drop").y.tolist() == [
        0.0,
        1.0,
        0.0,
    ]


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_values_are_named_or_left_out(library):
    plain = {"g": ["a", "b", "a", None, "b", "a"], "y": [1.0, None, 2.0, 3.0, 4.0, 5.0]}
    plain |= {"x": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "w": ["u", "v", None, "u", "v", "u"]}
    make = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library]
    whole = {name: [values[i] for i in (0, 2, 4, 5)] for name, values in plain.items()}
    with pytest.raises(
        ValueError,
        match=r"Input X contains NaN: task 'a', row 1, column 'w'\. .*missing='impute'\)\.$",
    ):
        TaskSet.from_frame(make(whole), task="g", target="y")
    more = {"g": list("aabab"), "y": [1.0, 2.0, 3.0, 4.0, 5.0], "x": [1.0, None, 3.0, 4.0, 5.0]}
    more |= {"w": ["u", None, None, "t", "v"], "z": ["u", "v", None, "v", "u"]}
    with pytest.raises(ValueError, match=r"row 1, column 'x' \(2 such rows in all\)"):
        TaskSet.from_frame(make(more), task="g", target="y")
    tasks = TaskSet.from_frame(make(plain), task="g", target="y", missing="drop")
    assert tasks.labels.tolist() == ["a", "b"]
    np.testing.assert_array_equal(tasks.y, [1.0, 5.0, 4.0])
    assert dict(tasks.encoding.dropped) == {
        "no 'g'": 1,
        "no 'y'": 1,
        "no 'w'": 1,
    }
    assert "dropped: 1 row with no 'g', 1 row with no" in str(tasks.describe())


def test_descriptions():
    few = 8
    schools = pd.DataFrame(
        {
            "school": [f"s{i}" for i in range(few)],
            "kind": ["Catholic", "Public"] * (few // 2),
            "size": pd.Categorical(["small", "large"] * (few // 2), categories=SIZES, ordered=True),
            "founded": pd.to_datetime(["1900-01-01", "1900-03-01"] * (few // 2)),
            "mixed": [True, False] * (few // 2),
            "n": np.arange(few) * 1.5,
        }
    )
    frame = table("pandas")
    tasks = TaskSet.from_frame(frame, side_info=schools, **ROLES)
    first = tasks.side_info[tasks.index_of("s1")[0]]
    assert first.tolist() == ["Public", 2.0, 59.0, 0.0, 1.5]
    assert [c.kind for c in tasks.encoding.side_info] == [
        "categorical",
        "ordered",
        "date",
        "number",
        "number",
    ]
    # columns of the table itself, in another library
    joined = pl.from_pandas(frame.merge(schools, on="school"))
    joined = joined.rename({"size_x": "size"}).with_columns(
        pl.col("size_y").cast(pl.String).cast(pl.Enum(SIZES))
    )
    again = TaskSet.from_frame(
        joined, side_columns=["kind", "size_y", "founded", "mixed", "n"], **ROLES
    )
    assert again.side_info[again.index_of("s1")[0]].tolist() == first.tolist()
    # by the mapping of one task, in any order, and as numbers already
    values = tasks.encoding.encode_side_info(
        np.array([[2.0, "Public"]], dtype=object), ["size", "kind"]
    )
    assert values.tolist() == [[2.0, "Public"]]
    message = "column 'size': 'vast' .* an average category"
    with pytest.warns(UnknownCategoryWarning, match=message):
        values = tasks.encoding.encode_side_info(np.array([["vast"]], dtype=object), ["size"])
    assert values[0, 0] == tasks.encoding.side_info[1].fill[0] == 1.0
    with pytest.raises(
        ValueError,
        match="side_info: column 'founded' held dates in training and has 'long ago' now",
    ):
        tasks.encoding.encode_side_info(np.array([["long ago"]], dtype=object), ["founded"])


def test_several_columns_of_labels():
    frame = table("pandas")
    tasks = TaskSet.from_frame(frame, task=["school", "track"], target="score", features=["ses"])
    assert len(tasks) == len(frame.groupby(["school", "track"]))
    assert tasks.labels[0] == (frame["school"][0], frame["track"][0])
    own = frame[(frame["school"] == tasks.labels[3][0]) & (frame["track"] == tasks.labels[3][1])]
    np.testing.assert_array_equal(tasks[3].y, own["score"])
    side = (
        frame.groupby(["school", "track"], as_index=False)["ses"]
        .mean()
        .rename(columns={"ses": "mean"})
    )
    described = TaskSet.from_frame(
        frame, task=["school", "track"], target="score", features=["ses"], side_info=side
    )
    assert described.side_info[3] == pytest.approx(own["ses"].mean())
    assert "each combination of school and track is one task" in str(tasks.describe())


def test_a_scan_looks_at_the_whole_table(tmp_path):
    frame = table("pandas", 400)
    frame["track"] = np.where(np.arange(400) < 200, frame["track"], "z")
    frame.loc[399, "day"] = pd.Timestamp("2019-12-31")
    expected = TaskSet.from_frame(frame, **ROLES)
    parts = [frame[:150], frame[150:300], frame[300:]]
    for i, part in enumerate(parts):
        part.to_parquet(tmp_path / f"{i}.parquet")
    scanned = scan(tmp_path, **ROLES)
    pieces = [tasks for tasks, _ in scanned.batches()]
    assert scanned.encoding == expected.encoding
    np.testing.assert_allclose(
        scanned.encoding.features[2].fill, expected.encoding.features[2].fill
    )
    assert {tuple(piece.feature_names) for piece in pieces} == {tuple(expected.feature_names)}
    np.testing.assert_allclose(sum(p.X.sum(axis=0) for p in pieces), expected.X.sum(axis=0))
    for i, part in enumerate(parts):
        pl.from_pandas(part.astype({"size": "string"})).write_parquet(tmp_path / f"{i}.parquet")
    words = scan(tmp_path, **ROLES).encoding
    assert words.features[3] == CategoryEncoding("size", ("large", "middle", "small"))
    whole = pa.Table.from_pandas(frame)
    with pytest.raises(
        ValueError,
        match=r"column 'sex', 'track', 'size', 'day' holds categories.* only once.*Pass encoding=",
    ):
        list(scan(whole.to_reader(), **ROLES).batches())
    once = scan(whole.to_reader(), encoding=expected.encoding, **ROLES)
    assert sum(len(tasks.y) for tasks, _ in once.batches()) == 400


# --------------------------------------------------------------------------------- describe


def test_what_was_read_is_said():
    schools = pd.DataFrame(
        {"school": [f"s{i}" for i in range(8)], "kind": ["Catholic", "Public"] * 4, "n": 3.5}
    )
    schools.loc[0, "kind"] = None
    frame = table("pandas").assign(
        always=1.0, one="x", mean=lambda f: f["school"].str[1:].astype(float)
    )
    tasks = TaskSet.from_frame(frame, side_info=schools, **ROLES)
    found = tasks.describe()
    text = str(found)
    assert max(map(len, text.splitlines())) <= 80
    assert text.splitlines()[0] == "8 tasks (school), 40 rows, target score"
    sizes = tasks.sizes
    assert f"rows per task: {sizes.min()} to {sizes.max()}, median {np.median(sizes):g}" in text
    assert "columns: 9 features, 2 of side information" in text
    for line in (
        "sex     feature    categorical  sex=male (reference: female)",
        "size    feature    ordered      0 (small) to 2 (large)",
        "day     feature    date         days since 2020-01-01",
        "free    feature    number       0 to 1",
        "one     feature    categorical  always x: dropped",
        "kind    side info  categorical  2 categories: Catholic, Public;",
        "n       side info  number       3.5 to 3.5",
    ):
        assert line in text
    always, within = found.caption.splitlines()
    assert always.startswith("note: constant in all rows, so without effect if there is an interc")
    assert within.startswith("note: constant within every task: mean. To make them side")
    assert repr(found) == text
    assert found.frame["column"].tolist()[:2] == ["ses", "sex"]


def test_tasks_of_arrays_are_described_too():
    X = np.arange(12.0).reshape(6, 2)
    plain = TaskSet(
        X, np.zeros(6), [0, 0, 1, 1, 1, 2], side_info={0: [1.0, "a"], 1: [2.0, "b"], 2: [3.0, "a"]}
    )
    text = str(plain.describe())
    assert "3 tasks, 6 rows\nrows per task: 1 to 3, median 2" in text
    assert "0       feature    number       0 to 10" in text
    assert "1       side info  categorical  2 categories: a, b" in text
    import scipy.sparse as sp

    assert "0       feature  number  0 to 10" in str(
        TaskSet(sp.csr_array(X), np.zeros(6)).describe()
    )


def test_ordered_numbers_are_these_numbers():
    frame = table("pandas")
    grades = pd.Categorical(np.resize([1, 2, 5], 40), categories=[1, 2, 5], ordered=True)
    tasks = TaskSet.from_frame(frame.assign(size=grades), **ROLES)
    order = np.argsort(pd.factorize(frame["school"])[0], kind="stable")
    np.testing.assert_array_equal(tasks.X[:, 4], np.resize([1.0, 2.0, 5.0], 40)[order])
    assert tasks.encoding.features[3].text() == "1 to 5"


@pytest.mark.parametrize("role", ["features", "target", "side_info"])
@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["1.5", "2", "-3e4"], r"holds numbers as strings, such as '.*pandas.to_numeric\(frame\["),
        (["1.5", "2", "k.A."], r"holds numbers as strings, .* but also 'k.A.'\. .*astype\('cat"),
        (["2026-01-31", "2026-02-01 12:00", None], r"holds dates as strings.*pandas.to_datetime"),
    ],
)
def test_strings_that_are_numbers_or_dates_are_errors(role, texts, message):
    """They would become categories; one cell with text makes a reader return strings."""
    frame = pd.DataFrame({"g": list("aabbcc"), "x": 1.0, "y": np.arange(6.0)})
    frame["x" if role == "features" else "y" if role == "target" else "s"] = np.repeat(texts, 2)
    side = {"side_columns": ["s"]} if role == "side_info" else {}
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame, task="g", target="y", **side)


def test_what_else_a_column_of_strings_may_hold():
    frame = pd.DataFrame({"g": list("aabb"), "x": ["1", "2", "b", "c"], "y": np.arange(4.0)})
    roles = {"task": "g", "target": "y"}
    assert TaskSet.from_frame(frame, **roles).encoding.features[0].kind == "categorical"
    numbers = frame.assign(x=pd.Categorical(["1", "2", "1", "2"]))
    assert TaskSet.from_frame(numbers, **roles).feature_names.tolist() == ["x=2"]
    mixed = frame.assign(x=np.array(["1", 2, "b", None], dtype=object))
    with pytest.raises(ValueError, match=r"'x' is not numeric \(it has 'b' in row 2\)"):
        TaskSet.from_frame(mixed, **roles)
    days = frame.assign(x=DAYS)
    with pytest.raises(ValueError, match=r"'x' is not numeric \(it is Object\)"):
        TaskSet.from_frame(days, **roles)
    flags = frame.assign(x=np.array([True, None, False, True], dtype=object))
    found = TaskSet.from_frame(flags, missing="drop", **roles)
    assert found.X.ravel().tolist() == [1.0, 0.0, 1.0]


# --------------------------------------------------------------------------------- imputing


def with_holes(seed=0, n=80):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "g": np.arange(n) % 8,
            "age": rng.normal(size=n),
            "word": np.array(["a", "b", "c"])[np.arange(n) % 3],
            "code": [f"c{i}" for i in rng.permutation(np.arange(n) % 22)],
            "whole": rng.normal(size=n),
            "y": rng.normal(size=n),
        }
    )
    frame.loc[frame.index % 5 == 2, "age"] = np.nan
    frame.loc[frame.index % 7 == 3, ["word", "code"]] = None
    return frame


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("missing", [False, True])
def test_categories_that_are_floats(ordered, missing):
    numbers = np.tile([1.0, 2.5, 3.0, 1.0], 5)
    numbers[3] = np.nan if missing else 1.0
    column = pd.Categorical(numbers, ordered=ordered)
    frame = pd.DataFrame({"g": np.arange(20), "x": np.arange(20.0), "y": 0.0, "size": column})
    features = TaskSet.from_frame(frame, task="g", target="y", side_columns=[], missing="drop")
    side = TaskSet.from_frame(frame, task="g", target="y", side_columns=["size"])
    kept = numbers[~np.isnan(numbers)]
    indicators = np.column_stack([kept == 2.5, kept == 3.0])
    np.testing.assert_array_equal(features.X[:, 1:], kept[:, None] if ordered else indicators)
    if ordered:
        np.testing.assert_array_equal(side.side_info[:, 0], numbers)
    else:
        words = [None if np.isnan(number) else f"{number:g}" for number in numbers]
        assert side.side_info[:, 0].tolist() == words
        assert side.encoding.side_info[0].categories == ("1", "2.5", "3")
    assert side.encoding.encode_side_info(np.empty((0, 1), dtype=object), ["size"]).shape == (0, 1)


def test_one_category_or_missing_is_an_indicator():
    frame = pd.DataFrame(
        {"g": np.repeat(np.arange(10), 4), "x": np.arange(40.0), "y": np.arange(40.0)}
    )
    frame["paid"] = np.where(np.arange(40) % 4 == 0, None, "yes")
    tasks = TaskSet.from_frame(frame, task="g", target="y", missing="impute")
    assert tasks.encoding.feature_names.tolist() == ["x", "paid=missing"]
    np.testing.assert_array_equal(tasks.X[:, 1], frame["paid"].isna())
    assert tasks.encoding.features[1].text().startswith("paid=missing (reference: yes)")
    message = r"Input X, column 'paid', contains NaN: row \d+ .* Drop those rows"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame, task="g", target="y")
    again = TaskSet.from_frame(frame[1:3], task="g", target="y", encoding=tasks.encoding)
    np.testing.assert_array_equal(again.X[:, 1], 0.0)


def test_few_missing_values_have_no_indicator():
    """The coefficient of an indicator of nine rows could be anything."""
    frame = with_holes()
    frame.loc[:8, "whole"] = np.nan
    tasks = TaskSet.from_frame(frame, task="g", target="y", missing="impute")
    assert "whole=missing" not in tasks.feature_names
    at = list(tasks.feature_names).index("whole")
    assert np.isclose(tasks.X[:, at], frame["whole"].mean(), rtol=1e-12).sum() == 9
    frame.loc[9, "whole"] = np.nan
    assert (
        "whole=missing"
        in TaskSet.from_frame(frame, task="g", target="y", missing="impute").feature_names
    )


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_features_are_imputed_by_their_means(library):
    frame = with_holes()
    frame.loc[20, "y"] = np.nan
    made = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[
        library
    ]
    roles = {"task": "g", "target": "y"}
    tasks = TaskSet.from_frame(made(frame), missing="impute", **roles)
    assert tasks.encoding.dropped == (("no 'y'", 1),)
    used = frame.drop(index=20).sort_values("g", kind="stable")
    no_age, no_word = used["age"].isna(), used["word"].isna()
    words = used["word"].dropna()
    expected = {"age": used["age"].fillna(used["age"].mean()), "age=missing": no_age}
    for word in "bc":
        expected[f"word={word}"] = (used["word"] == word).where(~no_word, (words == word).mean())
    codes = sorted(used["code"].dropna().unique())
    position = used["code"].map(lambda code: codes.index(code) if isinstance(code, str) else -1)
    expected |= {
        "word=missing": no_word,
        "code": position,
        "code=missing": no_word,
        "whole": used["whole"],
    }
    assert tasks.feature_names.tolist() == list(expected)
    np.testing.assert_allclose(
        tasks.X, np.column_stack(list(expected.values())).astype(float), atol=1e-12
    )
    assert tasks.encoding.levels == {5: len(codes)}
    spread = tasks.with_indicators()
    assert spread.X[:, spread.encoding.positions("code")].shape[1] == len(codes)
    np.testing.assert_array_equal(spread.X[:, -2], no_word)
    assert "missing values are imputed" in str(tasks.describe())
    # A later table: the means of the first one, and no new indicator.
    later = with_holes(seed=1).drop(columns="y").assign(age=np.nan)
    later.loc[3, "whole"] = np.nan
    read = TaskSet.from_frame(made(later), task="g", target=None, encoding=tasks.encoding)
    assert read.encoding.difference(tasks.encoding) is None
    order = np.argsort(later["g"], kind="stable")
    assert read.X[:, 0] == pytest.approx(used["age"].mean())
    assert read.X[:, 1].all()
    expected = later["whole"].fillna(used["whole"].mean()).to_numpy()[order]
    np.testing.assert_allclose(read.X[:, -1], expected, atol=1e-12)


def test_imputing_is_stored_with_the_model(tmp_path):
    rng = np.random.default_rng(0)
    frame = with_holes().drop(columns="code").assign(y=rng.normal(size=80))
    tasks = TaskSet.from_frame(frame, task="g", target="y", missing="impute")
    learner = few_folds().fit(tasks)
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.encoding_ == learner.encoding_
    pairs = zip(loaded.encoding_.features, learner.encoding_.features, strict=True)
    assert all(np.array_equal(mine.fill, theirs.fill) for mine, theirs in pairs)
    query = frame.drop(columns="y").assign(whole=np.nan)
    mean = query.assign(whole=frame["whole"].mean())
    expected = learner.predict_tasks(mean, coverage=None)["prediction"]
    assert loaded.predict_tasks(query, coverage=None)["prediction"].equals(expected)
    assert loaded.predict(query, groups=query["g"]) == pytest.approx(expected)
    few = frame[:4]
    model = learner.adapt(few.drop(columns="y"), few["y"])
    assert np.isfinite(model.predict(query)).all()


def test_what_cannot_be_imputed_is_an_error():
    frame, roles = with_holes(), {"task": "g", "target": "y"}
    with pytest.raises(ValueError, match="column 'age' has no values to impute from"):
        TaskSet.from_frame(frame.assign(age=np.nan), missing="impute", **roles)
    frame = frame.drop(columns="code")
    encoding = TaskSet.from_frame(frame, missing="drop", **roles).encoding
    message = "NaN: .* Or impute them: fit with TaskSet.from_frame"
    with pytest.raises(ValueError, match=message):
        TaskSet.from_frame(frame, missing="impute", encoding=encoding, **roles)


def test_one_new_row_may_have_only_missing_or_unknown_categories():
    frame = pd.DataFrame({"g": [1, 1, 2, 2, 3, 3], "c": list("abcabc"), "year": [1, 2, 3] * 2})
    frame["y"] = np.arange(6.0)
    training = TaskSet.from_frame(frame, task="g", target="y", missing="impute")
    new = pd.DataFrame({"g": [9], "y": [1.0], "c": [np.nan], "year": [2]})

    def encoded(table, encoding):
        missing = "impute" if encoding.imputes else "error"
        roles = {"task": "g", "target": "y", "encoding": encoding}
        return TaskSet.from_frame(table, missing=missing, **roles).X

    as_object = new.astype({"c": object})
    X = encoded(new, training.encoding)
    np.testing.assert_array_equal(X, encoded(as_object, training.encoding))
    np.testing.assert_allclose(X, [[1 / 3, 1 / 3, 2.0]])
    years = TaskSet.from_formula("y ~ C(year) + (1 | g)", frame).encoding
    with pytest.warns(UnknownCategoryWarning, match="'2025' did not appear in training"):
        encoded(new.assign(year=2025), years)
