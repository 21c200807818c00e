"""The command line: real files in, predictions, summaries, messages and exit codes out."""

from __future__ import annotations

import datetime
import io
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tailored
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.cli import app
from tailored.cli.console import with_options
from tailored.cli.tables import read_table
from tailored.evaluation import BASELINES, Evaluation

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

COMMANDS = ("fit", "predict", "evaluate", "summary", "report")
ROLES = ("--task", "school", "--target", "score")


def run(*arguments, code=0, **environment):
    # Wide, so that no searched word is broken over two lines.
    # One process, because tests fit small tables.
    env = {"COLUMNS": "300", "TERM": "dumb", "LOKY_MAX_CPU_COUNT": "1", **environment}
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], env=env)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """24 schools whose intercept and slope differ; the kind of a school shifts its intercept by 4.

    The last four schools are new: five pupils of each are observed.
    """
    folder, rng, n, size = tmp_path_factory.mktemp("shell"), np.random.default_rng(0), 24, 12
    labels = [f"s{i:02d}" for i in range(n)]
    kind = np.where(np.arange(n) % 2 == 0, "state", "church")
    school = np.repeat(np.arange(n), size)
    hours = rng.uniform(0, 10, n * size).round(2)
    intercept, slope = rng.normal(size=n) + 4.0 * (kind == "church"), 1.0 + 0.3 * rng.normal(size=n)
    score = intercept[school] + slope[school] * hours + rng.normal(size=n * size)
    columns = {"school": np.repeat(labels, size), "hours": hours, "score": score.round(3)}
    pupils = pd.DataFrame(columns)
    new = pupils["school"] >= "s20"
    first = pupils[new].groupby("school").head(5)
    pupils[~new].to_csv(folder / "pupils.csv", index=False)
    pupils[~new].to_parquet(folder / "pupils.parquet")
    first.to_csv(folder / "first.csv", index=False)
    pupils[new].drop(first.index).to_csv(folder / "new.csv", index=False)
    pd.DataFrame({"school": labels, "kind": kind}).to_csv(folder / "schools.csv", index=False)
    (folder / "empty.csv").write_text("")
    (folder / "repeated.csv").write_text("school,hours,hours\ns00,1,2\ns00,3,\n")
    (folder / "ragged.csv").write_text("school,hours,score\ns00,1,2\ns00,\x1b[31m,3,4\n")
    (folder / "escape.csv").write_text("sch\x1b[31mool,score\ns00,1\n")
    return folder


def tables(folder, *names):
    """Read CSV files of the folder."""
    return [pd.read_csv(folder / f"{name}.csv") for name in names]


def printed(done):
    """Read the table that a command printed."""
    return pd.read_csv(io.StringIO(done.stdout))


@pytest.fixture(scope="module")
def model(folder):
    out = folder / "model.tailored"
    side = ("--side-info", folder / "schools.csv")
    run("fit", folder / "pupils.csv", *ROLES, *side, "-o", out)
    return out


@pytest.fixture(scope="module")
def learner(folder):
    """The same model, fitted in Python."""
    pupils, schools = tables(folder, "pupils", "schools")
    return EmpiricalBayesLearner().fit(
        TaskSet.from_frame(pupils, task="school", target="score", side_info=schools)
    )


def numbered(folder, name, labels, **changes):
    """Write the training table with task labels in another notation."""
    frame = pd.read_csv(folder / "pupils.csv")
    frame["school"] = frame["school"].map(lambda label: labels(int(label[1:])))
    frame.assign(**changes).to_csv(folder / name, index=False)
    return folder / name


@pytest.fixture(scope="module")
def numeric_model(folder):
    """A model of a table without side information, whose labels are 0, 1, .."""
    data = numbered(folder, "whole.csv", str)
    run("fit", data, *ROLES, "-o", folder / "whole.tailored")
    return folder / "whole.tailored"


# ---------------------------------------------------------------- predict


def check_rounded(found, expected):
    """Predictions are rounded to the fourth figure of the smallest std, which is about 1 here."""
    for name in ("prediction", "lower", "upper", "std"):
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=0.0005001)
        np.testing.assert_array_equal(found[name], found[name].round(3))


def test_predictions_are_those_of_python(folder, model, learner):
    out = folder / "predictions.csv"
    options = ("--support", folder / "first.csv", "--side-info", folder / "schools.csv", "-o", out)
    assert run("predict", model, folder / "new.csv", *options).stderr == f"28 predictions: {out}\n"
    found = pd.read_csv(out)
    new, first, schools = tables(folder, "new", "first", "schools")
    assert list(found.columns) == [*new.columns, "prediction", "lower", "upper", "std"]
    pd.testing.assert_frame_equal(found[new.columns.tolist()], new)
    expected = learner.predict_tasks(new, first, side_info=schools)
    check_rounded(found, expected)
    # The noise has standard deviation 1, so a useful model has a smaller error than this.
    assert (found["prediction"] - new["score"]).abs().mean() < 1.2
    assert not list(folder.glob(".tailored-*"))


def test_training_tasks_are_predicted_without_support_and_side_information(folder, model, learner):
    """Columns of earlier predictions are replaced."""
    known = pd.read_csv(folder / "pupils.csv").iloc[::9]
    known.assign(lower=0.0, prediction=0.0).to_csv(folder / "known.csv", index=False)
    out = folder / "known.parquet"
    run("predict", model, folder / "known.csv", "-o", out, "--coverage", 0.8)
    check_rounded(pd.read_parquet(out), learner.predict_tasks(known, coverage=0.8))


def test_totals_are_those_of_python(folder, model, learner):
    new, first, schools = tables(folder, "new", "first", "schools")
    cells = new.assign(region="a", people=7)
    cells.loc[::2, "region"] = "b"
    cells.to_csv(folder / "cells.csv", index=False)
    out = folder / "totals.csv"
    given = ("--support", folder / "first.csv", "--side-info", folder / "schools.csv")
    options = (*given, "--total-by", "region", "--weights", "people", "--mean", "-o", out)
    assert run("predict", model, folder / "cells.csv", *options).stderr == f"2 predictions: {out}\n"
    expected = learner.predict_totals(
        cells, first, by="region", weights="people", statistic="mean", side_info=schools
    )
    decimals = 3 - np.floor(np.log10(expected["std"].min())).astype(int)
    pd.testing.assert_frame_equal(pd.read_csv(out), expected.round(decimals), rtol=1e-9)
    for options, message in [
        (("--mean",), "--weights, --mean: they are for totals. Add --total-by COLUMN."),
        (("--total-by", "regio"), "--total-by: the frame has no column 'regio'; it has"),
        (("--total-by", "region", "--weights", "x"), "--weights: the frame has no column 'x'"),
    ]:
        done = run("predict", model, folder / "cells.csv", *given, *options, code=2)
        assert re.search(message, done.stderr)


@pytest.mark.parametrize("intercept", [True, False])
def test_formulas(folder, intercept):
    out, start = folder / "formula.tailored", "" if intercept else "0 + "
    formula = f"score ~ {start}hours + I(hours**2) + ({start}hours || school)"
    text = run("fit", folder / "pupils.csv", "--formula", formula, "-o", out).stdout
    assert f"Formula: {formula}." in tailored.load(out).summary().further
    assert re.search("hours +feature +number", text)
    new, first, pupils = tables(folder, "new", "first", "pupils")
    done = run("predict", out, folder / "new.csv", "--support", folder / "first.csv")
    learner = EmpiricalBayesLearner(fit_intercept=intercept)
    expected = learner.fit(TaskSet.from_formula(formula, pupils)).predict_tasks(new, first)
    np.testing.assert_allclose(printed(done)["prediction"], expected["prediction"], atol=1e-3)


def test_standard_input_and_output_of_a_process(folder, model):
    given, side = (folder / "new.csv").read_text(), ("--side-info", str(folder / "schools.csv"))
    command = [sys.executable, "-m", "tailored", "predict", str(model), "-", *side]
    done = subprocess.run(command, input=given, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(given.splitlines())
    assert lines[0].replace('"', "") == "school,hours,score,prediction,lower,upper,std"
    out = folder / "also.csv"
    run("predict", model, folder / "new.csv", *side, "-o", out)
    assert out.read_text().splitlines() == lines


def test_a_full_disk_is_an_error(folder, model, tmp_path):
    """The first write stores a part without an error, and an unbuffered stream does not write the
    rest by itself.
    """
    side = ("--side-info", folder / "schools.csv")
    predict = f"{sys.executable} -m tailored predict {model} {folder / 'new.csv'}"
    with (tmp_path / "out.csv").open("w") as out:
        command = ["bash", "-c", f"ulimit -f 1; {predict} {side[0]} {side[1]}"]
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, env=env)
    assert (done.returncode, done.stderr) == (2, "error: [Errno 27] File too large\n")


def test_labels_of_csv_files_are_strings(folder, numeric_model):
    model = numeric_model
    assert tailored.load(model).task_labels_.dtype.kind == "U"
    typed = folder / "numbers.parquet"
    pd.read_csv(folder / "whole.csv").to_parquet(typed)
    assert (
        "labels: they are numbers, such as 0, and the known labels are strings"
        in run("predict", model, typed, code=2).stderr
    )
    # Zeros in front of identifiers are kept.
    zeros, strings = numbered(folder, "zeros.csv", "00{}".format), folder / "strings.tailored"
    run("fit", zeros, *ROLES, "-o", strings)
    found = pd.read_csv(io.StringIO(run("predict", strings, zeros).stdout), dtype={"school": str})
    assert found["school"][0] == "000"
    # Labels of a model that was fitted to numbers are read as numbers.
    learner = EmpiricalBayesLearner(n_jobs=1)
    learner.fit(pd.read_csv(folder / "whole.csv"), task="school", target="score").save(strings)
    assert run("predict", strings, folder / "whole.csv").stdout.startswith('"school","hours"')


def test_missing_values(folder, numeric_model):
    """Rows without a task or target are left out, and missing features are imputed, as in Python;
    both are reported.
    """
    model, out = folder / "imputing.tailored", folder / "imputed.csv"
    data = numbered(folder, "imputing.csv", str, hours=lambda f: f["hours"].where(f.index % 7 != 0))
    frame = pd.read_csv(data)
    frame.loc[[3, 5], "score"] = np.nan
    frame.to_csv(data, index=False)
    done = run("fit", data, *ROLES, "-o", model)
    assert "data: 240 rows read, 238 used; left out: 2 with no 'score'\n" in done.stderr
    assert "data: missing values are replaced by their training means: hours\n" in done.stderr
    run("predict", model, data, "-o", out)
    tasks = TaskSet.from_frame(frame, task="school", target="score", missing="impute")
    expected = EmpiricalBayesLearner().fit(tasks).predict_tasks(frame)["prediction"]
    np.testing.assert_allclose(pd.read_csv(out)["prediction"], expected, atol=1e-3)
    formula = ("--formula", "score ~ hours + (1 | school)", "-o", model)
    done = run("fit", data, *formula)
    n_used = frame[["hours", "score"]].notna().all(axis=1).sum()
    assert f"data: 240 rows read, {n_used} used; left out: " in done.stderr
    done = run("predict", numeric_model, data, "-o", out)
    assert "data: missing values are replaced by their training means: hours\n" in done.stderr


@pytest.mark.filterwarnings("always:constant within every task")
def test_columns_of_tasks_are_side_information(folder, model):
    schools = pd.read_csv(folder / "schools.csv")
    for name in ("pupils", "first", "new"):
        frame = pd.read_csv(folder / f"{name}.csv").merge(schools, on="school")
        frame.to_csv(folder / f"{name}-joined.csv", index=False)
    joined, data = folder / "joined.tailored", folder / "new-joined.csv"
    done = run("fit", folder / "pupils-joined.csv", *ROLES, "-o", joined)
    message = "warning: constant within every task, so read as side information: 'kind'."
    assert message in done.stderr
    assert done.stdout.startswith(
        "EmpiricalBayesLearner: 20 tasks (school), 240 rows of score, 1 feature\n"
    )
    assert re.search("kind +side info +categorical", done.stdout)
    one = run("predict", joined, data, "--support", folder / "first-joined.csv")
    options = ("--support", folder / "first.csv", "--side-info", folder / "schools.csv")
    two = run("predict", model, folder / "new.csv", *options)
    np.testing.assert_array_equal(printed(one)["prediction"], printed(two)["prediction"])
    # A missing side column is named, and blank cells have the value of the task.
    frame, plain = pd.read_csv(data), printed(run("predict", joined, data))
    frame.drop(columns="kind").to_csv(data, index=False)
    error = run("predict", joined, data, code=2).stderr
    assert "side information (columns 'kind'); pass it, or tables that have it" in error
    first = ~frame["school"].duplicated()
    frame.assign(kind=frame["kind"].where(~first)).to_csv(data, index=False)
    found = printed(run("predict", joined, data))
    pd.testing.assert_series_equal(found["prediction"], plain["prediction"])


def test_types_and_missing_values_of_csv_files(folder):
    data = folder / "types.csv"
    data.write_text('task,text,day,n,on\nb,"NA",2026-01-31,1.5,true\nc,NA,,,false\n')
    table = read_table(str(data), "data").to_pydict()
    assert table == {
        "task": ["b", "c"],
        "text": ["NA", None],
        "day": [datetime.date(2026, 1, 31), None],
        "n": [1.5, None],
        "on": [True, False],
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"school;hours\nb;1,5\nc;2,5\n", "(Expected 1 columns, got 2|no commas between columns)"),
        (b"school\thours\nb\t1\n", "no commas between columns. Save it with commas"),
        (b"task,text\n" + b"a,b\n" * 9 + b"a,\xe9\n", "is not text in UTF-8. Save it as CSV UTF-8"),
        (b"Results\nschool,hours\na,1\n", "cannot be read .CSV parse error: Expected 1 columns"),
    ],
)
def test_files_that_are_not_tables_with_commas(tmp_path, content, message):
    data = tmp_path / "data.csv"
    data.write_bytes(content)
    with pytest.raises(ValueError, match=f"data: .*{message}"):
        read_table(str(data), "data")


def test_output_files(folder, numeric_model):
    data, model, out = folder / "quotes.csv", numeric_model, folder / "out.csv"
    frame = pd.read_csv(folder / "whole.csv").assign(**{'"é"': 'a";b', "n": 1.5})
    frame.to_csv(data, index=False)
    plain = printed(run("predict", model, data))
    pd.testing.assert_frame_equal(plain[frame.columns], frame)
    for name, read in (("out.csv", pd.read_csv), ("out.parquet", pd.read_parquet)):
        run("predict", model, data, "-o", folder / name)
        found = read(folder / name).astype({"school": int})
        pd.testing.assert_frame_equal(found, plain, check_dtype=False)
    before = data.read_bytes()
    assert f"--out: {data} is an input" in run("predict", model, data, "-o", data, code=2).stderr
    assert f"--out: {data} is an input" in run("fit", data, *ROLES, "-o", data, code=2).stderr
    assert data.read_bytes() == before
    done = run("predict", model, data, "-o", folder / "out.xlsx", code=2)
    assert "out.xlsx must end with .csv or .parquet." in done.stderr
    assert out.exists()


def test_text_among_numbers_is_an_error(folder, numeric_model):
    frame, data = pd.read_csv(folder / "pupils.csv").astype({"hours": str}), folder / "text.csv"
    frame.loc[30, "hours"] = "k.A."
    frame.to_csv(data, index=False)
    done = run("fit", data, *ROLES, code=2)
    assert "Column 'hours' holds numbers as strings, such as '" in done.stderr
    assert "but also 'k.A.'. Correct the file. If they are categories, add a" in done.stderr
    frame.assign(school=frame["school"].str[1:].astype(int)).to_csv(data, index=False)
    for options, name in (
        ((data,), ""),
        ((folder / "whole.csv", "--support", data), "--support: "),
    ):
        done = run("predict", numeric_model, *options, code=2)
        found = f"error: {name}Feature column 'hours' is not numeric (it has "
        assert done.stderr.startswith(found)


# ---------------------------------------------------------------- fit, evaluate, summary, report


def test_fit_prints_the_model_and_the_next_command(folder):
    out = folder / "printed.tailored"
    text = run("fit", folder / "pupils.csv", *ROLES, "--varying", "", "-o", out).stdout
    assert text.startswith(
        "EmpiricalBayesLearner: 20 tasks (school), 240 rows of score, 1 feature\n"
    )
    assert str(tailored.load(out).summary()) in text
    assert re.search("hours +feature +number", text)
    assert f"\nmodel: {out}\nnext: tailored predict {out} NEW.csv -o predictions.csv\n" in text


def test_evaluate(folder, monkeypatch):
    few = {"task mean": BASELINES["numbers"]["task mean"]}
    few["mixed model"] = EmpiricalBayesLearner(covariance="diagonal")
    monkeypatch.setitem(BASELINES, "numbers", few)
    side = ("--side-info", folder / "schools.csv")
    done = run("evaluate", folder / "pupils.parquet", *ROLES, "--rows", "0,5", *side)
    text = " ".join(done.stdout.split())
    assert "Mean squared error on 20 new tasks, by number of support rows" in text
    assert "inside 90 % intervals" in text
    assert "task mean: mean of the support rows" in text
    assert done.stderr == ""
    calls = []

    def evaluate(tasks, learner, **options):
        calls.append((learner, options))
        scores = {"absolute error": np.ones((1, 2, 3)), "covered": np.full((1, 2, 3), np.nan)}
        return Evaluation(("tailored",), (0, 5), np.arange(3), scores, None, 0.9)

    monkeypatch.setattr("tailored.evaluation.evaluate", evaluate)
    options = ("--rows", "first,0,5", "--loss", "absolute")
    done = run("evaluate", folder / "pupils.csv", *ROLES, *options)
    ((learner, options),) = calls
    assert learner.loss == "absolute"
    assert options["supports"] == ["first", 0, 5]
    assert "Tasks with at most 5 rows are not evaluated: 17 of 20." in done.stdout


def test_classes_and_counts(folder, monkeypatch):
    """Classes have probabilities and three scores, counts two."""
    for kind in ("classes", "counts"):
        few = {"regression per task": BASELINES[kind]["regression per task"]}
        monkeypatch.setitem(BASELINES, kind, few)
    pupils, out = pd.read_csv(folder / "pupils.csv")[:120], folder / "passed.tailored"
    pupils["passed"] = np.where(pupils["score"] > 5, "yes", "no")
    pupils["points"] = pupils["score"].clip(0).round().astype(int)
    pupils[["school", "hours", "passed"]].to_csv(folder / "passed.csv", index=False)
    pupils[["school", "hours", "points"]].to_csv(folder / "points.csv", index=False)
    done = run("fit", folder / "passed.csv", "--task", "school", "--target", "passed", "-o", out)
    assert "target 'passed' has classes, so a classifier is fitted" in done.stderr
    probability = printed(run("predict", out, folder / "passed.csv"))["probability"]
    yes, no = (probability[pupils["passed"] == name].mean() for name in ("yes", "no"))
    assert yes > no + 0.3
    for target, loss, names in (
        ("passed", "squared", ("log loss", "Brier score", "accuracy")),
        ("points", "poisson", ("half Poisson deviance", "absolute error")),
    ):
        options = ("--task", "school", "--target", target, "--rows", "0,5", "--loss", loss)
        text = run("evaluate", folder / f"{target}.csv", *options).stdout
        assert all(f"Mean {name} on 10 new tasks" in text for name in names)
        assert text.count("regression per task") == len(names) + 1  # once in the caption


def test_loss(folder):
    out = folder / "a"
    for loss, kind in ((), "means"), (("--loss", "absolute"), "medians"):
        text = run("fit", folder / "pupils.csv", *ROLES, *loss, "-o", out).stdout
        assert f"Predictions are {kind} of the target." in text
        assert tailored.load(out).loss == (loss or ("", "squared"))[1]
    done = run("fit", folder / "pupils.csv", *ROLES, "--loss", "median", code=2)
    continuous = run("fit", folder / "pupils.csv", *ROLES, "--loss", "bernoulli", code=2).stderr
    assert continuous.startswith("error: --target: Unknown label type: continuous;")
    losses = "'squared', 'absolute', 'poisson', 'negative_binomial', 'bernoulli'"
    assert "Invalid value for '--loss'" in done.stderr
    assert f"'median' is not one of {losses}." in done.stderr


def test_summary(model):
    text, details = (run("summary", model, *more).stdout for more in ((), ("--details",)))
    assert "fixed effect" in text
    assert len(text.splitlines()) <= 40
    assert "Selection on held-out tasks" in details
    assert max(map(len, [*text.splitlines(), *details.splitlines()])) <= 80


def test_summary_of_three_classes(folder):
    pupils, out = pd.read_csv(folder / "pupils.csv"), folder / "grade.tailored"
    pupils["grade"] = pd.qcut(pupils.pop("score"), 3, labels=["low", "fair", "good"])
    pupils.to_csv(folder / "grade.csv", index=False)
    run("fit", folder / "grade.csv", "--task", "school", "--target", "grade", "-o", out)
    text = run("summary", out, "--details").stdout
    assert re.findall(r"^Class (\S+) against", text, re.M) == ["'fair'", "'good'", "'low'"]
    learner = tailored.load(out)
    for name, one in zip(("fair", "good", "low"), learner.learners_, strict=True):
        assert f"Predictions are probabilities of '{name}'." in " ".join(text.split())
        assert str(one.summary().tables["effects"]) in text
    assert "second class" not in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_report(folder, model, monkeypatch):
    """Tasks are read as by fit; the evaluation can be left out."""
    calls = []
    monkeypatch.setattr("tailored.show.report.write_report", lambda *given: calls.append(given))
    monkeypatch.setattr("tailored.evaluation.evaluate", lambda *given, **options: (given, options))
    monkeypatch.setattr("tailored.cli.MAX_EVALUATED", 15)
    files = ("--data", folder / "pupils.csv", "--side-info", folder / "schools.csv")
    page = ("-o", folder / "page.html")
    done = run("report", model, *files, *page)
    run("report", model, *files, *page, "--no-evaluation")
    for (out, learner, tasks, evaluation), is_evaluated in zip(calls, (True, False), strict=True):
        assert learner.n_features_in_ == tasks.n_features == 1
        assert (len(tasks), tasks.side_info.shape, out) == (20, (20, 1), str(folder / "page.html"))
        assert (evaluation is not None) == is_evaluated
    (sample, learner), options = calls[0][3]
    assert (len(sample), learner, options["n_folds"]) == (15, calls[0][1], 3)
    assert "a random sample of 15 of the 20 tasks is evaluated" in done.stderr
    assert done.stdout == f"page: {out}\n"


@pytest.mark.filterwarnings(
    "always:fit. differences between tasks", "always:coverage. too few tasks"
)
def test_report_on_three_tasks(folder, tmp_path, monkeypatch):
    """Each task is a fold."""
    few = {"task mean": BASELINES["numbers"]["task mean"]}
    few["mixed model"] = EmpiricalBayesLearner(covariance="diagonal")
    monkeypatch.setitem(BASELINES, "numbers", few)
    frame = pd.read_csv(folder / "pupils.csv")
    data, model, page = tmp_path / "three.csv", tmp_path / "model", tmp_path / "page.html"
    frame[frame["school"] < "s03"].to_csv(data, index=False)
    run("fit", data, *ROLES, "-o", model)
    run("report", model, "--data", data, "-o", page)
    assert "on 3 held-out tasks" in page.read_text()
    frame[frame["school"] < "s01"].to_csv(data, index=False)
    found = "data: 1 of 1 tasks have more than 10 rows, and at least two are needed."
    assert f"error: {found}" in run("report", model, "--data", data, "-o", page, code=2).stderr


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "tasks: bad. Use smaller numbers in `supports`.",
            "data: bad. Use smaller numbers in --rows.",
        ),
        ("coverage must be below 1", "--coverage must be below 1"),
        ("For rates, pass counts and exposure=.", "For rates, pass counts and --exposure."),
        ("X: column 'a' is large", "data: column 'a' is large"),
        ("y: Input y contains NaN", "--target: Input y contains NaN"),
        ("task 's' is taken twice", "task 's' is taken twice"),
        ("Pass side_info or side_columns.", "Pass --side-info or --side-columns."),
        ("path: it is damaged", "file: it is damaged"),
        ("fit: use side_columns=['size', 'my kind']", "fit: use --side-columns 'size,my kind'"),
        ("Learner(loss='poisson') (--loss poisson) models them", "--loss poisson models them"),
    ],
)
def test_messages_name_options_of_the_shell(message, expected, monkeypatch):
    monkeypatch.setattr("tailored.cli.console.READ", set())
    assert with_options(message) == expected


def test_each_combination_of_several_columns_is_a_task(folder, tmp_path):
    """As in Python with a list of columns."""
    frame = pd.read_csv(folder / "pupils.csv").assign(term=lambda table: np.arange(len(table)) % 2)
    data, model = tmp_path / "data.csv", tmp_path / "model"
    frame.to_csv(data, index=False)
    roles = ("--task", "school, term", "--target", "score")
    assert "240 rows of score, 1 feature\n" in run("fit", data, *roles, "-o", model).stdout
    found = printed(run("predict", model, data))
    tasks = TaskSet.from_frame(frame, task=["school", "term"], target="score")
    expected = EmpiricalBayesLearner(n_jobs=1).fit(tasks).predict_tasks(frame)
    np.testing.assert_allclose(found["prediction"], expected["prediction"], atol=1e-3)


# ---------------------------------------------------------------- errors and help


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "{}/none.csv", *ROLES], "there is no file '{}/none.csv'"),
        (["fit", "{}/pupils.csv", "--task", "scool", "--target", "score"], "Did you mean 'school'?"),
        (["fit", "{}/pupils.csv", "--task", "school", "--target", "points"], "--target must be one of 'school', 'hours', 'score'; got 'points'"),
        (["fit", "{}/pupils.csv", *ROLES, "--varying", "hour"], "--varying: 'hour' is not a feature. The features are 'hours'"),
        (["fit", "{}/pupils.csv", *ROLES, "--side-info", "{}/schools.csv", "--side-columns", "hours"], "--side-columns"),
        (["fit", "{}/pupils.csv", *ROLES, "-o", "{}/no/m"], "--out: the folder {}/no does not exist"),
        (["fit", "{}/pupils.csv", *ROLES, "-o", "/dev/full"], "--out: /dev/full is not a regular file"),
        (["fit", "{}/pupils.csv", *ROLES, "-o", "n" * 300], "--out: "),
        (["predict", "{model}", "{}/new.csv", "-o", ""], "--out: . is a folder"),
        (["fit", "", *ROLES], "there is no file ''"),
        (["predict", "{model}", "{}/repeated.csv"], "got: - 'hours' 2 times"),
        (["fit", "{}/ragged.csv", *ROLES], "ragged.csv cannot be read (CSV parse error: Expected 3 columns, got 4). Give"),
        (["fit", "{}/escape.csv", "--task", "school", "--target", "score"], "Did you mean 'sch\\x1b[31mool'"),
        (["fit", "{}/pupils.csv", *ROLES, "-o", "{}"], "--out: {} is a folder"),
        (["fit", "{}/pupils.csv", "--task", "school"], "--target"),
        (["fit", "{}/pupils.csv", "--formula", "score ~ hour + (1 | school)"], "--formula: the frame has no column 'hour'; it has 'school'"),
        (["fit", "{}/pupils.csv", *ROLES, "--formula", "score ~ hours + (1 | school)"], "--task, --target, --varying: not with --formula"),
        (["fit", "{}/pupils.csv", "--varying", "", "--formula", "score ~ hours + (1 | school)"], "not with --formula"),
        (["fit", "{}/pupils.csv", "--formula", "score ~ (1 | school) + (1 | hours)"], "use --task school, with 'hours' as a column"),
        (["evaluate", "{}/pupils.csv", "--formula", "score ~ log(-hours) + (1 | school)"], "is not a finite number in line 2"),
        (["predict", "{}/pupils.csv", "{}/new.csv"], "pupils.csv"),
        (["predict", "{model}", "{}/empty.csv"], "empty.csv cannot be read"),
        (["predict", "{}/new.csv", "{model}"], "new.csv is a table. The model comes first, then the data."),
        (["predict", "{model}", "{}/new.csv"], "--side-info: the learner was fitted with side information"),
        (["evaluate", "{}/pupils.csv", *ROLES, "--rows", "a"], "--rows must be an integer"),
        (["summary", "{}/none"], "none"),
        (["report", "{model}", "--data", "{}/new.csv"], "data: {}/new.csv has no column 'kind'."),
    ],
)  # fmt: skip
def test_errors_are_one_line(folder, model, arguments, message):
    given = [
        argument.replace("{model}", str(model)).replace("{}", str(folder)) for argument in arguments
    ]
    lines = run(*given, code=2).stderr.strip().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].isprintable()
    assert lines[0].startswith("error: ")
    assert message.replace("{}", str(folder)) in lines[0]


def test_help_and_version():
    assert run("--version").stdout == f"tailored {tailored.__version__}\n"
    text = run("--help").stdout
    for command in COMMANDS:
        assert command in text
        shown = run(command, "--help").stdout
        assert f"Example:\n  tailored {command}" in shown
        options = re.findall(r"^.{0,6}(--[a-z-]+)", shown, re.M)
        assert max(map(len, shown.splitlines())) <= 100
        assert len(set(options) - {"--help"}) <= 10, options
        assert run(command, "-h").stdout == shown


@pytest.mark.parametrize(
    ("typed", "completions"), [("pre", {"predict"}), ("fit --ta", {"--task", "--target"})]
)
def test_the_shell_completes_commands_and_options(typed, completions, monkeypatch, capsys):
    """With the environment variables that bash sets, by the function that `--show-completion`
    prints.
    """
    monkeypatch.setenv("_TAILORED_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", f"tailored {typed}")
    monkeypatch.setenv("COMP_CWORD", str(len(typed.split())))
    with pytest.raises(SystemExit):
        app(prog_name="tailored")
    assert set(capsys.readouterr().out.split()) == completions


def test_an_interrupt_has_its_exit_code(folder, model, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("tailored.load", interrupt)
    assert run("summary", model, code=130).stderr == "interrupted.\n"


def test_exposure_is_remembered(tmp_path):
    rng = np.random.default_rng(0)
    nest, hours = np.repeat(np.arange(20), 6), rng.uniform(0.5, 3.0, 120).round(2)
    x = rng.normal(size=(120, 1)).round(3)
    calls = rng.poisson(hours * np.exp(rng.normal(1.0, 0.3, 20)[nest] + x[:, 0]))
    frame = pd.DataFrame({"nest": nest, "hours": hours, "calls": calls, "x": x[:, 0]})
    data, model, out = (tmp_path / name for name in ("owls.csv", "model", "out.csv"))
    frame.to_csv(data, index=False)
    roles = ("--task", "nest", "--target", "calls", "--exposure")
    run("fit", data, *roles, "hours", "--loss", "poisson", "-o", model)
    run("predict", model, data, "-o", out)
    learner = EmpiricalBayesLearner(loss="poisson").fit(x, calls, groups=nest, exposure=hours)
    expected = learner.predict(x, nest, exposure=hours)
    np.testing.assert_allclose(pd.read_csv(out)["prediction"], expected, atol=1e-3)
    done = run("fit", data, *roles, "hours", code=2)
    assert "--exposure: EmpiricalBayesLearner with the squared loss cannot use it" in done.stderr
    assert "--loss poisson" in done.stderr
    done = run("fit", data, *roles, "hour", "--loss", "poisson", code=2)
    assert "--exposure must be one of 'nest', 'hours', 'calls', 'x'; got 'hour'." in done.stderr
    frame.assign(hours=0.0).to_csv(data, index=False)
    for command in (("fit", data, *roles, "hours", "--loss", "poisson"), ("predict", model, data)):
        assert "--exposure: line 2 has 0; all must be positive" in run(*command, code=2).stderr
    frame[["nest", "x"]].to_csv(data, index=False)
    assert "'hours'" in run("predict", model, data, code=2).stderr


@pytest.mark.parametrize(
    ("calls", "hint"),
    [
        ([0, 1], "hint: all targets are 0 or 1: --loss bernoulli predicts"),
        ([0, 1, 3], "hint: targets may be counts: --loss poisson models"),
        ([0, 2, 6], None),
        ([1, 2], None),
        ([0.0, 1.5], None),
    ],
)
def test_hints_for_binary_targets_and_counts(calls, hint, tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, data, model = rng.normal(size=90), tmp_path / "data.csv", tmp_path / "model"
    y = np.array(calls)[(x + rng.normal(size=90) > 0).astype(int)]
    y[:3] = calls[-1]
    frame = pd.DataFrame({"nest": np.repeat(np.arange(15), 6), "x": x, "calls": y})
    frame.to_csv(data, index=False)
    roles = ("--task", "nest", "--target", "calls")
    found = run("fit", data, *roles, "-o", model).stderr
    assert (hint in found) if hint else ("hint" not in found)
    notes = TaskSet.from_frame(frame, task="nest", target="calls").describe().caption
    assert ("EmpiricalBayesClassifier" in notes) == (calls == [0, 1])
    assert ("loss='poisson'" in notes) == (calls == [0, 1, 3])
    if calls == [0, 1]:
        assert "hint" not in run("fit", data, *roles, "-o", model, "--loss", "bernoulli").stderr
        assert "probability" in run("predict", model, data).stdout
        constant = BASELINES["classes"]["constant"]
        monkeypatch.setitem(BASELINES, "classes", {"constant": constant})
        options = (*roles, "--rows", "2", "--loss", "bernoulli")
        assert "log loss" in run("evaluate", data, *options).stdout
        frame.assign(calls="yes").to_csv(data, index=False)
        message = "there is only one class, 'yes'; a classifier needs at least two"
        assert message in run("fit", data, *roles, "-o", model, code=2).stderr
