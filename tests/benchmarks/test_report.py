"""How many splits a table has, and what its pictures show."""

import pytest

from benchmarks import charts, report, rows
from benchmarks.tables import TABLES, Table, Task

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        (range(4), "Seeds 0 to 3: 4 splits."),
        (range(2), "Seeds 0 to 1: 2 of 4 splits."),
        (range(1), "Seed 0: 1 of 4 splits."),
    ],
)
def test_the_head_of_a_table_says_how_many_splits_it_has(seeds, said):
    assert report.head(Table(tasks=(WINE,), methods=("PCA",), seeds=(0, 4)), seeds) == said


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


def test_rows_to_the_right_have_a_panel_for_every_number_of_components():
    titles = list(charts._panels(TABLES["bm2pca-rows"]))
    assert titles == ["Yale, R = 10", "Yale, R = 20", "Yale, R = 30"]
    assert list(charts._panels(TABLES["dgplvm"])) == ["USPS 3 v 5"]
    assert list(charts._panels(TABLES["bm2pca-cost"])) == ["ORL", "Yale B"]


def test_bands_are_left_out_where_the_scale_is_logarithmic():
    """A mean less its deviation has no place there below zero."""
    for name, scale, bands in (("dgplvm", "log", 0), ("bm2pca-rows", "linear", 3)):
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
