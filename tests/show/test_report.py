"""The HTML report: well-formed, self-contained, and readable in a real browser."""

import base64
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError

from tailored import (
    EmpiricalBayesClassifier,
    EmpiricalBayesLearner,
    IndependentLearner,
    TaskSet,
    evaluate,
    write_report,
)
from tailored._utils.validation import label_array
from tailored.evaluation import BASELINES
from tailored.show import report as report_page

pytestmark = pytest.mark.usefixtures("short_fits_in_module")

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
#: Labels with characters that HTML, XML and matplotlib treat specially.
HOSTILE = ["<b>&'\"", "$\\frac$ $x$", "bell\x07\x00", "=1+1", "@a", "-5"]


@pytest.fixture(scope="module")
def tasks():
    """40 schools whose intercepts and slopes differ."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    labels = np.array([*HOSTILE, *(f"s{i}" for i in range(34))])
    school = np.repeat(np.arange(40), 9)
    hours = rng.uniform(0, 10, len(school))
    score = rng.normal(size=40)[school] + (1 + 0.5 * rng.normal(size=40))[school] * hours
    frame = pd.DataFrame(
        {"school": labels[school], "hours": hours, "score": score + rng.normal(size=len(school))}
    )
    return TaskSet.from_frame(frame, task="school", target="score")


@pytest.fixture(scope="module")
def learner(tasks):
    return EmpiricalBayesLearner().fit(tasks)


@pytest.fixture(scope="module")
def evaluation(tasks, learner):
    return evaluate(tasks, learner, supports=[0, 2, 5], n_folds=2)


@pytest.fixture(scope="module")
def page(tasks, learner, evaluation, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "MAX_TASK_FIGURES", 5)
        out = tmp_path_factory.mktemp("page") / "report.html"
        return write_report(out, learner, tasks, evaluation)


class Reader(HTMLParser):
    """Collect open elements, links, identifiers and images."""

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.ids, self.closed_wrongly = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)
        self.links += [value for name, value in attrs if name in ("href", "src")]
        self.ids += [value for name, value in attrs if name == "id"]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.closed_wrongly.append(tag)


def test_page_is_well_formed_and_self_contained(page):
    text = page.read_text()
    reader = Reader(text)
    assert not reader.open
    assert not reader.closed_wrongly
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(reader.ids)
    assert not re.search(r"https?://|<script", text)
    assert "<b>&'" not in text
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower()


def test_figures_are_valid_svg_without_external_resources(page):
    """Two of the evaluation, three caterpillar plots, five tasks; special characters are drawn."""
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page.read_text())
    assert len(images) == 10
    for image in images:
        root = ElementTree.fromstring(base64.b64decode(image))
        links = [
            v for node in root.iter() for name, v in node.attrib.items() if name.endswith("href")
        ]
        assert all(link.startswith("#") for link in links)
    assert "$\\frac$ $x$" in base64.b64decode(images[2]).decode()


def test_errors_come_before_the_page(tasks, learner, tmp_path):
    with pytest.raises(NotFittedError):
        write_report(tmp_path / "a.html", EmpiricalBayesLearner(), tasks)
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        write_report(tmp_path / "none" / "a.html", learner, tasks)


def test_page_without_an_evaluation_starts_with_the_verdict(tasks, learner, tmp_path, monkeypatch):
    """Also of a learner of the paper."""
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    for each in (learner, IndependentLearner().fit(tasks)):
        text = write_report(tmp_path / "a.html", each, tasks).read_text()
        opening = text[: text.index("<nav")]
        assert each.summary().title in opening
        assert each.summary().verdict[0] in opening
        assert Reader(text).ids == ["coefficients-of-the-tasks", "single-tasks", "model", "data"]
        assert not Reader(text).closed_wrongly


def accuracy(page):
    text = page if isinstance(page, str) else page.read_text()
    return text[text.index('<section id="accuracy') : text.index('<section id="coeff')]


def test_accuracy_says_how_good_on_what_and_compared_with_what(
    tasks, learner, evaluation, tmp_path
):
    errors = evaluation.errors * np.array([0.9, *[1.0] * 5])[:, None, None]
    evaluation = replace(evaluation, scores={**evaluation.scores, "squared error": errors})
    text = accuracy(write_report(tmp_path / "page.html", learner, tasks, evaluation))
    last = evaluation.mean[:, -1]
    best = 1 + np.argmin(last[1:])
    assert f"The mean squared error of score is {last[0]:.4g} with 5 rows of a new task" in text
    n_query = (evaluation.predictions["support"] == 5).sum()
    measured = f"measured on {len(evaluation.labels)} held-out tasks with {n_query} query rows, by"
    assert measured in text
    share = 100 * (1 - last[0] / last[best])
    assert f"With 5 rows, the error is {share:.1f} % lower than that of the " in text
    assert f"{evaluation.methods[best]}, which is the best of 5 baselines." in text
    assert text.count("<img ") == 2
    for value in evaluation.mean.ravel():
        assert f"<td>{value:.4g} ± " in text


def test_tasks_are_first_ranked_at_the_feature_means(tasks, learner, page):
    text = page.read_text()
    summaries = re.findall(r"<details( open)?><summary>(.*?)</summary>", text)
    assert summaries[0] == (" open", "level at the feature means")
    assert {*summaries[1:3]} == {("", "hours"), ("", "(intercept)")}
    assert "The (intercept) is the level where all features are 0." in text
    effects = learner.effects(tasks).set_index(["task", "column"])
    differences = (effects["effect"] - effects["prior"]).unstack()
    level = differences["(intercept)"] + tasks.X.mean() * differences["hours"]
    (figure,) = re.findall(r'<details open>.*?base64,([^"]*)"', text)
    drawn = re.findall(r">\s*(s\d+)\s*</text>", base64.b64decode(figure).decode())
    assert drawn == [label for label in level.sort_values().index if label in drawn]
    assert len(drawn) == 34
    one = learner.effects(tasks[5:6]).iloc[0]
    numbers = f"<td>{one.effect:.4g}</td><td>{one.lower:.4g}</td><td>{one.upper:.4g}</td>"
    assert f"<td>{one.task}</td><td>{one.column}</td>{numbers}" in text


def test_of_many_tasks_the_first_are_drawn(tasks, learner, tmp_path, monkeypatch):
    monkeypatch.setattr(report_page, "MAX_TASKS", 3)
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    text = write_report(tmp_path / "page.html", learner, tasks).read_text()
    assert text.count('alt="score against hours') == 1
    assert "The first 3 of the 40 tasks are drawn." in text


def test_a_model_without_features_has_no_figures_of_single_tasks(tasks, tmp_path):
    plain = TaskSet(np.empty((len(tasks.y), 0)), tasks.y, np.repeat(tasks.labels, tasks.sizes))
    fitted = EmpiricalBayesLearner().fit(plain)
    text = write_report(tmp_path / "page.html", fitted, plain).read_text()
    assert "Single tasks" not in text
    assert "Coefficients of the tasks" in text


@pytest.mark.parametrize(("n_classes", "loss"), [(2, None), (3, None), (0, "poisson")])
def test_pages_of_classes_and_counts(tasks, n_classes, loss, tmp_path, monkeypatch):
    """Two classes and counts have all sections."""
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    tasks = tasks[:12]
    bins = np.arange(1.0, 9.0)
    if n_classes:
        bins = np.quantile(tasks.y, np.arange(1, n_classes) / n_classes)
    tasks = tasks.replace(y=2.0 + np.searchsorted(bins, tasks.y))
    if not n_classes:  # labels of two columns
        tasks = tasks.replace(labels=label_array([("a", i) for i in range(12)]))
        y = np.random.default_rng(0).poisson(1.0, 108) * 1.0
        tasks = tasks.replace(exposure=np.ones(108), y=y)
        assert "targets may be counts" in str(tasks.describe())
    learner = EmpiricalBayesClassifier() if n_classes else EmpiricalBayesLearner(loss=loss)
    learner.fit(tasks)
    constant = BASELINES["counts" if loss else "classes"]["constant"]
    methods = {"tailored": learner, "constant": constant}
    found = evaluate(tasks, methods, supports=[0, 5], n_folds=2)
    text = write_report(tmp_path / "page.html", learner, tasks, found).read_text()
    reader = Reader(text)
    assert not reader.open
    assert not reader.closed_wrongly
    assert ("single-tasks" in reader.ids) == (n_classes != 3)
    for name, values in list(found.scores.items())[:-2]:
        assert f"Mean {name} on 12 new tasks, by number of support rows" in text
        for value in values.mean(axis=2).ravel():
            assert f"<td>{value:.4g} ± " in text
    if not n_classes:
        assert "The 90 % prediction intervals contain" in text
        assert "targets may be counts" not in text  # the model is one of counts
        assert " per unit of exposure against " in text
        assert "<td>(&#x27;a&#x27;, 3)</td>" in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_clipped_in_a_browser(page, tmp_path, width):
    """In a frame of this width, because windows have a minimum width; wide tables can be scrolled
    on narrow screens.
    """
    script = """
        const doc = document.getElementById('page').contentDocument, root = doc.documentElement;
        const clipped = [...doc.querySelectorAll('.scroll')].filter(e => e.scrollWidth > e.clientWidth);
        document.body.dataset.wide = root.scrollWidth <= root.clientWidth;
        document.body.dataset.clipped = clipped.length > 0;
        document.body.dataset.broken = [...doc.images].filter(i => !i.naturalWidth).length;
    """
    frame = f'<iframe id="page" src="{page.name}" style="width: {width}px; height: 900px"></iframe>'
    loaded = f"<script>window.addEventListener('load', () => {{{script}}});</script>"
    outer = page.with_name(f"frame-{width}.html")
    outer.write_text(f"<!doctype html><body>{frame}{loaded}</body>")
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-quic",
    ]
    options += ["--allow-file-access-from-files", f"--user-data-dir={tmp_path / 'profile'}"]
    options += ["--virtual-time-budget=5000", "--dump-dom", outer.as_uri()]
    command = [CHROMIUM, *options]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    data = dict(re.findall(r'data-([\w-]+)="([^"]*)"', dom[dom.index("<body") :]))
    expected = {"wide": "true", "broken": "0", "clipped": "true" if width < 500 else "false"}
    assert data == expected
