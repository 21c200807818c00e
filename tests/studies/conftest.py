"""Tests of the studies have the marker `studies`, except the quick ones named here."""

import pytest

#: Tests that `make test` runs.
QUICK = ("test_reproduce_then_plot_then_report", "test_help_lists_the_commands", "test_usage_errors")
QUICK += ("test_rows_of_H_that_are_left_out_stay_zero", "test_lenk_agrees_with_the_published_curve")


def pytest_collection_modifyitems(items):
    for item in items:
        if "studies" in item.path.parts[-2:-1] and item.originalname not in QUICK:
            item.add_marker(pytest.mark.studies)
