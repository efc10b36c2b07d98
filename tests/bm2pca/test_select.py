"""Choice of settings by held-out samples: weights of costs, the best candidate, temperature."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import log_expit, log_softmax, logsumexp, softmax
from scipy.stats import norm
from sklearn.metrics import log_loss

from bsdr_models import BM2PCAClassifier, HingeLoss
from bsdr_models.bm2pca import engines as default_engines
from bsdr_models.bm2pca.engines import LOG_T, OF_FOLD, Settings, Task
from bsdr_models.bm2pca.posterior import LAPSE, link_of
from bsdr_models.bm2pca.problem import Problem
from bsdr_models.data.training import Training
from bsdr_models.estimators.calibration import POWER, Calibration, judge
from bsdr_models.learned_metric.weights import SHARPNESS, MetricWeights
from bsdr_models.papers.bm2pca import engines, select
from bsdr_models.papers.bm2pca.select import choose_best, cross_validate


def make_training(X, y, n_classes, metric=None):
    rng = np.random.default_rng(0)
    return Training.of(X, y, n_classes, np.ones(X.shape[1]), metric=metric, rng=rng)


def judged_by(scores, y, fold, exclusive=True):
    """Selection from class scores (G, N, K); the features have no part in it."""
    X = np.random.default_rng(1).standard_normal((len(y), 2))
    n_classes = y.max() + 1 if exclusive else y.shape[1]
    return choose_best(scores, fold, exclusive, make_training(X, y, n_classes))


def known_log_p(scores, y, lapse):
    """Log probabilities of the known labels, from class scores at a temperature of one."""
    if y.ndim == 1:
        both = scores if scores.shape[1] > 1 else np.column_stack([0.0 * scores, scores])
        log_p = log_softmax(both, axis=1)[np.arange(len(y)), y]
        k = both.shape[1]
    else:
        log_p = log_expit(np.where(y == 1, scores, -scores))[y >= 0]
        k = 2
    return np.log((1.0 - lapse) * np.exp(log_p) + lapse / k)


def root_mean_square(scores):
    """Of class scores (..., K) about the mean of the classes, of which the first may have none."""
    if scores.shape[-1] == 1:
        scores = np.concatenate([0.0 * scores, scores], axis=-1)
    return np.sqrt(np.mean((scores - scores.mean(axis=-1, keepdims=True)) ** 2))


def by_temperature(scores, y, size, *, power, lapse):
    """Log evidence and mean of log T, by a fine grid; log T / size is normal a priori."""
    grid = LOG_T.mean + LOG_T.sd * np.linspace(-4.0, 4.0, 1001)
    log_prior = norm.logpdf(grid, LOG_T.mean, LOG_T.sd)
    log_prior -= logsumexp(log_prior)
    values = [known_log_p(scores / (size * np.exp(t)), y, lapse).sum() for t in grid]
    log_w = log_prior + power * np.array(values)
    return logsumexp(log_w), np.log(size) + softmax(log_w) @ grid


# ------------------------------------------------------------------------------- the best one


def classes(n=60, k=4, seed=0):
    """Informative class scores of two candidates, and their classes."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return y, rng.standard_normal((2, n, k)) + 2.0 * np.eye(k)[y]


@pytest.mark.parametrize("k", [2, 4])
def test_the_best_candidate_has_the_smallest_held_out_loss(k):
    """Each at its own size of the scores; temperatures are integrated out."""
    y, scores = classes(k=k)
    scores[0] += np.random.default_rng(3).standard_normal(scores[0].shape)
    scores[0] *= 30.0
    if k == 2:
        scores = scores[:, :, 1:] - scores[:, :, :1]
    found = judged_by(scores, y, np.arange(60) // 12)
    expected = [
        -by_temperature(own, y, root_mean_square(own), power=1.0, lapse=0.0)[0] / 60
        for own in scores
    ]
    np.testing.assert_allclose(found.log_loss, expected, rtol=1e-3)
    assert found.best == 1


@pytest.mark.parametrize("k", [2, 4])
def test_temperature_is_in_units_of_class_scores(k):
    """The mean of log T under the power of the likelihood, whatever the size of the scores."""
    y, scores = classes(k=k)
    scores = scores[:1]
    if k == 2:
        scores = scores[:, :, 1:] - scores[:, :, :1]
    fold = np.arange(60) // 12
    found = judged_by(scores, y, fold).judged
    size = root_mean_square(scores[0])
    _, log_t = by_temperature(scores[0], y, size, power=POWER, lapse=0.0)
    assert np.log(found.calibration.temperature) == pytest.approx(log_t, abs=1e-3)
    larger = judged_by(7.0 * scores, y, fold).judged
    ratio = larger.calibration.temperature / found.calibration.temperature
    assert ratio == pytest.approx(7.0, rel=1e-9)
    np.testing.assert_allclose(larger.log_p, found.log_p, rtol=1e-9)


def test_selection_prefers_log_loss_to_accuracy():
    """One candidate has large errors; the other has twice as many small ones."""
    y = np.repeat([0, 1], 50)
    sure = np.where(y == 0, 1.0, -1.0)[:, None] * [1.0, -1.0]
    wrong = sure.copy()
    wrong[::10] *= -8.0
    narrow = sure.copy()
    narrow[::5] *= -0.05
    scores = np.stack([wrong, narrow])
    accuracy = (scores.argmax(axis=2) == y).mean(axis=1)
    assert accuracy[0] > accuracy[1]
    assert judged_by(scores, y, np.arange(100) % 5).best == 1


def test_predictions_of_a_fold_do_not_know_its_labels():
    """Temperature and signal are those of the other folds; frequencies are of all."""
    y, scores = classes()
    fold = np.arange(60) // 12
    out = fold == 2
    other = np.where(out, np.roll(y, 1), y)  # as many of each class
    assert (np.bincount(other) == np.bincount(y)).all()
    plain, changed = (judged_by(scores[:1], own, fold).judged for own in (y, other))
    np.testing.assert_allclose(changed.log_p[out], plain.log_p[out], rtol=1e-12)
    assert np.abs(changed.log_p[~out] - plain.log_p[~out]).max() > 1e-3
    assert changed.score.score < plain.score.score


def test_the_candidate_of_a_fold_is_that_of_the_other_folds():
    """One candidate is right in one fold only, the other one everywhere else."""
    y, _ = classes()
    fold = np.arange(60) // 12
    right, wrong = np.eye(4)[y], np.eye(4)[(y + 1) % 4]
    out = (fold == 2)[:, None]
    found = judged_by(np.stack([np.where(out, right, wrong), np.where(out, wrong, right)]), y, fold)
    assert found.best == 1
    np.testing.assert_array_equal(found.judged.log_p.argmax(axis=1) == y, fold != 2)


def test_held_out_score_of_noise_is_that_of_no_features():
    """Of the best of twelve candidates, whose probabilities are near the class frequencies."""
    gains, signals, away = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = rng.standard_normal((12, 40, 1))
        found = judged_by(scores, np.tile([0, 1], 20), np.arange(40) // 8).judged
        gains.append(found.score.score + np.log(2.0))
        signals.append(found.calibration.signal)
        away.append(np.abs(np.exp(found.log_p) - 0.5).mean())
    assert abs(np.mean(gains)) < 0.03
    assert np.median(signals) < 0.5
    assert np.mean(away) < 0.1


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
    found = judged_by(scores, y, np.arange(4000) % 5)
    own = scores[found.best]
    _, log_t = by_temperature(own, y, root_mean_square(own), power=POWER, lapse=0.0)
    expected = known_log_p(own / np.exp(log_t), y, 0.0).mean()
    # Nodes of log T are 0.15 apart.
    assert np.log(found.judged.calibration.temperature) == pytest.approx(log_t, abs=0.075)
    assert found.judged.calibration.signal == pytest.approx(1.0, abs=1e-9)
    assert found.judged.score.score == pytest.approx(expected, abs=3e-3)


def test_missing_labels_are_ignored():
    rng = np.random.default_rng(2)
    y = rng.choice([-1, 0, 1], (50, 3))
    scores = rng.standard_normal((2, 50, 3)) + np.where(y < 0, 0, 2 * y - 1)
    fold = np.arange(50) % 5
    found = judged_by(scores, y, fold, exclusive=False)
    again = judged_by(np.where(y < 0, -scores, scores), y, fold, exclusive=False)
    np.testing.assert_allclose(again.log_loss, found.log_loss, rtol=1e-12)
    assert again.judged.score == found.judged.score
    # A label has one score, of its value 1 against its value 0.
    expected = [
        -by_temperature(own, y, root_mean_square(own[:, :, None]), power=1.0, lapse=0.0)[0] / 50
        for own in scores
    ]
    np.testing.assert_allclose(found.log_loss, expected, rtol=1e-3)


def test_one_wrong_sample_far_from_the_boundary_does_not_decide_the_temperature():
    """With a probability that a class is random."""
    y, scores = classes(n=40)
    scores = scores[0] + 4.0 * np.eye(4)[y]
    far = scores.copy()
    far[0] = 30.0 * np.eye(4)[(y[0] + 1) % 4]

    def temperature(values, lapse):
        return judge(
            [values], y, [np.arange(40) % 5], link_of(True, lapse), LOG_T
        ).calibration.temperature

    robust, plain = (temperature(far, own) / temperature(scores, own) for own in (LAPSE, 0.0))
    assert robust < 1.2 < 1.7 < plain


# ------------------------------------------------------------------------------- folds


def wide_samples(n=18):
    """Three classes in thirty features."""
    rng = np.random.default_rng(3)
    y = np.arange(n) % 3
    return rng.standard_normal((n, 30)) + 2.0 * rng.standard_normal((3, 30))[y], y


def wide_problem(strategy):
    X, y = wide_samples()
    Y = 2.0 * np.eye(3)[y] - 1.0
    return Problem(X=X, Y=Y, n_components=2, strategy=strategy, exclusive=True), y


def test_training_and_test_sets_are_disjoint():
    """Every sample is held out once; scores are those of the fold that it is in."""
    task, y = wide_problem("shared")
    seen = []

    def path_scores(part, X, candidates, rng):
        both = np.concatenate([part.X, X])
        assert len(np.unique(both, axis=0)) == len(both) == 18
        seen.append(X)
        return 2.0 * X[None, :, :3]

    training = make_training(task.X, y, 3)
    found = cross_validate(task, training, path_scores, [{}], rng=np.random.default_rng(0))
    seen = np.concatenate(seen)
    order = np.argmax(np.all(seen[:, None] == task.X, axis=2), axis=1)
    np.testing.assert_array_equal(np.sort(order), np.arange(18))
    expected = choose_best(2.0 * task.X[None, :, :3], training.divisions[0], True, training)
    np.testing.assert_array_equal(found.log_loss, expected.log_loss)
    np.testing.assert_array_equal(found.judged.log_p, expected.judged.log_p)


def test_folds_are_skipped_after_enough_samples(monkeypatch):
    """Six of eighteen samples suffice: two folds of three or four."""
    monkeypatch.setattr(select, "ENOUGH_SAMPLES", 6)
    task, y = wide_problem("shared")
    training = make_training(task.X, y, 3)
    found = cross_validate(
        task, training, lambda part, X, *_: X[None, :, :3], [{}], rng=np.random.default_rng(0)
    )
    held_out = ~np.isnan(found.judged.log_p).any(axis=1)
    np.testing.assert_array_equal(held_out, np.isin(training.divisions[0], [0, 1]))


def test_held_out_values_are_those_of_their_samples(monkeypatch):
    """Of some of the samples, if there are many."""
    monkeypatch.setattr(default_engines, "MOST_SAMPLES", 30)
    X, y = wide_samples(60)
    model = BM2PCAClassifier(random_state=0).fit(X, y)
    log_p = model.held_out_log_proba_
    kept = ~np.isnan(log_p).any(axis=1)
    assert kept.sum() == 30
    assert (log_p.argmax(axis=1)[kept] == y[kept]).mean() > 0.9


# ------------------------------------------------------------------------------- costs


def test_a_given_cost_is_the_only_candidate():
    X, y = wide_samples(60)
    model = BM2PCAClassifier(loss=HingeLoss(C=2.0), random_state=0).fit(X, y)
    assert model.cv_results_["candidates"] == [{"C": 2.0}]
    np.testing.assert_array_equal(model.cv_results_["weight"], [1.0])
    assert model.C_ == 2.0


def overlapping():
    """Training samples of three classes that overlap, and settings of their fits."""
    rng = np.random.default_rng(5)
    y = np.arange(60) % 3
    X = rng.standard_normal((60, 6)) + 1.5 * np.eye(3)[y] @ rng.standard_normal((3, 6))
    settings = Settings(n_components=2, multiclass=True, exclusive=True)
    return make_training(X, y, 3, metric="auto"), settings


def fitted_scores(training, settings, cost):
    """Held-out class scores of each division, by a fit without each fold."""
    every = [np.full((len(training.keys), 3), np.nan) for _ in training.divisions]
    for fold in training.folds():
        task = Task.of(training, settings, fold)
        out = training.out(fold)
        state = task.fit(cost, tol=1e-12, max_iter=5000).posterior
        every[fold[0]][out] = state.scores(task.metric.whiten(training.X[out]))
    return every


def test_weights_of_costs_are_powers_of_the_held_out_likelihood(monkeypatch):
    """Class scores of all costs have one unit, and log scores are means over the divisions."""
    monkeypatch.setitem(OF_FOLD, "tol", 1e-12)
    monkeypatch.setitem(OF_FOLD, "max_iter", 5000)
    training, settings = overlapping()
    costs = (1.0, 3.0, 0.3)
    found = default_engines.select(training, settings, costs)
    scores = [fitted_scores(training, settings, cost) for cost in costs]
    assert len(scores[0]) == 2
    size = root_mean_square(np.array(scores))
    grid = LOG_T.mean + LOG_T.sd * np.linspace(-4.0, 4.0, 1001)
    log_prior = norm.logpdf(grid, LOG_T.mean, LOG_T.sd)
    log_prior -= logsumexp(log_prior)
    evidence = []
    for own in scores:
        at = [np.exp(t) * size for t in grid]
        values = [
            np.mean([known_log_p(part / t, training.classes, LAPSE).sum() for part in own])
            for t in at
        ]
        evidence.append(logsumexp(log_prior + np.array(values)))
    np.testing.assert_allclose(found.log_loss, -np.array(evidence) / 60, rtol=1e-3)
    weight = softmax(SHARPNESS * np.array(evidence))
    np.testing.assert_allclose(found.weight, weight, rtol=0.01)
    assert np.log(found.cost) == pytest.approx(weight @ np.log(costs), abs=0.01)
    assert weight.max() < 0.9  # no cost is alone


# ------------------------------------------------------------------------------- paths

TRAIN, TEST = np.arange(12), np.arange(12, 18)


@pytest.mark.parametrize("cost", [10.0, 40.0])
@pytest.mark.parametrize("strategy", ["shared", "one_vs_rest"])
def test_path_scores_are_those_of_single_fits(strategy, cost):
    task, sweeps = wide_problem(strategy)[0], (1, 3, 4)
    # The random stream of the first restart; some initial values are random.
    (rng,) = np.random.default_rng(0).spawn(1)
    settings = [{"C": cost, "n_sweeps": each} for each in sweeps]
    path = engines.path_scores_of_sweeps(task.subset(TRAIN), task.X[TEST], settings, rng)
    for scores, n in zip(path, sweeps, strict=True):
        stream = np.random.default_rng(0)
        fit = engines.fit_mean_field(task.subset(TRAIN), cost=cost, rng=stream, max_iter=n, tol=0.0)
        np.testing.assert_allclose(scores, fit.posterior.scores(task.X[TEST]), rtol=1e-6)


def third_fold():
    """Training samples, settings, and a fold."""
    X, y = wide_samples()
    training = make_training(X, y, 3, metric="auto")
    settings = Settings(n_components=2, multiclass=False, exclusive=True)
    return training, settings, (0, 2)


def test_scores_of_a_fold_are_those_of_a_fit_without_it():
    training, settings, fold = third_fold()
    out = training.out(fold)
    alone = replace(
        training,
        X=training.X[~out],
        classes=training.classes[~out],
        keys=training.keys[~out],
        divisions=tuple(own[~out] for own in training.divisions),
        weights=MetricWeights(every=training.metric_weights(fold)),
    )
    task = Task.of(training, settings, fold)
    A = task.metric.whiten(training.X[out])
    plain = Task.of(training, settings).metric.whiten(training.X[out])
    assert not np.array_equal(A, plain)
    for cost in (1.0, 10.0):
        calibration = Calibration()
        fit = default_engines.fit_all(Task.of(alone, settings), cost, calibration, max_iter=2000)
        expected = fit.posterior.scores(training.X[out])
        state = task.fit(cost, max_iter=2000).posterior
        np.testing.assert_allclose(state.scores(A), expected, rtol=1e-6)


def test_a_fit_from_that_of_another_cost_has_the_same_scores():
    training, settings, fold = third_fold()
    task = Task.of(training, settings, fold)
    A = task.metric.whiten(training.X[training.out(fold)])
    tight = {"tol": 1e-14, "max_iter": 5000}
    other = task.fit(10.0, **tight).posterior
    got = task.fit(1.0, other, **tight).posterior.scores(A)
    expected = task.fit(1.0, **tight).posterior.scores(A)
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    assert np.abs(other.scores(A) - expected).max() > 0.01
