"""One page about one's own model, in plain words: what the data are, what was learned, how good it is."""

from .page import write_report

__all__ = ["write_report"]
