"""Schools.

Mathematics scores of 7,185 pupils of 160 schools (High School and Beyond, 1982; the file Hsb82.csv of R's mlmRev, in the
folder that TAILORED_DATA names).  A pupil's social status is worth less in Catholic schools than in public ones.
"""

import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from tailored import EmpiricalBayesLearner, TaskSet

folder = Path(os.environ["TAILORED_DATA"])
pupils = pd.read_csv(next(folder.rglob("Hsb82.csv")))
tasks = TaskSet.from_frame(
    pupils,
    task="school",
    target="mAch",
    features=["minrty", "sx", "cses"],
    side_columns=["meanses", "sector"],
)
print(tasks.describe())
meta = EmpiricalBayesLearner().fit(tasks)
print(meta.summary())

effects = meta.effects(tasks)
slope = effects[effects["column"] == "cses"].set_index("task").sort_values("effect")
sector = pupils.groupby("school")["sector"].first()

figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
looks = {"Public": ("tab:blue", "o"), "Catholic": ("tab:orange", "^")}
place = pd.Series(range(len(slope)), index=slope.index)
for name, (color, marker) in looks.items():
    own = slope[sector.loc[slope.index].eq(name).to_numpy()]
    ax.hlines(place[own.index], own["lower"], own["upper"], color=color, alpha=0.35, linewidth=0.8)
    ax.plot(own["effect"], place[own.index], marker, color=color, markersize=3.5, label=name)
ax.set(
    xlabel="points for one unit of social status, with 90 % intervals", ylabel="schools, in order", yticks=[]
)
ax.legend(title="sector")
figure.savefig(sys.argv[1] if len(sys.argv) > 1 else "schools.png", dpi=120)
