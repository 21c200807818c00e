"""The page about one's own model: whole, without a network, and working in a real browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from tailored import EmpiricalBayesLearner, TaskSet
from tailored.evaluation import evaluate, usual_methods
from tailored.report import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (Debian's package chromium)")


def schools(n_tasks=40, n_rows=9, seed=0):
    """Levels and slopes differ; one label has letters that HTML would read."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(seed)
    names = [f"s{i}" for i in range(n_tasks - 1)] + ["<b>&'\""]
    which = np.repeat(np.arange(n_tasks), n_rows)
    hours = rng.uniform(0, 10, len(which))
    score = rng.normal(size=n_tasks)[which] + (1 + 0.5 * rng.normal(size=n_tasks))[which] * hours
    frame = pd.DataFrame(
        {"school": np.array(names)[which], "hours": hours, "score": score + rng.normal(size=len(which))}
    )
    return TaskSet.from_frame(frame, task="school", target="score")


@pytest.fixture(scope="module")
def tasks():
    return schools()


@pytest.fixture(scope="module")
def page(tasks, tmp_path_factory):
    learner = EmpiricalBayesLearner().fit(tasks)
    found = evaluate(tasks, {**usual_methods(), "tailored": learner}, supports=[0, 2, 5], n_folds=2)
    return write_report(learner, tasks, tmp_path_factory.mktemp("page") / "report.html", evaluation=found)


class Reader(HTMLParser):
    """Open elements, and what they refer to."""

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.closed_wrongly = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "br", "input"):
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.closed_wrongly.append(tag)


def test_the_page_is_whole_and_needs_no_network(page):
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
    assert "NaN" not in text


def test_without_a_script_one_of_each_is_shown(page):
    text = page.read_text()
    for kind, most in (("effect", 2), ("task", 40)):
        panels = re.findall(rf'<figure data-{kind}-panel="\d+"( hidden)?>', text)
        assert len(panels) == most
        assert panels.count("") == 1


def test_numbers_of_the_page_are_those_of_the_evaluation(tasks, page):
    learner = EmpiricalBayesLearner().fit(tasks)
    found = evaluate(tasks, {**usual_methods(), "tailored": learner}, supports=[0, 2, 5], n_folds=2)
    text = page.read_text()
    for value in found.mean.ravel():
        assert f"<td>{value:.4g} ± " in text


def test_many_tasks_are_evaluated_on_a_sample(tasks, tmp_path, monkeypatch):
    """The bound is lowered; nothing else is changed."""
    from tailored.report import page as pages

    monkeypatch.setattr(pages, "EVALUATED_ROWS", 20 * 9 + 3)
    learner = EmpiricalBayesLearner().fit(tasks)
    text = write_report(learner, tasks, tmp_path / "page.html").read_text()
    assert "Of the 40 tasks, 20 were drawn at random for this." in text
    assert "Whole tasks were held out, 20 in all" in text


def dom(page, tmp_path, script, *options):
    """The page after a script of ours has acted on it, and what the browser said on its console."""
    acted = tmp_path / "acted.html"
    watch = "window.failed = []; window.addEventListener('error', e => failed.push(e.message));"
    text = page.read_text().replace("<style>", f"<script>{watch}</script><style>", 1)
    ending = f"<script>{{{script}; }} document.body.dataset.failed = JSON.stringify(failed);</script></body>"
    acted.write_text(text.replace("</body>", ending))
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--enable-logging=stderr",
    ]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*command, profile, *options, "--dump-dom", acted.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, said


@in_browser
def test_hovering_and_choosing_in_a_browser(page, tmp_path):
    script = """
        const mark = document.querySelector('#good [data-tip]');
        mark.dispatchEvent(new PointerEvent('pointerover', {bubbles: true}));
        document.body.dataset.tip = document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent;
        document.body.dataset.wanted = mark.dataset.tip;
        const task = document.getElementById('task');
        task.value = '3'; task.dispatchEvent(new Event('change'));
        const shown = [...document.querySelectorAll('[data-task-panel]')].filter(p => !p.hidden);
        document.body.dataset.task = shown.map(p => p.dataset.taskPanel).join();
        document.body.dataset.chosen = [...document.querySelectorAll('.task.chosen')].map(p => p.dataset.task).join();
        const effect = document.getElementById('effect');
        effect.value = effect.options[1].value; effect.dispatchEvent(new Event('change'));
        document.body.dataset.effect = [...document.querySelectorAll('[data-effect-panel]')].filter(p => !p.hidden).length;
        mark.focus();
        document.body.dataset.focused = document.activeElement === mark;
        document.body.dataset.wide = document.documentElement.scrollWidth <= window.innerWidth
    """
    found, said = dom(page, tmp_path, script, "--window-size=390,844")
    data = dict(re.findall(r'data-(\w+)="([^"]*)"', found[found.index("<body") : found.index("<h1")]))
    assert data["tip"] == data["wanted"] != ""
    assert data["task"] == "3"
    assert set(data["chosen"].split(",")) == {"3"}
    assert data["effect"] == "1"
    assert data["focused"] == "true"
    assert data["wide"] == "true"  # no sideways scrolling on a phone
    assert data["failed"] == "[]"
    assert not said
