"""The programme behind the pages of benchmarks: lines, keys, scores, tables, pictures."""

import json
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from benchmarks import (
    accuracy,
    datasets,
    fingerprint,
    maps,
    model_choice,
    people,
    report,
    rows,
    simulated,
)
from benchmarks.methods import METHODS, tempered
from benchmarks.methods.base import inner_folds
from benchmarks.protocols import PROTOCOLS, REPORTING_SEEDS, TUNING_SEEDS
from benchmarks.tables import TABLES, Task
from bsdr_models import PredictionPlane

WINE = Task(source="wine", scheme="per class", sizes=(10,), n_components=2)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_asks_for_what_is_there(name):
    table = TABLES[name]
    assert set(table.methods) <= set(METHODS)
    assert len(set(table.tasks)) == len(table.tasks)
    for task in table.tasks:
        assert task.scheme in PROTOCOLS
        known = datasets.SETS.keys() | simulated.DESIGNS.keys() | simulated.GROUPED.keys()
        assert task.source in known or task.scheme == "noise"
        if table.curve:
            assert rows.place(table, task, table.methods[0]) is not None


def test_roles_of_seeds_do_not_overlap():
    assert not set(TUNING_SEEDS) & set(REPORTING_SEEDS)
    for table in TABLES.values():
        assert set(range(*table.seeds)) <= set(REPORTING_SEEDS)
    stored = {line["key"]["seed"] for line in accuracy.read(report.LINES)}
    assert stored
    assert stored <= set(REPORTING_SEEDS)


def test_rows_are_either_for_training_or_for_the_test():
    X, _ = datasets.load("wine")
    split = WINE.split(3)
    both = np.concatenate([split.X_train, split.X_test])
    assert np.bincount(split.y_train).tolist() == [10, 10, 10]
    np.testing.assert_array_equal(np.sort(both, axis=0), np.sort(X, axis=0))


def test_grouped_samples_of_the_test_are_of_groups_that_are_not_known():
    """Within groups samples are alike, and folds hold out whole groups if these are given."""
    for task in TABLES["groups"].tasks:
        split = task.split(3)
        if task.scheme == "groups unknown":
            assert split.training.groups is None
            continue
        groups = split.training.groups
        n_groups, n_samples = task.sizes
        np.testing.assert_array_equal(np.bincount(groups), [n_samples] * n_groups)
        means = np.stack([split.X_train[groups == g].mean(axis=0) for g in range(n_groups)])
        assert means.var(axis=0).mean() > (split.X_train - means[groups]).var(axis=0).mean()
        folds = inner_folds(split.training, 0)
        assert len(folds) > 1
        for train, test in folds:
            assert not set(groups[train]) & set(groups[test])


@pytest.mark.parametrize("name", simulated.DESIGNS)
def test_a_design_has_fresh_samples_of_the_same_classes_for_the_test(name):
    (task,) = [task for task in TABLES["designs"].tasks if task.source == name]
    split = task.split(3)
    assert np.bincount(split.y_train).tolist() == [10] * 4
    assert np.bincount(split.y_test).tolist() == [300] * 4
    again = task.split(3)
    np.testing.assert_array_equal(split.X_train, again.X_train)
    assert not np.array_equal(split.X_train, task.split(4).X_train)
    shared = split.X_train[split.y_train == 0].mean(axis=0)
    spread = split.X_test.std(axis=0)
    away = np.abs((split.X_test[split.y_test == 0].mean(axis=0) - shared) / spread)
    assert np.median(away) < 0.5


def test_a_run_resumes_after_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "lines.jsonl"
    wanted = (["engines"], range(300, 301), ["full LDA"], path)
    jobs = accuracy.missing(*wanted)
    assert len(jobs) == len(TABLES["engines"].tasks)
    accuracy.run(jobs, path)
    assert accuracy.missing(*wanted) == []
    path.write_text(path.read_text()[:-40])
    assert len(accuracy.missing(*wanted)) == 1
    again = accuracy.read(path)
    assert {line["by"] for line in again} == {fingerprint.version()}
    assert all(0.3 < line["result"]["accuracy"] <= 1.0 for line in again)


def test_a_fit_that_raises_is_a_line_that_says_so(tmp_path, monkeypatch):
    def broken(task, method, seed):
        raise RuntimeError("out of luck")

    monkeypatch.setattr(accuracy, "evaluate", broken)
    path = tmp_path / "lines.jsonl"
    accuracy.run([(WINE, "PCA", 0)], path)
    (line,) = accuracy.read(path)
    assert line["result"] == {"failed": "RuntimeError: out of luck"}


def test_a_method_that_does_not_exist_somewhere_says_why():
    task = Task(source="breast cancer", scheme="halves", sizes=(), n_components=2)
    assert accuracy.evaluate(task, "LDA + k-NN", 300) == {"skipped": "no more than 1 discriminants"}


@pytest.mark.slow
def test_a_result_has_scores_and_costs():
    found = accuracy.evaluate(WINE, "PCA", 0)
    assert {"accuracy", "log_loss", "brier", "ece", "map", "mib"} <= set(found)
    json.dumps(found)


def test_one_fit_serves_all_components_of_a_method_that_sees_all_features(tmp_path):
    jobs = accuracy.missing(["people"], range(300, 301), ["naive Bayes"], tmp_path / "none")
    available = {task.source for task in TABLES["people"].tasks if not task.why_not}
    assert sorted(task.source for task, _, _ in jobs) == sorted(available)
    found = [{"task": jobs[0][0], "method": "naive Bayes", "seed": 300, "accuracy": 0.5}]
    assert rows.of(found, replace(jobs[0][0], n_components=5), "naive Bayes") == found


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
    found = accuracy.mean_average_precision(queries, y, database, y_database)
    assert found == pytest.approx(np.mean(expected), rel=1e-12)


def test_mean_ranks_and_their_intervals():
    """Method 0 is always first; ties share a rank."""
    losses = np.array([[0.1, 0.2, 0.3], [0.1, 0.4, 0.3], [0.1, 0.2, 0.2]])
    first, second, third = people.mean_ranks(losses)
    assert (first.mean, first.low, first.high) == (1.0, 1.0, 1.0)
    assert second.mean == third.mean == 2.5
    assert 2.0 <= second.low < second.mean < second.high <= 3.0


def test_a_single_split_has_no_interval():
    assert str(people.paired(np.array([0.1]))) == "+0.100"
    assert str(people.paired(np.array([0.1, 0.2]))).startswith("+0.150 [-0.485, ")


def test_maps_are_scored_by_what_is_drawn():
    """Clusters are read by both; on a ring within another neighbours read what a line cannot."""
    rng, y = np.random.default_rng(0), np.arange(200) % 2
    angle = rng.uniform(0.0, 2.0 * np.pi, 200)
    rings = (1.0 + y[:, None]) * np.column_stack([np.cos(angle), np.sin(angle)])
    clusters = rng.standard_normal((200, 2)) + 8.0 * y[:, None]
    found = maps.scores(clusters, y)
    assert found["neighbours"] == found["linear"] == 1.0
    assert found["linear_ece"] < 0.01
    found = maps.scores(rings, y)
    assert found["neighbours"] > 0.95
    assert found["linear"] < 0.7


def test_maps_that_differ_by_rotation_and_scale_are_the_same():
    rng = np.random.default_rng(0)
    first, noise = rng.standard_normal((2, 50, 2))
    turned = 3.0 * first[:, ::-1] + 1.0
    assert maps.change(first, turned) == pytest.approx(0.0, abs=1e-7)
    assert 0.05 < maps.change(first, turned + 0.3 * noise) < maps.change(first, turned + noise) < 1


@pytest.mark.slow
def test_changes_with_the_seed_are_those_of_the_first_reported_split():
    """A projection without randomness is the same; other splits have one fit."""
    first = accuracy.evaluate(WINE, "PCA", REPORTING_SEEDS.start)
    assert first["map_changed"] == pytest.approx(0.0, abs=1e-7)
    assert 0.0 <= first["labels_changed"] <= first["variation"] <= 0.2
    assert "variation" not in accuracy.evaluate(WINE, "PCA", REPORTING_SEEDS.start + 1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*are constant")
@pytest.mark.filterwarnings("ignore:.* samples are unlike the training samples")
def test_classifiers_and_models_are_drawn_in_the_plane_of_their_predictions():
    """Two coordinates for ten classes, what the first two dimensions are for three."""
    digits = Task(source="digits", scheme="per class", sizes=(5,), n_components=0)
    split = digits.split(0)
    method = METHODS["BM2PCA"]
    fitted = method.fit(split.training, 0, 0)
    probability = fitted.predict(split.X_test)
    at = maps.coordinates(method, fitted, split, 0, probability)
    shown = maps.drawn(split.y_test)
    assert np.bincount(split.y_test[shown]).tolist() == [maps.N_DRAWN] * 10
    np.testing.assert_array_equal(at, PredictionPlane().fit_transform(probability[shown]))
    two = maps.coordinates(method, fitted, split, 2, probability)
    np.testing.assert_array_equal(two, fitted.transform(split.X_test[shown])[:, :2])
    assert maps.coordinates(method, fitted, split, 5, probability) is None


@pytest.mark.slow
def test_the_choice_of_a_model_is_scored_by_new_samples():
    noise = Task(source="noise", scheme="noise", sizes=(24, 3, 2), n_components=0)
    found = model_choice.choose(noise, TUNING_SEEDS[0])
    assert found["recommended"] in found["losses"]
    assert found["losses"]["none"] == pytest.approx(np.log(2.0))
    assert np.isfinite(list(found["losses"].values())).all()
    assert found["seconds"] > 0.0
    assert model_choice.text([found]).startswith("*1 split, recorded by version")


def test_shrunken_centroids_ignore_a_feature_of_noise_that_hardly_varies_within_classes():
    """Divided by its own deviation alone it would decide; whole shrinkage leaves frequencies."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 4)
    X = rng.standard_normal((12, 30))
    X[:, 0] += 4.0 * y
    X[:, 1] = 1e-9 * rng.standard_normal(12) + 1e-3 * np.array([0.0, 1.0, -1.0])[y]
    X[:, 2] = 5.0  # varies in no class
    new = X.copy()
    new[:, 1] = -new[:, 1]
    log_p = tempered.nearest_centroids(X, y, new, threshold=0.0)
    assert (log_p.argmax(axis=1) == y).all()
    frequencies = tempered.nearest_centroids(X, y, new, threshold=1.0)
    np.testing.assert_allclose(frequencies - frequencies[:, :1], 0.0, atol=1e-12)
