"""Columns that may vary between tasks, and those that all tasks have in common: as the user sets
them.
"""

import numpy as np
import pandas as pd
import pytest

from tailored import EmpiricalBayesLearner, TaskSet


def rows(n_tasks=60, n=12, seed=0, slope=0.8):
    """Schools with a level and a slope of their own, whose inputs differ in level as well."""
    rng = np.random.default_rng(seed)
    school = np.repeat(np.arange(n_tasks), n)
    place = rng.standard_normal(n_tasks)
    frame = pd.DataFrame(
        {"school": school, "ses": rng.standard_normal(len(school)) + place[school]}
    )
    frame["age"] = rng.standard_normal(len(school)) + 30.0
    frame["track"] = rng.choice(["a", "b", "c"], len(school))
    level, own = (
        2.0 * rng.standard_normal(n_tasks) - place,
        1.0 + slope * rng.standard_normal(n_tasks),
    )
    frame["score"] = level[school] + own[school] * frame["ses"] - 0.5 * frame["age"]
    frame["score"] += (frame["track"] == "b") + rng.standard_normal(len(school))
    return frame


def tasks_of(frame):
    return TaskSet.from_frame(frame, task="school", target="score")


def mean_of(learner):
    """The prior mean that EM and least squares have found, in the user's units."""
    return learner.prior_.scaling.raw_weights(learner.prior_.mixture.means[0])


def fit(varying, frame=None, **options):
    return EmpiricalBayesLearner(varying=varying, **options).fit(
        tasks_of(rows() if frame is None else frame)
    )


def spread(learner):
    return np.abs(learner.task_weights_ - learner.task_weights_[0]).max(axis=0)


@pytest.mark.parametrize(
    ("varying", "vary"),
    [
        ([], [4]),
        (["ses"], [0, 4]),
        ([0], [0, 4]),
        (["track"], [2, 3, 4]),
        (["track=c", "age"], [1, 3, 4]),
    ],
)
def test_only_named_columns_vary(varying, vary):
    learner = fit(varying, rows(45), covariance="full")
    assert learner.structure_["varying"] == tuple(vary)
    assert (learner.structure_["kind"], learner.n_components_) == ("mixed model", 1)
    moved = spread(learner)
    assert moved[4] > 1.0
    assert moved[0] > 0.1 or 0 not in vary
    common = [j for j in range(5) if j not in vary]
    assert (moved[common] < 1e-10).all()
    new = tasks_of(rows(6, n=40, seed=1))
    weights = learner.adapt_many(new).weights_
    np.testing.assert_allclose(
        weights[:, common], np.tile(mean_of(learner)[common], (6, 1)), atol=1e-9
    )
    assert not learner.prior_.mixture.covariances[0][common].any()


def test_side_information_shifts_what_varies():
    frame = rows(80)
    side = pd.DataFrame({"school": np.arange(80), "kind": ["a", "b"] * 40})
    frame["score"] += 4.0 * (frame["school"] % 2) + 1.0 * (frame["school"] % 2) * frame["ses"]
    tasks = TaskSet.from_frame(frame, task="school", target="score", side_info=side)
    learner = EmpiricalBayesLearner(varying=["ses"]).fit(tasks)
    text = " ".join(learner.summary(details=True).text)
    assert "columns that shift coefficients: kind." in text
    one, other = (learner.adapt(side_info={"kind": kind}) for kind in "ab")
    np.testing.assert_allclose(one.coef_[1:], other.coef_[1:], atol=1e-9)
    assert 3.0 < other.intercept_ - one.intercept_ < 6.0
    only = EmpiricalBayesLearner(varying=[]).fit(tasks)
    assert only.side_structure_["effect on"] == "intercept"
    assert "that shift the intercept: kind." in " ".join(only.summary(details=True).text)


def test_few_tasks_and_no_intercept():
    few = fit(["ses"], rows(12))
    assert few.structure_["varying"] == (0, 4)
    bare = fit(["ses"], fit_intercept=False)
    assert bare.structure_["varying"] == (0,)
    assert (spread(bare)[1:] < 1e-10).all()


def test_mistakes():
    with pytest.raises(
        ValueError,
        match=r"varying: 'sess' is not a feature\. The features are 'ses', 'age', 'track=b'",
    ):
        fit(["sess"])
    with pytest.raises(ValueError, match="varying: there is no column 7; positions are 0 to 3"):
        fit([7])
    message = r"varying: expected a list of columns, got 'ses'; write \['ses'\]"
    with pytest.raises(TypeError, match=message):
        fit("ses")
    with pytest.raises(ValueError, match="leaves no random effects"):
        fit([], fit_intercept=False)
    tasks = tasks_of(rows(5))
    unnamed = (
        r"varying: columns have no names here; pass the position of 'ses', "
        r"or fit to a frame .*set_output\("
    )
    with pytest.raises(ValueError, match=unnamed):
        EmpiricalBayesLearner(varying=["ses"]).fit(
            tasks.X, tasks.y, groups=np.repeat(np.arange(5), 12)
        )
    with pytest.raises(ValueError, match="varying: needs at least two tasks, got 1"):
        EmpiricalBayesLearner(varying=[0]).fit(tasks[:1])
