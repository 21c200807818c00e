"""The table of the selection, the sentence about it, and the formula of lme4."""

import re

import numpy as np
import pytest

import tailored
from tailored import EmpiricalBayesLearner, TaskSet
from tailored.summaries.selection import describe_selection
from tailored.summaries.training import ComparedStructure

pytestmark = pytest.mark.usefixtures("short_fits_in_module")
pd = pytest.importorskip("pandas")


def frame(n_tasks=40, n_rows=6, slope=0.0, seed=0):
    """Rows of a linear mixed model; the standard deviation of the random slopes is ``slope``."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(n_tasks), n_rows)
    hours, track = rng.normal(size=len(school)), rng.choice(list("abc"), len(school))
    u = rng.normal(size=(n_tasks, 2))
    score = hours + u[school, 0] + slope * u[school, 1] * hours + 0.5 * rng.normal(size=len(school))
    return pd.DataFrame({"school": school, "hours spent": hours, "track": track, "score": score})


def fit(table, **options):
    tasks = TaskSet.from_frame(table, task="school", target="score")
    return EmpiricalBayesLearner(common="linear", **options).fit(tasks)


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
    best = {kind: max(value for other, value in densities if other == kind) for kind, _ in densities}
    names = {"intercept": "random intercept", "diagonal": "uncorrelated", "full": "correlated"}
    assert len(table) == 3
    assert table["density difference"][0] == 0.0
    for kind, value in best.items():
        [row] = [i for i, name in enumerate(table["structure"]) if name.startswith(names[kind])]
        assert table["density difference"][row] == pytest.approx(value - max(best.values()), abs=1e-9)
    # Random slopes with a standard deviation of 1 are found.
    [row] = np.flatnonzero(table["structure"] == "random intercept")
    assert table["density difference"][row] < -2.0 * table["std. error"][row]


def test_summary_names_the_runner_up_and_its_error(learner):
    summary = learner.summary()
    [sentence] = [
        text for text in summary.text if text.startswith("Selected on held-out tasks among 3 kinds")
    ]
    table = summary.to_frame("selection")
    assert f"({table['structure'][1]}; error {table['held-out error'][1]:.4g})" in sentence
    assert "nats per task" in sentence
    printed = str(summary.tables["selection"]).split("\n\n")[1]
    assert len(printed.splitlines()) == 1 + len(table) <= 7


def test_a_rejected_structure_with_a_higher_density_is_explained():
    rows = {"correlated": ComparedStructure(0.0, 0.0, 1.0), "mixture of 2": ComparedStructure(0.3, 0.2, 1.1)}
    text = describe_selection(rows)
    assert (
        "The log predictive density of the runner-up (mixture of 2; error 1.1) is higher by 0.3 ± 0.2" in text
    )
    assert "needs two standard errors" in text
    assert describe_selection({"correlated": rows["correlated"]}) == ""


def test_comparison_is_stored_in_model_files(learner, tmp_path):
    learner.save(tmp_path / "model")
    loaded = tailored.load(tmp_path / "model")
    assert loaded.training_summary_.compared == learner.training_summary_.compared
    assert loaded.summary().text == learner.summary().text


@pytest.mark.parametrize(
    ("varying", "formula"),
    [
        ([], r"score ~ `hours spent` \+ track \+ \(1 \| school\)\."),
        (["track"], r"\((track \||`track=b` \+ `track=c` \|\|) school\)"),
        (["hours spent"], r"\(`hours spent` \|"),
    ],
)
def test_formula_of_lme4(varying, formula):
    text = " ".join(fit(frame(), varying=varying).summary().text)
    assert re.search(formula, text)
    assert "Formula of lme4: score ~ " in text or "with the correlations shrunk" in text


def test_formula_of_uncorrelated_effects_has_indicators(learner, monkeypatch):
    uncorrelated = fit(frame(slope=1.0, seed=2))
    monkeypatch.setitem(uncorrelated.structure_, "structure", "diagonal")
    uncorrelated.structure_.pop("pseudo_tasks", None)
    [text] = [text for text in uncorrelated.summary().text if "lme4" in text]
    columns = "`hours spent` + `track=b` + `track=c`"
    assert text == f"Formula of lme4: score ~ {columns} + ({columns} || school), with centred columns."


def test_no_formula_for_mixtures(learner, monkeypatch):
    monkeypatch.setattr(learner, "structure_", {"kind": "mixture", "n_components": 2})
    assert not any("lme4" in text for text in learner.summary().text)
