"""HTML elements of a report: figures, selection lists and the page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from typing import TYPE_CHECKING

from .._utils.progress import printable
from .._version import __version__
from .display import RC, pyplot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: JavaScript that shows the figure selected in a list.  Without JavaScript the first figure is
#: shown.
_SCRIPT = """
document.documentElement.classList.add("js");
for (const list of document.querySelectorAll("select")) list.addEventListener("change", () => {
  for (const panel of document.querySelectorAll(`[data-${list.id}]`)) {
    panel.hidden = panel.getAttribute(`data-${list.id}`) !== list.value;
  }
});
"""


def image(figure: Figure, alt: str) -> str:
    """Return a figure as an embedded SVG image with this alternative text, and close it."""
    file, plt = io.BytesIO(), pyplot()
    with plt.rc_context(RC):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    plt.close(figure)
    data = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="{escape(alt, quote=True)}" src="data:image/svg+xml;base64,{data}">'


def images(*parts: str) -> str:
    """Return images next to each other; narrow screens show them below each other."""
    return f'<figure><div class="pair">{"".join(parts)}</div></figure>'


def choice(name: str, panels: Iterable[tuple[str, str]]) -> str:
    """Return a selection list and a figure for each pair of text and content.

    The first figure is shown initially.
    """
    options, contents = "", ""
    for i, (text, content) in enumerate(panels):
        options += f'<option value="{i}">{escape(text)}</option>'
        contents += f'<figure data-{name}="{i}"{" hidden" if i else ""}>{content}</figure>'
    label = f'<label for="{name}">{name.capitalize()} </label>'
    return f'<p class="choice">{label}<select id="{name}">{options}</select></p>{contents}'


def html_page(title: str, opening: str, sections: Mapping[str, str]) -> str:
    """Return a page with an opening, links to the sections, and the sections by heading."""
    style = resources.files(__package__).joinpath("page.css").read_text("utf-8")
    links, body = "", ""
    for heading, content in sections.items():
        anchor = re.sub(r"\W+", "-", heading.lower())
        links += f'<a href="#{anchor}">{heading}</a>'
        body += f'<section id="{anchor}"><h2>{heading}</h2>{content}</section>'
    return printable(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<link rel="icon" href="data:,">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<h1>{escape(title)}</h1>{opening}<p class="lead">Written by tailored {__version__}.</p>'
        f'<nav aria-label="Sections">{links}</nav><main>{body}</main>'
        f"<script>{_SCRIPT}</script></body></html>\n"
    )
