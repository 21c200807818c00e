"""`make demo`: the table, the figure, and the order of the errors."""

import pytest

from studies.demo import ALGORITHM_1, ALONE, BEST, MIXED_MODEL, ONE, OURS, draw, run, table


@pytest.fixture(scope="module")
def result():
    return run(seed=7, n_train=60)


def test_side_information_lowers_the_error(result):
    means = {name: each.mean() for name, each in result[0].items()}
    assert means[OURS] < 1.05 * means[BEST]
    assert max(means[BEST], means[OURS]) < means[MIXED_MODEL] < means[ALGORITHM_1]
    assert means[ALGORITHM_1] < 0.9 * min(means[ONE], means[ALONE])


def test_the_table_is_sorted_and_the_figure_is_drawn(result, tmp_path):
    errors, _, _ = result
    lines = table(errors).splitlines()[1:]
    assert {line[:44].strip() for line in lines} == set(errors)
    shown = [float(line[44:60]) for line in lines]
    assert shown == sorted(shown, reverse=True)
    draw(*result).savefig(tmp_path / "demo.png")
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
