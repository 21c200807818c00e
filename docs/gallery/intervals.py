"""Intervals.

The noise has heavy tails (a t distribution with three degrees of freedom).  Left: empirical
coverage on new tasks for each nominal coverage.  Right: mean width of the 90 % intervals against
the number of support rows.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from tailored import EmpiricalBayesLearner, TaskSet

rng = np.random.default_rng(0)
n_tasks, n_rows = 500, 24
task = np.repeat(np.arange(n_tasks), n_rows)
X = rng.normal(size=(len(task), 3))
weights = rng.normal([1, 0, -1, 3], [1.0, 0.5, 0.2, 2.0], size=(n_tasks, 4))
y = (
    np.einsum("ij,ij->i", X, weights[task, :3])
    + weights[task, 3]
    + rng.standard_t(3, size=len(task))
)
tasks = TaskSet(X, y, task)
train, new = tasks[:300], tasks[300:]
meta = EmpiricalBayesLearner().fit(train)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
nominal = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95])
left.plot([0.45, 1], [0.45, 1], color="0.6", linewidth=1)
for n, style in ((0, "o-"), (3, "s--"), (12, "^:")):
    support, query = new.support_query(n, random_state=0)
    inside = []
    for coverage in nominal:
        interval = meta.predict_tasks(query, support, coverage=coverage)
        inside.append(np.mean((interval["lower"] <= query.y) & (query.y <= interval["upper"])))
    left.plot(nominal, inside, style, label=f"{n} support rows")
left.set(xlabel="nominal coverage", ylabel="empirical coverage")
left.legend()
supports = [0, 1, 2, 3, 5, 8, 12, 18]
widths = []
for n in supports:
    support, query = new.support_query(n, random_state=0)
    interval = meta.predict_tasks(query, support, coverage=0.9)
    widths.append(np.mean(interval["upper"] - interval["lower"]))
right.plot(supports, widths, "o-", label="90 % interval")
right.axhline(2 * 2.353, color="0.4", linestyle=":", label="noise alone, true coefficients")
right.set(xlabel="support rows of a new task", ylabel="width", ylim=(0, None))
right.legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "intervals.png", dpi=120)
