"""The multilevel sets: read from a local file, words as indicators, missing rows dropped; and their splits."""

import os
from pathlib import Path

import numpy as np
import pytest

from studies.benchmark.suites import SUITES, seeds_of
from tailored.datasets import MULTILEVEL, load_multilevel

REAL = Path(os.environ.get("TAILORED_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data")

BDF = """\
"schoolNR","pupilNR","IQ.verb","sex","langPRET","langPOST","ses","denomina","schoolSES"
"7","1",15,"0",36,46,23,"1",11
"7","2",14.5,"1",NA,45,10,"1",11
"12","3",9.5,"1",29,33,15,"3",20
"7","4",11,"0",19,46,-2.5,"1",11
"12","5",8,"0",22,20,1e1,"3",20
"31","6",13,"1",20,NA,10,"2",18
"31","7",13,"1",20,41,10,"2",18
"""

HSB = """\
"school","minrty","sx","ses","mAch","meanses","sector","cses"
"1224","No","Female",-1.5,5.8,-0.43,"Public",-1.1
"1224","Yes","Male",-0.5,19.7,-0.43,"Public",-0.1
"1288",NA,"Male",-0.5,1,0.12,"Catholic",0.1
"1288","No","Male",0.5,2,0.12,"Catholic",0.2
"""


@pytest.fixture(autouse=True)
def no_folder(monkeypatch):
    monkeypatch.delenv("TAILORED_DATA", raising=False)


def test_words_missing_values_and_order(tmp_path):
    (tmp_path / "bdf.csv").write_text(BDF)
    data = load_multilevel("bdf", tmp_path)
    tasks = data.tasks
    assert tasks.labels.tolist() == ["7", "12", "31"]
    # "0" and "1" are numbers; the codes of denominations are names.
    assert data.feature_names == ["IQ.verb", "sex", "ses", "langPRET"]
    assert data.side_names == tasks.side_names == ["schoolSES", "denomina=2", "denomina=3"]
    np.testing.assert_array_equal(tasks[0].X, [[15, 0, 23, 36], [11, 0, -2.5, 19]])
    np.testing.assert_array_equal(tasks.y, [46, 46, 33, 20, 41])
    np.testing.assert_array_equal(tasks.side_info, [[11, 0, 0], [20, 0, 1], [18, 1, 0]])
    assert tasks.feature_names.tolist() == data.feature_names
    assert (data.target_name, data.task_name) == ("langPOST", "schoolNR")


def test_the_first_word_is_dropped(tmp_path):
    (tmp_path / "anything.csv").write_text(HSB)
    data = load_multilevel("Hsb82", tmp_path / "anything.csv")
    assert data.feature_names == ["minrty=Yes", "sx=Male", "cses"]
    assert data.side_names == ["meanses", "sector=Public"]
    np.testing.assert_array_equal(data.tasks.X, [[0, 0, -1.1], [1, 1, -0.1], [0, 1, 0.2]])
    np.testing.assert_array_equal(data.tasks.side_info, [[-0.43, 1], [0.12, 0]])


def test_no_description(tmp_path):
    (tmp_path / "sleepstudy.csv").write_text('"Reaction","Days","Subject"\n249.5,0,"308"\n258.7,1,"308"\n')
    data = load_multilevel("sleepstudy", tmp_path)
    assert data.tasks.side_info is None
    assert data.side_names is None


def test_where_it_looks(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"no folder was given.*mlmRev.*export_multilevel\.R"):
        load_multilevel("Hsb82")
    (tmp_path / "multilevel").mkdir()
    monkeypatch.setenv("TAILORED_DATA", str(tmp_path))
    with pytest.raises(
        FileNotFoundError, match=r"Hsb82\.csv was not found: .*not contain it.*never downloaded"
    ):
        load_multilevel("Hsb82")
    (tmp_path / "multilevel" / "Hsb82.csv").write_text(HSB)
    assert load_multilevel("hsb82").origin.endswith("Hsb82.csv")
    with pytest.raises(FileNotFoundError, match="elsewhere does not contain it"):
        load_multilevel("hsb82", tmp_path / "elsewhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("cses", "csess"), "KeyError: 'cses'"),
        (("19.7", "many"), "column mAch must contain numbers"),
        (("0.12", "NA"), None),
        (('-0.43,"Public",-0.1', '-0.5,"Public",-0.1'), "constant within a task"),
    ],
)
def test_other_files(tmp_path, change, message):
    (tmp_path / "Hsb82.csv").write_text(HSB.replace(*change))
    if message is None:
        assert load_multilevel("hsb82", tmp_path).tasks.labels.tolist() == ["1224"]
    else:
        with pytest.raises(ValueError, match=message):
            load_multilevel("hsb82", tmp_path)


def test_nothing_left_and_unknown_names(tmp_path):
    (tmp_path / "Hsb82.csv").write_text(HSB.split("\n")[0] + "\n")
    with pytest.raises(ValueError, match="no row without missing values"):
        load_multilevel("hsb82", tmp_path)
    with pytest.raises(ValueError, match="sleepstudy"):
        load_multilevel("sleep", tmp_path)


def write_sleep(folder, n_people, n_days=6):
    lines = [f'{100 * s + t},{t},"{s}"' for s in range(n_people) for t in range(n_days)]
    (folder / "sleepstudy.csv").write_text("\n".join(['"Reaction","Days","Subject"', *lines]) + "\n")


def test_splits(tmp_path):
    """A quarter of the groups, at least five; four rows of each are given, at random or the first ones."""
    for n_people, n_new in ((12, 5), (40, 10)):
        write_sleep(tmp_path, n_people)
        split = SUITES["sleepstudy"].load(3, str(tmp_path))
        assert (len(split.train), len(split.support)) == (n_people - n_new, n_new)
        assert set(split.support.sizes) == {4}
        assert set(split.query.sizes) == {2}
        assert not set(split.train.labels) & set(split.support.labels)
        for s, q in zip(split.support, split.query, strict=True):
            assert s.label == q.label
            assert sorted([*s.y, *q.y]) == [100 * int(s.label) + t for t in range(6)]
    assert (split.support.X[:4, 0] != [0, 1, 2, 3]).any() or (split.support.X[4:8, 0] != [0, 1, 2, 3]).any()
    later = SUITES["sleepstudy-time"].load(3, str(tmp_path))
    np.testing.assert_array_equal(later.support.X.reshape(-1, 4), [[0, 1, 2, 3]] * 10)
    np.testing.assert_array_equal(later.query.X.reshape(-1, 2), [[4, 5]] * 10)
    again = SUITES["sleepstudy"].load(3, str(tmp_path))
    np.testing.assert_array_equal(again.query.y, split.query.y)


def test_seeds_of_a_report():
    assert list(seeds_of("sleepstudy", 100)) == list(range(100, 130))
    assert list(seeds_of("clusters-2", 100)) == list(range(100, 110))
    assert list(seeds_of("sleepstudy", 5, 2)) == [5, 6]


@pytest.mark.parametrize("name", MULTILEVEL)
def test_the_real_files(name):
    if not (REAL / "multilevel" / MULTILEVEL[name].file).is_file():
        pytest.skip(f"no {MULTILEVEL[name].file} in TAILORED_DATA or in ../shared/data beside the project")
    suite = SUITES[name]
    assert suite.missing(str(REAL)) is None
    assert len(suite.load(0, str(REAL)).train) == suite.n_train
