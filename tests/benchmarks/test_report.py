"""The pages of benchmarks say what the stored lines say."""

import re

import numpy as np
import pytest

from benchmarks import charts, people, report, rows
from benchmarks.accuracy import read
from benchmarks.people import LIMITED, MAPS, PREDICTIONS
from benchmarks.tables import SETS, SINGLE, TABLES, Table, Task

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)
LINES = read(report.LINES)
# Of words that a person reads aloud in eight minutes, and of pictures.
MOST_WORDS, MOST_PICTURES = 1200, 5
# Characters of a line of a table that fits into the text's width.
WIDEST = 110


def between(page, name):
    begin, end = f"<!-- {name}: begin -->\n", f"\n<!-- {name}: end -->"
    return page.read_text().partition(begin)[2].partition(end)[0]


@pytest.mark.parametrize("name", ["people", *SINGLE])
def test_pages_are_those_of_the_lines(name):
    """Every comparing sentence, and every cell."""
    for page, part, text in report.parts(LINES, [name]):
        assert between(page, part) == text


def test_every_method_ran_on_every_set():
    found = report.people_of(LINES)
    assert len(SETS) >= 12
    assert found.n_splits >= 3
    counts = found.scores.groupby(["set", "method", "R"]).size()
    assert len(counts) == len(SETS) * len({*PREDICTIONS, *MAPS, *((m, 5) for m in LIMITED)})
    assert set(counts) == {found.n_splits}
    drawn = found.means.loc[[(*entry, name) for entry in MAPS for name in found.sets]]
    assert drawn[["neighbours", "linear", "linear_ece", "map_changed"]].notna().all(axis=None)
    assert found.means[["labels_changed", "variation"]].notna().all(axis=None)


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
    """Two sets; BSDR is best on one, PCA on the other, whose map is the best of both."""
    rng = np.random.default_rng(0)
    losses = {"wine": {"BSDR": 0.1, "PCA": 0.3}, "iris": {"BSDR": 0.5, "PCA": 0.2}}
    lines = [
        {"set": name, "R": r, "method": method, "seed": seed, "accuracy": 0.9, "ece": 0.02}
        | {"seconds": 1.0, "log_loss": losses[name].get(method, 1.0) + 0.001 * rng.random()}
        | {"neighbours": 0.9 if method == "PCA" else 0.8, "linear": 0.7, "linear_ece": 0.1}
        | dict.fromkeys(people.CHANGES, 0.01)
        for name in losses
        for method, r in dict.fromkeys([*PREDICTIONS, *MAPS, *((m, 5) for m in LIMITED)])
        for seed in range(3)
    ]
    return people.People(people.pd.DataFrame(lines))


def test_sentences_tell_wins_and_losses(made_up):
    text = people.of_predictions(made_up)
    assert "**BSDR** has a lower log loss than all 18 other methods on 1 of 2 sets" in text
    assert (
        "by more than 0.01, on 1 (1 with an interval above zero): iris; most on iris, +0.3" in text
    )
    assert "nats against PCA, R = 5" in text
    assert "**stack** has a lower log loss than all 18 other methods on 0 of 2 sets" in text
    assert "BSDR has a mean error of 0.020, at most .05 on 2 of 2" in people.of_calibration(made_up)
    assert "two fitted dimensions is that of PCA, R = 2, 1.0 [1.0, 1.0]" in people.of_maps(made_up)


def test_tables_are_in_order_of_their_ranks(made_up):
    lines = people.predictions_table(made_up).splitlines()[2:]
    assert [line.split(" | ")[0].strip("| *") for line in lines[:2]] == ["BSDR", "PCA, R = 5"]
    assert people.maps_table(made_up).splitlines()[2].startswith("| PCA, R = 2 | 1.0 [1.0, 1.0]")
    for line in people.of_components(made_up).splitlines()[2:]:
        assert line.count("|") == 8


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
