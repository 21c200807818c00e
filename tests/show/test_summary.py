"""Summaries and effects: numbers compared with closed forms in NumPy and with lme4, sentences, and
the printed text.
"""

import builtins
import copy
import re
import shutil
import subprocess
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import tailored
from folds import no_curves
from tailored import (
    ConditionalLearner,
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
)
from tailored._utils.tables import Table
from tailored.datasets import make_clusters
from tailored.selection.training_summary import OWN, POOLED, TASK_MEAN, ComparedStructure
from tailored.show.model import FittedModel
from tailored.show.sentences import _describe_support, describe_structure, verdict
from tailored.show.summary import Summary
from tailored.show.tables import selection_table

pytestmark = pytest.mark.usefixtures("short_fits_in_module")
pd = pytest.importorskip("pandas")


def draw(n_tasks=120, *, seed=0, side=0, effect=0.0):
    """Return tasks of a linear mixed model with one column and an intercept, and their
    coefficients.
    """
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


# ---------------------------------------------------------------- numbers


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="R is not installed")
def test_effects_are_those_of_lme4(tmp_path):
    """With many tasks, the selected shrinkage hardly matters."""
    tasks, _ = draw(300, seed=3)
    frame = {"g": np.repeat(tasks.labels, tasks.sizes), "x": tasks.X[:, 0], "y": tasks.y}
    pd.DataFrame(frame).to_csv(tmp_path / "rows.csv", index=False)
    script = """
        suppressMessages(library(lme4)); d <- read.csv("rows.csv"); f <- lmer(y ~ x + (x | g), d)
        b <- summary(f)$coefficients; v <- attr(VarCorr(f)$g, "stddev"); i <- "(Intercept)"
        cat(b["x", 1], b[i, 1], b["x", 2], b[i, 2], v[["x"]], v[[i]], sigma(f), "\n")
        write.csv(coef(f)$g[c("x", i)], "tasks.csv")
    """
    command = {"cwd": tmp_path, "capture_output": True, "text": True, "check": True}
    printed = subprocess.run(["Rscript", "-e", script], **command).stdout
    numbers = np.array(printed.split(), dtype=float)
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


def test_effects_of_tasks(fitted, monkeypatch):
    """Coverage of the intervals; prior means are those without rows; a structured array without
    pandas.
    """
    learner, tasks, truth = fitted
    frame = learner.effects(tasks, coverage=0.8)
    assert list(frame.columns) == ["task", "column", "effect", "std", "lower", "upper", "prior"]
    assert frame["task"].tolist()[:2] == ["school 0", "school 0"]
    assert frame["column"].tolist()[:2] == ["x0", "(intercept)"]
    inside = (frame["lower"] <= truth.ravel()) & (truth.ravel() <= frame["upper"])
    assert 0.8 - 0.09 < inside.mean() < 0.8 + 0.09  # 280 intervals, two of them of one task
    widths = (frame["upper"] - frame["lower"]) / frame["std"]
    np.testing.assert_allclose(widths, 2 * 1.2815516, rtol=1e-6)
    expected = learner.effects(tasks.without_rows())["effect"]
    np.testing.assert_allclose(frame["prior"], expected, rtol=1e-9, atol=1e-12)
    assert expected[1::2].std() > 0.5  # the side information shifts the intercept
    real = builtins.__import__

    def without(name, *rest, **others):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **others)

    monkeypatch.setattr(builtins, "__import__", without)
    found = learner.effects(tasks[:2])
    assert found.dtype.names == tuple(frame.columns)
    assert len(found) == 4


def test_r2_of_relevant_and_irrelevant_side_information(fitted):
    summary = fitted[0].summary()
    table = summary.to_frame("side_information").set_index("side information")
    said, evidence = table["R²"], table["evidence"]
    # At a row x the tasks differ by (x, 1) W (x, 1)ᵀ, and the side information shifts the intercept
    # by 1.5 deviations.
    root = np.array([[0.6, 0.0], [0.5, 1.2]])
    W, moment = root @ root.T, np.array([[3.0**2 + 2.0**2, 3.0], [3.0, 1.0]])
    want = 1.5**2 / (1.5**2 + np.sum(W * moment))
    assert said["s0"] == pytest.approx(want, abs=0.12)
    assert said["s1"] < 0.05 < said["s0"]
    # The effect is linear, so that the squared z value is about twice the evidence.
    assert evidence["s0"] > 10.0
    assert not evidence["s1"] > 3.0
    effects = summary.to_frame("side_effects").set_index(["side information", "coefficient"])
    mine = effects.loc[("s0", "(intercept)")]
    assert abs(mine["effect"] - 1.5) < 4.0 * mine["std. error"] < 1.5
    assert f"Side information explains {100 * said['all']:.0f} % of the variance" in str(summary)


def test_variances_that_are_rounding_errors_are_zero(fitted):
    learner = copy.copy(fitted[0])
    prior = learner.prior_
    W = prior.model.covariances * [[1e-33, 1e-17], [1e-17, 1.0]]
    learner.prior_ = replace(prior, model=replace(prior.model, covariances=W))
    model = FittedModel(learner)
    np.testing.assert_allclose(model.covariance, [[0.0, 0.0], [0.0, W[0, 1, 1]]], rtol=1e-12)
    assert model.random_effect_std[0] == 0.0
    assert model.varying.tolist() == [1]


def test_components_and_gates():
    tasks = make_clusters(
        120, n_clusters=2, n_rows=15, n_features=4, rank=1, hint=0.8, random_state=0
    )
    learner = EmpiricalBayesLearner(fit_intercept=False).fit(tasks)
    assert learner.structure_["kind"] == "mixture"
    summary = learner.summary(details=True)
    check_text(summary)
    components = summary.to_frame("components")
    assert len(components) == 4 * learner.n_components_
    assert components["proportion"][::4].sum() == pytest.approx(1.0)
    if learner.structure_.get("has_gates"):
        told = summary.to_frame("side_information")["entropy reduction"][0]
        # The hint is right nine times in ten: 1 − H(0.9) / log 2 of what two equal clusters leave
        # open.
        assert 0.05 < told < 0.9
    assert (learner.effects(tasks[:3])["std"] > 0).all()


# ---------------------------------------------------------------- the printed text


def check_text(summary, most=None):
    lines = str(summary).splitlines()
    assert max(map(len, lines)) <= 80, [line for line in lines if len(line) > 80]
    assert most is None or len(lines) <= most
    return "\n".join(lines)


def test_summary_and_its_details(fitted, tmp_path):
    learner, tasks, _ = fitted
    short, long = learner.summary(), learner.summary(details=True)
    text, details = check_text(short, 40), " ".join(check_text(long).split())
    assert text.startswith("EmpiricalBayesLearner: 140 tasks, ")
    assert "Linear mixed model" in text
    assert short.text == long.text
    assert short.tables.keys() == long.tables.keys()
    assert all(sentence in details for sentence in long.text)
    assert not any(sentence in " ".join(text.split()) for sentence in short.further)
    assert short._repr_html_().count("<table>") == 1
    assert long._repr_html_().count("<table>") == len(long.tables)
    with pytest.raises(ValueError, match="table must be one of"):
        short.to_frame("effect")
    learner.save(tmp_path / "model.tailored")
    again = tailored.load(tmp_path / "model.tailored")
    assert str(again.summary(details=True)) == str(long)
    np.testing.assert_array_equal(again.effects(tasks)["std"], learner.effects(tasks)["std"])


def test_the_verdict_compares_with_the_simplest_baseline_and_with_the_best_method(fitted):
    learner = copy.copy(fitted[0])
    rest = np.full(100, 3.0)
    errors = {OWN: np.full(100, 2.0), TASK_MEAN: rest, POOLED: np.tile([2.5, 1.3], 50)}
    changed = replace(learner.training_summary_, errors=errors)
    learner.training_summary_ = changed
    text = " ".join(verdict(FittedModel(learner), ""))
    assert "On 100 tasks held out in fit, the mean squared error is 2: 33.3 % lower than" in text
    assert "that of the task mean, and 5.3 % higher than that of the pooled regression (wi" in text
    assert "The model was selected on them, so its error is slightly optimistic." in text
    # Column x0 has a standard deviation of about 2 and a fixed effect of about 2.
    (size,) = re.findall(r"per standard deviation of the column: x0 \+(.*?)\. ", text)
    assert 3.5 < float(size) < 4.5
    assert "Singular fit" not in text
    learner.training_summary_ = replace(changed, is_singular=True, errors={})
    text = " ".join(verdict(FittedModel(learner), ""))
    assert "Singular fit: " in text
    assert "held out" not in text


@pytest.mark.parametrize("learner", [ConditionalLearner(), IndependentLearner()])
def test_summary_of_other_learners(learner):
    tasks, _ = draw(20)
    learner.fit(tasks)
    check_text(learner.summary(details=True), 40)
    frame = learner.effects(tasks)
    effects = frame["effect"].to_numpy().reshape(20, -1)
    np.testing.assert_allclose(effects, learner.adapt_many(tasks).weights_)
    assert frame["std"].isna().all()


def test_many_long_names():
    rng = np.random.default_rng(0)
    names = [f"a rather long name of a column, number {j}" for j in range(17)]
    frame = pd.DataFrame(rng.normal(size=(300, 17)), columns=names)
    frame["<task>"] = np.repeat(np.arange(30), 10)
    frame["the target"] = frame[names[0]] + 0.1 * rng.normal(size=300)
    tasks = TaskSet.from_frame(frame, task="<task>", target="the target")
    learner = EmpiricalBayesLearner().fit(tasks)
    summary = learner.summary()
    assert "10 more rows" in check_text(summary, 40)
    assert "3 more rows" in check_text(learner.summary(details=True))
    assert len(summary.to_frame()) == 18
    assert "<task>" not in summary._repr_html_()
    assert set(learner.effects(tasks)["column"]) == {*names, "(intercept)"}


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
    summary = Summary("y\x9b", ("z\r",), {"effects": table})
    for text in (str(summary), summary._repr_html_(), table.html):
        assert all(line.isprintable() for line in text.split("\n"))
    assert str(table).split("\n")[2:4] == ["  column�   size�", "  a�[31m�b      1"]


# ---------------------------------------------------------------- sentences


def frame(n_tasks=40, n_rows=6, slope=0.0, seed=0):
    """Rows of a linear mixed model; the standard deviation of the random slopes is ``slope``."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(n_tasks), n_rows)
    hours, track = rng.normal(size=len(school)), rng.choice(list("abc"), len(school))
    u = rng.normal(size=(n_tasks, 2))
    score = hours + u[school, 0] + slope * u[school, 1] * hours + 0.5 * rng.normal(size=len(school))
    return pd.DataFrame({"school": school, "hours spent": hours, "track": track, "score": score})


def fit(table, *, covariance=None, reml=True, **columns):
    tasks = TaskSet.from_frame(table, task="school", target="score", **columns)
    return EmpiricalBayesLearner(covariance=covariance, reml=reml).fit(tasks)


@pytest.fixture(scope="module")
def learner():
    with no_curves():
        return fit(frame(slope=1.0).drop(columns="track"))


def test_differences_of_densities_are_those_of_the_search(learner):
    table = learner.summary().to_frame("selection")
    densities = [
        (each.get("structure", "full"), each["density"])
        for each in learner.search_results_
        if each["kind"] == "mixed model" and each.get("structure") != "none"
    ]
    best = {
        kind: max(value for other, value in densities if other == kind) for kind, _ in densities
    }
    names = {"intercept": "random intercept", "diagonal": "uncorrelated", "full": "correlated"}
    assert table["density difference"][0] == 0.0
    for kind, value in best.items():
        [row] = [i for i, name in enumerate(table["structure"]) if name.startswith(names[kind])]
        difference = value - max(best.values())
        assert table["density difference"][row] == pytest.approx(difference, abs=1e-4)
    # Random slopes with a standard deviation of 1 are found.
    [row] = np.flatnonzero(table["structure"] == "random intercept")
    assert table["density difference"][row] < -2.0 * table["std. error"][row]


def test_equal_structures_have_the_difference_zero(learner):
    equal = ComparedStructure(-3e-13, 2e-12, 1.0, 1.0)
    rows = {"random intercept": ComparedStructure(0.0, 0.0, 1.0, 1.0), "uncorrelated": equal}
    training = SimpleNamespace(compared=rows, loss="squared")
    table = selection_table(SimpleNamespace(training=training))
    assert table.columns["density difference"] == [0, 0]


def test_weighted_fits_are_estimated_by_reml_too():
    """With weights of 2, only the noise variance of weight 1 differs."""
    table = frame(slope=1.0).drop(columns="track").assign(w=2.0)
    for reml, name in ((True, "REML; the restricted"), (False, "maximum likelihood; the")):
        learner = fit(table, covariance="full", reml=reml, sample_weight="w")
        plain = fit(table.drop(columns="w"), covariance="full", reml=reml)
        value = plain.training_summary_.log_likelihood
        assert f"Estimated by {name} log likelihood is {value:.6g}." in learner.summary().text


def test_effects_of_categories_were_fitted_to_held_out_tasks():
    rng = np.random.default_rng(0)
    item = rng.integers(0, 30, 400)
    y = rng.normal(size=30)[item] + rng.normal(size=40).repeat(10) + 0.5 * rng.normal(size=400)
    table = pd.DataFrame({"school": np.arange(40).repeat(10), "item": item.astype(str), "score": y})
    text = " ".join(fit(table.assign(item="i" + table["item"])).summary().text)
    assert "The effects that all tasks share were fitted to these tasks, too." in text


@no_curves()
def test_a_constant_column_is_left_out():
    """All numbers are those without the column; a row to predict may have another value of it."""
    table = frame(slope=1.0)[["school", "hours spent", "score"]]
    with pytest.warns(UserWarning, match="so without effect if there is an intercept: year, kind"):
        learner = fit(table.assign(year=2026.1, kind="a"))
    plain = fit(table)
    want, found = plain.summary(), learner.summary()
    left_out = "Columns left out of the model (constant, or below 1e-70, in all rows): year, kind."
    assert left_out in found.text
    pd.testing.assert_frame_equal(found.to_frame("effects"), want.to_frame("effects"), rtol=1e-6)
    likelihoods = (each.training_summary_.log_likelihood for each in (learner, plain))
    np.testing.assert_allclose(*likelihoods, rtol=1e-9)
    assert not learner.prior_.mixture.covariances[0, 1].any()
    query = pd.DataFrame({"hours spent": [1.0], "year": [2030.0], "kind": ["a"]})
    expected = plain.adapt().predict(query[["hours spent"]])
    np.testing.assert_allclose(learner.adapt().predict(query), expected, rtol=1e-9)


@no_curves()
def test_pooled_regression_of_classes_is_compared():
    """It is a candidate for classes and counts, and a baseline otherwise."""
    table = frame()
    table["score"] = np.where(table["score"] > 0, "yes", "no")
    tasks = TaskSet.from_frame(table, task="school", target="score")
    for learner, is_compared in (
        (EmpiricalBayesClassifier().fit(tasks), True),
        (fit(frame()), False),
    ):
        structures = list(learner.summary().to_frame("selection")["structure"])
        assert ("pooled regression" in structures) == is_compared


@pytest.mark.parametrize(
    ("structure", "text"),
    [
        ({"structure": "intercept"}, "Logistic mixed model with a random intercept."),
        ({"structure": "none"}, "One logistic regression for all tasks."),
        ({"varying": [0]}, "Logistic mixed model with a random effect on linear."),
        ({"varying": [0, 2]}, "Logistic mixed model with correlated random effects on these coefficients only: linear, (intercept)."),
        (
            {"pseudo_tasks": 10.0},
            "Logistic mixed model with correlated random effects on every coefficient; "
            "random-effect correlations at the means are "
            "shrunk towards zero (weight: 10 pseudo-tasks).",
        ),
        ({"structure": "diagonal"}, "Logistic mixed model with uncorrelated (at the means) random effects on every coefficient."),
        ({"kind": "low rank"}, "Logistic mixed model with 0 common factors of the coefficients plus independent variation (low rank)."),
        (
            {"kind": "low rank", "n_components": 2, "rank": 1},
            "Mixture of 2 logistic mixed models, each with 1 common factor of the coefficients "
            "plus independent variation (low rank).",
        ),
        (
            {"kind": "mixture", "n_components": 3, "has_gates": True, "truncation": 0.05},
            "Mixture of 3 logistic mixed models whose mixing weights depend on the side "
            "information; directions with less than 5 % "
            "of the largest variance are dropped.",
        ),
        ({"kind": "factors plus diagonal", "rank": 4}, "Low-rank plus diagonal prior (for many columns): 4 factors."),
        ({"kind": "independent"}, "Logistic regression with a ridge penalty: there is one task, so nothing is pooled."),
    ],
)  # fmt: skip
def test_structures_are_described_in_one_sentence(structure, text):
    """A column may have the name of the model."""
    names = ["linear", "x", "(intercept)"]
    described = describe_structure({"kind": "mixed model", **structure}, names, "logistic", "means")
    assert described == text


@pytest.mark.parametrize(
    ("n_support", "text"),
    [
        (None, "75 % (of fewer than four rows, all but one), at random"),
        ("first", "25 to 75 %, the first"),
        (("first", 1, 5), "1 to 5, the first"),
        (0.5, "50 %, at random"),
    ],
)
def test_support_rows_are_described(n_support, text):
    assert _describe_support(n_support) == text


def test_what_the_summary_says_about_shared_curves():
    """A curve that differs by side information uses it, and the coefficient of its column is not
    the whole effect.
    """
    rng = np.random.default_rng(0)
    task, treated = np.repeat(np.arange(80), 6), np.repeat(np.arange(80) % 2, 6)
    x = rng.uniform(-2, 2, len(task))
    y = np.where(treated, x**2, 0.0) + rng.normal(size=80)[task] + 0.3 * rng.normal(size=len(task))
    learner = EmpiricalBayesLearner().fit(TaskSet(x[:, None], y, task, side_info=treated[:, None]))
    summary = learner.summary()
    assert "a curve of x0 that differs by s0" in " ".join(summary.verdict)
    assert "Side information is not used" not in " ".join(summary.text)
    caption = summary.tables["effects"].caption
    assert "Shared curves or products, named above, add to the effects of columns." in caption


def test_baselines_of_classes_with_side_information():
    """Pooled regressions are left out, whose effects of the side information would be those within
    tasks.
    """
    rng = np.random.default_rng(1)
    task, side = np.repeat(np.arange(60), 8), np.repeat(rng.normal(size=60), 8)
    x = rng.normal(size=len(task))
    y = (x + side + 2.0 * rng.normal(size=60)[task] + rng.logistic(size=len(task)) > 0).astype(int)
    tasks = TaskSet(x[:, None], y, task, side_info=side[:, None])
    errors = EmpiricalBayesClassifier().fit(tasks).summary().tables["errors"]
    assert "pooled regression" not in errors.columns["method"]
    assert "task mean: mean of the support rows and one row at the training mean" in errors.caption
    assert "selected by the log predictive density, so a baseline may have a" in errors.caption


@pytest.mark.parametrize(
    ("n_rows", "formula", "is_reported"),
    [(1, "1", True), (2, "1", False), (2, "t", True), (3, "t", False)],
)
def test_random_effects_without_replicates_are_reported(n_rows, formula, is_reported):
    """lme4 raises an error if there are as many random effects as rows: the noise variance is then
    not identified.
    """
    rng, n_tasks = np.random.default_rng(0), 20
    group, t = np.repeat(np.arange(n_tasks), n_rows), np.tile(np.arange(n_rows), n_tasks)
    table = pd.DataFrame({"a": group // 4, "b": group % 4, "t": t})
    table["y"] = rng.normal(size=n_tasks)[group] + 0.5 * t * rng.normal(size=n_tasks)[group]
    table["y"] += 0.5 * rng.normal(size=len(t))
    learner = EmpiricalBayesLearner().fit(TaskSet.from_formula(f"y ~ t + ({formula} | a:b)", table))
    shown = learner.summary()
    assert shown.title.startswith(f"EmpiricalBayesLearner: {n_tasks} tasks (a:b), ")
    assert f"Formula: y ~ t + ({formula} | a:b)." in shown.text
    assert any("hardly be told apart from noise" in text for text in shown.text) == is_reported
    assert "mixed model" not in shown.to_frame("errors")["method"].tolist()  # it is this learner


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_separable_classes_are_reported(noise):
    """The maximum likelihood estimate of separable classes is infinite."""
    x, error = np.random.default_rng(0).normal(size=(2, 160))
    learner = EmpiricalBayesClassifier().fit(
        x[:, None], x + noise * error > 0, groups=np.repeat(np.arange(20), 8)
    )
    assert any("classes are separable" in text for text in learner.summary().text) == (noise == 0.0)
