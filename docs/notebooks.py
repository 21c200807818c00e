"""Run the notebooks of the gallery, and store their outputs in the files.

    TAILORED_DATA=FOLDER python docs/notebooks.py [name ...]

FOLDER has the tables that ``Rscript benchmarks/export_multilevel.R FOLDER`` writes.  Outputs are
text and figures.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

GALLERY = Path(__file__).resolve().parent / "gallery"


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its code cells, which run in one namespace."""
    import matplotlib

    matplotlib.use("Agg")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _outputs("".join(cell["source"]), namespace, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(code: str, namespace: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell; return its printed output, the value of its last expression, and its figures."""
    import matplotlib.pyplot as plt

    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.Module(body, []), "notebook", "exec"), namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "notebook", "eval"), namespace)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        text = printed.getvalue().splitlines(keepends=True)
        outputs.append({"output_type": "stream", "name": "stdout", "text": text})
    if plt.get_fignums():
        for number in plt.get_fignums():
            picture = io.BytesIO()
            plt.figure(number).savefig(picture, dpi=90, metadata={"Software": None})
            data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        plt.close("all")
    elif value is not None:
        data = {"text/plain": str(value).splitlines(keepends=True)}
        result = {
            "output_type": "execute_result",
            "execution_count": count,
            "data": data,
            "metadata": {},
        }
        outputs.append(result)
    return outputs


def text_of(output: dict[str, Any]) -> str:
    """Return the text of an output, empty for a figure."""
    return "".join(output.get("text", output.get("data", {}).get("text/plain", [])))


def page(notebook: dict[str, Any], name: str) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as Markdown, and its figures by file name."""
    parts, figures = [], {}
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            if text := text_of(output).rstrip():
                parts.append(f"```text\n{text}\n```")
            else:
                file = f"{name}-{len(figures) + 1}.png"
                figures[file] = base64.b64decode(output["data"]["image/png"])
                parts.append(f"![Figure of the code above]({file})")
    parts.append(f"[Download this notebook]({name}.ipynb)")
    return "\n\n".join(parts) + "\n", figures


def main(names: list[str]) -> None:
    for path in sorted(GALLERY.glob("*.ipynb")):
        if not names or path.stem in names:
            done = run(json.loads(path.read_text(encoding="utf-8")))
            path.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
            print(path.name)


if __name__ == "__main__":
    main(sys.argv[1:])
