"""A table in, answers out, from the shell: real files, real processes where the process is what is tested."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import tailored
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.cli import app


def table(n_schools=24, n_pupils=12, seed=0):
    """Pupils of schools whose level and slope differ; the type of a school moves its level by 4."""
    rng = np.random.default_rng(seed)
    school = np.repeat([f"s{i:02d}" for i in range(n_schools)], n_pupils)
    kind = np.where(np.arange(n_schools) % 2 == 0, "state", "church")
    hours = rng.uniform(0, 10, len(school)).round(2)
    level = rng.normal(size=n_schools) + 4.0 * (kind == "church")
    slope = 1.0 + 0.3 * rng.normal(size=n_schools)
    which = np.repeat(np.arange(n_schools), n_pupils)
    score = level[which] + slope[which] * hours + rng.normal(size=len(school))
    pupils = pd.DataFrame({"school": school, "hours": hours, "score": score.round(3)})
    return pupils, pd.DataFrame({"school": np.unique(school), "kind": kind})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("shell")
    pupils, schools = table()
    new = pupils["school"] >= "s20"
    pupils[~new].to_csv(place / "pupils.csv", index=False)
    schools.to_csv(place / "schools.csv", index=False)
    first = pupils[new].groupby("school").head(5)
    first.to_csv(place / "first.csv", index=False)
    pupils[new].drop(first.index).to_csv(place / "new.csv", index=False)
    pupils[~new].to_parquet(place / "pupils.parquet")
    return place


def run(*arguments, code=0, **options):
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], **options)
    assert done.exit_code == code, done.output
    return done


@pytest.fixture(scope="module")
def model(folder):
    out = folder / "model.tailored"
    done = run(
        "fit", folder / "pupils.csv", "--task", "school", "--target", "score",
        "--describe", folder / "schools.csv", "-o", out, "--jobs", 1, "--json",
    )  # fmt: skip
    facts = json.loads(done.stdout)
    assert facts["tasks"] == 20
    assert facts["inputs"] == 1
    return out


def in_python(folder):
    pupils, schools = (pd.read_csv(folder / name) for name in ("pupils.csv", "schools.csv"))
    tasks = TaskSet.from_frame(pupils, task="school", target="score", side_info=schools)
    return EmpiricalBayesLearner().fit(tasks)


def test_predictions_are_those_of_python(folder, model):
    out = folder / "predictions.csv"
    run(
        "predict", model, folder / "new.csv", "--support", folder / "first.csv",
        "--describe", folder / "schools.csv", "-o", out,
    )  # fmt: skip
    found = pd.read_csv(out)
    new, first, schools = (pd.read_csv(folder / name) for name in ("new.csv", "first.csv", "schools.csv"))
    assert list(found.columns) == [*new.columns, "prediction", "lower", "upper", "std"]
    pd.testing.assert_frame_equal(found[new.columns.tolist()], new)
    expected = in_python(folder).predict_tasks(new, first, side_info=schools)
    np.testing.assert_allclose(found["prediction"], expected["prediction"], rtol=1e-9)
    np.testing.assert_allclose(found["upper"], expected["upper"], rtol=1e-9)
    # The noise has deviation one, and levels differ by 4 between kinds of school: it has learned something.
    assert (found["prediction"] - new["score"]).abs().mean() < 1.2
    inside = new["score"].between(found["lower"], found["upper"]).mean()
    assert 0.7 <= inside <= 1.0


def test_standard_input_and_output(folder, model):
    given = (folder / "new.csv").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "tailored", "predict", str(model), "-", "--describe", str(folder / "schools.csv")],
        input=given, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == len(given.splitlines())
    assert lines[0].replace('"', "") == "school,hours,score,prediction,lower,upper,std"
    described = run(
        "predict", model, folder / "new.csv", "--describe", folder / "schools.csv", "--json"
    ).stdout
    first = json.loads(described.splitlines()[0])
    assert first["prediction"] == pytest.approx(float(lines[1].split(",")[3]), rel=1e-9)


def test_parquet_is_read_as_csv_is(folder):
    made = []
    for name in ("pupils.csv", "pupils.parquet"):
        out = folder / f"{name}.tailored"
        run("fit", folder / name, "--task", "school", "--target", "score", "-o", out, "--jobs", 1)
        made.append(tailored.load(out))
    X = np.array([[3.0]])
    np.testing.assert_array_equal(made[0].adapt().predict(X), made[1].adapt().predict(X))


def test_a_large_table_is_read_in_batches(folder, monkeypatch):
    """The threshold is lowered; nothing else is changed."""
    from tailored.cli import tables

    monkeypatch.setattr(tables, "LARGE", 10)
    for name in ("pupils.csv", "pupils.parquet"):
        out = folder / f"large-{name}.tailored"
        run("fit", folder / name, "--task", "school", "--target", "score", "-o", out, "--jobs", 1)
        whole = EmpiricalBayesLearner().fit(
            TaskSet.from_frame(pd.read_csv(folder / "pupils.csv"), task="school", target="score")
        )
        X = np.array([[3.0]])
        np.testing.assert_allclose(tailored.load(out).adapt().predict(X), whole.adapt().predict(X), rtol=1e-3)


def test_evaluation(folder):
    done = run(
        "evaluate", folder / "pupils.csv", "--task", "school", "--target", "score", "--describe",
        folder / "schools.csv", "--rows", "0,5", "--folds", 2, "-o", folder / "errors.csv", "--json",
    )  # fmt: skip
    found = json.loads(done.stdout)
    assert found["n_tasks"] == 20
    errors = {(line["method"], line["rows"]): line["error"] for line in found["errors"]}
    assert errors["tailored", 5] < errors["tailored", 0]
    assert errors["tailored", 5] < errors["task mean", 5]
    written = pd.read_csv(folder / "errors.csv")
    assert len(written) == len(found["errors"])
    shown = run(
        "evaluate", folder / "pupils.csv", "--task", "school", "--target", "score", "--rows", "0,5", "--folds", 2
    ).stdout  # fmt: skip
    assert "ridge per task" in shown
    assert "tasks that were not learned from" in " ".join(shown.split())


def test_known_schools_are_predicted_by_what_was_learned_of_them(folder, model):
    """No description and no support: the file has it, and the shell says what Python says."""
    known = pd.read_csv(folder / "pupils.csv").iloc[::9]
    known.to_csv(folder / "known.csv", index=False)
    out = folder / "known.parquet"
    run("predict", model, folder / "known.csv", "-o", out, "--coverage", 0.8)
    found = pd.read_parquet(out)
    expected = in_python(folder).predict_tasks(known, coverage=0.8)
    for name in ("prediction", "lower", "upper", "std"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-9)
    assert "also if the model was learned from it" in " ".join(
        run("predict", "--help", env={"COLUMNS": "300"}).stdout.replace("│", " ").split()
    )


def test_fit_says_what_it_chose_where_it_is_and_what_comes_next(folder, model):
    out = folder / "said.tailored"
    said = run(
        "fit", folder / "pupils.csv", "--task", "school", "--target", "score", "--varying", "", "-o", out, "--jobs", 1
    ).stdout  # fmt: skip
    words = tailored.load(out).summary().text
    assert words[0] in said
    assert "{" not in said
    assert "Linear mixed model" in said
    assert f"model: {out}\nnext: tailored predict {out} NEW.csv -o predictions.csv" in said
    done = run(
        "fit", folder / "pupils.csv", "--task", "school", "--target", "score", "--varying", "hour", code=2
    )
    assert "--varying" in done.stderr
    assert "did you mean 'hours'?" in done.stderr


def numbered(place, name, labels, **others):
    """The same tasks under labels that are written in another way."""
    frame = pd.read_csv(place / "pupils.csv")
    frame["school"] = frame["school"].map(lambda word: labels(int(word[1:])))
    frame.assign(**others).to_csv(place / name, index=False)
    return place / name


@pytest.fixture(scope="module")
def of_numbers(folder):
    made = {}
    for name, labels in (("whole", str), ("padded", "{:03d}".format)):
        made[name] = folder / f"{name}.tailored"
        data = numbered(folder, f"{name}.csv", labels)
        run("fit", data, "--task", "school", "--target", "score", "-o", made[name], "--jobs", 1)
    return made


def test_labels_are_those_of_the_model_whatever_the_file_made_of_them(folder, of_numbers):
    def found(model, name, labels):
        out = folder / "labels.csv"
        run("predict", of_numbers[model], numbered(folder, name, labels), "-o", out)
        return pd.read_csv(out, dtype={"school": str})

    plain = found("whole", "a.csv", str)
    assert tailored.load(of_numbers["whole"]).task_labels_.dtype.kind == "i"
    # floats, as a spreadsheet or pandas makes them, and a file of typed words
    for name, labels in (("b.csv", "{}.0".format), ("c.csv", "{:d}".format)):
        pd.testing.assert_frame_equal(found("whole", name, labels), plain)
    padded = found("padded", "d.csv", "{:03d}".format)
    assert padded["school"].str.len().eq(3).all()
    np.testing.assert_allclose(padded["prediction"], plain["prediction"], rtol=1e-6)
    words = pd.read_csv(folder / "whole.csv", dtype={"school": str})
    words.to_parquet(folder / "words.parquet")
    run("predict", of_numbers["whole"], folder / "words.parquet", "-o", folder / "labels.csv")
    np.testing.assert_array_equal(pd.read_csv(folder / "labels.csv")["prediction"], plain["prediction"])


def test_labels_that_cannot_be_meant_are_refused(folder, of_numbers):
    done = run("predict", of_numbers["padded"], numbered(folder, "e.csv", str), code=2)
    assert "'1' in column 'school' is written '001' elsewhere" in done.stderr
    done = run("predict", of_numbers["whole"], numbered(folder, "f.csv", "s{}".format), code=2)
    assert "'s0'" in done.stderr
    assert "whole numbers" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_incomplete_rows(folder, of_numbers):
    data = numbered(folder, "holes.csv", str, hours=lambda f: f["hours"].where(f.index % 7 != 0))
    done = run("fit", data, "--task", "school", "--target", "score", "-o", folder / "x", code=2)
    assert "--missing drop leaves such rows out" in done.stderr
    out = folder / "holes-out.csv"
    done = run("predict", of_numbers["whole"], data, "-o", out, code=2)
    assert not out.exists()
    run("predict", of_numbers["whole"], data, "-o", out, "--missing", "drop")
    found = pd.read_csv(out)
    assert found["prediction"].isna().equals(found["hours"].isna())
    assert found["hours"].isna().any()
    whole = run("predict", of_numbers["whole"], folder / "whole.csv", "--json").stdout.splitlines()
    there = found["prediction"].notna().to_numpy()
    expected = np.array([json.loads(line)["prediction"] for line in whole])
    np.testing.assert_allclose(found["prediction"][there], expected[there], rtol=1e-9)


def test_rows_of_a_large_table_are_predicted_in_batches(folder, model, monkeypatch):
    from tailored.cli import tables

    options = ["--support", folder / "first.csv", "--describe", folder / "schools.csv"]
    run("predict", model, folder / "new.csv", *options, "-o", folder / "whole-out.csv")
    monkeypatch.setattr(tables, "LARGE", 10)
    monkeypatch.setattr(tables, "BATCH", 5)
    run("predict", model, folder / "new.csv", *options, "-o", folder / "parts-out.csv")
    # adapted beside other tasks: the last bits may differ
    parts, whole = (pd.read_csv(folder / f"{name}-out.csv") for name in ("parts", "whole"))
    pd.testing.assert_frame_equal(parts, whole, rtol=1e-12)
    assert not list(folder.glob("*.part"))


def test_semicolons_tabs_and_words_for_nothing(folder, of_numbers):
    frame = pd.read_csv(folder / "whole.csv")
    plain = run("predict", of_numbers["whole"], folder / "whole.csv").stdout
    for mark, name in ((";", "semicolons.csv"), ("\t", "tabs.tsv")):
        frame.to_csv(folder / name, sep=mark, index=False)
        assert run("predict", of_numbers["whole"], folder / name).stdout == plain
    from tailored.cli.tables import read_table

    (folder / "words.csv").write_text("task,word\nNA,a\nb,NA\nc,\n")
    table = read_table(str(folder / "words.csv"), "data", ["task"]).to_pydict()
    assert table == {"task": ["NA", "b", "c"], "word": ["a", None, None]}


def test_a_pipe_gets_lines_of_a_log(folder, monkeypatch):
    done = run(
        "evaluate",
        folder / "pupils.csv",
        "--task",
        "school",
        "--target",
        "score",
        "--rows",
        "0",
        "--folds",
        2,
    )
    lines = [line for line in done.stderr.splitlines() if "part 1 of 2, ridge per task" in line]
    assert len(lines) == 1


def test_summary(model):
    text = run("summary", model).stdout
    assert "hours" in text
    assert max(map(len, text.splitlines())) <= 80
    assert json.loads(run("summary", model, "--json").stdout)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["fit", "{}/none.csv", "--task", "school", "--target", "score"], "there is no file"),
        (["fit", "{}/pupils.csv", "--task", "scool", "--target", "score"], "did you mean 'school'?"),
        (["fit", "{}/pupils.csv", "--task", "school", "--target", "points"], "has no column 'points'"),
        (["fit", "{}/pupils.csv", "--task", "school", "--target", "score", "-o", "{}/no/m"], "there is no folder"),
        (["predict", "{}/pupils.csv", "{}/new.csv"], "pupils.csv"),
        (["predict", "{model}", "{}/empty.csv"], "empty.csv"),
        (["predict", "{model}", "{}/new.csv"], "--describe"),
        (["evaluate", "{}/pupils.csv", "--task", "school", "--target", "score", "--rows", "a"], "--rows"),
        (["report", "{model}"], "--data"),
        (["fit", "{}/pupils.csv", "--task", "school"], "--target"),
        (["fit", "{}/pupils.csv", "--taks", "school"], "--task"),
        (["fitt"], "fit"),
        (["evaluate", "{}/pupils.csv", "--task", "school", "--target", "score", "--folds", "1"], "--folds"),
        (["summary", "{}/none"], "none"),
    ],
)  # fmt: skip
def test_errors_are_one_line(folder, model, arguments, said):
    (folder / "empty.csv").write_text("")
    given = [argument.replace("{model}", str(model)).replace("{}", str(folder)) for argument in arguments]
    done = run(*given, code=2)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("error: ")
    assert said in lines[0]


def test_version_and_help():
    assert run("--version").stdout.strip() == f"tailored {tailored.__version__}"
    text = run("--help").stdout
    for command in ("fit", "predict", "evaluate", "summary", "report"):
        assert command in text
        assert "Example: tailored" in run(command, "--help").stdout
