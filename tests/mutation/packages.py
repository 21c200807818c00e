"""Which files are mutated, and which tests should notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Package(NamedTuple):
    """Sources by pattern, and the tests that should notice a change of them."""

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    #: Compiled functions run as plain Python: compiling takes longer than the tests.
    uncompiled: bool = False
    #: Tests that take longer are left out, and those that pytest's -k does not select.
    most_seconds: float = 120.0
    keyword: str = ""


_HERE = "src/tailored"
PACKAGES = {
    "losses": Package((f"{_HERE}/losses.py",), ("tests/test_losses.py",)),
    "within": Package(
        (f"{_HERE}/within/*.py",),
        ("tests/within/test_within_exact.py", "tests/within/test_within_many_tasks.py"),
        uncompiled=True,
        most_seconds=3.0,
        keyword="not (certificate_holds or many_more_rows or -25-1- or -30-4- or -12-5- or -6-9-)",
    ),
    "representation": Package(
        (f"{_HERE}/representation/*.py",),
        ("tests/representation/test_conditioning.py", "tests/representation/test_factored.py"),
    ),
    "gaussian": Package(
        (f"{_HERE}/gaussian/*.py",),
        (
            "tests/gaussian",
            "tests/priors",
            "tests/empirical_bayes/test_low_rank_search.py",
            "tests/empirical_bayes/test_selection.py",
            "tests/empirical_bayes/test_streaming.py",
            "tests/learners/test_weights.py",
            "tests/learners/test_learning_responses.py",
        ),
    ),
    "files": Package(
        (f"{_HERE}/files.py", f"{_HERE}/_utils/files.py"),
        ("tests/model_files",),
    ),
}

_WITHIN, _MODELS = f"{_HERE}/within", f"{_HERE}/gaussian"
#: Files with compiled functions, and all files whose compiled functions contain them.
COMPILED_WITH = {
    f"{_WITHIN}/kernels.py": [f"{_WITHIN}/kernels.py"],
    f"{_MODELS}/kernels.py": [
        f"{_MODELS}/kernels.py",
        f"{_MODELS}/moments.py",
        f"{_MODELS}/sites.py",
    ],
    f"{_MODELS}/moments.py": [f"{_MODELS}/moments.py", f"{_MODELS}/sites.py"],
    f"{_MODELS}/sites.py": [f"{_MODELS}/sites.py"],
}


def files(root: Path, package: str) -> list[str]:
    """The sources of a package, from the root."""
    found = {
        str(path.relative_to(root))
        for pattern in PACKAGES[package].sources
        for path in root.glob(pattern)
    }
    return sorted(found)
