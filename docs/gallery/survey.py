"""A survey.

180 people rated 20 computers each, which are described by 13 characteristics (Lenk et al., 1996).
How much does a high price lower each person's rating?  The regression of one person has 14
coefficients and 20 rows, so it is shrunk towards the prior mean.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from studies.data import load_lenk  # from a checkout
from tailored import EffectsDisplay, EmpiricalBayesLearner, ShrinkageDisplay, TaskSet

survey = load_lenk()
rows = pd.DataFrame(survey.tasks.X, columns=survey.feature_names)
rows["person"] = np.repeat(survey.tasks.labels, survey.tasks.sizes)
rows["likely to buy"] = survey.tasks.y
people = TaskSet.from_frame(rows, task="person", target="likely to buy")
meta = EmpiricalBayesLearner().fit(people)

figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")
EffectsDisplay.from_estimator(meta, people, "price", ax=left)
ShrinkageDisplay.from_estimator(meta, people, ["price", "CPU speed"], ax=right)
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "survey.png", dpi=120)
