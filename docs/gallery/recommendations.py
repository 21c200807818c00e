"""Recommendations and cold start.

Users of MovieLens-100k and the 20 most rated movies.  How well are a new user's ratings predicted after none, one, two, ..
of them, with and without age and sex?  The two lines are one: on held-out users age and sex did not help, and the learner
left them alone.  Without ratings it does what the median rating of each movie does; errors are absolute.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.datasets import fetch_movielens

ratings = fetch_movielens(n_items=20, min_ratings=12).tasks
described = {user: row[:2] for user, row in zip(ratings.labels, ratings.side_info, strict=True)}
users = TaskSet(ratings.X, ratings.y, np.repeat(ratings.labels, ratings.sizes), side_info=described)
train, new = users.split([0.7, 0.3], random_state=0)
ratings_of = [train.y[train.X[:, j] > 0] for j in range(20)]
methods = {
    "tailored": EmpiricalBayesLearner(loss="absolute", clip=(1, 5)).fit(train),
    "tailored, age and sex ignored": EmpiricalBayesLearner(
        loss="absolute", clip=(1, 5), feature_map="posterior"
    ).fit(train),
}
given = [0, 1, 2, 4, 8]
pool, query = new.support_query(8, random_state=0)
errors = {name: [] for name in methods}
for n in given:
    support = pool if n == 8 else pool.support_query(n, random_state=0)[0]
    for name, method in methods.items():
        found = method.predict_tasks(query, support, coverage=None)["prediction"]
        errors[name].append(np.abs(found - query.y).mean())

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, line), style in zip(errors.items(), ["o-", "s--"], strict=True):
    ax.plot(given, line, style, label=name)
for middle, style in ((np.mean, ":"), (np.median, "-.")):
    alone = query.X @ np.array([middle(found) for found in ratings_of])
    label = f"{middle.__name__} rating of the movie"
    ax.axhline(np.abs(alone - query.y).mean(), color="0.4", linestyle=style, label=label)
ax.set(xlabel="ratings of a new user", ylabel="mean absolute error of a rating")
ax.legend(loc="upper right", bbox_to_anchor=(1, 0.94))
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "recommendations.png", dpi=120)
