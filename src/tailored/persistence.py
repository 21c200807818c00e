"""`load`: learners and models from files, and the classes that the names in a file stand for."""

from __future__ import annotations

from typing import Any

from . import (
    archive,
    common,
    feature_maps,
    gaussian,
    intervals,
    learners,
    losses,
    one_task,
    regressor,
    representation,
    solvers,
    wide,
)
from .empirical_bayes.prior_mean import LevelBias
from .empirical_bayes.streaming import Running, Stream
from .gaussian.forms import Form
from .learners import Paused
from .prior import Prior
from .sources.reservoir import Reservoir
from .summaries.training import SideSummary, TrainingSummary
from .tasks import Encoding, TaskSet, Units
from .tasks.encoding import ColumnEncoding

#: Every class that a file may name; `tailored.archive.schemas` has their fields.
KNOWN: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Prior,
        common.CommonPart,
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
        feature_maps.JoinedMaps,
        feature_maps.Level,
        feature_maps.MeanEmbedding,
        feature_maps.PosteriorMap,
        feature_maps.PosteriorMean,
        feature_maps.PosteriorModel,
        feature_maps.RidgeEstimate,
        feature_maps.SideFeatures,
        feature_maps.SideMap,
        feature_maps.SideVector,
        feature_maps.TaskSummary,
        gaussian.MeanCovariance,
        gaussian.Mixture,
        gaussian.SideForm,
        gaussian.Stepwise,
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
        TrainingSummary,
        SideSummary,
        learners.ConditionalLearner,
        learners.EmpiricalBayesLearner,
        learners.IndependentLearner,
        learners.UnconditionalLearner,
        one_task.OneTask,
        regressor.TaskRegressor,
    )
}


def load(path: Any) -> Any:
    """Read a learner, or the model of one task, that was written with its ``save``.

    A learner adapts, represents, predicts and scores; a model predicts, gives intervals and takes further rows.  A
    learner goes on learning where it was written with its stream (``save(path, stream=True)`` of
    `EmpiricalBayesLearner`).  What a file from a stranger can do and cannot do: ``SECURITY.md``.

    Raises
    ------
    ModelFileError
        A ValueError, whatever is wrong with the file: it names the file, the part of it and the reason.  Where there is
        no file it is a FileNotFoundError as well.
    """
    return archive.read(path, KNOWN)
