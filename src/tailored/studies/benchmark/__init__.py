"""The practical benchmark: data set × method × seed, with the baselines a practitioner would use."""

from .methods import METHODS
from .run import Cell, CellResult, run_benchmark, run_cell
from .suites import SUITES, Suite

__all__ = ["METHODS", "SUITES", "Cell", "CellResult", "Suite", "run_benchmark", "run_cell"]
