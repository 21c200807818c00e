"""The variants behind the published numbers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from studies.reproduction import as_published
from studies.reproduction.as_published import STEPS, VARIANTS, Data, Part, Variant, run_variant
from test_studies_commands import invoke


def real_data(file: str) -> str:
    folder = Path(os.environ.get("TAILORED_DATA") or "../shared/data")
    if not (folder / file).exists():
        pytest.skip(f"needs {file} in the folder of TAILORED_DATA")
    return str(folder)


def small_data(d: int = 4, k: int = 6) -> Data:
    rng = np.random.default_rng(20)

    def part(n_tasks: int) -> Part:
        sizes = rng.integers(3, 7, n_tasks).astype(float)
        X = rng.normal(size=(n_tasks, 6, d)) * (np.arange(6) < sizes[:, None])[..., None]
        y = rng.normal(size=(n_tasks, 6)) * (np.arange(6) < sizes[:, None])
        return Part(X, y, sizes, X, y, sizes, rng.normal(size=(n_tasks, k)))

    train = part(15)
    return Data(train, part(8), part(9), train.n[::-1])


def selected_curve(
    experiment: str, method: str, seed: int, folder: str | None
) -> tuple[np.ndarray, np.ndarray]:
    """The published errors, and those of the variant with the step that the validation tasks
    select.
    """
    errors = (
        as_published.published_errors()
        .set_index(as_published.KEY)
        .loc[[(experiment, method, seed)]]
    )
    data, variant = as_published.load(experiment, seed, folder), VARIANTS[experiment, method]
    with np.errstate(over="ignore", invalid="ignore"):
        test, validation = run_variant(data, variant, errors["n_tasks"].tolist())
    return errors["test_error"].to_numpy(), test[:, np.nanargmin(validation)]


@pytest.mark.parametrize("kind", ["reshape", "kronecker"])
@pytest.mark.parametrize("at_averages", [False, True])
def test_rows_of_H_that_are_left_out_stay_zero(kind, at_averages):
    data, variant = small_data(), Variant(feature_matrix=kind, at_averages=at_averages)
    n_used = len(as_published.used_rows(kind, 4, 6))
    assert n_used == 24 if kind == "kronecker" else n_used < 24
    for ours, dense in zip(
        run_variant(data, variant, [1, 8, 15], STEPS[3:9]),
        run_variant(data, variant, [1, 8, 15], STEPS[3:9], dense=True),
        strict=True,
    ):
        np.testing.assert_allclose(ours, dense, rtol=0, atol=1e-13 * np.abs(dense).max())


@pytest.mark.parametrize("method", ["unconditional", "conditional"])
def test_lenk_agrees_with_the_published_curve(method):
    published, ours = selected_curve("lenk", method, 0, real_data("lenk/lenk_data.mat"))
    np.testing.assert_allclose(ours, published, rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", ["unconditional", "conditional"])
def test_movielens_agrees_with_the_published_curve(method):
    published, ours = selected_curve("movielens", method, 0, real_data("ml-100k/u.data"))
    np.testing.assert_allclose(ours, published, rtol=0, atol=1e-10)


@pytest.mark.parametrize("experiment", ["clusters-2", "clusters-6"])
@pytest.mark.parametrize("method", ["unconditional", "conditional"])
def test_first_errors_of_clusters_agree_with_the_published_curve(experiment, method):
    # The steps that the whole runs select; the first 50 of 500 tasks are enough here.
    step = {"clusters-2": 8, "clusters-6": 2}[experiment] if method == "unconditional" else 10
    errors = as_published.published_errors().set_index([*as_published.KEY, "n_tasks"])["test_error"]
    data = as_published.load(experiment, 0)
    data = data._replace(train=Part(*(array[:50] for array in data.train)))
    ours, _ = run_variant(
        data, VARIANTS[experiment, method], [1, 2, 3, 5, 10, 20, 50], STEPS[[step]]
    )
    published = [errors[experiment, method, 0, n] for n in (1, 2, 3, 5, 10, 20, 50)]
    np.testing.assert_allclose(ours[:, 0], published, rtol=0, atol=1e-12)


def test_command_compares_resumes_and_fails(tmp_path, monkeypatch):
    folder = real_data("lenk/lenk_data.mat")
    command = ["reproduce", "--as-published", "lenk", "--method", "unconditional", "--seeds", "1"]
    command += ["--jobs", "1", "--data", folder, "--out", str(tmp_path)]
    result = invoke(*command)
    assert result.exit_code == 0, result.output
    assert "2.499815" in result.output
    assert invoke(*command).exit_code == 1  # refuses to overwrite
    file = tmp_path / as_published.RESULTS_FILE
    (row,) = as_published.read_comparisons(file).to_dict("records")
    assert row["largest_difference"] <= 1e-10
    assert row["agreeing"] == row["checkpoints"] == 8
    assert row["algorithm_1"] < 2.3
    file.write_text(file.read_text().replace(str(row["largest_difference"]), "0.001"))
    result = invoke(*command, "--resume")  # keeps the finished run
    assert result.exit_code == 1
    assert (
        "1 runs differ from the published errors by more than 1e-08: lenk unconditional seed 0"
        in result.stderr
    )


def test_section_has_the_measured_numbers():
    section = as_published.published_section()
    assert section.startswith("## Why the published numbers differ")
    assert "nan" not in section
    assert "| clusters-2 | unconditional | `u = pinv(θ) w` | 5 of 5 |" in section
    assert not as_published.failing(as_published.read_comparisons(as_published.COMMITTED))
    test = as_published.load("lenk", 0, real_data("lenk/lenk_data.mat")).test
    ridge = np.einsum("tnd,td->tn", test.query_X, test.phi[:, :14]) + test.phi[:, 14:]
    assert f"error of {np.abs(ridge - test.query_y).mean():.3f} on the query" in section
