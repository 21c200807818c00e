"""Few tasks, and tasks without rows."""

import numpy as np
import pytest

from odd_tasks import EVERYONE, LEARNERS, make
from tailored import EmpiricalBayesLearner, IndependentLearner, TaskSet

pytestmark = pytest.mark.usefixtures("nothing_on_the_terminal")


def empty(tasks):
    return tasks.with_rows(np.zeros(len(tasks.y), dtype=bool), np.zeros(len(tasks), dtype=np.int64))


@EVERYONE
def test_only_empty_tasks_are_refused(name):
    with pytest.raises(ValueError, match=r"(X|tasks): (none of the tasks|no task) has a row"):
        LEARNERS[name]().fit(empty(make()))


@EVERYONE
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_single_task_and_a_single_row(name):
    tasks = make()[:4]
    lonely = [(t.X[: int(i == 2)], t.y[: int(i == 2)], t.side_info) for i, t in enumerate(tasks)]
    for few in (tasks[:1], TaskSet.from_tasks(lonely)):
        learner = LEARNERS[name]().fit(few)
        errors = learner.task_errors(tasks, tasks)
        assert np.isfinite(errors).all()
        for number in ("validation_error_", "scale_"):
            assert np.isfinite(vars(learner).get(number) or 0.0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_draws_of_held_out_tasks_without_rows(seed):
    """Whichever tasks are held out: most have no rows."""
    tasks = make()
    few = [
        (t.X[: 6 * (i == seed)], t.y[: 6 * (i == seed)], t.side_info)
        for i, t in enumerate(tasks[:5])
    ]
    for name in ("unconditional", "empirical Bayes"):
        learner = LEARNERS[name]().set_params(random_state=seed)
        learner.fit(TaskSet.from_tasks(few))
        assert np.isfinite(learner.task_errors(tasks, tasks)).all()


def test_a_score_of_one_row():
    tasks = make()
    learner = IndependentLearner().fit(tasks)
    with pytest.raises(ValueError, match="X: R² needs at least two query rows"):
        learner.score(
            TaskSet.from_tasks([(tasks[0].X[:1], tasks[0].y[:1], tasks[0].side_info)]),
            n_support=0.5,
        )


def test_a_model_without_rows_is_that_of_the_summary_unless_it_says_otherwise():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        groups, x = np.repeat(np.arange(10), 5), rng.normal(size=(50, 1))
        y = 5.0 + rng.standard_t(2, 10)[groups] + x[:, 0] + 0.5 * rng.normal(size=50)
        for loss in ("squared", "absolute"):
            learner = EmpiricalBayesLearner(loss=loss, varying=[]).fit(x, y, groups=groups)
            model, summary = learner.adapt(), learner.summary()
            fixed = summary.to_frame("effects")["fixed effect"].to_numpy()
            is_equal = np.allclose([*model.coef_, model.intercept_], fixed, rtol=1e-6)
            assert is_equal != any("Groups without rows" in text for text in summary.text)
