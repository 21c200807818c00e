"""Tests of the studies have the marker `studies`, except the quick ones named here, which `make
test` runs.
"""

import pytest

QUICK = {
    "test_studies_commands.py": (
        "test_reproduce_then_plot_then_report",
        "test_help_lists_the_commands",
        "test_usage_errors",
    ),
    "test_as_published.py": (
        "test_rows_of_H_that_are_left_out_stay_zero",
        "test_lenk_agrees_with_the_published_curve",
    ),
}


def pytest_ignore_collect(collection_path, config):
    """Do not import files without a quick test unless tests of the studies are selected."""
    if "not studies" in config.option.markexpr and collection_path.name not in QUICK:
        return True
    return None


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.parent.name == "studies" and item.originalname not in QUICK.get(
            item.path.name, ()
        ):
            item.add_marker(pytest.mark.studies)
