"""One conditional training step against `tests/reference.py`: ratios of processor seconds, one
thread, one run.

    python benchmarks/training_step.py [--seeds 3]

A step of Algorithm 1 from H_120 on clusters (d = 20, mean embedding k = 40, 40 rows), and the
errors of 400 held-out tasks under the new iterate, as a learning curve asks for them.  The
library's iterate is followed on the held-out tasks by what the step changed (`MeanAtTasks`); the
transcription evaluates τ of its own H.  Both start from one H, and the largest difference of a
task's error is printed.  Times are medians: of three calls of the transcription, and of the
library's next 25 steps, which have a few directions more.
"""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / part) for part in ("", "tests")]

import reference
from studies.reproduction.curves import MeanAtTasks
from tailored.datasets import make_clusters
from tailored.losses import get_loss
from tailored.paper.algorithm_1 import StepSizes, Surrogate, Trajectory, pivoted_root
from tailored.paper.feature_maps import MeanEmbedding
from tailored.paper.representation import Conditioning
from tailored.paper.within_task import WithinTask
from tailored.tasks.rows import Rows

D, N, WARM_UP, TIMED, HELD_OUT = 20, 40, 120, 25, 400


def seconds(function, *args):
    """Processor seconds of a call, and what it returned."""
    start = time.process_time()
    result = function(*args)
    return time.process_time() - start, result


def compare(seed, inner, gamma=1.0):
    """Print the row of one seed and one within-task algorithm."""
    tasks = make_clusters(
        WARM_UP + TIMED + HELD_OUT, n_clusters=6, n_rows=N, n_features=D, random_state=seed
    )
    phis = MeanEmbedding().transform(tasks)
    phis /= np.sqrt(np.mean(np.sum(phis**2, axis=1)))
    algorithm = WithinTask(get_loss("absolute"), inner)
    objective = Surrogate(algorithm, 1.0)
    held_out, new = tasks[WARM_UP + TIMED :], phis[WARM_UP + TIMED :]

    def step(run, t):
        task = Rows(tasks[t].X, tasks[t].y, np.array([0, N]))
        _, gradient = objective(task, run.theta(phis[t]))
        run.step(gradient, phis[t])

    def errors(taus):
        solved = algorithm.solve(Rows(held_out.X, held_out.y, held_out.offsets), taus)
        prediction = np.einsum("tnd,td->tn", held_out.X.reshape(HELD_OUT, N, D), solved.coef)
        return np.abs(prediction - held_out.y.reshape(HELD_OUT, N)).mean(axis=1)

    run = Trajectory(StepSizes(gamma, gamma), np.eye(D), phis.shape[1])
    for t in range(WARM_UP):
        step(run, t)
    H, C = gamma * run.H.dense(), run.C.copy()
    task = tasks[WARM_UP]
    pairs = [(one.X, one.y, one.X, one.y) for one in held_out]

    def literal_step():
        literal = reference.absolute()
        return reference.algorithm_1(
            [(task.X, task.y)], [phis[WARM_UP]], gamma, gamma, C, inner, literal, 1.0, H0=H
        )

    def literal_whole():
        literal = literal_step()
        H, C = literal.H[-1], literal.C[-1]
        return reference.evaluate(H, C, pairs, new, inner, reference.absolute())

    slow_step = np.median([seconds(literal_step)[0] for _ in range(3)])
    slow, expected = zip(*(seconds(literal_whole) for _ in range(3)), strict=True)
    means = MeanAtTasks(new)
    means.current = Conditioning(np.zeros((D, D)), pivoted_root(H, 1e-14)).evaluate(new)
    steps, evaluations, first = [], [], None
    for t in range(WARM_UP, WARM_UP + TIMED):
        steps.append(seconds(step, run, t)[0])
        took, found = seconds(lambda: errors(means.follow(run) + run.C))
        evaluations.append(took)
        first = found if first is None else first
    quick_step, quick = np.median(steps), np.median(np.add(steps, evaluations))
    taus, rows = means.current + run.C, held_out.X.reshape(HELD_OUT, N, D)
    images, update = np.empty_like(rows), np.empty_like(taus)
    floor = np.median([seconds(np.matmul, rows, taus, images)[0] for _ in range(25)])
    floor += np.median([seconds(np.add, taus, run.C, update)[0] for _ in range(25)])
    print(
        f"seed {seed}, {inner}: step alone {1e3 * slow_step:.0f} ms / {1e3 * quick_step:.2f} ms = "
        f"{slow_step / quick_step:.0f}; with {HELD_OUT} tasks {1e3 * np.median(slow):.0f} ms / "
        f"{1e3 * quick:.2f} ms "
        f"= {np.median(slow) / quick:.0f}; X τ and one pass over τ of these tasks alone "
        f"{1e3 * floor:.2f} ms; "
        f"largest difference of an error {np.abs(first - expected[0]).max():.1e}",
        flush=True,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    for seed in range(parser.parse_args().seeds):
        for inner in ("online", "exact"):
            compare(seed, inner)
