"""Cross-validation by scikit-learn: the page about it, scores without groups, warnings and settings of solvers."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tailored import ConditionalLearner, IndependentLearner, TaskSet, UnconditionalLearner
from tailored.exceptions import SingleTaskWarning
from tailored.feature_maps import get_feature_map
from tailored.solvers import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cross-validation.md").read_text(encoding="utf-8")
RNG = np.random.default_rng(0)
GROUPS = RNG.permutation(np.repeat(np.arange(8), 5))
X = RNG.normal(size=(40, 2))
Y = X[:, 0] + GROUPS
CV = GroupKFold(2)


def numbers(text):
    """Rows of the printed table, without the number of the fold."""
    return np.array([[float(v) for v in line.split()[1:]] for line in text.strip().splitlines()[1:]])


def test_the_recipe_gives_the_numbers_of_the_loop(capsys):
    blocks, names = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL), {"__name__": "recipe"}
    (printed,) = re.findall(r"```text\n(.*?)```", PAGE, flags=re.DOTALL)
    with sklearn.config_context(enable_metadata_routing=True):
        exec(compile("".join(blocks), "cross-validation.md", "exec"), names)
        found = numbers(capsys.readouterr().out)
    assert found.shape == (2, 4)
    np.testing.assert_allclose(found[:, [0, 2]], found[:, [1, 3]], atol=1e-4)
    assert (found < 0).all()
    np.testing.assert_array_equal(*names["scores"])
    # the page is of the learner as it is
    np.testing.assert_allclose(found, numbers(printed), rtol=0.1)


def scores_of(kind, estimator, routed, scoring="neg_mean_absolute_error"):
    """Return the scores of a cross-validation or of a search, and the warnings."""
    with sklearn.config_context(enable_metadata_routing=routed), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        given = {"params": {"groups": GROUPS}} if routed else {"groups": GROUPS}
        if kind == "scores":
            found = cross_val_score(estimator, X, Y, cv=CV, scoring=scoring, **given)
        else:
            name = "independentlearner__clip" if hasattr(estimator, "steps") else "clip"
            search = GridSearchCV(estimator, {name: [None]}, cv=CV, scoring=scoring, refit=False)
            search.fit(X, Y, groups=GROUPS)
            found = np.array([search.cv_results_[f"split{i}_test_score"][0] for i in range(2)])
    return found, seen


@pytest.mark.parametrize("kind", ["scores", "search"])
@pytest.mark.parametrize("scaled", [False, True])
def test_scorers_by_name_give_no_number(kind, scaled):
    learner = IndependentLearner(loss="squared")
    estimator = make_pipeline(StandardScaler(), learner) if scaled else learner
    found, seen = scores_of(kind, estimator, routed=True)
    assert np.isnan(found).all()
    assert any("groups: the learner was fitted to 4 tasks" in str(w.message) for w in seen)
    assert not any(issubclass(w.category, SingleTaskWarning) for w in seen)


@pytest.mark.parametrize("kind", ["scores", "search"])
@pytest.mark.parametrize("scaled", [False, True])
def test_without_routing_the_warning_says_what_to_do(kind, scaled):
    """Then the labels never reach fit, which takes all rows as one task."""
    learner = IndependentLearner(loss="squared")
    estimator = make_pipeline(StandardScaler(), learner) if scaled else learner
    _, seen = scores_of(kind, estimator, routed=False)
    said = [str(w.message) for w in seen if issubclass(w.category, SingleTaskWarning)]
    assert len(said) == 2
    assert all("enable_metadata_routing=True" in text and "all 20 rows are one task" in text for text in said)


def test_a_refused_setting_leaves_the_solver_alone():
    for solver in (None, ProjectedSGD(0.1)):
        learner = UnconditionalLearner(solver=solver)
        with pytest.raises(ValueError, match="Invalid parameter 'nothing'"):
            learner.set_params(solver__step=2.0, solver__nothing=1)
        assert learner.solver is solver
        learner.set_params(solver__step=2.0)
        assert learner.solver.step == 2.0
    # the user's own object is the user's
    assert solver.step == 0.1


def test_warnings_point_to_the_caller():
    for learner in (IndependentLearner(), UnconditionalLearner(solver=ProjectedSGD(0.1))):
        with pytest.warns(SingleTaskWarning) as seen:
            learner.fit(X, Y)
        assert seen[0].filename == __file__


def test_sparse_tasks_are_named_where_they_do_not_converge():
    tasks = TaskSet(sp.csr_array(X), Y + np.sin(9.0 * X[:, 1]), [f"user {g}" for g in GROUPS])
    learner = IndependentLearner(loss="huber", max_iter=1, tol=1e-14)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        learner.fit(tasks)
    assert any(re.match(r"Task 'user \d': the exact within-task algorithm", str(w.message)) for w in seen)


def test_feature_maps_print_their_arguments():
    assert repr(get_feature_map("angle", has_side_info=False)) == "AngleMap(low=None, high=None)"
    assert " at 0x" not in repr(ConditionalLearner(get_feature_map("angle", has_side_info=False)))
