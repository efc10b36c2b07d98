"""The pages of benchmarks say what the stored lines say."""

import re

import numpy as np
import pytest

from benchmarks import charts, people, report, rows
from benchmarks.accuracy import read
from benchmarks.tables import CLASSIFIERS, OURS, PROJECTIONS, SETS, SINGLE, TABLES, Table, Task

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)
LINES = read(report.LINES)
# Of words that a person reads aloud in eight minutes, and of pictures.
MOST_WORDS, MOST_PICTURES = 1200, 5
# Characters of a line of a table that fits into the text's width.
WIDEST = 110


def between(page, name):
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    return page.read_text().partition(begin)[2].partition(end)[0]


@pytest.mark.parametrize("name", ["people", "stack", *SINGLE])
def test_pages_are_those_of_the_lines(name):
    """Every comparing sentence, and every cell."""
    for page, part, text in report.parts(LINES, [name]):
        assert between(page, part) == text


def test_every_method_ran_on_every_set():
    found = report.people_of(LINES)
    assert len(SETS) >= 12
    assert found.n_splits >= 3
    counts = found.scores.groupby(["set", "R", "method"]).size()
    assert len(counts) == len(SETS) * 2 * len((*OURS, *PROJECTIONS, *CLASSIFIERS))
    assert set(counts) == {found.n_splits}


def test_the_page_for_people_is_short():
    written = r"<!-- ([\w-]+): begin -->.*?<!-- \1: end -->"  # tables and their sentences
    text = re.sub(rf"{written}|```.*?```", "", report.PAGE.read_text(), flags=re.DOTALL)
    assert len(re.findall(r"[^\s|]*\w[^\s|]*", text)) <= MOST_WORDS
    assert 1 <= text.count("![") <= MOST_PICTURES


@pytest.mark.parametrize("page", [report.PAGE, report.PAPERS_PAGE], ids=lambda page: page.stem)
def test_no_table_is_wider_than_the_text(page):
    assert not [
        line
        for line in page.read_text().splitlines()
        if line.startswith("|") and len(line.replace("*", "")) > WIDEST
    ]


@pytest.mark.parametrize("page", [report.PAGE, report.PAPERS_PAGE], ids=lambda page: page.stem)
def test_pictures_are_there_and_small(page):
    names = re.findall(r"!\[.*?\]\((.*?)\)", page.read_text())
    sizes = [(page.parent / name).stat().st_size for name in names]
    assert sizes
    assert max(sizes) <= charts.MOST_BYTES


@pytest.fixture
def made_up():
    """Two sets; BSDR is best on one, PCA on the other."""
    rng = np.random.default_rng(0)
    losses = {"wine": {"BSDR": 0.1, "PCA": 0.3}, "iris": {"BSDR": 0.5, "PCA": 0.2}}
    lines = [
        {"set": name, "R": r, "method": method, "seed": seed, "accuracy": 0.9, "ece": 0.02}
        | {"seconds": 1.0, "log_loss": losses[name].get(method, 1.0) + 0.001 * rng.random()}
        for name in losses
        for r in (2, 5)
        for method in (*OURS, *PROJECTIONS, *CLASSIFIERS)
        for seed in range(3)
    ]
    return people.People(people.pd.DataFrame(lines))


def test_sentences_tell_wins_and_losses(made_up):
    text = people.of_projections(made_up)
    assert "**BSDR** has the lowest log loss of all in 2 of 4 comparisons" in text
    assert "most on iris with R = 2" in text or "most on iris with R = 5" in text
    assert "nats against PCA" in text
    assert "one of the three has the lowest log loss of all on 2 of 2 sets (wine and iris)" in (
        people.of_all_features(made_up)
    )
    assert "BSDR has a mean error of 0.020, at most .05 in 4 of 4" in people.of_calibration(made_up)


def test_a_table_ends_before_the_first_seed_with_a_gap():
    table = Table(tasks=(WINE,), methods=("PCA", "NCA"), seeds=(0, 4))
    lines = [
        {"task": WINE, "method": method, "seed": seed}
        for method in table.methods
        for seed in range(4)
    ]
    assert rows.complete(table, lines) == range(4)
    assert rows.complete(table, lines[:6] + lines[7:]) == range(2)
    assert not rows.complete(table, lines[1:])
    with pytest.raises(ValueError, match="first split"):
        report._rows(table, [])


def test_samples_to_the_right_have_a_panel_for_every_number_of_components():
    titles = list(charts._panels(TABLES["bm2pca-samples"]))
    assert titles == ["Yale, R = 10", "Yale, R = 30"]
    assert list(charts._panels(TABLES["dgplvm-oil"])) == ["oil", "wine"]
    assert list(charts._panels(TABLES["bm2pca-cost"])) == ["ORL", "Yale B"]


def test_bands_are_left_out_where_the_scale_is_logarithmic():
    """A mean less its deviation has no place there below zero."""
    for name, scale, bands in (("dgplvm-oil", "log", 0), ("bm2pca-samples", "linear", 3)):
        table = TABLES[name]
        found = [
            {"task": task.asked_of(method), "method": method, "seed": seed, "accuracy": 0.5 + seed}
            for task in table.tasks
            for method in table.methods
            for seed in (0, 0.2)
        ]
        ax = charts.curves(found, table).axes[0]
        assert ax.get_yscale() == scale
        assert len(ax.collections) == bands
