"""Random configurations against definitions; a failure names the command that repeats it."""

from unittest.mock import patch

import pytest

from oracle_cases import KINDS, run
from tailored import EmpiricalBayesLearner

#: Number of configurations of each kind in `make test`, and in `make test-all`.
FEW, MANY = 10, 333


def check(kind, seed):
    with patch.object(EmpiricalBayesLearner, "_n_folds", 3):
        checks = run(kind, seed)
    command = f"python tests/oracle/oracle_cases.py {kind} {seed}"
    assert not checks.failed, "\n".join([command, *checks.failed])


@pytest.mark.parametrize("seed", range(FEW))
@pytest.mark.parametrize("kind", KINDS)
def test_few_configurations(kind, seed):
    check(kind, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(FEW, MANY))
@pytest.mark.parametrize("kind", KINDS)
def test_many_configurations(kind, seed):
    check(kind, seed)
