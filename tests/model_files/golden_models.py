"""Small models of every kind, for the golden files of the present format and for the fuzzer.

`python tests/model_files/golden_models.py` writes those of the present format into a folder of its own, with what they
predict.  A folder that was released is never written again: its files stay readable for ever.
"""

import json
import sys
import warnings
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np

from tailored import (
    ConditionalLearner,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskRegressor,
    TaskSet,
    UnconditionalLearner,
)
from tailored.archive import FORMAT
from tailored.datasets import make_clusters
from tailored.empirical_bayes.prior_mean import LevelBias
from tailored.empirical_bayes.training import assemble
from tailored.feature_maps import (
    AdaptedWeights,
    FourierEmbedding,
    SideMap,
    TaskSummary,
)
from tailored.gaussian import Mixture, Moments, SideForm
from tailored.losses import Pinball
from tailored.representation import Bias, LowRank
from tailored.solvers import LBFGS, ProjectedSGD

HERE = Path(__file__).parent
LATEST = HERE / f"format-{FORMAT}"


def clusters(n_tasks=8, n_rows=5):
    return make_clusters(n_tasks, n_clusters=2, n_rows=n_rows, n_features=3, rank=1, random_state=0)


def described(n_tasks=10):
    """Tasks with words for labels and a description of a number, a word and missing values."""
    tasks = clusters(n_tasks)
    names = [f"task {t}" if t % 2 else ("pair", t) for t in range(n_tasks)]
    side = {
        name: {
            "age": 20.0 + t + 0.1 * t * t if t % 5 else float("nan"),
            "job": ("cook", "smith", "clerk")[t % 3],
        }
        for t, name in enumerate(names)
    }
    groups = [names[t] for t in np.repeat(np.arange(n_tasks), tasks.sizes)]
    return TaskSet(tasks.X, tasks.y + np.repeat(np.arange(n_tasks) % 3, tasks.sizes), groups, side)


def of_a_table(n_tasks=8, n_rows=6):
    """Tasks of a frame with a number, words and a date."""
    import pandas as pd

    row = np.arange(n_tasks * n_rows)
    frame = pd.DataFrame(
        {
            "task": row // n_rows,
            "hours": np.round(np.sin(row), 3),
            "kind": np.array(["a", "b", "c"])[row % 3],
            "day": pd.Timestamp("2026-01-05") + pd.to_timedelta(row % 7, unit="D"),
            "score": np.round(np.sin(row) + row // n_rows % 3 + 0.1 * np.cos(7.0 * row), 3),
        }
    )
    return TaskSet.from_frame(frame, task="task", target="score")


def of_many_columns(learner, tasks):
    """The learner with factors plus a diagonal in the place of what it learned."""
    rng, prior = np.random.default_rng(0), learner.prior_
    side = prior.feature_map.model.side
    k = 0 if side is None else len(side.mean)
    tau = LowRank(rng.normal(size=(4, 2)), np.ones(4), k)
    bias = Bias("conditional" if k else "shared", np.arange(4.0), 0.1 * rng.normal(size=(4, k)))
    features = SideMap(side) if k else None
    return served(learner, replace(prior, conditioning=tau, bias=bias, feature_map=features), tasks)


def on_its_way(learner, tasks):
    """The learner with an effect of the description and of query rows in its stream."""
    made, running = deepcopy(learner), learner._stream.running
    d, statistics = 4, Moments.of(tasks, running.units, running.side(tasks))
    summary = TaskSummary.fit(running.model.last, statistics, running.model.last.weights(statistics))
    B = np.zeros((d, 1 + len(summary.mean)))
    levels = LevelBias(0, None, None, None, np.zeros(0)), LevelBias(4, B, summary, 1.0, np.zeros(0))
    running = replace(running, side_form=SideForm(10.0, True, False), biases=levels)
    made._stream = replace(made._stream, running=running)
    return made


def of_a_mixture(learner, tasks):
    """The learner with two components, gates and what query rows teach in the place of what it learned."""
    rng, prior = np.random.default_rng(0), learner.prior_
    model = prior.feature_map.model
    d, q = 4, len(model.side.mean)
    roots = rng.normal(size=(2, d, d))
    mixture = Mixture(
        np.array([0.25, 0.75]),
        rng.normal(size=(2, d)),
        roots @ roots.transpose(0, 2, 1),
        0.1,
        0.1 * rng.normal(size=(d, q)),
        rng.normal(size=(2, 1 + q)),
        averaged=True,
    )
    statistics = Moments.of(tasks, model.units, model.side(tasks))
    summary = TaskSummary.fit(mixture, statistics, mixture.weights(statistics))
    B = 0.1 * rng.normal(size=(d, 1 + len(summary.mean)))
    levels = [LevelBias(0, None, None, None, np.zeros(0)), LevelBias(4, B, summary, 1.0, np.zeros(0))]
    found = assemble(model.units, model.side, mixture, levels)
    return served(learner, replace(found, calibration=prior.calibration), tasks)


def served(learner, prior, tasks):
    made = deepcopy(learner)
    made.prior_ = prior
    made._remember(tasks)
    return made


def query(d, n=3):
    return np.round(np.random.default_rng(7).normal(size=(n, d)), 3)


def models():
    """(name, what to save, how) of every kind."""
    tasks, told, rows = clusters(), described(), query(3, 5)
    step = ProjectedSGD(0.1)
    plain = {"fit_intercept": False}
    learners = {
        "independent": IndependentLearner(initial_representation=2.0, loss="squared", clip=(-5, 5), **plain),
        "unconditional": UnconditionalLearner(solver=step, bias="shared"),
        "unconditional-lbfgs": UnconditionalLearner(solver=LBFGS(max_passes=2), clip="train", **plain),
        "conditional": ConditionalLearner(solver=step, rank=2, bias="conditional", **plain),
        "conditional-exact": ConditionalLearner(
            FourierEmbedding(2), solver=step, rank=None, loss=("pinball", {"quantile": 0.3}), **plain
        ),
        "conditional-joined": ConditionalLearner(
            ["mean", "angle", "posterior mean", "tuned ridge"],
            solver=LBFGS(max_passes=1),
            rank=3,
            loss=Pinball(0.3),
            objective="query",
        ),
        "conditional-refined": ConditionalLearner(
            AdaptedWeights(IndependentLearner(**plain), constant=True), solver=step, rank=2, **plain
        ),
        "conditional-huber": ConditionalLearner("mean", solver=step, rank=2, loss="huber", inner="exact"),
        "conditional-posterior": ConditionalLearner("posterior", solver=step, rank=2),
        "empirical-bayes": EmpiricalBayesLearner(),
        "empirical-bayes-quantile": EmpiricalBayesLearner(loss=Pinball(0.4), clip="train"),
    }
    found = [(name, learner.fit(tasks), {}) for name, learner in learners.items()]
    with_side = EmpiricalBayesLearner().fit(told)
    found += [
        ("conditional-described", ConditionalLearner(solver=step, rank=2).fit(told), {}),
        ("empirical-bayes-described", with_side, {}),
        ("empirical-bayes-table", EmpiricalBayesLearner(varying=["hours"]).fit(of_a_table()), {}),
        (
            "empirical-bayes-stream",
            on_its_way(EmpiricalBayesLearner().partial_fit(told), told),
            {"stream": True},
        ),
        ("empirical-bayes-many-columns", of_many_columns(EmpiricalBayesLearner().fit(tasks), tasks), {}),
        ("empirical-bayes-many-columns-described", of_many_columns(with_side, told), {}),
        ("empirical-bayes-mixture", of_a_mixture(with_side, told), {}),
        ("task-fitted", TaskRegressor(np.diag([1.0, 2.0, 0.5]), loss="squared").fit(rows, rows[:, 0]), {}),
    ]
    side, by_name = {"age": 31.0, "job": "clerk"}, {name: model for name, model, _ in found}
    for name, learner, given in (
        ("task-adapted", by_name["empirical-bayes"], {}),
        ("task-adapted-rows", by_name["conditional"], {}),
        ("task-adapted-many-columns", by_name["empirical-bayes-many-columns"], {}),
        ("task-adapted-mixture", by_name["empirical-bayes-mixture"], {"side_info": side}),
    ):
        found.append((name, learner.adapt(rows, rows[:, 0] - 0.5, **given), {}))
    return found


def answers(model):
    """What a model says, as plain numbers."""
    d = model.n_features_in_
    X, found = query(d), {}
    if isinstance(model, TaskRegressor):
        one, found["updated"] = model, None
    else:
        given = query(d, 4)
        described = model.n_side_info_in_
        side = {"side_info": {"age": 31.0, "job": "clerk"}} if described else {}
        one = model.adapt(given, np.where(given[:, 0] > 0, 1.0, -1.0), **side)
        labels = model.task_labels_[[0, 1, 0]]
        found["served"] = model.predict(X, groups=list(labels)).tolist()
    found["prediction"] = one.predict(X).tolist()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found["interval"] = one.predict_interval(X, 0.5).tolist()
    except ValueError:
        found["interval"] = None
    if "updated" in found:
        try:
            found["updated"] = one.update(X, X[:, 0]).predict(X).tolist()
        except ValueError:
            found["updated"] = None
    return found


def named(name):
    """The golden file of the present format."""
    return LATEST / f"{name}.tailored"


def main(folder):
    folder.mkdir(parents=True)
    expected = {}
    for name, model, how in models():
        model.save(folder / f"{name}.tailored", **how)
        expected[name] = answers(model)
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else LATEST)
