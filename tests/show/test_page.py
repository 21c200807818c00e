"""The HTML report: well-formed, self-contained, and usable in a real browser."""

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
    write_report,
)
from tailored._utils.validation import label_array
from tailored.evaluation import BASELINES, default_methods, evaluate
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
    return evaluate(
        tasks, {**default_methods(), "tailored": learner}, supports=[0, 2, 5], n_folds=2
    )


@pytest.fixture(scope="module")
def page(tasks, learner, evaluation, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_page, "MAX_TASK_FIGURES", 5)
        out = tmp_path_factory.mktemp("page") / "report.html"
        return write_report(learner, tasks, out, evaluation=evaluation)


class Reader(HTMLParser):
    """Collect open elements, links, identifiers and images."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.closed_wrongly = [], [], [], []

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
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert not reader.closed_wrongly
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(reader.ids)
    assert not re.search(r"https?://", text)
    assert "<b>&'" not in text
    assert "nan" not in re.sub(r"base64,[^\"]*", "", text).lower()


def test_errors_come_before_the_evaluation(tasks, learner, tmp_path):
    with pytest.raises(NotFittedError):
        write_report(EmpiricalBayesLearner(), tasks, tmp_path / "a.html")
    with pytest.raises(TypeError, match="learner: IndependentLearner has no report"):
        write_report(IndependentLearner().fit(tasks), tasks, tmp_path / "a.html")
    with pytest.raises(FileNotFoundError, match=r"the folder .* does not exist"):
        write_report(learner, None, tmp_path / "none" / "a.html")


def test_figures_are_valid_svg_without_external_resources(page):
    """Four of the evaluation, three caterpillar plots, five tasks; special characters are drawn."""
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page.read_text())
    assert len(images) == 12
    for image in images:
        root = ElementTree.fromstring(base64.b64decode(image))
        links = [
            v for node in root.iter() for name, v in node.attrib.items() if name.endswith("href")
        ]
        assert all(link.startswith("#") for link in links)
    assert "$\\frac$ $x$" in base64.b64decode(images[4]).decode()


def test_headline_says_how_good_on_what_and_compared_with_what(evaluation, page):
    text = page.read_text()
    opening = text[text.index("<h1>") : text.index("<nav")]
    last, (best, *_) = evaluation.mean[:, -1], sorted(evaluation.mean[1:, -1])
    assert f"The mean squared error of score is {last[0]:.4g} with 5 rows of a new task" in opening
    n_query = (evaluation.predictions["support"] == 5).sum()
    measured = f"measured on {len(evaluation.labels)} held-out tasks with {n_query} query rows, by"
    assert measured in opening
    assert f"the best of {len(last) - 1} baselines" in opening
    assert f"has {best:.4g}: tailored is {100 * abs(1 - last[0] / best):.1f} % " in opening
    assert opening.count("<img ") == 2


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_headline_advises_to_fit_boosting_first(factor, evaluation):
    errors = evaluation.errors.copy()
    errors[1:] = 2.0 * errors[0]
    errors[evaluation.methods.index("pooled boosting")] = factor * errors[0]
    found = replace(evaluation, scores={**evaluation.scores, "squared error": errors})
    opening = report_page._opening(found, "score", "")
    assert ("Fit boosting first, and tailored to what it leaves" in opening) == (factor < 1)


def test_errors_are_those_of_one_set_of_tasks(
    tasks, learner, evaluation, page, tmp_path, monkeypatch
):
    """Errors of `fit` are left out, and the page says which tasks were not evaluated."""
    text = page.read_text()
    assert "Error on held-out tasks" in str(learner.summary())
    assert "Error on held-out tasks" not in text
    assert "only used for fitting" not in text
    scores = {name: values[..., :30] for name, values in evaluation.scores.items()}
    part = replace(evaluation, labels=evaluation.labels[:30], scores=scores)
    monkeypatch.setattr(report_page, "evaluate", lambda *arguments, **options: part)
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    text = write_report(learner, tasks, tmp_path / "page.html").read_text()
    assert "measured on 30 held-out tasks" in text
    assert "Tasks with at most 5 rows were only used for fitting." in text


def test_one_figure_of_each_kind_is_shown_without_a_script(page):
    for kind, n in (("coefficient", 3), ("task", 5)):
        panels = re.findall(rf'<figure data-{kind}="\d+"( hidden)?>', page.read_text())
        assert len(panels) == n
        assert panels.count("") == 1


def test_tasks_are_first_ranked_at_the_feature_means(tasks, learner, page):
    text = page.read_text()
    options = re.findall(r"<option[^>]*>([^<]*)</option>", text)
    assert options[0] == "level at the feature means"
    assert set(options[1:3]) == {"hours", "(intercept)"}
    assert "The (intercept) is the level where all features are 0." in text
    effects = learner.effects(tasks).set_index(["task", "column"])
    differences = (effects["effect"] - effects["prior"]).unstack()
    level = differences["(intercept)"] + tasks.X.mean() * differences["hours"]
    (figure,) = re.findall(r'<figure data-coefficient="0">.*?base64,([^"]*)"', text)
    drawn = re.findall(r">\s*(s\d+)\s*</text>", base64.b64decode(figure).decode())
    assert drawn == [label for label in level.sort_values().index if label in drawn]
    assert len(drawn) == 34


def test_page_has_the_numbers_of_the_evaluation_and_the_effects(tasks, learner, evaluation, page):
    text = page.read_text()
    for value in evaluation.mean.ravel():
        assert f"<td>{value:.4g} ± " in text
    effects = learner.effects(tasks[5:6]).iloc[0]
    assert (
        f"<td>{effects.task}</td><td>{effects.effect:.4g}</td><td>{effects.lower:.4g}</td>" in text
    )


def test_many_tasks_are_sampled_for_the_evaluation(
    tasks, learner, evaluation, tmp_path, monkeypatch
):
    sampled = []

    def evaluate_sample(sample, methods, **options):
        sampled.append(len(sample))
        return evaluation

    monkeypatch.setattr(report_page, "evaluate", evaluate_sample)
    monkeypatch.setattr(report_page, "MAX_EVALUATED_ROWS", 20 * 9 + 3)
    monkeypatch.setattr(report_page, "MAX_TASKS", 3)
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    text = write_report(learner, tasks, tmp_path / "page.html").read_text()
    assert sampled == [20]
    assert "A random sample of 20 of the 40 tasks was evaluated." in text
    assert len(re.findall('<figure data-task="', text)) == 1
    assert "A random sample of 3 of the 40 tasks is drawn." in text
    assert "The list has the 1 tasks whose level differs most from their prior mean." in text


def test_single_tasks_are_drawn_over_a_numeric_column(
    tasks, learner, evaluation, tmp_path, monkeypatch
):
    """The effect of a 0/1 column is larger and varies more, but a line over two values shows little."""
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    rng = np.random.default_rng(1)
    sex, small = rng.integers(0, 2, len(tasks.y)), rng.normal(size=len(tasks.y))
    slope = np.repeat(5.0 * rng.normal(size=len(tasks)), tasks.sizes)
    more = TaskSet(
        np.column_stack([sex, small, tasks.X]),
        tasks.y + slope * sex,
        np.repeat(tasks.labels, tasks.sizes),
    )
    fitted = EmpiricalBayesLearner().fit(more)
    text = write_report(fitted, more, tmp_path / "page.html", evaluation=evaluation).read_text()
    assert "<p>The figures show the target against x2." in text


def test_a_model_without_features_has_no_figures_of_single_tasks(tasks, evaluation, tmp_path):
    plain = TaskSet(np.empty((len(tasks.y), 0)), tasks.y, np.repeat(tasks.labels, tasks.sizes))
    fitted = EmpiricalBayesLearner().fit(plain)
    renamed = replace(evaluation, methods=("intercepts", *evaluation.methods[1:]))
    text = write_report(fitted, plain, tmp_path / "page.html", evaluation=renamed).read_text()
    assert "Single tasks" not in text
    assert "Coefficients of the tasks" in text
    assert re.search(r": intercepts is \d+\.\d % (better|worse)", text)


@pytest.mark.parametrize(("n_classes", "loss"), [(2, None), (3, None), (0, "poisson")])
def test_pages_of_classes_and_counts(tasks, n_classes, loss, tmp_path, monkeypatch):
    """Classes have a figure of their calibration, counts one of the coverage; two classes and counts have all sections."""
    monkeypatch.setattr(report_page, "MAX_TASK_FIGURES", 1)
    tasks = tasks[:20]
    bins = (
        np.quantile(tasks.y, np.arange(1, n_classes) / n_classes)
        if n_classes
        else np.arange(1.0, 9.0)
    )
    tasks = tasks.replace(y=2.0 + np.searchsorted(bins, tasks.y))
    if not n_classes:  # labels of two columns
        tasks = tasks.replace(labels=label_array([("a", i) for i in range(20)]))
        tasks = tasks.replace(
            exposure=np.ones(180), y=np.random.default_rng(0).poisson(1.0, 180) * 1.0
        )
        assert "targets may be counts" in str(tasks.describe())
    learner = EmpiricalBayesClassifier() if n_classes else EmpiricalBayesLearner(loss=loss)
    learner.fit(tasks)
    methods = {
        "tailored": learner,
        "constant": BASELINES["counts" if loss else "classes"]["constant"],
    }
    found = evaluate(tasks, methods, supports=[0, 5], n_folds=2, loss=loss or "squared")
    text = write_report(learner, tasks, tmp_path / "page.html", evaluation=found).read_text()
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    assert not reader.closed_wrongly
    assert ("single-tasks" in reader.ids) == (n_classes != 3)
    for name, values in list(found.scores.items())[:-2]:
        assert f"Mean {name} on 20 new tasks, by number of support rows" in text
        for value in values.mean(axis=2).ravel():
            assert f"<td>{value:.4g} ± " in text
    if n_classes:
        assert "Observed frequencies of held-out tasks in ten bins" in text
        assert 'alt="Observed frequency against predicted probability"' in text
    else:
        assert "The 90 % prediction intervals contain" in text
        assert "targets may be counts" not in text  # the model is one of counts
        assert " per unit of exposure against " in text
        assert "interval of a new row with the task's mean exposure." in text
        assert "<td>(&#x27;a&#x27;, 3)</td>" in text
        assert 'alt="Coverage by number of support rows"' in text


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_choosing_a_figure_in_a_browser(page, tmp_path):
    script = """
        const shown = kind => [...document.querySelectorAll(`[data-${kind}]`)].filter(p => !p.hidden);
        for (const [kind, value] of [['task', '3'], ['coefficient', '1']]) {
            const list = document.getElementById(kind);
            list.value = value; list.dispatchEvent(new Event('change'));
            document.body.setAttribute('data-seen-' + kind, shown(kind).map(p => p.getAttribute('data-' + kind)).join());
        }
        document.body.dataset.wide = document.documentElement.scrollWidth <= window.innerWidth;
        window.addEventListener('load', () => {
            document.body.dataset.broken = [...document.images].filter(i => !i.naturalWidth).length;
        });
    """
    changed = tmp_path / "changed.html"
    watch = "<script>window.failed = []; window.addEventListener('error', e => failed.push(e.message));</script>"
    ending = f"<script>{{{script}}} document.body.dataset.failed = failed.length;</script></body>"
    text = page.read_text().replace("<style>", f"{watch}<style>", 1).replace("</body>", ending)
    changed.write_text(text)
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=390,844",
    ]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    command = [
        CHROMIUM,
        *options,
        profile,
        "--virtual-time-budget=5000",
        "--dump-dom",
        changed.as_uri(),
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    data = dict(re.findall(r'data-([\w-]+)="([^"]*)"', dom[dom.index("<body") : dom.index("<h1")]))
    assert data == {
        "seen-task": "3",
        "seen-coefficient": "1",
        "wide": "true",
        "broken": "0",
        "failed": "0",
    }
