"""Cross-validation: folds, selection rule, candidates and path scores."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from bsdr_models.bm2pca.select import (
    N_FOLDS,
    average,
    balanced_folds,
    best_of,
    mean_cost,
    rows_to_hold_out,
    subsample,
)
from scipy.special import expit, softmax
from sklearn.metrics import log_loss

from bsdr_models import BM2PCAClassifier
from bsdr_models.bm2pca import engines as default_engines
from bsdr_models.bm2pca import select
from bsdr_models.bm2pca.estimator import COSTS
from bsdr_models.bm2pca.paper import engines
from bsdr_models.bm2pca.paper.select import choose_best, cross_validate
from bsdr_models.bm2pca.problem import Problem, class_index
from bsdr_models.metric import SHARPNESS
from bsdr_models.numerics.folds import assign_folds


def keys(groups):
    return np.random.default_rng(0).permutation(len(groups))


# ------------------------------------------------------------------------------- folds


def test_five_folds_keep_some_pairs_and_balanced_folds_none():
    """The metric needs two samples of one class; the paper's variant needs equal classes."""
    groups = np.repeat(np.arange(40), 2)
    assert balanced_folds(groups) == 2
    halves = assign_folds(groups, keys(groups), n_folds=2)
    fifths = assign_folds(groups, keys(groups), n_folds=N_FOLDS)
    for number in range(2):
        assert set(np.bincount(groups[halves != number])) == {1}
    for number in range(5):
        assert np.count_nonzero(np.bincount(groups[fifths != number]) == 2) > 10


@pytest.mark.parametrize(
    ("sizes", "expected"), [([1, 1, 1], 2), ([2, 3, 3], 3), ([4, 4, 90], 4), ([50, 60], 5)]
)
def test_as_many_folds_as_the_median_class_has_samples(sizes, expected):
    groups = np.append(np.repeat(np.arange(len(sizes)), sizes), [-1, -1])
    assert balanced_folds(groups) == expected


def test_subsample_is_stratified(monkeypatch):
    monkeypatch.setattr(select, "MAX_SAMPLES", 50)
    groups = np.repeat([0, 1, 2, -1], [400, 96, 4, 7])
    counts = np.bincount(groups[subsample(groups, keys(groups))] + 1)
    assert counts[0] == 7
    assert 50 <= counts[1:].sum() <= 53
    np.testing.assert_allclose(counts[1:], np.array([40.0, 9.6, 0.4]), atol=1.0)
    assert counts[3] == 1
    few = np.repeat([0, 1, -1], [20, 30, 70])
    np.testing.assert_array_equal(subsample(few, keys(few)), np.arange(120))


# ------------------------------------------------------------------------------- selection rule


def classes(n=60, k=4, seed=0):
    """Informative class scores of two candidates, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return y, rng.standard_normal((2, n, k)) + 2.0 * np.eye(k)[y]


def rule(scores, y):
    """Of one task."""
    return best_of(scores, y[:, None], scores.shape[2:])


def test_log_loss_and_accuracy_are_those_of_held_out_samples():
    y, scores = classes()
    scores[1] *= 30.0
    found = rule(scores, y)
    np.testing.assert_allclose(found.accuracy, (scores.argmax(axis=2) == y).mean(axis=1))
    assert found.best == found.log_loss.argmin()
    proba = softmax(scores[found.best] / found.temperature, axis=1)
    assert found.log_loss[found.best] == pytest.approx(log_loss(y, proba), rel=1e-9)


def test_selection_prefers_log_loss_to_accuracy():
    """One candidate has large errors; the other has twice as many small ones."""
    y = np.repeat([0, 1], 50)
    sure = np.where(y == 0, 1.0, -1.0)[:, None] * [1.0, -1.0]
    wrong = sure.copy()
    wrong[::10] *= -8.0
    narrow = sure.copy()
    narrow[::5] *= -0.05
    found = rule(np.stack([wrong, narrow]), y)
    assert found.accuracy[0] > found.accuracy[1]
    assert found.best == 1


def test_two_classes_have_one_score():
    y, scores = classes(k=2)
    margin = scores[:, :, 1:] - scores[:, :, :1]
    found = rule(margin, y)
    proba = expit(margin[found.best, :, 0] / found.temperature)
    assert found.log_loss[found.best] == pytest.approx(log_loss(y, proba), rel=1e-9)
    np.testing.assert_allclose(found.accuracy, ((margin[:, :, 0] > 0) == y).mean(axis=1))


def test_held_out_score_of_noise_is_that_of_no_features():
    """The best of twelve candidates seems to gain; that score hardly does."""
    naive, honest, temperatures = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores, y = rng.standard_normal((12, 40, 1)), np.tile([[0], [1]], (20, 1))
        found = choose_best(scores, y, True, np.arange(40) // 8)
        naive.append(found.log_loss.min())
        honest.append(found.held_out.score)
        temperatures.append(found.temperature)
    gains = [np.mean(honest) + np.log(2.0), np.log(2.0) - np.mean(naive)]
    assert 0.0 <= gains[0] < gains[1] / 2.0
    assert np.median(temperatures) > 10.0


@pytest.mark.slow
def test_held_out_scores_of_weak_classes_are_those_of_new_samples():
    held_out, new = [], []
    for seed in range(200, 210):
        rng = np.random.default_rng(seed)
        y = np.arange(1040) % 2
        X = rng.standard_normal((1040, 3)) + 0.6 * y[:, None] * [1.0, -1.0, 0.0]
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "no evidence that the targets depend on X")
            model = BM2PCAClassifier(random_state=0).fit(X[:40], y[:40])
        held_out.append(model.held_out_score_)
        new.append(-log_loss(y[40:], model.predict_proba(X[40:])))
    assert abs(np.mean(held_out) - np.mean(new)) < 0.1
    assert np.mean(new) > np.log(0.5)


def test_judgement_of_a_clear_choice_is_that_of_all_folds():
    y, scores = classes(n=4000)
    found = choose_best(scores, y[:, None], True, np.arange(4000) % 5)
    plain = rule(scores, y)
    assert found.temperature == pytest.approx(plain.temperature, rel=0.01)
    assert found.held_out.score == pytest.approx(plain.held_out.score, abs=1e-3)
    one_fold = choose_best(scores, y[:, None], True, np.zeros(4000, dtype=int))
    assert one_fold.temperature == plain.temperature


def test_missing_labels_are_ignored():
    rng = np.random.default_rng(2)
    signs = rng.choice([-1.0, 0.0, 1.0], (50, 3))
    scores = rng.standard_normal((2, 50, 3)) + signs
    truth = class_index(signs, False)
    np.testing.assert_array_equal(truth, np.where(signs == 0.0, -1, signs > 0.0))
    found = best_of(scores, truth, False)
    again = best_of(np.where(signs == 0.0, 1e6, scores), truth, False)
    np.testing.assert_allclose(again.log_loss, found.log_loss)
    known = signs != 0.0
    proba = expit(scores[found.best][known] / found.temperature)
    expected = log_loss((signs[known] > 0.0).astype(int), proba)
    assert found.log_loss[found.best] == pytest.approx(expected, rel=1e-9)


def test_training_and_test_sets_are_disjoint():
    """Every sample is held out once; scores are those of the fold that it is in."""
    task, seen = wide_task("shared"), []
    groups = np.arange(18) % 3

    def path_scores(part, X, candidates, rng):
        assert len(part.X) + len(X) == 18
        both = np.concatenate([part.X, X])
        assert len(np.unique(both, axis=0)) == 18
        seen.append(X)
        return 2.0 * X[None, :, :3]

    split = select.split(task.X, groups, balanced=False)
    found = cross_validate(task, split, path_scores, [{}], rng=np.random.default_rng(0))
    seen = np.concatenate(seen)
    order = np.argmax(np.all(seen[:, None] == task.X, axis=2), axis=1)
    np.testing.assert_array_equal(np.sort(order), np.arange(18))
    expected = best_of(2.0 * seen[None, :, :3], groups[order, None], True)
    np.testing.assert_array_equal(found.log_loss, expected.log_loss)


def test_folds_are_skipped_after_enough_samples(monkeypatch):
    monkeypatch.setattr(select, "ENOUGH_SAMPLES", 20)
    y, _ = classes()
    rows = rows_to_hold_out(np.arange(60) % 5, y)
    assert [len(each) for each in rows] == [12, 12]


def test_held_out_values_are_spread_to_their_samples(monkeypatch):
    monkeypatch.setattr(select, "MAX_SAMPLES", 12)
    X, groups = np.arange(20.0)[:, None], np.tile([0, 1], 10)
    split = select.split(X, groups, balanced=False)
    found = split.spread(X[split.index[split.held_out]], 20)
    kept = ~np.isnan(found[:, 0])
    assert kept.sum() == 12
    np.testing.assert_array_equal(found[kept], X[kept])


@pytest.mark.parametrize("k", [1, 4])
def test_probable_temperature_has_the_largest_posterior_density(k):
    y, scores = classes(n=200, k=max(k, 2))
    scores = scores[0] if k > 1 else scores[0][:, 1:] - scores[0][:, :1]
    both = scores if k > 1 else np.column_stack([0.0 * scores, scores])
    spread = np.sqrt(np.mean((both - both.mean(axis=1, keepdims=True)) ** 2))

    def density(log_t):
        p = 0.99 * softmax(both / np.exp(log_t), axis=1) + 0.01 / both.shape[1]
        z = (log_t - np.log(spread) - select.LOG_T) / select.LOG_T_WIDTH
        return np.log(p[np.arange(200), y]).sum() - 0.5 * z**2

    grid = np.linspace(-4.0, 4.0, 4001)
    best = grid[np.argmax([density(each) for each in grid])]
    found = select.probable_temperature(scores, y)
    assert np.log(found) == pytest.approx(best, abs=3e-3)
    assert select.probable_temperature(7.0 * scores, y) == pytest.approx(7.0 * found, rel=1e-4)


def test_one_wrong_sample_far_from_the_boundary_does_not_decide_the_temperature():
    y, scores = classes(n=40)
    scores = scores[0] + 4.0 * np.eye(4)[y]
    far = scores.copy()
    far[0] = 30.0 * np.eye(4)[(y[0] + 1) % 4]
    robust, plain = (
        fit(far, y) / fit(scores, y)
        for fit in (select.probable_temperature, select.fit_temperature)
    )
    assert robust < 1.2 < 1.7 < plain


def test_without_a_signal_the_temperature_has_no_prior():
    rng = np.random.default_rng(1)
    scores, y = rng.standard_normal((400, 3)), np.arange(400) % 3
    assert select.probable_temperature(scores, y) > 4.0
    assert select.probable_temperature(0.0 * scores, y) == 1.0


# ------------------------------------------------------------------------------- candidates


def candidates(n_features, *, multiclass=False, **arguments):
    """Of ten samples."""
    task = SimpleNamespace(X=np.empty((10, n_features)), Y=np.ones((10, 1)), multiclass=multiclass)
    return BM2PCAClassifier().set_params(**arguments)._candidates(task)


def test_costs_are_compared_only_if_they_matter():
    tall, wide = candidates(9), candidates(10)
    assert [each["C"] for each in tall] == list(COSTS)
    assert wide == [{"C": max(COSTS)}]


def test_weights_of_an_average_are_powers_of_the_likelihood():
    y, scores = classes()
    scores[1] += np.random.default_rng(5).standard_normal(scores[1].shape)
    found = average(scores, y[:, None], True)
    assert found.sum() == pytest.approx(1.0)
    loss = rule(scores, y).log_loss
    assert np.log(found[0] / found[1]) == pytest.approx(SHARPNESS * 60 * (loss[1] - loss[0]))
    np.testing.assert_array_equal(average(scores[:, :0], y[:0, None], True), 0.5)
    assert mean_cost((10.0, 0.1), np.array([0.5, 0.5])) == pytest.approx(1.0)


# ------------------------------------------------------------------------------- paths


def wide_task(strategy):
    """Three classes of six samples in thirty features."""
    rng = np.random.default_rng(3)
    y = np.arange(18) % 3
    X = rng.standard_normal((18, 30)) + 2.0 * rng.standard_normal((3, 30))[y]
    return Problem(
        X=X, Y=2.0 * np.eye(3)[y] - 1.0, n_components=2, strategy=strategy, exclusive=True
    )


TRAIN, TEST = np.arange(12), np.arange(12, 18)


@pytest.mark.parametrize("cost", [10.0, 40.0])
@pytest.mark.parametrize("strategy", ["shared", "one_vs_rest"])
def test_path_scores_are_those_of_single_fits(strategy, cost):
    task, sweeps = wide_task(strategy), (1, 3, 4)
    # The random stream of the first restart; some initial values are random.
    (rng,) = np.random.default_rng(0).spawn(1)
    settings = [{"C": cost, "n_sweeps": each} for each in sweeps]
    path = engines.path_scores_of_sweeps(task.subset(TRAIN), task.X[TEST], settings, rng)
    for scores, n in zip(path, sweeps, strict=True):
        stream = np.random.default_rng(0)
        fit = engines.fit_mean_field(task.subset(TRAIN), cost=cost, rng=stream, max_iter=n, tol=0.0)
        np.testing.assert_allclose(scores, fit.posterior.score_means(task.X[TEST]), rtol=1e-6)


def third_fold(strategy, monkeypatch, *, tol, max_iter):
    """A task with a learned metric, its split, and a fold; fits without it have this tolerance."""
    monkeypatch.setattr(select, "PATH_ITER", max_iter)
    monkeypatch.setattr(select, "PATH_TOL", tol)
    task = wide_task(strategy)
    split = select.split(task.X, np.arange(18) % 3, balanced=False)
    task = select.weigh_metric(task, "auto", np.ones(30), split, by_fold=True)
    return task, split, select.HeldOutFold.of(task, split, 2)


@pytest.mark.parametrize("strategy", ["shared", "one_vs_rest"])
def test_scores_of_a_fold_are_those_of_a_fit_without_it(strategy, monkeypatch):
    task, split, fold = third_fold(strategy, monkeypatch, tol=1e-10, max_iter=2000)
    out = split.fold == 2
    alone = replace(task.subset(~out), metric_weights=task.metric_weights[3:])
    for cost in (1.0, 10.0):
        fit = default_engines.fit_problem(alone, cost=cost, max_iter=2000)
        expected = fit.posterior.score_means(task.X[out])
        state = select.fit_fold((fold, cost, None))
        np.testing.assert_allclose(state.scores(fold.held_out), expected, rtol=1e-6)


@pytest.mark.parametrize("strategy", ["shared", "one_vs_rest"])
def test_a_fit_from_that_of_another_cost_has_the_same_scores(strategy, monkeypatch):
    _, _, fold = third_fold(strategy, monkeypatch, tol=1e-14, max_iter=5000)
    other = select.fit_fold((fold, 10.0, None))
    got = select.fit_fold((fold, 1.0, other)).scores(fold.held_out)
    expected = select.fit_fold((fold, 1.0, None)).scores(fold.held_out)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert np.abs(other.scores(fold.held_out) - expected).max() > 0.01
