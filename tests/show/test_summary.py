"""Summaries and effects: numbers compared with closed forms in NumPy and with lme4, and the printed text."""

import builtins
import shutil
import subprocess
import warnings

import numpy as np
import pandas as pd
import pytest

import tailored
from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
)
from tailored._utils.tables import Table
from tailored.datasets import make_clusters
from tailored.show.summary import Summary

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def draw(n_tasks=120, *, seed=0, side=0, effect=0.0):
    """Return tasks of a linear mixed model with one column and an intercept, and their coefficients."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(n_tasks), rng.integers(4, 9, n_tasks))
    S = rng.normal(size=(n_tasks, side)) if side else None
    w = [2.0, -1.0] + rng.normal(size=(n_tasks, 2)) @ np.array([[0.6, 0.0], [0.5, 1.2]]).T
    if S is not None:
        w[:, 1] += effect * S[:, 0]
    x = 3.0 + 2.0 * rng.normal(size=len(task))
    y = w[task, 0] * x + w[task, 1] + 0.7 * rng.normal(size=len(task))
    labels = np.array([f"school {t}" for t in range(n_tasks)])[task]
    return TaskSet(x[:, None], y, labels, None if S is None else S[task]), w


@pytest.fixture(scope="module")
def fitted():
    tasks, truth = draw(140, side=2, effect=1.5)
    return EmpiricalBayesLearner().fit(tasks), tasks, truth


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_effects_are_those_of_lme4(tmp_path):
    """With many tasks, the selected shrinkage hardly matters."""
    tasks, _ = draw(300, seed=3)
    frame = pd.DataFrame(
        {"g": np.repeat(tasks.labels, tasks.sizes), "x": tasks.X[:, 0], "y": tasks.y}
    )
    frame.to_csv(tmp_path / "rows.csv", index=False)
    script = """
        suppressMessages(library(lme4)); d <- read.csv("rows.csv"); f <- lmer(y ~ x + (x | g), d)
        b <- summary(f)$coefficients; v <- attr(VarCorr(f)$g, "stddev"); i <- "(Intercept)"
        cat(b["x", 1], b[i, 1], b["x", 2], b[i, 2], v[["x"]], v[[i]], sigma(f), "\n")
        write.csv(coef(f)$g[c("x", i)], "tasks.csv")
    """
    command = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    numbers = np.array(
        subprocess.run(["Rscript", "-e", script], **command).stdout.split(), dtype=float
    )
    learner = EmpiricalBayesLearner().fit(tasks)
    tables = learner.summary().tables
    effects = tables["effects"].columns
    np.testing.assert_allclose(effects["fixed effect"], numbers[:2], rtol=0.02)
    np.testing.assert_allclose(effects["std. error"], numbers[2:4], rtol=0.05)
    np.testing.assert_allclose(effects["random-effect std"], numbers[4:6], rtol=0.05)
    assert tables["noise"].columns["standard deviation"][0] == pytest.approx(numbers[6], rel=0.02)
    expected = pd.read_csv(tmp_path / "tasks.csv", index_col=0).loc[list(tasks.labels)].to_numpy()
    found = learner.effects(tasks)["effect"].to_numpy().reshape(-1, 2)
    assert np.abs(found - expected).mean(axis=0) == pytest.approx([0, 0], abs=0.05)


def test_coverage_of_the_intervals_of_effects(fitted):
    learner, tasks, truth = fitted
    frame = learner.effects(tasks, coverage=0.8)
    assert list(frame.columns) == ["task", "column", "effect", "std", "lower", "upper", "prior"]
    assert frame["task"].tolist()[:2] == ["school 0", "school 0"]
    assert frame["column"].tolist()[:2] == ["x0", "(intercept)"]
    inside = (frame["lower"] <= truth.ravel()) & (truth.ravel() <= frame["upper"])
    # 280 intervals, two of them of one task
    assert 0.8 - 0.09 < inside.mean() < 0.8 + 0.09
    np.testing.assert_allclose(
        (frame["upper"] - frame["lower"]) / frame["std"], 2 * 1.2815516, rtol=1e-6
    )


def test_prior_means_of_effects_are_those_without_rows(fitted):
    learner, tasks, _ = fitted
    expected = learner.effects(tasks.without_rows())["effect"]
    np.testing.assert_allclose(learner.effects(tasks)["prior"], expected, rtol=1e-9, atol=1e-12)
    assert expected[1::2].std() > 0.5  # the side information shifts the intercept


def test_effects_in_other_units(fitted):
    learner, tasks, _ = fitted
    other = TaskSet.from_arrays(
        0.1 * tasks.X + 7.0, 50.0 * tasks.y - 3.0, tasks.offsets, tasks.labels, tasks.side_info
    )
    again = EmpiricalBayesLearner().fit(other)
    a, b = (
        each.effects(t).to_numpy()[:, 2:4].astype(float).reshape(-1, 2, 2)
        for each, t in ((learner, tasks), (again, other))
    )
    np.testing.assert_allclose(b[:, 0, 0], 500.0 * a[:, 0, 0], rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(b[:, 0, 1], 500.0 * a[:, 0, 1], rtol=1e-4)
    np.testing.assert_allclose(
        b[:, 1, 0], 50.0 * a[:, 1, 0] - 3.0 - 7.0 * b[:, 0, 0], rtol=1e-4, atol=0.05
    )
    # R² of the intercept is at the mean 3 of x, where the tasks' variance is (3, 1) W (3, 1)ᵀ = 6.73.
    r2 = [
        each.summary().tables["effects"].columns["R² of side info"][1] for each in (learner, again)
    ]
    assert r2[0] == pytest.approx(1.5**2 / (1.5**2 + 6.73), abs=0.1)
    assert r2[1] == pytest.approx(r2[0], rel=1e-3)


def test_r2_of_relevant_and_irrelevant_side_information(fitted):
    learner = fitted[0]
    summary = learner.summary()
    table = summary.to_frame("side_information").set_index("side information")
    said, evidence = table["R²"], table["evidence"]
    # At a row x the tasks differ by (x, 1) W (x, 1)ᵀ, and the side information shifts the intercept by 1.5 deviations.
    root = np.array([[0.6, 0.0], [0.5, 1.2]])
    W, moment = root @ root.T, np.array([[3.0**2 + 2.0**2, 3.0], [3.0, 1.0]])
    want = 1.5**2 / (1.5**2 + np.sum(W * moment))
    assert said["s0"] == pytest.approx(want, abs=0.12)
    assert said["s1"] < 0.05 < said["s0"]
    # The effect is linear, so that the squared z value is about twice the evidence.
    assert evidence["s0"] > 10.0
    assert not evidence["s1"] > 3.0
    effects = summary.to_frame("side_effects")
    mine = effects[
        (effects["side information"] == "s0") & (effects["coefficient"] == "(intercept)")
    ].iloc[0]
    assert abs(mine["effect"] - 1.5) < 4.0 * mine["std. error"] < 1.5


def test_errors_are_those_of_the_selection(fitted):
    learner = fitted[0]
    errors = learner.summary().tables["errors"].columns
    assert errors["method"][0] == "this learner"
    assert errors["error"][0] == pytest.approx(learner.validation_error_)
    assert set(errors["method"]) == {
        "this learner",
        "mixed model",
        "ridge per task",
        "pooled regression",
        "task mean",
    }


# ---------------------------------------------------------------- texts and frames


def check_text(summary):
    lines = str(summary).splitlines()
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
    return "\n".join(lines)


def test_prints_in_80_columns(fitted):
    summary = fitted[0].summary()
    text = check_text(summary)
    assert "140 tasks" in text
    assert "Linear mixed model" in text
    html = summary._repr_html_()
    assert html.count("<table>") == len(summary.tables)
    assert all(
        name in summary.frames
        for name in ("effects", "correlations", "noise", "side_information", "errors")
    )
    with pytest.raises(ValueError, match="table must be one of"):
        summary.to_frame("effect")


def test_summary_after_save_and_load(fitted, tmp_path):
    learner, tasks, _ = fitted
    learner.save(tmp_path / "model.tailored")
    again = tailored.load(tmp_path / "model.tailored")
    assert str(again.summary()) == str(learner.summary())
    np.testing.assert_array_equal(again.effects(tasks)["std"], learner.effects(tasks)["std"])


def test_components_and_gates():
    tasks = make_clusters(
        120, n_clusters=2, n_rows=15, n_features=4, rank=1, hint=0.8, random_state=0
    )
    learner = EmpiricalBayesLearner(fit_intercept=False).fit(tasks)
    assert learner.structure_["kind"] == "mixture"
    summary = learner.summary()
    check_text(summary)
    components = summary.to_frame("components")
    assert components["proportion"].sum() == pytest.approx(1.0)
    assert len(summary.to_frame("component_effects")) == 4 * learner.n_components_
    if learner.structure_.get("has_gates"):
        told = summary.to_frame("side_information")["entropy reduction"][0]
        # The hint is right nine times in ten: 1 − H(0.9) / log 2 of what two equal clusters leave open.
        assert 0.05 < told < 0.9
    effects = learner.effects(tasks[:3])
    assert (effects["std"] > 0).all()


@pytest.mark.parametrize("learner", [ConditionalLearner(), IndependentLearner()])
def test_summary_of_other_learners(learner):
    tasks, _ = draw(20)
    learner.fit(tasks)
    check_text(learner.summary())
    frame = learner.effects(tasks)
    np.testing.assert_allclose(
        frame["effect"].to_numpy().reshape(20, -1), learner.adapt_many(tasks).weights_
    )
    assert frame["std"].isna().all()


def test_one_task_and_few(recwarn):
    tasks, _ = draw(5, seed=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, few = (EmpiricalBayesLearner().fit(tasks[:n]) for n in (1, 5))
    assert "errors" not in one.summary().tables
    check_text(one.summary())
    check_text(few.summary())


def test_many_long_names():
    rng = np.random.default_rng(0)
    names = [f"a rather long name of a column, number {j}" for j in range(17)]
    frame = pd.DataFrame(rng.normal(size=(300, 17)), columns=names)
    frame["<task>"] = np.repeat(np.arange(30), 10)
    frame["the target"] = frame[names[0]] + 0.1 * rng.normal(size=300)
    tasks = TaskSet.from_frame(frame, task="<task>", target="the target")
    learner = EmpiricalBayesLearner().fit(tasks)
    summary = learner.summary()
    assert "3 more rows" in check_text(summary)
    assert len(summary.to_frame()) == 18
    assert "<task>" not in summary._repr_html_()
    assert set(learner.effects(tasks)["column"]) == {*names, "(intercept)"}


def test_frames_without_pandas(fitted, monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **others):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    found = fitted[0].effects(fitted[1][:2])
    assert found.dtype.names == ("task", "column", "effect", "std", "lower", "upper", "prior")
    assert len(found) == 4


def test_wide_tables_are_broken_into_blocks():
    columns = {"column": ["a", "b"], **{f"a name of some length {j}": [1.5, 1e7] for j in range(6)}}
    lines = str(Table("Wide", columns, "said")).splitlines()
    assert max(map(len, lines)) <= 80
    assert sum(line.strip().startswith("column") for line in lines) == 3
    assert "  said" in lines


def test_the_last_column_is_wrapped_if_it_has_sentences():
    columns = {"column": ["a", "b"], "size": [1.5, 10], "text": ["word " * 30, ""]}
    unnamed = str(Table("", {"column": ["", "a"], "": [1, 0], "a": [0, 1]})).splitlines()
    assert [line.split() for line in unnamed] == [["column", "a"], ["1", "0"], ["a", "0", "1"]]
    lines = str(Table("Sentences", columns, sentences="text")).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[2:4] == ["  column  size  text", "  a        1.5  " + "word " * 12 + "word"]
    assert lines[4] == " " * 16 + "word " * 12 + "word"
    assert lines[-1] == "  b         10  -"


def test_control_characters_of_names_are_not_printed():
    """They could change a terminal; tables and their names may come from others."""
    table = Table("Effects", {"column\u202e": ["a\x1b[31m\nb"], "size\n": [1]}, "x\x07")
    text = str(Summary("y\x9b", ("z\r",), {"effects": table}))
    assert all(line.isprintable() for line in text.split("\n"))
    assert str(table).split("\n")[2:4] == ["  column�   size�", "  a�[31m�b      1"]


def test_what_the_summary_says_about_shared_curves():
    """A curve that differs by side information uses it, and the coefficient of its column is not the whole effect."""
    rng = np.random.default_rng(0)
    task, treated = np.repeat(np.arange(80), 6), np.repeat(np.arange(80) % 2, 6)
    x = rng.uniform(-2, 2, len(task))
    y = np.where(treated, x**2, 0.0) + rng.normal(size=80)[task] + 0.3 * rng.normal(size=len(task))
    tasks = TaskSet(x[:, None], y, task, side_info=treated[:, None])
    learner = EmpiricalBayesLearner().fit(tasks)
    summary = learner.summary()
    assert "a curve of x0 that differs by s0" in " ".join(summary.text)
    assert "Side information is not used" not in " ".join(summary.text)
    assert (
        "Shared curves or products, named above, add to the effects of x0."
        in summary.tables["effects"].caption
    )


def test_baselines_of_classes_with_side_information():
    """Pooled regressions are left out, whose effects of the side information would be those within tasks."""
    rng = np.random.default_rng(1)
    task, side = np.repeat(np.arange(60), 8), np.repeat(rng.normal(size=60), 8)
    x = rng.normal(size=len(task))
    y = (x + side + 2.0 * rng.normal(size=60)[task] + rng.logistic(size=len(task)) > 0).astype(int)
    tasks = TaskSet(x[:, None], y, task, side_info=side[:, None])
    errors = EmpiricalBayesClassifier().fit(tasks).summary().tables["errors"]
    assert "pooled regression" not in errors.columns["method"]
    assert "task mean: mean of the support rows and one row at the training mean" in errors.caption
    assert "The criterion is the log predictive density, not the error" in errors.caption
