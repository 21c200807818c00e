"""Sentences of a summary: the structure, its selection with the table of it, and the formula of lme4."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tailored import EmpiricalBayesClassifier, EmpiricalBayesLearner, TaskSet
from tailored.gaussian.responses import Gaussian
from tailored.gaussian.serial import SerialNoise
from tailored.paper.feature_maps import SideVector
from tailored.priors.side_features import SideFeatures
from tailored.selection.training_summary import ComparedStructure
from tailored.show.model import FittedModel
from tailored.show.sentences import (
    _describe_side,
    describe_selection,
    describe_structure,
    lme4_formula,
)
from tailored.show.tables import errors_table
from tailored.tasks.episodes import SupportSampling

pytestmark = pytest.mark.usefixtures("short_fits_in_module", "no_curves_in_module")
pd = pytest.importorskip("pandas")


def frame(n_tasks=40, n_rows=6, slope=0.0, seed=0):
    """Rows of a linear mixed model; the standard deviation of the random slopes is ``slope``."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(n_tasks), n_rows)
    hours, track = rng.normal(size=len(school)), rng.choice(list("abc"), len(school))
    u = rng.normal(size=(n_tasks, 2))
    score = hours + u[school, 0] + slope * u[school, 1] * hours + 0.5 * rng.normal(size=len(school))
    return pd.DataFrame({"school": school, "hours spent": hours, "track": track, "score": score})


def fit(table, target="score", **options):
    tasks = TaskSet.from_frame(table, task="school", target=target)
    return EmpiricalBayesLearner(**options).fit(tasks)


@pytest.fixture(scope="module")
def learner():
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
        assert table["density difference"][row] == pytest.approx(
            value - max(best.values()), abs=1e-9
        )
    # Random slopes with a standard deviation of 1 are found.
    [row] = np.flatnonzero(table["structure"] == "random intercept")
    assert table["density difference"][row] < -2.0 * table["std. error"][row]


def test_summary_names_the_runner_up_and_its_error(learner):
    summary = learner.summary()
    table = summary.to_frame("selection")
    start = f"Selected on held-out tasks among {len(table)} kinds"
    [sentence] = [text for text in summary.text if text.startswith(start)]
    assert f"({table['structure'][1]}; error {table['held-out error'][1]:.4g})" in sentence
    assert "nats per task" in sentence
    printed = str(summary.tables["selection"]).split("\n\n")[1]
    assert len(printed.splitlines()) == 1 + len(table) <= 7


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("mixture of 2", "a mixture has to raise the density by two standard errors without"),
        ("rank 2", "with a low-rank covariance, no error may rise by two standard errors"),
        ("uncorrelated", "a covariance may not have a higher total error"),
    ],
)
def test_a_rejected_structure_with_a_higher_density_is_explained(name, rule):
    rows = {"correlated": ComparedStructure(0.0, 0.0, 1.0), name: ComparedStructure(0.3, 0.1, 1.1)}
    text = describe_selection(rows)
    other = f"The log predictive density of the runner-up ({name}; error 1.1)"
    assert f"{other} is higher by 0.3 ± 0.1" in text
    assert f"It is not selected because {rule}" in text


def test_equal_structures_are_not_counted():
    selected, equal = ComparedStructure(0.0, 0.0, 1.0), ComparedStructure(-3e-13, 2e-12, 1.0)
    rows = {"random intercept": selected, "uncorrelated": equal}
    assert "the other kinds of structures predict equally well" in describe_selection(rows)
    text = describe_selection({**rows, "correlated": ComparedStructure(-0.5, 0.1, 1.2)})
    assert "among 2 kinds of structures" in text
    assert "the runner-up (correlated; error 1.2) by 0.5 ± 0.1" in text


def test_weighted_fits_are_estimated_by_reml_too():
    table = frame(slope=1.0).drop(columns="track").assign(w=2.0)
    tasks = TaskSet.from_frame(table, task="school", target="score", sample_weight="w")
    text = EmpiricalBayesLearner(covariance="full").fit(tasks).summary().text
    assert "Estimated by REML." in text
    assert EmpiricalBayesLearner(covariance="full", reml=False).fit(tasks).summary().text[2] == (
        "Estimated by maximum likelihood."
    )


START, COLUMNS = "Random effects in the notation of lme4: ", "`hours spent` + `track=b` + `track=c`"


@pytest.fixture(scope="module")
def with_category():
    return fit(frame())


@pytest.mark.parametrize(
    ("structure", "formula"),
    [
        ({"structure": "intercept"}, f"{START}(1 | school)."),
        ({"varying": [3]}, f"{START}(1 | school)."),
        ({"varying": [0]}, f"{START}(0 + `hours spent` | school)."),
        ({}, f"{START}(`hours spent` + track | school)."),
        ({"varying": [1, 2, 3]}, f"{START}(track | school)."),
        # In lme4, || does not separate the indicators of a category.
        ({"structure": "diagonal"}, f"{START}({COLUMNS} || school)."),
        (
            {"pseudo_tasks": 10.0},
            f"{START}(`hours spent` + track | school), with the correlations shrunk.",
        ),
        ({"structure": "none"}, None),
        ({"kind": "mixture", "n_components": 2}, None),
    ],
)
def test_formula_of_lme4(with_category, structure, formula, monkeypatch):
    monkeypatch.setattr(with_category, "structure_", {"kind": "mixed model", **structure})
    assert lme4_formula(FittedModel.of(with_category), with_category) == formula


def test_html_has_no_control_characters():
    table = frame().rename(columns={"hours spent": "hours\x1b[2J", "score": "a\n\x00"})
    shown = fit(table, "a\n\x00").summary()
    assert shown.title.endswith("rows of a��, 3 features")
    for text in (shown._repr_html_(), shown.tables["effects"].html, str(shown)):
        assert "hours�[2J" in text
        assert "\x1b" not in text


def test_a_constant_column_is_left_out():
    """All numbers are those without the column; a row to predict may have another value of it."""
    table = frame(slope=1.0)[["school", "hours spent", "score"]]
    wide = table.assign(year=2026.1)
    plain = EmpiricalBayesLearner().fit(TaskSet.from_frame(table, task="school", target="score"))
    with pytest.warns(
        UserWarning, match="constant in all rows, so without effect if there is an intercept: year"
    ):
        learner = EmpiricalBayesLearner().fit(
            TaskSet.from_frame(wide, task="school", target="score")
        )
    want, found = plain.summary(), learner.summary()
    assert (
        "Columns left out of the model (constant, or below 1e-70, in all rows): year." in found.text
    )
    assert lme4_formula(FittedModel.of(learner), learner) == lme4_formula(
        FittedModel.of(plain), plain
    )
    pd.testing.assert_frame_equal(found.to_frame("effects"), want.to_frame("effects"), rtol=1e-6)
    likelihoods = (each.training_summary_.log_likelihood for each in (learner, plain))
    np.testing.assert_allclose(*likelihoods, rtol=1e-9)
    assert not learner.prior_.mixture.covariances[0, 1].any()
    np.testing.assert_allclose(
        learner.adapt().predict(pd.DataFrame({"hours spent": [1.0], "year": [2030.0]})),
        plain.adapt().predict(pd.DataFrame({"hours spent": [1.0]})),
        rtol=1e-9,
    )


def test_pooled_regression_of_classes_is_compared():
    """It is a candidate for classes and counts, and a baseline otherwise."""
    table = frame()
    table["score"] = np.where(table["score"] > 0, "yes", "no")
    classes = EmpiricalBayesClassifier().fit(
        TaskSet.from_frame(table, task="school", target="score")
    )
    assert "pooled regression" in list(classes.summary().to_frame("selection")["structure"])
    assert "pooled regression" not in list(
        fit(frame()).summary().to_frame("selection")["structure"]
    )


@pytest.mark.parametrize(
    ("structure", "text"),
    [
        ({"structure": "intercept"}, "Logistic mixed model with a random intercept."),
        ({"structure": "none"}, "One logistic regression for all tasks."),
        ({"varying": [0]}, "Logistic mixed model with a random effect on linear."),
        ({"varying": [0, 2]}, "Logistic mixed model with correlated random effects on these coefficients only: linear, (intercept)."),
        (
            {"pseudo_tasks": 10.0},
            "Logistic mixed model with correlated random effects on every coefficient; random-effect correlations at the means are "
            "shrunk towards zero (weight: 10 pseudo-tasks).",
        ),
        ({"structure": "diagonal"}, "Logistic mixed model with uncorrelated (at the means) random effects on every coefficient."),
        ({"kind": "low rank"}, "Logistic mixed model with 0 common factors of the coefficients plus independent variation (low rank)."),
        (
            {"kind": "low rank", "n_components": 2, "rank": 1},
            "Mixture of 2 logistic mixed models, each with 1 common factor of the coefficients plus independent variation (low rank).",
        ),
        (
            {"kind": "mixture", "n_components": 3, "has_gates": True, "truncation": 0.05},
            "Mixture of 3 logistic mixed models whose mixing weights depend on the side information; directions with less than 5 % "
            "of the largest variance are dropped.",
        ),
        ({"kind": "factors plus diagonal", "rank": 4}, "Low-rank plus diagonal prior (for many columns): 4 factors."),
    ],
)  # fmt: skip
def test_structures_are_described_in_one_sentence(structure, text):
    """A column may have the name of the model."""
    names = ["linear", "x", "(intercept)"]
    assert (
        describe_structure({"kind": "mixed model", **structure}, names, "logistic", "means") == text
    )


def test_side_information_that_shifts_some_coefficients_is_not_said_to_shift_all():
    prior = SimpleNamespace(mixture=SimpleNamespace(side=np.array([[0.5, 0.0], [1.0, 2.0]])))
    model = SimpleNamespace(prior=prior, columns=["x", "(intercept)"], side_columns=["age", "sex"])
    learner = SimpleNamespace(side_structure_={"columns": [0, 1], "curved": []})
    assert "that shift some or all coefficients: age, sex." in _describe_side(model, learner)
    prior.mixture.side[0, 1] = 1.0
    assert "that shift all coefficients: age, sex." in _describe_side(model, learner)


def test_variances_that_are_rounding_errors_are_zero(learner):
    prior = learner.prior_
    W = prior.model.covariances * [[1e-33, 1e-17], [1e-17, 1.0]]
    changed = replace(prior, model=replace(prior.model, covariances=W))
    model = replace(FittedModel.of(learner), prior=changed)
    np.testing.assert_allclose(model.covariance, [[0.0, 0.0], [0.0, W[0, 1, 1]]], rtol=1e-12)
    assert model.random_effect_std[0] == 0.0
    assert model.varying.tolist() == [1]


def test_baselines_have_the_noise_of_the_model_and_the_side_information_that_it_uses(learner):
    model, same = (
        replace(FittedModel.of(learner), side_columns=["z"]),
        ", with the same correlation in time",
    )
    assert (
        "the same side information" not in errors_table(model, learner, SupportSampling()).caption
    )
    rejected = SideFeatures(SideVector(), np.zeros(0), np.ones(0))  # read, but without effects
    model = replace(model, prior=replace(learner.prior_, side=rejected))
    assert (
        "the same side information" not in errors_table(model, learner, SupportSampling()).caption
    )
    model = replace(model, prior=replace(learner.prior_, response=Gaussian(SerialNoise())))
    caption = errors_table(model, learner, SupportSampling()).caption
    assert f"pooled regression: one regression for the rows of all tasks{same}" in caption
    assert f"mixed model: full random-effect covariance{same}" in caption
    # `rotate` leaves out one row at a time of a task with fewer than four
    assert "each with 75 % of its rows (of fewer than four, all but one) as support" in caption


@pytest.mark.parametrize(
    ("n_rows", "formula", "is_reported"),
    [(1, "1", True), (2, "1", False), (2, "t", True), (3, "t", False)],
)
def test_random_effects_without_replicates_are_reported(n_rows, formula, is_reported):
    """lme4 raises an error if there are as many random effects as rows: the noise variance is then not identified."""
    rng, n_tasks = np.random.default_rng(0), 20
    group, t = np.repeat(np.arange(n_tasks), n_rows), np.tile(np.arange(n_rows), n_tasks)
    table = pd.DataFrame({"a": group // 4, "b": group % 4, "t": t})
    table["y"] = rng.normal(size=n_tasks)[group] + 0.5 * t * rng.normal(size=n_tasks)[group]
    table["y"] += 0.5 * rng.normal(size=len(t))
    learner = EmpiricalBayesLearner().fit(TaskSet.from_formula(f"y ~ t + ({formula} | a:b)", table))
    shown = learner.summary()
    assert shown.title.startswith(f"EmpiricalBayesLearner: {n_tasks} tasks (a:b), ")
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
