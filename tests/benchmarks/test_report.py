"""The pages of benchmarks say what the stored lines say."""

import functools
import json

import pytest

from benchmarks import accuracy, model_choice, page, report, speed
from benchmarks.accuracy import read
from benchmarks.people import LIMITED, MAPS, PREDICTIONS
from benchmarks.rows import recorded
from benchmarks.tables import SETS, TABLES, Table, Task

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)
LINES = read(report.LINES)
# With more classes a change with the seed is not measured.
MANY_CLASSES = {"ORL", "Yale B"}


@functools.cache
def stored(name):
    return recorded(TABLES[name], LINES)


@pytest.mark.parametrize("name", TABLES)
def test_pages_are_those_of_the_lines(name):
    """Every comparing sentence, and every cell."""
    for path, part, text in report.parts(name, stored(name)):
        assert page.read(path, part) == text


def test_the_page_has_the_recorded_choices_of_models():
    assert page.read(report.PAGE, "choice") == model_choice.text(model_choice.read())


def test_a_ratio_far_above_that_of_the_page_is_named():
    recorded = (
        "| N | ms | ms / floor | sweep / floor |\n| --- | --- | --- | --- |\n| 20 | 1 | 2.0 | - |"
    )
    recorded += "\n| 100 | 1 | 2.0 | 3.0 |"
    slow = recorded.replace("| 1 | 2.0 | 3.0", "| 9 | 2.7 | 3.8")
    assert speed.exceeded(recorded, slow) == ["ms / floor, 100, line 3: 2.70, recorded 2.00"]
    assert not speed.exceeded(recorded, recorded)
    assert len(page.ratios(page.read(speed.FLOORS_PAGE, "gp_likelihood"))) == 10


def test_every_method_ran_on_every_set():
    found = report.people_of(stored("people"))
    assert len(SETS) >= 12
    assert found.n_splits >= 3
    counts = found.scores.groupby(["set", "method", "R"]).size()
    assert len(counts) == len(SETS) * len({*PREDICTIONS, *MAPS, *((m, 5) for m in LIMITED)})
    assert set(counts) == {found.n_splits}
    drawn = found.means.loc[[(*entry, name) for entry in MAPS for name in found.sets]]
    assert drawn[["neighbours", "linear", "linear_ece"]].notna().all(axis=None)
    few = sorted(set(found.sets) - MANY_CLASSES)
    drawn = found.means.loc[[(*entry, name) for entry in MAPS for name in few]]
    assert drawn[["map_changed", "labels_changed", "variation"]].notna().all(axis=None)


def test_a_recommendation_is_close_if_its_loss_is(tmp_path):
    """One of two sets is more than .02 behind; lines of an older code do not count."""
    line = {"seed": 0, "code": "new", "by": "1", "recommended": "a", "seconds": 2.0}
    lines = [
        {**line, "set": "wine", "losses": {"a": 0.31, "stack": 0.30}},
        {**line, "set": "iris", "losses": {"a": 0.35, "stack": 0.30}},
    ]
    text = model_choice.text(lines)
    assert "on 1 of 2 sets, and at worst 0.050 behind" in text
    assert "would change its mean over the sets by -0.0300 nats" in text
    assert "| iris | a | 0.350 | stack | 0.300 | +0.050 | 2 |" in text
    path = tmp_path / "choices.jsonl"
    path.write_text(
        "".join(json.dumps(each) + "\n" for each in [{**lines[0], "code": "old"}, *lines])
    )
    assert model_choice.read(path) == lines


def lines_of(table, seeds, code, by):
    """A line of every fit of the table."""
    return [
        {
            "key": {**accuracy.key(task, method, seed), "code": code},
            "by": by,
            "result": {"accuracy": 0.9, "log_loss": 0.2},
        }
        for task, method in table.pairs()
        for seed in seeds
    ]


TABLE = Table(tasks=(WINE,), methods=("PCA", "NCA"), seeds=(0, 4))


def test_a_table_ends_before_the_first_seed_with_a_gap():
    lines = lines_of(TABLE, range(4), "a", "1")
    assert recorded(TABLE, lines).seeds == range(4)
    assert recorded(TABLE, lines[:6] + lines[7:]).seeds == range(2)
    with pytest.raises(ValueError, match="first split"):
        recorded(TABLE, lines[1:])


def test_a_table_has_lines_of_one_code_of_each_method():
    """Of the newest that has a first split, and it says whose they are."""
    old = lines_of(TABLE, range(4), "a", "1")
    new = lines_of(TABLE, range(2), "b", "2")
    found = recorded(TABLE, old + new)
    assert found.seeds == range(2)
    assert found.splits == "*2 splits, recorded by version 2.*"
    assert {line["key"]["code"] for line in found.lines} == {"b"}
    found = recorded(TABLE, old + new[1:])
    assert found.seeds == range(4)
    assert found.splits == "*4 splits, recorded by version 1.*"
    one = [line for line in new if line["key"]["method"] == "PCA"]
    found = recorded(TABLE, old + one)
    assert found.splits == "*2 splits, recorded by version 1; PCA by version 2.*"


def test_stored_lines_are_those_shown_and_the_newest(tmp_path):
    """What is neither is left out; a run that is cut off goes on from the others."""
    old = lines_of(TABLE, range(2), "a", "1")
    new = lines_of(TABLE, range(2), "b", "2")
    path = tmp_path / "lines.jsonl.gz"
    report.store(old + new, [recorded(TABLE, old + new)], path)
    assert read(path) == new
    part = [line for line in new if line["key"]["seed"] == 1]
    report.store(old + part, [recorded(TABLE, old + part)], path)
    assert read(path) == old + part


@pytest.mark.slow
def test_groups_have_the_difference_that_they_make():
    table = TABLES["groups"]
    lines = lines_of(table, range(300, 302), "a", "1")
    for line in lines:
        given = line["key"]["scheme"] == "groups given"
        line["result"]["log_loss"] = 0.5 - 0.1 * given * (line["key"]["seed"] - 299)
    text = report.single_text("groups", recorded(table, lines))
    assert "on studies stack -0.150 [-0.785, +0.485], BSDR -0.150" in text
