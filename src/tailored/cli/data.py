"""The command of the data sets."""

from __future__ import annotations

import os

from .errors import explained
from .output import console, say


def datasets() -> None:
    """List the real data sets: where they come from, their licence, where they are looked for."""
    with explained():
        from ..datasets import SOURCES, get_data_home

        home = get_data_home()
        for source in SOURCES.values():
            size = f"{source.size / 1e6:.2g} MB"
            console.print(f"[bold]{source.name}[/bold]  {source.file}, {size}", highlight=False)
            say(f"  source   {source.url}")
            say(f"  licence  {source.licence}")
            say(f"  cite     {source.citation}")
            state = "downloaded" if (home / source.file).exists() else "not downloaded yet"
            say(f"  cache    {home / source.file} ({state})")
        local = os.environ.get("TAILORED_DATA")
        where = f"set to {local}: used instead, no network" if local else "not set"
        say(f"TAILORED_DATA (a folder with local copies): {where}")
