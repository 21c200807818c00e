"""`load`: learners from files, and the table of all that may be in one."""

from __future__ import annotations

from typing import Any

from . import (
    archive,
    baselines,
    feature_maps,
    intervals,
    learners,
    losses,
    mixed_models,
    representation,
    solvers,
    summaries,
    wide,
)
from .empirical_bayes.prior_mean import LevelBias
from .empirical_bayes.streaming import Running, Stream
from .learners import Paused
from .mixed_models.forms import Form
from .prior import Prior
from .shards import Reservoir
from .tasks import Encoding, TaskSet, Units
from .tasks.encoding import ColumnEncoding

#: Every class that a file may name.
KNOWN: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Prior,
        intervals.Calibration,
        intervals.TaskSpreads,
        wide.FactorSpreads,
        *losses.LOSSES.values(),
        representation.Bias,
        representation.BlockDiagonal,
        representation.Constant,
        representation.Dense,
        representation.Factored,
        representation.LowRank,
        feature_maps.AdaptedWeights,
        feature_maps.AngleMap,
        feature_maps.Curve,
        feature_maps.FourierEmbedding,
        feature_maps.FourierEstimate,
        feature_maps.JoinedMaps,
        feature_maps.Level,
        feature_maps.MeanEmbedding,
        feature_maps.PosteriorMap,
        feature_maps.PosteriorMean,
        feature_maps.PosteriorModel,
        feature_maps.RidgeEstimate,
        feature_maps.SecondOrder,
        feature_maps.SideFeatures,
        feature_maps.SideMap,
        feature_maps.SideVector,
        feature_maps.TaskSummary,
        mixed_models.MeanCovariance,
        mixed_models.Mixture,
        mixed_models.SideForm,
        mixed_models.Stepwise,
        ColumnEncoding,
        Encoding,
        Form,
        LevelBias,
        Paused,
        Reservoir,
        Running,
        Stream,
        TaskSet,
        Units,
        *solvers.SOLVERS.values(),
        solvers.StepSizes,
        summaries.Account,
        summaries.SideAccount,
        learners.ConditionalLearner,
        learners.EmpiricalBayesLearner,
        learners.IndependentLearner,
        learners.UnconditionalLearner,
        *baselines.EARLIER_METHODS.values(),
    )
}


def load(path: Any) -> Any:
    """Read a learner that was written with its ``save``.

    It adapts, represents, predicts and scores.  It goes on learning where it was written with its stream
    (``save(path, stream=True)`` of `EmpiricalBayesLearner`).
    """
    return archive.read(path, KNOWN)
