"""One HTML page about a fitted model: accuracy, data, coefficients and single tasks."""

from .page import write_report

__all__ = ["write_report"]
