"""Hooks of mkdocs: make the page of the gallery, and publish the Markdown that llms.txt links to."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

#: In the order of the page.
GALLERY = ("clusters_with_hint", "survey", "recommendations", "schools", "stream", "intervals")

NOT_DRAWN = "*Not drawn here: this script reads real data, and `TAILORED_DATA` named no folder when the page was built.*"


def gallery(folder: Path) -> str:
    """Title, words, picture and code of every script."""
    found = {path.stem for path in folder.glob("*.py")}
    if found != set(GALLERY):
        raise ValueError(f"gallery: scripts and list differ in {sorted(found ^ set(GALLERY))}")
    parts = [
        "# Gallery",
        "Scripts that end in a picture. `python docs/draw.py` runs them all, `make docs` does so first. Three read real data "
        "from the folder that `TAILORED_DATA` names.",
    ]
    for name in GALLERY:
        code = (folder / f"{name}.py").read_text(encoding="utf-8")
        words = ast.get_docstring(ast.parse(code)) or ""
        title, _, text = words.partition("\n")
        body = code.split('"""', 2)[2].lstrip("\n")
        drawn = (folder.parent / "figures" / "gallery" / f"{name}.png").exists()
        picture = f"![{title.rstrip('.')}](../figures/gallery/{name}.png)" if drawn else NOT_DRAWN
        parts += [f"## {title.rstrip('.')}", text.strip(), picture]
        parts.append(f'??? note "docs/gallery/{name}.py"\n\n    ```python\n{_indented(body)}\n    ```')
    return "\n\n".join(parts) + "\n"


def _indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.rstrip("\n").split("\n"))


def on_files(files: Files, config: Any) -> Files:
    text = gallery(Path(config["docs_dir"]) / "gallery")
    files.append(File.generated(config, "gallery/index.md", content=text))
    return files


def on_post_build(config: Any) -> None:
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in docs.rglob("*.md"):
        shutil.copyfile(page, site / page.relative_to(docs))
