"""Run the scripts that draw the figures of the gallery and the pages; they write to
``docs/figures``.

    python docs/draw.py [name ...]

Scripts that read real data are skipped with a message if TAILORED_DATA is not set.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

DOCS = Path(__file__).resolve().parent
FIGURES = DOCS / "figures"
NEED_DATA = {"survey", "recommendations"}


def main(names: list[str]) -> int:
    scripts = [*sorted((DOCS / "gallery").glob("*.py")), *sorted((DOCS / "drawings").glob("*.py"))]
    unknown = set(names) - {script.stem for script in scripts}
    if unknown:
        print(f"unknown script: {sorted(unknown)[0]!r}", file=sys.stderr)
        return 2
    failed = 0
    for script in scripts:
        if names and script.stem not in names:
            continue
        if script.stem in NEED_DATA and not os.environ.get("TAILORED_DATA"):
            print(f"{script.stem}: skipped, because TAILORED_DATA is not set")
            continue
        in_gallery = script.parent.name == "gallery"
        target = FIGURES / "gallery" / f"{script.stem}.png" if in_gallery else FIGURES
        target.parent.mkdir(exist_ok=True)
        start = time.perf_counter()
        command = [sys.executable, "-W", "error", str(script), str(target)]
        done = subprocess.run(
            command,
            env={**os.environ, "MPLBACKEND": "Agg", "PYTHONPATH": str(DOCS.parent)},
            capture_output=True,
            text=True,
        )
        said = "" if done.returncode == 0 else f" failed\n{done.stderr}"
        print(f"{script.stem}: {time.perf_counter() - start:.0f} s{said}", flush=True)
        failed += done.returncode != 0
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
