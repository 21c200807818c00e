"""HTML elements of a report: figures, links to CSV files, selection lists and the page."""

from __future__ import annotations

import base64
import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeAlias

from .._utils.progress import printable
from .._version import __version__
from ..displays.base import RC, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Delimiter, decimal mark and encoding of CSV files.
CsvFormat: TypeAlias = tuple[str, str, str]
#: Matches the start of strings that a spreadsheet would execute as a formula.
_FORMULA = re.compile(r"^(?=[=@\t\r]|[-+](?![\d.]+$))")
#: JavaScript that shows the figure selected in a list.  Without JavaScript the first figure is shown.
_SCRIPT = """
document.documentElement.classList.add("js");
for (const list of document.querySelectorAll("select")) list.addEventListener("change", () => {
  for (const panel of document.querySelectorAll(`[data-${list.id}]`)) panel.hidden = panel.getAttribute(`data-${list.id}`) !== list.value;
});
"""


def new_axes(n: int) -> list[Any]:
    """Return the axes of n separate figures, because narrow screens show figures below each other."""
    with pyplot().rc_context(RC):
        return [pyplot().subplots(figsize=(3.9, 3.2), layout="constrained")[1] for _ in range(n)]


def figures(axes: Sequence[Any], *alts: str) -> str:
    """Return the figures of these axes next to each other; ``alts`` are their alternative texts."""
    images = "".join(image(ax.figure, alt) for ax, alt in zip(axes, alts, strict=True))
    return f'<figure><div class="pair">{images}</div></figure>'


def image(figure: Figure, alt: str) -> str:
    """Return a figure as an embedded SVG image, and close it."""
    file, plt = io.BytesIO(), pyplot()
    with plt.rc_context(RC):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt, quote=True)}" src="data:image/svg+xml;base64,{data}">'


def csv_link(title: str, columns: Mapping[str, Iterable[Any]], csv_format: CsvFormat) -> str:
    """Return a link that saves the columns as a CSV file."""
    file, (delimiter, decimal, encoding) = io.StringIO(newline=""), csv_format
    writer = csv.writer(file, delimiter=delimiter)
    for row in (list(columns), *zip(*columns.values(), strict=True)):
        # A spreadsheet would read a label such as "=1+1" as a formula.
        values = [_FORMULA.sub("'", v) if isinstance(v, str) else v for v in row]
        writer.writerow(
            [str(v).replace(".", decimal) if isinstance(v, float) else v for v in values]
        )
    data = base64.b64encode(file.getvalue().encode(encoding, "replace")).decode()
    name = f"{_slug(title)}.csv"
    return f'<p><a download="{name}" href="data:text/csv;base64,{data}">Download {name}</a></p>'


def choice(name: str, panels: Iterable[tuple[str, str]]) -> str:
    """Return a selection list and a figure for each pair of text and content; the first figure is shown initially."""
    options, contents = "", ""
    for i, (text, content) in enumerate(panels):
        options += f'<option value="{i}">{escape(text)}</option>'
        contents += f'<figure data-{name}="{i}"{" hidden" if i else ""}>{content}</figure>'
    label = f'<label for="{name}">{name.capitalize()} </label>'
    return f'<p class="choice">{label}<select id="{name}">{options}</select></p>{contents}'


def html_page(title: str, opening: str, sections: Mapping[str, str]) -> str:
    """Return a page with an opening, links to the sections, and the sections by heading."""
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    links = "".join(f'<a href="#{_slug(heading)}">{heading}</a>' for heading in sections)
    body = "".join(
        f'<section id="{_slug(heading)}"><h2>{heading}</h2>{content}</section>'
        for heading, content in sections.items()
    )
    return printable(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<h1>{escape(title)}</h1>{opening}<p class="lead">Written by tailored {__version__}.</p>'
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main><script>{_SCRIPT}</script></body></html>\n'
    )


def _slug(title: str) -> str:
    """Return a title as the name of a file or of a section."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")
