"""The practical benchmark: data set × method × seed, with the baselines a practitioner would use."""

from .methods import METHODS
from .run import Trial, TrialResult, run_benchmark, run_trial
from .suites import SUITES, Suite

__all__ = ["METHODS", "SUITES", "Suite", "Trial", "TrialResult", "run_benchmark", "run_trial"]
