"""Kills during `save`: the file holds the whole old model or the whole new one.

    python tests/fuzz/kill_saves.py --count 200 --seed 0

A writer that is slowed down so that its bytes trickle is killed (SIGKILL) at a random moment between its first byte and
the last; kills that came after the file was in its place are not counted.  Exits with 1 if any file was broken.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from tailored import archive, load

GOLDEN = sorted((Path(__file__).parents[1] / "model_files").glob("format-*/*.tailored"))
#: Seconds between two pieces of the slowed writer, and bytes of a piece.
PAUSE, PIECE = 0.001, 512


def slowed(pieces, told):
    for piece in pieces:
        for start in range(0, len(piece), PIECE):
            os.write(told, b".")
            yield piece[start : start + PIECE]
            time.sleep(PAUSE)


def save_slowly(model, path, told):
    """In a process of its own: a dot for every piece, and an exclamation mark when the file is in its place."""
    pack = archive.pack
    archive.pack = lambda members: slowed(pack(members), told)
    model.save(path)
    os.write(told, b"!")


def kill_once(model, path, delay):
    """Whether the writer was killed inside the write."""
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
    """Kills inside the write, kills in all, broken files, temporary files left, new files that were whole in between."""
    rng, path = random.Random(seed), folder / "model"
    models = [load(name) for name in GOLDEN]
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
        # One that was killed inside the write leaves its temporary file.
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
        f"{inside} kills inside the write ({tried} in all, {replaced} after the file was in its place): {broken} broken "
        f"files; {left} temporary files of killed writers"
    )
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
