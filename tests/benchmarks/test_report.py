"""The pages of benchmarks say what the stored lines say."""

import pytest

from benchmarks import report, rows
from benchmarks.accuracy import read
from benchmarks.people import LIMITED, MAPS, PREDICTIONS
from benchmarks.tables import SETS, SINGLE, Table, Task

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)
LINES = read(report.LINES)


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
