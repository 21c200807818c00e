"""Golden values: what every case of the table computes, to the last digit.

    python tests/goldens/make.py            # write tests/goldens/goldens.json.gz
    python tests/goldens/make.py --check    # print what differs; exit code 1 if the test would fail

Code that was only moved gives the same bits on the machine that wrote the file. An exception is a
run in which Numba compiles kernels, because it reorders sums in another way than in kernels of its
cache: check again.
"""

import copy
import gzip
import json
import sys
import warnings
from itertools import pairwise
from pathlib import Path

import numpy as np

# As a script this file is not in a package, and its neighbours are found from the folders above.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from goldens.cases import CASES, Case
from tailored import TaskRegressor
from tailored.losses import Pinball

GOLDENS = Path(__file__).with_name("goldens.json.gz")
#: Attributes that are stored of learners that have them.
ATTRIBUTES = (
    "structure_",
    "n_components_",
    "scale_",
    "side_structure_",
    "validation_error_",
    "search_results_",
    "step_size_",
    "best_params_",
    "n_tasks_seen_",
    "alpha_",
    "centred_",
    "shrinkage_",
    "user_shrinkage_",
    "item_shrinkage_",
)


def compute(case: Case) -> dict:
    """Return what the fitted learner of a case has and answers, name -> number, text or list."""
    learner = copy.deepcopy(case.learner)
    with warnings.catch_warnings():
        # There are few tasks, and some problems are hard on purpose.
        warnings.simplefilter("ignore", UserWarning)
        if isinstance(learner, TaskRegressor):
            support, query = case.tasks().support[0], case.tasks().query[0]
            found = {"adapt": _model(learner.fit(support.X, support.y), query)}
        else:
            found = _answers(_fit(learner, case), case)
    found |= {name: getattr(learner, name, None) for name in ATTRIBUTES}
    return json.loads(json.dumps(dict(_flat("", found)), default=_plain))


def _fit(learner, case):
    tasks = case.tasks()
    train = tasks.train[: case.n_train]
    held_out = {"validation": tasks.validation} if case.validation else {}
    if case.n_pieces:
        cuts = np.linspace(0, len(train), case.n_pieces + 1).astype(int)
        for start, stop in pairwise(cuts):
            learner.partial_fit(train[start:stop])
    else:
        learner.fit(train, **held_out)
    if case.intervals:
        learner.calibrate_intervals(tasks.validation)
    return learner


def _answers(learner, case):
    """Return the results of the methods that the learner has."""
    train, validation, support, query = case.tasks()
    known = train[-2:]
    order = np.random.default_rng(0).permutation(len(known.y))
    arguments = {
        "task_errors": (support, query),
        "predict_tasks": (query, support),
        "predict": (known.X[order], known.labels[known.task_of_row[order]]),
        "score": (validation,),
        "representation": (support[:1],),
    }
    if not isinstance(getattr(learner, "loss", None), Pinball):  # no weights give all quantiles
        arguments["adapt_many"] = (support,)
    found = {
        name: getattr(learner, name)(*a) for name, a in arguments.items() if hasattr(learner, name)
    }
    if "predict_tasks" in found:
        table = found["predict_tasks"]
        found["predict_tasks"] = {name: table[name] for name in table.dtype.names[1:]}
        X, y, side_info, _ = support[0]
        found["adapt"] = _model(learner.adapt(X, y, side_info=side_info), query[0])
    return found


def _model(model, task):
    """Return the coefficients of the model of one task, and its predictions."""
    return {
        "coefficients": np.append(model.coef_, model.intercept_),
        "prediction": model.predict(task.X),
    }


def _plain(value):
    """Return arrays as lists, and other objects as texts."""
    value = np.asarray(value)
    return str(value) if value.dtype == object else value.tolist()


def _flat(name, value):
    """Yield (name, leaf) of nested dictionaries, and of lists of them, with names joined by
    dots.
    """
    if isinstance(value, list) and value and isinstance(value[0], dict):
        value = {str(i): item for i, item in enumerate(value)}
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(f"{name}.{key}" if name else key, item)
    elif value is not None:
        yield name, value


def save(results: dict) -> None:
    """Write the results of all cases."""
    # Without a time stamp, equal results give equal files.
    GOLDENS.write_bytes(gzip.compress(json.dumps(results).encode(), mtime=0))


def load() -> dict:
    """Read what `save` wrote."""
    return json.loads(gzip.decompress(GOLDENS.read_bytes()))


def differences(stored: dict, found: dict) -> dict[str, float]:
    """Return how much each quantity differs, relative to its largest number."""
    return {
        name: _difference(stored.get(name, "missing"), found.get(name, "missing"))
        for name in {**stored, **found}
    }


def _difference(a, b):
    if a == b:
        return 0.0
    try:
        a, b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    except ValueError:  # other words
        return np.inf
    finite = np.isfinite(a)
    if a.shape != b.shape or not np.array_equal(finite, np.isfinite(b)):
        return np.inf
    a, b = a[finite], b[finite]
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs([a, b]).max(initial=0.0), 1e-300))


def main() -> int:
    """Compute all cases, and write or check the file."""
    results = {name: compute(case) for name, case in CASES.items()}
    if "--check" not in sys.argv:
        save(results)
        return 0
    stored, failed = load(), False
    for name in {**stored, **results}:
        found = differences(stored.get(name, {}), results.get(name, {}))
        for quantity, difference in found.items():
            if difference > 0.0:
                print(f"{difference:9.2g}  {name}: {quantity}")
                failed |= name not in CASES or difference > CASES[name].tolerance
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
