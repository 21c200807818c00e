"""Every case of the table still computes what `tests/goldens/make.py` stored."""

import pytest

from goldens.cases import CASES
from goldens.make import compute, differences, load


@pytest.fixture(scope="module")
def goldens():
    return load()


def test_file_has_the_cases_of_the_table(goldens):
    assert goldens.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_case(name, goldens):
    found = differences(goldens[name], compute(CASES[name]))
    assert {q: d for q, d in found.items() if d > CASES[name].tolerance} == {}
