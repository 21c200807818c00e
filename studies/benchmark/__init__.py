"""The practical benchmark: data set × method × seed, with the baselines a practitioner would use."""

from .methods import METHODS
from .results import Report
from .run import Finished, Trial, TrialResult, run_benchmark, run_trial
from .suites import SUITES, Suite, seeds_of

__all__ = [
    "METHODS",
    "SUITES",
    "Finished",
    "Report",
    "Suite",
    "Trial",
    "TrialResult",
    "run_benchmark",
    "run_trial",
    "seeds_of",
]
