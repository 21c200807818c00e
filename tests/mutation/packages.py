"""Which files are mutated, and which tests should notice: fastest first, since the first failure is enough."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """Sources by pattern, tests of all of them, and which of these are left out for their time (pytest's -k)."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    slow: str = ""
    #: Compiled functions run as plain Python: compiling takes longer than the tests.
    uncompiled: bool = False


_HERE = "src/tailored"
PACKAGES = {
    "losses": Package((f"{_HERE}/losses.py",), ("tests/test_losses.py",)),
    "within": Package(
        (f"{_HERE}/within/*.py",),
        (
            "tests/within/test_within_exact.py",
            "tests/within/test_within_many_tasks.py",
        ),
        "certificate_holds or cached or many_more_rows or gives_up_soon or -25-1- or -30-4- or -12-5-",
        uncompiled=True,
    ),
    "representation": Package(
        (f"{_HERE}/representation/*.py",),
        (
            "tests/representation/test_conditioning.py",
            "tests/representation/test_factored.py",
        ),
        "nearly_the_same or positive_semidefinite or 80-2-60",
    ),
    "gaussian": Package(
        (f"{_HERE}/gaussian/*.py",),
        (
            "tests/gaussian/test_posterior.py",
            "tests/gaussian/test_mixing_weights.py",
            "tests/gaussian/test_structures.py",
            "tests/learners/test_weights.py",
            "tests/gaussian/test_factors.py",
            "tests/gaussian/test_acceleration.py",
            "tests/gaussian/test_mixed_models.py",
            "tests/summaries/test_summary.py",
        ),
    ),
    "files": Package(
        (f"{_HERE}/files/*.py", f"{_HERE}/_utils/files.py"),
        (
            "tests/model_files/test_round_trips.py",
            "tests/model_files/test_golden_files.py",
            "tests/model_files/test_forged_files.py",
            "tests/model_files/test_what_is_stored.py",
            "tests/model_files/test_common_files.py",
            "tests/model_files/test_saving_whole.py",
        ),
    ),
}

_WITHIN, _MODELS = f"{_HERE}/within", f"{_HERE}/gaussian"
#: Files with compiled functions, and all files whose compiled functions contain them.
COMPILED_WITH = {
    f"{_WITHIN}/kernels.py": [f"{_WITHIN}/kernels.py"],
    f"{_MODELS}/factors.py": [f"{_MODELS}/factors.py"],
    f"{_MODELS}/factor_em.py": [f"{_MODELS}/factor_em.py"],
    f"{_MODELS}/kernels.py": [f"{_MODELS}/kernels.py", f"{_MODELS}/moments.py"],
    f"{_MODELS}/moments.py": [f"{_MODELS}/moments.py"],
}


def files(root: Path, package: str) -> list[str]:
    """The sources of a package, from the root."""
    found = {
        str(path.relative_to(root)) for pattern in PACKAGES[package].sources for path in root.glob(pattern)
    }
    return sorted(found)


def tests_of(package: str, path: str, tests: list[str]) -> list[str]:
    """Those of a package, the ones named like the file first."""
    stem = Path(path).stem.strip("_")
    return sorted(tests, key=lambda name: stem not in name)
