"""Golden values: what every case of the table computes, to the last digit.

    python tests/goldens/make.py                 # write tests/goldens/goldens.npz
    python tests/goldens/make.py --check PATH    # compare with a file, bit for bit; exit code 1 if they differ

The file holds one vector with all numbers, and JSON that says which of them is what, beside the choices
(structures, steps, parameters) that are words: thousands of small arrays would be mostly headers.
"""

import argparse
import dataclasses
import json
import subprocess
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np
from sklearn.exceptions import ConvergenceWarning

# As a script this file is not in a package, and its neighbours are found from the folder above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from goldens.cases import CASES, CHOICES, NUMBERS, SEARCH
from goldens.environments import ENVIRONMENTS, WITHOUT_ROWS
from tailored import TaskSet
from tailored.exceptions import UnhelpfulWarning, UnknownCategoryWarning

GOLDENS = Path(__file__).with_name("goldens.npz")
COVERAGE = 0.8
#: Cases that between them call every compiled kernel.
KERNELS = (
    "one task's model, ",
    "projected, absolute, ",
    "projected, logistic, ",
    "empirical bayes, squared",
)


# ---------------------------------------------------------------- computing


def compute(case):
    """Fit the case's learner; numbers (name -> array) and choices (name -> plain value) that it ends in."""
    environment = ENVIRONMENTS[case.environment]()
    with warnings.catch_warnings():
        # Some problems are made hard on purpose; how far they get is part of what is recorded.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # There are few tasks.
        warnings.simplefilter("ignore", UnhelpfulWarning)
        # A city of one case is in no training task.
        warnings.simplefilter("ignore", UnknownCategoryWarning)
        warnings.filterwarnings("ignore", "coverage: too few tasks", UserWarning)
        if case.alone:
            numbers, choices = _alone(case, environment), {}
        else:
            learner = _fitted(case, environment)
            numbers, choices = _numbers(learner, environment, case), _choices(learner)
    return {name: np.asarray(value, dtype=np.float64) for name, value in numbers.items()}, choices


def _fitted(case, environment):
    learner, tasks = case.make(), environment.train[: case.n_train]
    extra = {"validation": environment.validation} if case.validation else {}
    if case.pieces is None:
        learner.fit(tasks, **extra)
    else:
        cuts = [0, len(tasks)] if case.pieces == 1 else [0, len(tasks) * 3 // 5, len(tasks)]
        for first, stop in pairwise(cuts):
            learner.partial_fit(tasks[first:stop], **extra)
            extra = {}
    if case.intervals:
        learner.calibrate_intervals(environment.validation)
    return learner


def _alone(case, environment):
    task, query = environment.support[0], environment.query[0]
    return _model(case.make().fit(task.X, task.y), query.X, "")


def _numbers(learner, environment, case):
    numbers = {}
    support, query = environment.support, environment.query
    sides = environment.sides
    for place, t in (("first", 0), ("without rows", WITHOUT_ROWS), ("last", len(support) - 1)):
        numbers |= _model(_adapt(learner, support[t], sides[t]), query[t].X, f"{place}: ")
    if getattr(getattr(learner, "prior_", None), "quantile", None) is None:
        numbers["weights of many"] = learner.adapt_many(support)
    else:
        # Quantiles are not linear in the row: there are no weights that give them.
        numbers["predictions of many"] = learner.predict_tasks(query, support)["prediction"]
    numbers["task errors"] = learner.task_errors(support, query)
    if hasattr(learner, "predict"):
        # Of the last tasks that it knows (those of the last piece), in another order than they came in.
        known = environment.train[environment.train.index_of(learner.task_labels_[-4:])]
        order = np.random.default_rng(0).permutation(len(known.y))
        groups = np.repeat(known.labels, known.sizes)
        numbers["predictions of training rows"] = learner.predict(known.X[order], groups[order])
    if hasattr(learner, "representation"):
        numbers["representation"] = learner.representation(
            support[0].X, support[0].y, **_side(sides[0])
        )
    if hasattr(learner, "score"):
        numbers["score"] = learner.score(environment.validation)
    for name, attribute in NUMBERS.items():
        value = getattr(learner, attribute, None)
        if value is not None:
            numbers[name] = value
    attribute, key = SEARCH
    results = getattr(learner, attribute, None)
    if results is not None:
        numbers["errors in the search"] = [result[key] for result in results]
    return numbers


def _side(side):
    return {} if side is None else {"side_info": side}


def _adapt(learner, task, side):
    """Rows that are not there are not passed."""
    if not hasattr(learner, "adapt"):
        return OneTask(learner, TaskSet.from_tasks([(task.X, task.y)]))
    return learner.adapt(*((task.X, task.y) if len(task.y) else ()), **_side(side))


class OneTask:
    """The model of one task by a baseline."""

    def __init__(self, baseline, support):
        self.baseline, self.support = baseline, support
        *self.coef_, self.intercept_ = baseline.adapt_many(support)[0]

    def predict(self, X):
        query = TaskSet.from_tasks([(X, np.zeros(X.shape[0]))])
        return self.baseline.predict_rows(self.support, query)


def _model(model, query, prefix):
    numbers = {
        "coefficients": model.coef_,
        "intercept": model.intercept_,
        "predictions": model.predict(query),
    }
    gap = getattr(model, "dual_gap_", None)
    if gap is not None:
        numbers["dual gap"] = gap
    if hasattr(model, "predict_interval"):
        try:
            numbers["interval"] = model.predict_interval(query, coverage=COVERAGE)
        except ValueError as error:
            # That a learner has none is recorded by their absence; any other complaint is one.
            if "calibrat" not in str(error):
                raise
    return {prefix + name: value for name, value in numbers.items()}


def _choices(learner):
    found = {name: getattr(learner, attribute, None) for name, attribute in CHOICES.items()}
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value):
    """The value in words, numbers, lists and dicts of these, as JSON gives it back."""
    if dataclasses.is_dataclass(value):
        value = dataclasses.astuple(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return float(value) if isinstance(value, float | np.floating) else value


# ---------------------------------------------------------------- storing


def save(path, results):
    """Write results (case -> numbers and choices) to one file."""
    index = {
        case: {"shapes": {name: array.shape for name, array in numbers.items()}, "choices": choices}
        for case, (numbers, choices) in results.items()
    }
    flat = [array.ravel() for numbers, _ in results.values() for array in numbers.values()]
    # As bytes: a NumPy string takes four for every letter.
    letters = np.frombuffer(json.dumps(index).encode(), dtype=np.uint8)
    np.savez_compressed(path, numbers=np.concatenate(flat), index=letters)


def load(path=GOLDENS):
    """What `save` wrote."""
    with np.load(path) as stored:
        numbers, index = stored["numbers"], json.loads(stored["index"].tobytes())
    results, start = {}, 0
    for case, entry in index.items():
        arrays = {}
        for name, shape in entry["shapes"].items():
            size = int(np.prod(shape, dtype=int))
            arrays[name] = numbers[start : start + size].reshape(shape)
            start += size
        choices = entry["choices"]
        if "steps" in choices:  # older files have a third step, of a prior mean
            choices["steps"] = choices["steps"][:2]
        results[case] = arrays, choices
    return results


# ---------------------------------------------------------------- comparing


def differences(old, new):
    """Lines that say what differs between two results, bit for bit."""
    (old_numbers, old_choices), (new_numbers, new_choices) = old, new
    lines = []
    for name in {**old_numbers, **new_numbers}:
        a, b = old_numbers.get(name), new_numbers.get(name)
        if a is None or b is None:
            lines.append(f"{name}: {'not in the file' if a is None else 'only in the file'}")
        elif a.shape != b.shape:
            lines.append(f"{name}: shape {a.shape} in the file, now {b.shape}")
        elif a.tobytes() != b.tobytes():
            lines.append(f"{name}: largest relative difference {relative_difference(a, b):.3g}")
    for name in {**old_choices, **new_choices}:
        a, b = old_choices.get(name), new_choices.get(name)
        if json.dumps(a) != json.dumps(b):
            lines.append(f"{name}: {a!r} in the file, now {b!r}")
    return lines


def relative_difference(a, b):
    """Largest difference over the largest magnitude; infinite where one is finite and the other is not."""
    finite = np.isfinite(a)
    if (finite != np.isfinite(b)).any() or not np.array_equal(
        a[~finite], b[~finite], equal_nan=True
    ):
        return np.inf
    a, b = a[finite], b[finite]
    largest = max(np.abs(a).max(initial=0.0), np.abs(b).max(initial=0.0))
    return float(np.abs(a - b).max(initial=0.0) / largest) if largest > 0 else 0.0


def check(path, results):
    """Print what differs from the file; whether anything does."""
    stored, n_differing = load(path), 0
    for case in {**stored, **results}:
        if case not in results or case not in stored:
            lines = ["only in the file" if case in stored else "not in the file"]
        else:
            lines = differences(stored[case], results[case])
        n_differing += bool(lines)
        for line in lines:
            print(f"{case} | {line}")
    print(f"{len(results)} cases, {n_differing} of them not equal to the last bit")
    return n_differing > 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, help=f"where to write (default: {GOLDENS.name} beside this script)"
    )
    parser.add_argument(
        "--check", type=Path, help="compare with this file; writes only if --out is given"
    )
    parser.add_argument("--times", action="store_true", help="print the seconds of every case")
    parser.add_argument(
        "--compile", action="store_true", help="only fill the cache of compiled kernels"
    )
    options = parser.parse_args(arguments)
    if options.compile:
        for name, case in CASES.items():
            if name.startswith(KERNELS):
                compute(case)
        return 0
    # Numba's kernels may reorder sums, and in the process that compiles them they do it in another way than
    # when they come from the cache: the last bits are those of the cache, whether it was there before or not.
    subprocess.run([sys.executable, __file__, "--compile"], check=True)
    results = {}
    for name, case in CASES.items():
        start = time.perf_counter()
        results[name] = compute(case)
        if options.times:
            print(f"{time.perf_counter() - start:7.2f} s  {name}", flush=True)
    out = GOLDENS if options.out is None and options.check is None else options.out
    if out is not None:
        save(out, results)
    return int(check(options.check, results)) if options.check is not None else 0


if __name__ == "__main__":
    sys.exit(main())
