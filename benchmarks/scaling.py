"""How a step of EM grows with the number of tasks: one process, then two workers of Dask.

    python benchmarks/scaling.py                     # 1e3 to 1e6 tasks, then two workers
    python benchmarks/scaling.py --largest 100000    # the same, smaller

Prints processor seconds (other work on the machine hardly counts), memory and messages beside what
the model of docs/scaling.md says, whose constant, the rate, is taken from the smaller of the two
sizes.  What messages cost is the clock's time of a step over shards of 100 tasks.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import argparse
import pickle
import platform
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil
from distributed import Client, LocalCluster

from tailored import TaskSet
from tailored.gaussian.mixture import Mixture
from tailored.gaussian.moments import Moments
from tailored.scale.dask import ClusterStatistics
from tailored.tasks.rows import Scaling

ROWS = 20
CHUNK = 20_000


def tasks(n_tasks: int, d: int, seed: int) -> Moments:
    """Statistics of tasks of 20 rows, the last column a constant."""
    rng = np.random.default_rng(seed)
    arrays = np.empty((n_tasks, d, d)), np.empty((n_tasks, d)), np.empty(n_tasks), np.empty(n_tasks)
    for start in range(0, n_tasks, CHUNK):
        n = min(CHUNK, n_tasks - start)
        X = rng.normal(size=(n, ROWS, d))
        X[:, :, -1] = 1.0
        y = np.einsum("tnd,td->tn", X, rng.normal(size=(n, d))) + rng.normal(size=(n, ROWS))
        rows = TaskSet(X.reshape(-1, d), y.ravel(), np.repeat(np.arange(n), ROWS))
        found = Moments.of(rows, Scaling.raw(d))
        for array, part in zip(
            arrays, (found.gram, found.cross, found.square, found.sizes), strict=True
        ):
            array[start : start + n] = part
    return Moments(*arrays)


def model(K: int, d: int) -> Mixture:
    rng = np.random.default_rng(0)
    roots = np.eye(d) + 0.3 * rng.normal(size=(K, d, d)) / np.sqrt(d)
    return Mixture(
        np.full(K, 1.0 / K), 0.1 * rng.normal(size=(K, d)), roots @ roots.transpose(0, 2, 1), 1.0
    )


def operations(n_tasks: int, d: int, K: int) -> float:
    """Floating-point operations: factor d³/3, inverse 2d³/3, solves and sums 6d² per component."""
    return float(n_tasks) * K * (d**3 + 6.0 * d**2)


def step_seconds(source: Moments, mixture: Mixture, repeats: int) -> float:
    """Processor seconds of a step, the median of repeats."""
    found = []
    for _ in range(repeats):
        start = time.process_time()
        source.sums(mixture)
        found.append(time.process_time() - start)
    return statistics.median(found)


def slope(largest: int, d: int) -> None:
    print(f"\nOne process, one thread, K = 1, d = {d}: processor seconds of a step (median)\n")
    print("| tasks | seconds | µs a task |\n|---|---|---|")
    everything, mixture = tasks(largest, d, seed=0), model(1, d)
    everything.take(slice(0, 100)).sums(mixture)  # compiled before it is timed
    sizes = [n for n in (1_000, 10_000, 100_000, 1_000_000) if n <= largest]
    times = []
    for n in sizes:
        repeats = max(5, min(200, 200_000 // n))
        times.append(step_seconds(everything.take(slice(0, n)), mixture, repeats))
        print(f"| {n:,} | {times[-1]:.6f} | {1e6 * times[-1] / n:.3f} |", flush=True)
    log_sizes, log_times = np.log(sizes), np.log(times)
    print(f"\nlog-log slope {np.polyfit(log_sizes, log_times, 1)[0]:.3f} (at most 1.05)")


def resident() -> int:
    """Bytes of this process."""
    return int(psutil.Process().memory_info().rss)


def timed(shard: Moments, mixture: Mixture) -> float:
    """Processor seconds of a shard's part of a step."""
    start = time.thread_time()
    shard.sums(mixture)
    return time.thread_time() - start


class Measured(NamedTuple):
    """A step on two workers: CPU seconds, wall seconds, and bytes of shards and messages."""

    seconds: float
    clock: float
    kept: int
    sent: int
    back: int


def on_workers(client: Any, n_tasks: int, d: int, K: int, n_shards: int, steps: int) -> Measured:
    sizes, mixture = [n_tasks // n_shards] * n_shards, model(K, d)
    before = client.run(resident)
    futures = client.map(tasks, sizes, [d] * n_shards, range(n_shards), pure=False)
    source = ClusterStatistics(client, futures, d)
    source.totals()
    kept = sum(client.run(resident).values()) - sum(before.values())
    seconds, clocks = [], []
    for _ in range(steps):
        seconds.append(
            sum(
                client.gather(
                    [client.submit(timed, shard, mixture, pure=False) for shard in futures]
                )
            )
        )
        clock = time.perf_counter()
        summed = source.sums(mixture)
        clocks.append(time.perf_counter() - clock)
    lengths = [len(pickle.dumps(value, protocol=5)) for value in (mixture, summed.sums)]
    return Measured(
        statistics.median(seconds),
        statistics.median(clocks),
        kept,
        lengths[0],
        n_shards * lengths[1],
    )


def two_workers(sizes: tuple[int, int], d: int, K: int, n_shards: int, steps: int) -> str:
    """Lines of the table for both sizes, and what the smaller says of the larger."""
    quiet = {"dashboard_address": "127.0.0.1:0", "host": "127.0.0.1", "silence_logs": "CRITICAL"}
    found = []
    for n in sizes:
        # New workers: memory that an earlier size has left would be taken for this one's.
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, memory_limit=0, **quiet
            ) as cluster,
            Client(cluster, timeout=60) as client,
        ):
            on_workers(client, 100 * n_shards, d, K, n_shards, 3)  # compiled before it is timed
            empty = on_workers(client, 100 * n_shards, d, K, n_shards, 20).clock
            one = on_workers(client, n, d, K, n_shards, steps)
        found.append(one.seconds)
        model_bytes = 8 * n * (d * d + d + 2)
        print(
            f"| {n:,} | {K} | {one.seconds:.3f} | {one.clock:.2f} | {empty:.3f} "
            f"| {one.kept / 1e9:.3f} | {model_bytes / 1e9:.3f} | {one.sent:,} | {one.back:,} |",
            flush=True,
        )
    rate = operations(sizes[0], d, K) / found[0]
    predicted = operations(sizes[1], d, K) / rate
    difference = found[1] / predicted - 1.0
    return f"| {K} | {rate / 1e9:.2f} | {predicted:.3f} | {found[1]:.3f} | {difference:+.1%} |"


def machine() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
        memory = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    except (OSError, StopIteration):
        return platform.platform()
    return f"{name}, {os.cpu_count()} cores, {memory:.0f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--largest", type=int, default=1_000_000, help="tasks of the largest size")
    parser.add_argument("--columns", type=int, default=10, help="columns of a task")
    parser.add_argument("--components", type=int, nargs="*", default=[1, 6])
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    d = arguments.columns
    print(f"{machine()}; NumPy {np.__version__}; tasks of {ROWS} rows")
    slope(arguments.largest, d)
    print(f"\nTwo workers, {arguments.shards} shards, d = {d}: a step\n")
    titles = (
        "tasks",
        "K",
        "processor s",
        "clock s",
        "clock s, 100 tasks a shard",
        "GB of shards",
        "GB by the model",
    )
    print("| " + " | ".join((*titles, "bytes out", "bytes back")) + " |\n" + 9 * "|---" + "|")
    sizes = arguments.largest // 10, arguments.largest
    checks = [
        two_workers(sizes, d, K, arguments.shards, arguments.steps) for K in arguments.components
    ]
    print(
        "\n| K | GFLOP/s at the smaller | s at the larger by the model | measured | difference |"
        "\n|---|---|---|---|---|"
    )
    print("\n".join(checks))


if __name__ == "__main__":
    main()
