"""The programme behind ``docs/benchmarks.md``: lines, keys, scores, tables, pictures."""

import json

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import average_precision_score

from benchmarks import (
    accuracy,
    comparison,
    datasets,
    fingerprint,
    history,
    memory,
    report,
    rows,
    speed,
)
from benchmarks.methods import METHODS, readouts
from benchmarks.protocols import PROTOCOLS, REPORTING_SEEDS, TABLE_SEEDS, TUNING_SEEDS
from benchmarks.scores import mean_average_precision
from benchmarks.tables import TABLES, Table, Task

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_asks_for_what_is_there(name):
    table = TABLES[name]
    assert set(table.methods) <= set(METHODS)
    assert set(table.ours) <= set(table.methods)
    assert set(table.drawn) <= set(table.methods)
    assert len(set(table.tasks)) == len(table.tasks)
    for task in table.tasks:
        assert task.scheme in PROTOCOLS
        assert task.source in datasets.SETS or task.scheme == "noise"
        if table.curve:
            assert rows.place(table, task, table.methods[0]) is not None


@pytest.mark.parametrize("name", TABLES)
def test_tables_have_seeds_by_which_nothing_is_tuned(name):
    seeds = set(range(*TABLES[name].seeds))
    assert seeds <= set(TABLE_SEEDS) or seeds <= set(REPORTING_SEEDS)


def test_roles_of_seeds_do_not_overlap():
    assert not set(TUNING_SEEDS) & {*REPORTING_SEEDS, *TABLE_SEEDS}
    stored = accuracy.read(accuracy.RESULTS.parents[1] / "lines.jsonl.gz")
    assert not set(TUNING_SEEDS) & {line["key"]["seed"] for line in stored}


def test_tuning_seeds_are_not_written_to_the_page(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["report", "--write", "--seeds", "200:203"])
    with pytest.raises(SystemExit):
        report.main()
    assert "tuning seeds are not reported" in capsys.readouterr().err


def test_readout_has_the_penalty_of_the_lowest_loss_in_folds():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 2
    Z = rng.standard_normal((80, 2)) + y[:, None]
    right = (Z[:40], y[:40], Z[40:], y[40:])
    wrong = (Z[:40], y[:40], Z[40:], 1 - y[40:])
    sure, unsure = (readouts.logistic(Z, y, 2, [fold])(Z) for fold in (right, wrong))
    assert abs(unsure - 0.5).max() < 0.1
    assert abs(sure - 0.5).max() > 0.4


def test_a_set_that_could_not_be_had_says_so():
    with pytest.raises(FileNotFoundError, match="no public copy"):
        datasets.load("Flickr")


def test_rows_are_either_for_training_or_for_the_test():
    X, _ = datasets.load("wine")
    split = WINE.split(3)
    both = np.concatenate([split.X_train, split.X_test])
    assert np.bincount(split.y_train).tolist() == [10, 10, 10]
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(X, axis=0))


def test_a_run_resumes_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "lines.jsonl"
    wanted = (["few-samples"], range(1), ["PCA"], path)
    jobs = accuracy.missing(*wanted)
    assert len(jobs) == len(TABLES["few-samples"].tasks)
    accuracy.run(jobs, path)
    assert accuracy.missing(*wanted) == []
    path.write_text(path.read_text()[:-40])
    assert len(accuracy.missing(*wanted)) == 1
    again = accuracy.read(path)
    assert all(0.3 < line["result"]["accuracy"] <= 1.0 for line in again)


def test_a_fit_that_raises_is_a_line_that_says_so(tmp_path, monkeypatch):
    def broken(task, method, seed):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(accuracy, "evaluate", broken)
    path = tmp_path / "lines.jsonl"
    accuracy.run([(WINE, "PCA", 0)], path)
    (line,) = accuracy.read(path)
    assert line["result"] == {"failed": "RuntimeError: out of luck"}


def test_lines_without_a_digest_of_the_data_are_still_read():
    """As written before there was one."""
    key = accuracy.key(WINE, "PCA", 0)
    del key["data"]
    (row,) = rows.newest([{"key": key, "result": {"accuracy": 0.5, "seconds": 1.0}}])
    assert row == {"task": WINE, "method": "PCA", "seed": 0, "accuracy": 0.5, "seconds": 1.0}


def test_a_method_that_does_not_exist_somewhere_says_why():
    task = Task(source="breast cancer", scheme="halves", sizes=(), n_components=2)
    assert accuracy.evaluate(task, "LDA", 0) == {"skipped": "no more than 1 discriminants"}


def test_a_result_has_scores_and_costs():
    found = accuracy.evaluate(WINE, "PCA", 0)
    assert {"accuracy", "log_loss", "brier", "ece", "map", "mib"} <= set(found)
    assert found["fit_seconds"] > 0.0
    json.dumps(found)


def test_one_fit_serves_all_components_of_a_method_that_sees_all_features(tmp_path):
    table = TABLES["few-samples"]
    jobs = accuracy.missing(["few-samples"], range(1), ["full LDA"], tmp_path / "none")
    assert len(jobs) == len({(task.source, task.sizes) for task in table.tasks}) == 4
    key = {**accuracy.key(WINE, "full LDA", 0), "n_components": 5}
    found = rows.newest([{"key": key, "result": {"accuracy": 0.5}}])
    assert rows.of(found, WINE, "full LDA") == found


def test_comments_and_docstrings_are_no_part_of_the_code(tmp_path, monkeypatch):
    (tmp_path / "a.py").write_text("from ours.b import f\n")
    (tmp_path / "b.py").write_text("def f():\n    return 1\n")
    monkeypatch.setattr(fingerprint, "ROOTS", {"ours": tmp_path})

    def digest(text):
        fingerprint._read.cache_clear()
        (tmp_path / "b.py").write_text(text)
        return fingerprint.code(["ours.a"])

    first = digest("def f():\n    return 1\n")
    assert digest('"""Why."""\n\n\ndef f():\n    """What."""\n    return 1  # how\n') == first
    assert digest("def f():\n    return 2\n") != first
    fingerprint._read.cache_clear()


def test_mean_average_precision_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    queries, database = rng.standard_normal((20, 3)), rng.standard_normal((40, 3))
    y, y_database = rng.integers(3, size=20), rng.integers(3, size=40)
    cosine = queries @ database.T
    cosine /= np.outer(np.linalg.norm(queries, axis=1), np.linalg.norm(database, axis=1))
    pairs = zip(y, cosine, strict=True)
    expected = [average_precision_score(y_database == k, row) for k, row in pairs]
    found = mean_average_precision(queries, y, database, y_database)
    assert found == pytest.approx(np.mean(expected), rel=1e-12)


def test_the_interval_of_paired_differences_is_that_of_a_t_test():
    differences = np.random.default_rng(0).standard_normal(12)
    found = comparison.paired(differences)
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_critical_difference_is_that_of_demsar():
    """Demsar (2006), Section 3.2.2: four classifiers on 14 sets, q = 2.569, hence 1.25."""
    losses = np.random.default_rng(0).standard_normal((14, 4))
    found = comparison.rank(losses)
    assert found.critical == pytest.approx(2.569 * np.sqrt(4 * 5 / (6 * 14)), rel=1e-3)
    assert found.average.sum() == pytest.approx(10.0)


def test_bars_join_what_the_test_does_not_tell_apart():
    assert comparison.cliques(np.array([3.4, 1.0, 1.5, 3.0]), 1.0) == [(1.0, 1.5), (3.0, 3.4)]
    assert comparison.cliques(np.array([1.0, 2.0]), 0.5) == []


@pytest.mark.skipif(not memory.reset_peak(), reason="the system keeps no such mark")
def test_the_peak_of_memory_can_be_forgotten():
    """64 MiB that were filled, and given back."""
    filled = np.ones(2**23)
    peak = memory.peak()
    del filled
    memory.reset_peak()
    assert memory.peak() < peak - 50.0


@pytest.fixture
def small(monkeypatch):
    """A table of three methods on two sets, with results that are made up."""
    tasks = (WINE, Task(source="wine", scheme="per class", sizes=(10,), n_components=3))
    table = Table(
        tasks=tasks,
        methods=("default", "PCA", "NCA"),
        ours=("default",),
        curve="n_components",
        ranks="log_loss",
        seeds=(0, 3),
    )
    monkeypatch.setitem(TABLES, "small", table)
    rng = np.random.default_rng(0)
    return [
        {"task": task, "method": method, "seed": seed}
        | dict.fromkeys(("brier", "ece", "log_loss", "map"), 0.3 + index + 0.01 * rng.random())
        | {"accuracy": 0.9 - 0.1 * index, "fit_seconds": 0.1, "predict_seconds": 0.1, "mib": None}
        for task in tasks
        for index, method in enumerate(table.methods)
        for seed in range(3)
    ]


def test_a_report_has_tables_and_pictures(small, tmp_path, monkeypatch):
    assert rows.lacking(TABLES["small"], small, range(3)) == 0
    assert rows.lacking(TABLES["small"], small[1:], range(3)) == 1
    monkeypatch.delenv("BSDR_MODELS_DATA", raising=False)  # sets that are not here count as well
    assert rows.lacking(TABLES["ard"], [], range(3)) == 3 * len(TABLES["ard"].methods)
    text = report.text("small", small)
    assert "| default | 90.0 ± 0.0 | 90.0 ± 0.0 |" in text
    shown = report.draw("small", small, tmp_path)
    assert len(shown) == len(list(tmp_path.glob("*.png"))) == 2
    assert all(0 < path.stat().st_size < 60_000 for path in tmp_path.glob("*.png"))


def test_differences_are_told_with_their_interval(small, monkeypatch):
    monkeypatch.setitem(TABLES, "plain", Table(**{**_fields(TABLES["small"]), "curve": ""}))
    assert "+10.0 [+10.0, +10.0], 3/3" in report.text("plain", small)


def _fields(table):
    return {name: getattr(table, name) for name in Table.__dataclass_fields__}


def test_every_table_has_its_place_on_the_page():
    page = report.PAGE.read_text()
    for name in TABLES:
        assert f"<!-- {name}: begin -->" in page
        assert f"<!-- {name}: end -->" in page


def test_what_became_slower_is_marked():
    lines = [{"commit": "abc", "seconds": {"fit": s, "place": 1.0}} for s in (1.0, 1.1, 5.0)]
    text = history.compare({"fit": 2.0, "place": 1.1, "new": 1.0}, lines)
    assert "1.82 **slower**" in text
    assert "| place | 1.1e+03 | 1e+03 | 1.10 |" in text
    assert "| new | 1e+03 | - | - |" in text


def test_speed_keeps_times_and_holds_new_ones_against_them(tmp_path, monkeypatch, capsys):
    path = tmp_path / "history.jsonl"
    history.record({"fit": 1.0}, path)
    history.record({"fit": 3.0}, path)
    assert [line["seconds"]["fit"] for line in history.last(path)] == [1.0, 3.0]
    monkeypatch.setattr(history, "measure", lambda: {"fit": 4.0})
    monkeypatch.setattr(history, "last", lambda: [{"commit": "abc", "seconds": {"fit": 2.0}}])
    monkeypatch.setattr("sys.argv", ["speed", "--compare"])
    speed.main()
    assert "| fit | 4e+03 | 2e+03 | 2.00 **slower** |" in capsys.readouterr().out


def test_speed_writes_between_the_marks_of_a_part(tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    limits = "<!-- bars: begin -->\nold\n<!-- bars: end -->\n"
    page.write_text(f"before\n<!-- waits: begin -->\nold\n<!-- waits: end -->\nafter\n{limits}")
    monkeypatch.setattr(speed, "PAGE", page)
    monkeypatch.setattr(speed, "PARTS", {"waits": lambda folder: "new"})
    monkeypatch.setattr(speed.bars, "report", lambda page: "all limits")
    monkeypatch.setattr("sys.argv", ["speed", "--only", "waits", "--write"])
    speed.main()
    text = page.read_text()
    assert text.startswith("before\n<!-- waits: begin -->\n")
    assert "new\n<!-- waits: end -->\nafter" in text
    assert "all limits\n<!-- bars: end -->" in text
    assert "old" not in text
    assert all(f"<!-- {name}: end -->" in report.PAGE.read_text() for name in speed.PARTS)


def test_report_leaves_a_table_with_gaps_as_it_is(small, tmp_path, monkeypatch, capsys):
    page = tmp_path / "page.md"
    page.write_text("<!-- small: begin -->\nold\n<!-- small: end -->\n")
    monkeypatch.setattr(report, "read", lambda path: [])
    argv = ["report", "--table", "small", "--page", str(page), "--write"]
    monkeypatch.setattr("sys.argv", argv)
    report.main()
    assert "left as it is, 18 fits are missing" in capsys.readouterr().out
    assert "old" in page.read_text()
    monkeypatch.setattr(report, "newest", lambda lines, seeds: small)
    report.main()
    assert "Seeds 0 to 2: 3 splits." in page.read_text()
    assert (tmp_path / "benchmarks" / "small-ranks.png").exists()
