"""The learners: streams cut anywhere, any number of jobs."""

import numpy as np
import pytest

from learner_samples import random_tasks
from tailored import ConditionalLearner, TaskSet
from tailored.paper import ProjectedSGD

pytestmark = pytest.mark.usefixtures("short_fits_in_module")


def same_learner(one, other):
    """Bit for bit: all that was learned and chosen."""
    for name in (
        "step_size_",
        "validation_error_",
        "search_results_",
        "scale_",
        "n_tasks_seen_",
        "n_iter_",
    ):
        assert getattr(one, name, None) == getattr(other, name, None)
    assert type(one.conditioning_) is type(other.conditioning_)
    np.testing.assert_array_equal(one.conditioning_.C, other.conditioning_.C)
    np.testing.assert_array_equal(one.conditioning_.H, other.conditioning_.H)


def in_pieces(learner, tasks, cuts=(1, 2, 9, 10, 31)):
    for piece in np.split(np.arange(len(tasks)), cuts):
        learner.partial_fit(tasks[piece])
    return learner


STREAMS = [
    ({}, True),
    ({}, False),
    ({"loss": "squared", "lipschitz": 0.3}, True),
    ({"rank": None}, False),
]


@pytest.mark.parametrize(("options", "scale_features"), STREAMS)
def test_stream_in_pieces_is_the_same_bits(clusters, options, scale_features):
    """However the stream is cut; and `fit` is the same, where it has no scale of φ to know in
    advance.
    """
    settings_ = {
        "solver": ProjectedSGD(step_sizes=(0.03, 0.3)),
        "rank": 5,
        "scale_features": scale_features,
        **options,
    }
    whole = ConditionalLearner(**{"fit_intercept": False, **settings_}).partial_fit(clusters)
    same_learner(
        whole, in_pieces(ConditionalLearner(**{"fit_intercept": False, **settings_}), clusters)
    )
    at_once = ConditionalLearner(**{"fit_intercept": False, **settings_}).fit(clusters)
    if scale_features:
        assert np.abs(at_once.conditioning_.H - whole.conditioning_.H).max() > 1e-9
    else:
        same_learner(whole, at_once)


@pytest.mark.parametrize("rank", [None, 5])
def test_fit_measures_features_by_the_root_mean_square_over_its_training_tasks(rank):
    """One number for all tasks: the run on φ divided by it, whichever units φ had."""
    tasks = random_tasks(4, n_tasks=15, d=3, side=2)
    scale = np.sqrt(np.mean(np.sum(tasks.side_info**2, axis=1)))

    def with_side_info_times(factor):
        return TaskSet.from_tasks([(task.X, task.y, factor * task.side_info) for task in tasks])

    divided, moved = with_side_info_times(1 / scale), with_side_info_times(1e3)
    options = {"solver": ProjectedSGD((0.1, 0.5)), "rank": rank}
    learner = ConditionalLearner(**{"fit_intercept": False, **options}).fit(tasks)
    plain = ConditionalLearner(scale_features=False, **{"fit_intercept": False, **options}).fit(
        divided
    )
    np.testing.assert_allclose(
        learner.representation(tasks), plain.representation(divided), atol=1e-9
    )
    np.testing.assert_allclose(
        learner.adapt_many(tasks).weights_, plain.adapt_many(divided).weights_, atol=1e-7
    )
    far = ConditionalLearner(**{"fit_intercept": False, **options}).fit(moved)
    np.testing.assert_allclose(learner.representation(tasks), far.representation(moved), atol=1e-9)
