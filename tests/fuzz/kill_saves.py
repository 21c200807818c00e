"""Kill processes during `save`: the file must hold the complete old model or the complete new one.

    python tests/fuzz/kill_saves.py --count 200 --seed 0

A writer that is slowed down is killed (SIGKILL) at a random moment between its first byte and its last.  Kills after the file
was renamed are not counted.  Exits with 1 if any file was broken.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "model_files"))
import small_models
from tailored import load
from tailored.files import format

#: Seconds between two pieces of the slowed writer, and bytes of a piece.
PAUSE, PIECE = 0.001, 512


def save_slowly(model, path, report):
    """Save piece by piece; report a dot for every piece and an exclamation mark for the renamed file."""
    write = format.write_atomically

    def write_slowly(path, content):
        def pieces(file):
            for start in range(0, len(content), PIECE):
                os.write(report, b".")
                file.write(content[start : start + PIECE])
                file.flush()
                time.sleep(PAUSE)

        write(path, pieces)

    format.write_atomically = write_slowly
    model.save(path)
    os.write(report, b"!")


def kill_once(model, path, delay):
    """Start a writer and kill it; return whether it was writing."""
    heard, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(heard)
        try:
            save_slowly(model, path, told)
        finally:
            os._exit(0)
    os.close(told)
    with os.fdopen(heard, "rb") as reports:
        said = reports.read(1)
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += reports.read()
    return said.startswith(b".") and not said.endswith(b"!")


def run(count, seed, folder):
    """Count kills during the write, all kills, broken files, temporary files, and kills after the write."""
    rng, path = random.Random(seed), folder / "model"
    models = [small_models.model(name) for name in ("independent", "conditional", "table", "task-fitted")]
    whole = []
    for model in models:
        model.save(path)
        whole.append(path.read_bytes())
    inside = tried = broken = replaced = 0
    while inside < count:
        i, before = rng.randrange(len(models)), path.read_bytes()
        longest = PAUSE * (len(whole[i]) / PIECE + 100)
        tried += 1
        n_left = len(os.listdir(folder))
        # A writer that was killed leaves its temporary file.
        killed = kill_once(models[i], path, rng.random() * longest) and len(os.listdir(folder)) > n_left
        inside += killed
        now = path.read_bytes()
        if now not in (before, whole[i]):
            broken += 1
        else:
            load(path)
        replaced += not killed
    left = [name for name in os.listdir(folder) if name != "model"]
    strange = [name for name in left if not (name.startswith(".tailored-") and name.endswith(".part"))]
    models[0].save(path)
    if path.read_bytes() != whole[0] or strange:
        broken += 1
    return inside, tried, broken, len(left), replaced


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        inside, tried, broken, left, replaced = run(given.count, given.seed, Path(folder))
    print(
        f"{inside} kills inside the write ({tried} in all, {replaced} after it): {broken} broken "
        f"files; {left} temporary files of killed writers"
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
