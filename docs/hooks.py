"""mkdocs hooks that generate the gallery pages, shorten lists of arguments on the API pages, break
long names in tables, and publish the Markdown files that llms.txt links to.
"""

from __future__ import annotations

import ast
import json
import re
import runpy
import shutil
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

#: Notebooks and scripts, in the order of the page.
NOTEBOOKS = ("schools", "purchases", "repeated_measures")
SCRIPTS = ("clusters_with_hint", "survey", "recommendations", "intervals")

NOT_DRAWN = "*The figure was not drawn. `TAILORED_DATA=FOLDER python docs/draw.py` draws it.*"


def gallery(folder: Path) -> str:
    """Return the gallery page: links to the notebooks, and the title, text, figure and code of
    every script.
    """
    found = {path.stem for path in (*folder.glob("*.py"), *folder.glob("*.ipynb"))}
    if found != {*SCRIPTS, *NOTEBOOKS}:
        raise ValueError(
            f"gallery: files and lists differ in {sorted(found ^ {*SCRIPTS, *NOTEBOOKS})}"
        )
    parts = [
        "# Gallery",
        "Three notebooks analyse real tables from R packages, from the first look to a forecast:",
    ]
    for name in NOTEBOOKS:
        title, text = _markdown(folder, name)[:2]
        parts.append(f"- [{title.removeprefix('# ')}]({name}.md): {text.split('(')[0].strip()}.")
    parts.append("The scripts below each draw a figure.")
    for name in SCRIPTS:
        code = (folder / f"{name}.py").read_text(encoding="utf-8")
        title, _, text = (ast.get_docstring(ast.parse(code)) or "").partition("\n")
        body = code.split('"""', 2)[2].lstrip("\n")
        drawn = (folder.parent / "figures" / "gallery" / f"{name}.png").exists()
        picture = f"![{title.rstrip('.')}](../figures/gallery/{name}.png)" if drawn else NOT_DRAWN
        parts += [f"## {title.rstrip('.')}", text.strip(), picture]
        parts.append(
            f'??? note "docs/gallery/{name}.py"\n\n    ```python\n{_indented(body)}\n    ```'
        )
    parts.append(
        "`python docs/draw.py` draws the figures, and so does `make docs`. `TAILORED_DATA=FOLDER "
        "python docs/notebooks.py` runs the notebooks; `Rscript benchmarks/export_multilevel.R "
        "FOLDER` writes the tables for them and for two of the scripts."
    )
    return "\n\n".join(parts) + "\n"


def _markdown(folder: Path, name: str) -> list[str]:
    """Return the paragraphs of a notebook's first cell."""
    cell = json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"][0]
    return [" ".join(part.split()) for part in "".join(cell["source"]).split("\n\n")]


def _indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.rstrip("\n").split("\n"))


#: An item of a list of arguments or attributes: its name, type and default, and description.
ITEM = re.compile(
    r'<li class="doc-section-item field-body">\s*<b>(<code>(?:(?!</li>).)*?</code>)</b>'
    r'((?:(?!</li>).)*?)\s*–\s*<div class="doc-md-description">\s*<p>(.*?)</p>\s*</div>\s*</li>\s*',
    re.DOTALL,
)
#: The default, which the signature has, and types that only the code needs.
DEFAULT = r",\s*default:\s*<code>.*?</code>\s*"
ALIAS = r'\(<code><span title="tailored\.[^"]*Like">\w+</span></code>'
HIDDEN = re.compile(rf"{DEFAULT}|{ALIAS}({DEFAULT})?\)", re.DOTALL)


def short_arguments(html: str) -> str:
    """Return the page with one item for adjacent arguments with the same description.

    mkdocstrings separates "X, y : arrays (n, d), (n,)", and gives both names the type of the first.
    """
    out, end, found = [], 0, list(ITEM.finditer(html))
    while found:
        first, last, names = found[0], found[0], []
        while found and found[0][3] == first[3] and found[0].start() in (first.start(), last.end()):
            last = found.pop(0)
            names.append(last[1])
        kind = HIDDEN.sub("", first[2]).rstrip() if len(names) == 1 else ""
        # mkdocstrings shows "int or None" as a tuple.
        kind = re.sub(r"<code>\((.*)\)</code>", r"<code>\1</code>", kind.replace("``", ""))
        item = f"<li><b>{', '.join(names)}</b>{kind}: {first[3]}</li>\n"
        out += [html[end : first.start()], item]
        end = last.end()
    return "".join([*out, html[end:]])


def breakable(html: str) -> str:
    """Return the page with names in tables that break after dots, slashes and underscores."""

    def code(found: re.Match[str]) -> str:
        name = re.sub(r"([._/:]+)(?=[^\s._/:])", r"\1<wbr>", found[1])
        return f"<code>{name}</code>"

    def cell(found: re.Match[str]) -> str:
        return re.sub(r"<code>([^<]*)</code>", code, found[0])

    return re.sub(r"<td.*?</td>", cell, html, flags=re.DOTALL)


def whole_options(html: str) -> str:
    """Return the page with options of the shell, such as --side-info, that do not break."""

    def code(found: re.Match[str]) -> str:
        return re.sub(r"--[a-z][a-z-]*", r'<span class="option">\g<0></span>', found[0])

    return re.sub(r"<code>[^<]*--[a-z][^<]*</code>", code, html)


def on_page_content(html: str, page: Any, **_: Any) -> str:
    html = short_arguments(html) if page.url.startswith("api/") else html
    return breakable(whole_options(html))


def on_files(files: Files, config: Any) -> Files:
    folder = Path(config["docs_dir"]) / "gallery"
    page = runpy.run_path(str(folder.parent / "notebooks.py"))["page"]
    files.append(File.generated(config, "gallery/index.md", content=gallery(folder)))
    for name in NOTEBOOKS:
        text, figures = page(
            json.loads((folder / f"{name}.ipynb").read_text(encoding="utf-8")), name
        )
        files.append(File.generated(config, f"gallery/{name}.md", content=text))
        for file, content in figures.items():
            files.append(File.generated(config, f"gallery/{file}", content=content))
    return files


def on_post_build(config: Any) -> None:
    docs, site = Path(config["docs_dir"]), Path(config["site_dir"])
    for page in docs.rglob("*.md"):
        shutil.copyfile(page, site / page.relative_to(docs))
    (site / "gallery" / "index.md").write_text(gallery(docs / "gallery"), encoding="utf-8")
