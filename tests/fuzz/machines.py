"""Learners in any order of calls: `python tests/fuzz/machines.py --count 300 --seed 0`.

A machine (hypothesis) draws calls of one learner, good and bad ones.  After every call it asks the
learner the same questions.
- Only `fit` and `partial_fit` that succeed may change an answer, in any bit.
- A file or a pickle answers with the same bits, and goes on to the same bits.
- Answers are finite, and the ends of intervals in order.
"""

from __future__ import annotations

import argparse
import copy
import pickle
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run_machine
from sklearn.base import clone

from tailored import ConditionalLearner, EmpiricalBayesLearner, IndependentLearner, TaskSet, load
from tailored.losses import Pinball
from tailored.paper import ProjectedSGD

#: What was called, and how it ended.
CALLED: Counter[tuple[str, str]] = Counter()
draws = st.integers(0, 2**16)


def make_tasks(number: int, d: int, described: bool, n_tasks: int | None = None) -> TaskSet:
    """A few small tasks: ragged, some without rows, in units far apart."""
    rng = np.random.default_rng([number, d, described])
    n_tasks = int(rng.integers(5, 9)) if n_tasks is None else n_tasks
    sizes = rng.integers(0, 6, n_tasks)
    sizes[:2] = 4
    X = rng.normal(size=(sizes.sum(), d)) * 10.0 ** rng.integers(-3, 4, d)
    groups = np.repeat(np.arange(n_tasks), sizes)
    y = (
        5.0
        + X @ rng.normal(size=d)
        + rng.normal(size=n_tasks)[groups]
        + 0.1 * rng.normal(size=len(X))
    )
    side = rng.normal(size=(n_tasks, 2))
    tasks = [(X[groups == t], y[groups == t]) for t in range(n_tasks)]
    return TaskSet.from_tasks(
        [(*task, side[t]) for t, task in enumerate(tasks)] if described else tasks
    )


class LearnerMachine(RuleBasedStateMachine):
    """One learner and the answers that it has to keep to."""

    kinds: ClassVar[dict[str, Callable[[], Any]]]
    #: Set good arguments, and bad ones with which the next `fit` is refused.
    good: ClassVar[list[dict[str, Any]]] = [{"random_state": 1}, {"n_jobs": 1}]
    bad: ClassVar[list[dict[str, Any]]] = [{"loss": "no loss"}, {"n_jobs": 0}]

    @initialize(data=st.data(), d=st.integers(1, 3), described=st.booleans(), number=draws)
    def begin(self, data: Any, d: int, described: bool, number: int) -> None:
        self.kind = data.draw(st.sampled_from(sorted(self.kinds)))
        self.d, self.described = d, described and "rows" not in self.kind
        self.folder = tempfile.TemporaryDirectory()
        self.learner = self.kinds[self.kind]()
        self.model: Any = None
        self.expected: Any = None
        self.probe = self.tasks(10**6, 5)
        self.fit(number)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()

    def tasks(self, number: int, n_tasks: int | None = None) -> TaskSet:
        return make_tasks(number, self.d, self.described, n_tasks)

    # ------------------------------------------------------------------ questions

    def answers(self, learner: Any) -> list[np.ndarray]:
        """Return weights, predictions and intervals of tasks with rows and without."""
        task, side = self.probe[0], self.described and {"side_info": self.probe[1].side_info}
        few = learner.adapt(task.X[:2], task.y[:2], **(side or {}))
        found = [
            few.predict(self.probe.X),
            few.coef_,
            learner.adapt(**(side or {})).predict(self.probe.X),
        ]
        if learner.prior_.quantile is None:
            found.append(learner.adapt_many(self.probe).weights_)
        if learner.prior_.calibration is not None:
            found.append(few.predict_interval(self.probe.X))
        known = np.full(len(self.probe.y), learner.task_labels_[0])
        side = {"side_info": {known[0]: self.probe[1].side_info}} if self.described else {}
        return [*found, learner.predict(self.probe.X, groups=known, **side)]

    def same(self, learner: Any, what: str) -> None:
        assert bits(self.answers(learner)) == bits(self.expected), (
            f"{self.kind}: {what} answers otherwise"
        )

    @invariant()
    def only_learning_changes_answers(self) -> None:
        if getattr(self, "expected", None) is None:
            return
        self.same(self.learner, "the learner")
        for found in self.expected:
            assert np.isfinite(found).all(), self.kind
            if found.ndim == 2 and found.shape == (len(self.probe.y), 2):
                # weights of two columns have as many rows as there are tasks, and rows are more
                assert (found[:, 0] <= found[:, 1]).all(), self.kind

    def refused(
        self, name: str, call: Callable[[], Any], errors: Any = (ValueError, TypeError)
    ) -> None:
        """The call fails, and not one attribute is another one."""
        before, pickled = dict(vars(self.learner)), pickle.dumps(vars(self.learner))
        with pytest.raises(errors):
            call()
        CALLED[name, "refused"] += 1
        assert vars(self.learner).keys() == before.keys()
        assert all(vars(self.learner)[key] is value for key, value in before.items())
        assert pickle.dumps(vars(self.learner)) == pickled

    # ------------------------------------------------------------------ learning

    @rule(number=draws)
    def fit(self, number: int) -> None:
        CALLED["fit", "a result"] += 1
        self.learner.fit(self.tasks(number))
        self.fitted_to: int | None = (
            number  # the tasks, where answers are those of a fit with these arguments
        )
        self.expected = self.answers(self.learner)

    @precondition(lambda self: hasattr(self.learner, "partial_fit"))
    @rule(number=draws, n_tasks=st.integers(2, 4), anew=st.booleans())
    def partial_fit(self, number: int, n_tasks: int, anew: bool) -> None:
        more = self.tasks(number, n_tasks)
        if anew:
            self.learner = clone(self.learner)
        elif not self.goes_on(self.learner):
            self.refused("partial_fit after fit", lambda: self.learner.partial_fit(more))
            return
        CALLED["partial_fit", "a result"] += 1
        self.learner.partial_fit(more)
        self.fitted_to = None
        self.expected = self.answers(self.learner)

    @staticmethod
    def goes_on(learner: Any) -> bool:
        return hasattr(learner, "_stream")

    @precondition(lambda self: self.fitted_to is not None)
    @rule()
    def clone_and_fit(self) -> None:
        """A new learner with the same arguments, fitted to the same tasks, gives the same bits."""
        CALLED["clone", "a result"] += 1
        other = clone(self.learner)
        assert not hasattr(other, "prior_")
        self.same(other.fit(self.tasks(self.fitted_to)), "a clone")

    # ------------------------------------------------------------------ using

    @rule(number=draws, n_rows=st.integers(0, 4))
    def adapt(self, number: int, n_rows: int) -> None:
        CALLED["adapt", "a result"] += 1
        task = self.tasks(number)[0]
        side = {"side_info": task.side_info} if self.described else {}
        rows = (task.X[:n_rows], task.y[:n_rows]) if n_rows else ()
        self.model = self.learner.adapt(*rows, **side)
        assert np.isfinite(self.model.predict(self.probe.X)).all()

    @rule(number=draws)
    def adapt_many(self, number: int) -> None:
        CALLED["adapt_many", "a result"] += 1
        assert np.isfinite(self.learner.adapt_many(self.tasks(number)).weights_).all()

    @precondition(lambda self: self.model is not None)
    @rule(number=draws, form=st.sampled_from(["file", "pickle", "copy"]))
    def update(self, number: int, form: str) -> None:
        """A model and its copy take further rows to the same bits; a bad row changes neither."""
        CALLED["update", "a result"] += 1
        task, other = self.tasks(number)[1], self.through(self.model, form)
        before = self.model.predict(self.probe.X)
        with pytest.raises(ValueError, match=r"NaN|finite"):
            self.model.update(task.X, np.full(len(task.y), np.nan))
        assert bits([before]) == bits([self.model.predict(self.probe.X)])
        assert bits([before]) == bits([other.predict(self.probe.X)])
        for model in (self.model, other):
            model.update(task.X, task.y)
        assert bits([self.model.predict(self.probe.X)]) == bits([other.predict(self.probe.X)])
        assert np.isfinite(other.predict(self.probe.X)).all()

    # ------------------------------------------------------------------ files and copies

    def through(self, thing: Any, form: str) -> Any:
        if form == "pickle":
            return pickle.loads(pickle.dumps(thing))
        if form == "copy":
            return copy.deepcopy(thing)
        path = Path(self.folder.name) / "model"
        thing.save(path)
        return load(path)

    @rule(form=st.sampled_from(["file", "pickle", "copy"]), stays=st.booleans(), number=draws)
    def leave_and_return(self, form: str, stays: bool, number: int) -> None:
        """A file, a pickle or a copy answers and goes on as the learner does."""
        CALLED[form, "a result"] += 1
        other = self.through(self.learner, form)
        self.same(other, f"a {form}")
        if self.goes_on(self.learner) and self.goes_on(other):
            more = self.tasks(number, 3)
            self.expected = self.answers(self.learner.partial_fit(more))
            self.fitted_to = None
            self.same(other.partial_fit(more), f"a {form} that goes on")
            CALLED[form, "went on"] += 1
        if not stays:
            self.learner = other

    # ------------------------------------------------------------------ arguments and faults

    @rule(data=st.data())
    def set_params(self, data: Any) -> None:
        CALLED["set_params", "a result"] += 1
        self.learner.set_params(**data.draw(st.sampled_from(self.good)))
        self.fitted_to = None  # the next fit is another one

    @rule(data=st.data(), number=draws)
    def bad_arguments(self, data: Any, number: int) -> None:
        bad = data.draw(st.sampled_from(self.bad))
        good = {name: self.learner.get_params(deep=False)[name] for name in bad}
        self.learner.set_params(**bad)
        self.refused("fit with " + next(iter(bad)), lambda: self.learner.fit(self.tasks(number)))
        self.learner.set_params(**good)

    @rule(which=st.integers(0, 9), number=draws)
    def bad_call(self, which: int, number: int) -> None:
        learner, good, folder = self.learner, self.tasks(number), Path(self.folder.name)
        groups = np.repeat(good.labels, good.sizes)
        wide = make_tasks(number, self.d + 1, self.described)
        holes = np.where(np.arange(len(good.y)) == 1, np.nan, good.y)
        cut = folder / "cut"
        learner.save(cut)
        cut.write_bytes(cut.read_bytes()[: 50 + number % 400])
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("fit, NaN", lambda: learner.fit(good.X, holes, groups=groups)),
            ("adapt, columns", lambda: learner.adapt(wide.X[:2], wide.y[:2])),
            ("set_params, name", lambda: learner.set_params(no_such_argument=1)),
            ("load, cut", lambda: load(cut)),
        ]
        if hasattr(learner, "partial_fit"):
            calls.append(
                ("partial_fit, NaN", lambda: learner.partial_fit(good.X, holes, groups=groups))
            )
            calls.append(("partial_fit, columns", lambda: learner.partial_fit(wide)))
        self.refused(*calls[which % len(calls)])
        with pytest.raises(OSError, match=r"."):
            learner.save(folder / "no such folder" / "model")


def bits(arrays: list[np.ndarray]) -> list[bytes]:
    return [np.ascontiguousarray(array).tobytes() for array in arrays]


class EmpiricalBayesMachine(LearnerMachine):
    kinds: ClassVar = {
        "plain": EmpiricalBayesLearner,
        "absolute": lambda: EmpiricalBayesLearner(loss="absolute"),
        "quantile": lambda: EmpiricalBayesLearner(loss=Pinball(0.7), fit_intercept=False),
    }


class ConditionalMachine(LearnerMachine):
    kinds: ClassVar = {
        "Algorithm 1, rows": lambda: ConditionalLearner(
            "ridge", solver=ProjectedSGD(0.3), rank=None
        ),
        "Algorithm 1": lambda: ConditionalLearner(solver=ProjectedSGD(0.1), rank=2),
    }
    bad: ClassVar = [
        *LearnerMachine.bad,
        {"rank": 0},
        {"support": 2.0},
        {"tol": -1.0},
        {"max_iter": 0},
    ]


class IndependentMachine(LearnerMachine):
    kinds: ClassVar = {
        "absolute": IndependentLearner,
        "squared": lambda: IndependentLearner(loss="squared", tau=3.0),
    }


MACHINES = (EmpiricalBayesMachine, ConditionalMachine, IndependentMachine)


def run(machine: type[LearnerMachine], count: int, steps: int, number: int | None = None) -> None:
    """So many runs of a machine, from a seed or, without one, always the same."""
    made = settings(
        max_examples=count,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=number is None,
        # a run of a few calls is short enough to be read as it is
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    with warnings.catch_warnings():
        # few tasks, which is said and does not matter here
        warnings.simplefilter("ignore")
        run_machine(machine if number is None else seed(number)(machine), settings=made)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300, help="runs of each machine")
    parser.add_argument("--steps", type=int, default=30, help="calls in a run, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for machine in MACHINES:
        CALLED.clear()
        run(machine, options.count, options.steps, options.seed)
        print(f"{machine.__name__}: {options.count} runs, {sum(CALLED.values())} calls, 0 failures")
        for (name, outcome), times in sorted(CALLED.items()):
            print(f"    {name}: {outcome}, {times}")


if __name__ == "__main__":
    main()
