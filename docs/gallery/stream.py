"""A stream.

Tasks arrive in batches of 50.  After each batch the learner predicts the same 100 new tasks.  The dotted line is the error of one
fit to all tasks.  The structure is selected again whenever the number of tasks has doubled.  More components may then be
selected, so the error decreases in steps.  The memory and time for a batch do not grow with the stream.
"""

import sys

import matplotlib.pyplot as plt

from tailored import EmpiricalBayesLearner
from tailored.datasets import make_clusters

tasks = make_clusters(500, n_clusters=4, n_features=10, rank=1, n_rows=12, random_state=0)
stream, new = tasks[:400], tasks[400:]
support, query = new.support_query(4, random_state=0)

meta = EmpiricalBayesLearner(loss="absolute")
seen, errors = [], []
for start in range(0, 400, 50):
    meta.partial_fit(stream[start : start + 50])
    seen.append(start + 50)
    errors.append(meta.task_errors(support, query).mean())
at_once = EmpiricalBayesLearner(loss="absolute").fit(stream).task_errors(support, query).mean()

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
ax.plot(seen, errors, "o-", label="stream, in batches of 50")
ax.axhline(at_once, color="0.4", linestyle=":", label="all 400 at once")
ax.set(xlabel="tasks of the stream", ylabel="mean absolute error on new tasks, 4 support rows")
ax.legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "stream.png", dpi=120)
