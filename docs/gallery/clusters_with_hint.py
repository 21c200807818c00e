"""Six clusters with side information.

The coefficients of a task lie in one of six planes in a space of twenty dimensions.  The side
information indicates the plane, and is right for three tasks out of four.  With two to four support
rows it lowers the error by a seventh.  With 16 rows or more it is not needed.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np

from tailored import EmpiricalBayesLearner
from tailored.datasets import make_clusters

tasks = make_clusters(450, n_clusters=6, n_rows=40, hint=0.7, random_state=0)
train, new = tasks[:350], tasks[350:]
plain = train.replace(side_info=None)
methods = {
    "tailored, with side information": EmpiricalBayesLearner(loss="absolute").fit(train),
    "tailored, without": EmpiricalBayesLearner(loss="absolute").fit(plain),
    "mixed model": EmpiricalBayesLearner(covariance="full", loss="absolute").fit(train),
}
supports = [0, 1, 2, 4, 8, 16, 30]
errors = {name: [] for name in methods}
for n in supports:
    support, query = new.support_query(n, random_state=0)
    for name, method in methods.items():
        rows = (
            each.replace(side_info=None) if "without" in name else each for each in (support, query)
        )
        errors[name].append(method.task_errors(*rows).mean())

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, line), style in zip(errors.items(), ["o-", "s--", "^:"], strict=True):
    ax.plot(supports, line, style, label=name)
ax.axhline(0.1 * np.sqrt(2 / np.pi), color="0.5", linewidth=1, label="noise alone")
ax.set(xlabel="support rows of a new task", ylabel="mean absolute error", ylim=(0, None))
ax.legend()
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "clusters_with_hint.png", dpi=120)
