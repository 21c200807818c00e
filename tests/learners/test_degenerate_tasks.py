"""Degenerate tasks have finite predictions with an interval around them."""

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet

D = 4


def group(rng, n):
    X = rng.normal(size=(n, D))
    return X, X @ (1.0 + rng.normal(size=D)) + 2.0 + 0.3 * rng.normal(size=n)


def groups():
    rng = np.random.default_rng(11)
    found = {
        "fewer rows than columns": group(rng, 2),
        "one row": group(rng, 1),
        "no rows": group(rng, 0),
    }
    X, y = group(rng, 9)
    found["collinear"] = np.column_stack([X[:, :2], X[:, 0] + X[:, 1], 2.0 * X[:, 0]]), y
    found["constant columns"] = np.tile(X[0], (9, 1)), y
    found["a constant target"] = X, np.full(9, 4.0)
    found["duplicated rows"] = np.repeat(X[:1], 9, axis=0), np.repeat(y[:1], 9)
    found["zeros"] = np.zeros((9, D)), y
    found["far away"] = X + 1e6, y
    found["an outlier"] = X, np.append(y[:-1], 1e9)
    return found


@pytest.fixture(scope="module")
def learner():
    rng = np.random.default_rng(3)
    seen = {f"seen {i}": group(rng, int(rng.integers(3, 12))) for i in range(24)}
    seen.update(
        {
            f"seen, {name}": rows
            for name, rows in groups().items()
            if name not in ("far away", "an outlier")
        }
    )
    return EmpiricalBayesLearner().fit(TaskSet.from_tasks(list(seen.values()), labels=list(seen)))


def test_one_by_one(learner):
    query = np.random.default_rng(0).normal(size=(5, D))
    for name, (X, y) in groups().items():
        model = learner.adapt(X, y) if len(y) else learner.adapt()
        check(name, model.predict(query), model.predict_interval(query), model.predict_std(query))
        assert np.isfinite(model.dual_gap_), name
        # the posterior mean, by the dual system of the task's own rows, in eighty bits
        theta, b = np.longdouble(model.representation_), np.longdouble(model.bias_)
        Z = np.column_stack([X, np.ones(len(y))]).astype(np.longdouble)
        w = b.copy()
        if len(y):
            a = np.longdouble(y) - Z @ b
            system = (Z @ theta @ Z.T + len(y) * np.eye(len(y))).astype(float)
            dual = np.longdouble(np.linalg.solve(system, a.astype(float)))
            for _ in range(5):
                left = a - Z @ (theta @ (Z.T @ dual)) - len(y) * dual
                dual = dual + np.linalg.solve(system, left.astype(float))
            w = b + theta @ (Z.T @ dual)
        size = np.abs(w).max()
        tolerance = 1e-2 if name == "far away" else 1e-6
        assert np.abs(np.append(model.coef_, model.intercept_) - w).max() < tolerance * float(
            size
        ), name


def test_all_in_one_call(learner):
    rows = groups()
    support = TaskSet.from_tasks(list(rows.values()), labels=list(rows))
    rng = np.random.default_rng(1)
    query = TaskSet.from_tasks([group(rng, 3) for _ in rows], labels=list(rows))
    table = learner.predict_tasks(query, support)
    check(
        "all", table["prediction"], np.column_stack([table["lower"], table["upper"]]), table["std"]
    )
    for name, (X, y) in rows.items():
        alone = learner.adapt(X, y) if len(y) else learner.adapt()
        ours = table[table["task"] == name]
        theirs = alone.predict_interval(query[list(rows).index(name)].X)
        scale = 1.0 + np.abs(theirs).max()
        # rows at 1e6 have 1e12 in their second moments
        tolerance = 1e-2 if name == "far away" else 1e-6
        assert (
            np.abs(np.column_stack([ours["lower"], ours["upper"]]) - theirs).max()
            < tolerance * scale
        ), name


def check(name, prediction, ends, deviation):
    assert np.isfinite(prediction).all(), name
    assert np.isfinite(ends).all(), name
    assert (ends[:, 0] < prediction).all(), name
    assert (prediction < ends[:, 1]).all(), name
    assert (deviation > 0).all(), name
