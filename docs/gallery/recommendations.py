"""Recommendations and cold start.

The data are the ratings of the 20 most rated movies of MovieLens-100k.  How well are a new user's
ratings predicted from 0, 1, 2, 4 and 8 observed ratings, with and without age and sex?  Age and sex
lower the error slightly.  Without observed ratings, the error is between that of the mean rating
and that of the median rating of each movie.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from studies.data import load_movielens  # from a checkout
from tailored import EmpiricalBayesLearner, TaskSet

ratings = load_movielens(n_items=20, min_ratings=12).tasks
side_info = {user: row[:2] for user, row in zip(ratings.labels, ratings.side_info, strict=True)}
users = TaskSet(ratings.X, ratings.y, np.repeat(ratings.labels, ratings.sizes), side_info=side_info)
train, new = users.split([0.7, 0.3], random_state=0)
ratings_of = [train.y[train.X[:, j] > 0] for j in range(20)]
learner = EmpiricalBayesLearner(loss="absolute").fit(train)
without = EmpiricalBayesLearner(loss="absolute").fit(train.replace(side_info=None))
supports = [0, 1, 2, 4, 8]
pool, query = new.support_query(8, random_state=0)
errors = {"tailored": [], "tailored, without age and sex": []}
for n in supports:
    support = pool if n == 8 else pool.support_query(n, random_state=0)[0]
    pairs = (
        (learner, (query, support)),
        (without, (each.replace(side_info=None) for each in (query, support))),
    )
    for line, (method, rows) in zip(errors.values(), pairs, strict=True):
        predicted = np.clip(method.predict_tasks(*rows, coverage=None)["prediction"], 1, 5)
        line.append(np.abs(predicted - query.y).mean())

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, line), style in zip(errors.items(), ["o-", "s--"], strict=True):
    ax.plot(supports, line, style, label=name)
for middle, style in ((np.mean, ":"), (np.median, "-.")):
    alone = query.X @ np.array([middle(of_item) for of_item in ratings_of])
    label = f"{middle.__name__} rating of the movie"
    ax.axhline(np.abs(alone - query.y).mean(), color="0.4", linestyle=style, label=label)
ax.set(xlabel="ratings of a new user", ylabel="mean absolute error of a rating")
ax.legend(loc="upper right", bbox_to_anchor=(1, 0.94))
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "recommendations.png", dpi=120)
