"""All items of MovieLens-100k and Jester as columns: new users folded in, beside bias models and
matrix factorisation.

    python benchmarks/ratings.py [--data movielens jester] [--seeds 0 1 2] [--jobs 2]
    python benchmarks/ratings.py --step      # how a step of EM grows with the number of columns

A fifth of the users is new, and three quarters of their ratings are given; errors are means over
all other ratings of theirs.  Surprise (a package of its own, `pip install scikit-surprise`) takes
part where it is installed: its models are fitted to the new users' given ratings, too, as they know
no other way.  Whole stars beside: ratings are whole numbers, of which the nearest has the lower
absolute error.
"""

import argparse
import os
import sys
import time
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from studies.data import load_jester, load_movielens
from tailored import EmpiricalBayesLearner

SHRINK = 5.0  # ratings that an item's or a user's bias is steadied by
SWEEPS = 10


def load(name):
    """All users with one-hot items, and the range of the ratings."""
    tasks, _, target_range = (load_movielens if name == "movielens" else load_jester)(n_items=None)
    return tasks, target_range


def triples(tasks, first=0):
    return first + np.repeat(np.arange(len(tasks)), tasks.sizes), tasks.X.indices, tasks.y


def bias_model(train, support, query):
    """The mean plus a bias of the item and of the user, each shrunk; new users' given ratings are
    learned from, too.
    """
    known = [
        np.concatenate(pair)
        for pair in zip(triples(train), triples(support, len(train)), strict=True)
    ]
    users, items, y = known
    mean, of_user, of_item = (
        y.mean(),
        np.zeros(len(train) + len(support)),
        np.zeros(train.n_features),
    )
    for _ in range(SWEEPS):
        left = y - mean - of_user[users]
        of_item = np.bincount(items, left, len(of_item)) / (
            np.bincount(items, minlength=len(of_item)) + SHRINK
        )
        left = y - mean - of_item[items]
        of_user = np.bincount(users, left, len(of_user)) / (
            np.bincount(users, minlength=len(of_user)) + SHRINK
        )
    asked, wanted, _ = triples(query, len(train))
    return mean + of_user[asked] + of_item[wanted]


def ours(train, support, query, ends, n_jobs):
    learner = EmpiricalBayesLearner(loss="absolute", n_jobs=n_jobs).fit(train)
    print(f"    chosen: {learner.structure_}, description: {learner.side_structure_}", flush=True)
    cold = np.clip(learner.predict_tasks(query, coverage=None)["prediction"], *ends)
    table = learner.predict_tasks(query, support)
    inside = np.mean((table["lower"] <= query.y) & (query.y <= table["upper"]))
    print(
        f"    without any rating: {np.abs(cold - query.y).mean():.4f}; 90 % intervals hold "
        f"{inside:.3f}",
        flush=True,
    )
    return table["prediction"]


def surprise_models(ends):
    """Matrix factorisation of Surprise; none where it is not installed."""
    try:
        import surprise
    except ImportError:
        return {}
    wide = ends[1] - ends[0] > 10
    return {
        "Surprise BaselineOnly": lambda: surprise.BaselineOnly(verbose=False),
        "Surprise SVD": lambda: surprise.SVD(
            n_factors=50, n_epochs=40, lr_all=0.002 if wide else 0.01, reg_all=0.1, random_state=0
        ),
        "Surprise SVD++": lambda: surprise.SVDpp(
            n_factors=20, n_epochs=20, lr_all=0.002 if wide else 0.007, random_state=0
        ),
    }


def by_surprise(make, train, support, query, ends):
    import pandas as pd
    import surprise

    known = [
        np.concatenate(pair)
        for pair in zip(triples(train), triples(support, len(train)), strict=True)
    ]
    frame = pd.DataFrame(dict(zip(("user", "item", "rating"), known, strict=True)))
    read = surprise.Dataset.load_from_df(frame, surprise.Reader(rating_scale=ends))
    model = make().fit(read.build_full_trainset())
    asked, wanted, _ = triples(query, len(train))
    return np.array([model.predict(u, i).est for u, i in zip(asked, wanted, strict=True)])


def compare(name, seeds, n_jobs):
    tasks, ends = load(name)
    print(f"{name}: {tasks!r}", flush=True)
    rows = {}
    for seed in seeds:
        train, new = tasks.split([0.8, 0.2], random_state=seed)
        support, query = new.support_query(0.75, random_state=seed)
        methods = {
            "item and user bias": lambda *parts: bias_model(*parts),
            "EmpiricalBayesLearner": lambda *parts: ours(*parts, ends, n_jobs),
        }
        for label, make in surprise_models(ends).items():
            methods[label] = lambda *parts, make=make: by_surprise(make, *parts, ends)
        for label, method in methods.items():
            start = time.perf_counter()
            found = np.clip(method(train, support, query), *ends)
            took = time.perf_counter() - start
            errors = [np.abs(each - query.y).mean() for each in (found, np.round(found))]
            rows.setdefault(label, []).append([*errors, took])
            print(f"  seed {seed}  {label:24s} {errors[0]:.4f}  {took:6.1f} s", flush=True)
    print(
        f"\n{name}, seeds {' '.join(map(str, seeds))}\n| method | MAE | whole numbers | seconds "
        "|\n|---|---|---|---|"
    )
    for label, found in rows.items():
        mae, whole, took = np.mean(found, axis=0)
        print(f"| {label} | {mae:.4f} | {whole:.4f} | {took:.0f} |")


def step_times():
    """Processor seconds of one step, rank 8, 30 entries a task: 1,000 tasks, and as many as
    columns.
    """
    from scipy import sparse

    from tailored.gaussian.factor_em import FactorModel, factor_sums, step
    from tailored.gaussian.factors import FactorRows

    sizes, T, n = [100, 300, 1000, 3000, 10_000], 1000, 30
    for growing in (False, True):
        found = []
        for d in sizes:
            rng, tasks = np.random.default_rng(d), d if growing else T
            items = np.concatenate([rng.choice(d, n, replace=False) for _ in range(tasks)])
            X = sparse.csr_array(
                (np.ones(len(items)), items, np.arange(len(items) + 1)), shape=(len(items), d)
            )
            X.sort_indices()
            rows = FactorRows(
                X,
                rng.standard_normal(len(items)),
                np.arange(0, len(items) + 1, n),
                np.zeros((tasks, 0)),
            )
            model = FactorModel.start(d, 8, has_intercept=True, seed=[0])
            times = []
            for _ in range(6):
                start = time.process_time()
                model = step(model, factor_sums(model, rows))
                times.append(time.process_time() - start)
            found.append(min(times))
        slope = np.polyfit(np.log(sizes), np.log(found), 1)[0]
        told = "as many tasks as columns" if growing else f"{T} tasks"
        print(
            f"{told}: {dict(zip(sizes, np.round(found, 4).tolist(), strict=True))} s, slope "
            f"{slope:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", nargs="+", default=["movielens", "jester"], choices=["movielens", "jester"]
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--step", action="store_true")
    options = parser.parse_args()
    if options.step:
        step_times()
    else:
        for which in options.data:
            compare(which, options.seeds, options.jobs)
