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
        (["predict", "{model}", "{}/new.csv"], "side_info"),
        (["evaluate", "{}/pupils.csv", "--task", "school", "--target", "score", "--rows", "a"], "--rows"),
        (["report", "{model}"], "--data"),
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
