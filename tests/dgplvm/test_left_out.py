"""Samples left out of the metric and the mapping: latent coordinates, and settings by them."""

import warnings
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from bsdr_models import DGPLVMClassifier, DGPLVMOptimization
from bsdr_models.dgplvm import engines
from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.left_out import (
    NOISE_PRIOR,
    WIDTH_PRIOR,
    LeftOut,
    in_metric,
    make_parts,
    mean_settings,
    whitened_indicators,
)
from bsdr_models.dgplvm.map_search import fit_map
from bsdr_models.dgplvm.priors import NOISES, WIDTHS, DGPLVMMapping
from bsdr_models.dgplvm.problem import DGPLVMProblem
from bsdr_models.learned_metric.metric import ClassBasis, Metric
from tests.toys import MEAN_VARIANCE, condition, condition_on_others

make = partial(make_mapping, width=2.0, noise=0.05, mean_variance=MEAN_VARIANCE)


def classes(n=45, d=12, seed=0, *, apart=1.5):
    """Three overlapping classes in scaled features, in no order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.standard_normal((n, d))
    X[np.arange(n), y] += apart
    return (X - X.mean(axis=0)) / X.std(axis=0), y


def some_labels(d=12):
    """The same, with two samples without a label, and the only ones of two classes."""
    X, y = classes(d=d)
    y[[2, 30]] = -1
    y[[7, 20]] = 3, 4
    return X, y


def fitted(X, y, groups=None, **options):
    with warnings.catch_warnings(action="ignore", category=UserWarning):
        return DGPLVMClassifier(random_state=0, **options).fit(X, y, groups=groups)


def in_units(X, rest):
    """Samples in the metric of unit variance of the others: their mean squared length is one."""
    X = X - X[rest].mean(axis=0)
    X = X / X[rest].std(axis=0)
    return X / np.sqrt(np.mean(np.sum(X[rest] ** 2, axis=1)))


def in_learned(training, rest, weights):
    """Samples in a metric of such weights that the others determine, (N, D)."""
    X, y = training.X, training.classes
    known = rest & (y >= 0)
    basis = ClassBasis.of(y[known], training.share)
    return Metric.learn(X[known], basis, weights, training.units, every=X[rest]).map(X)


# ------------------------------------------------------------------------------- latent coordinates


@pytest.mark.parametrize("metric", ["unit", "auto"])
@pytest.mark.parametrize("d", [12, 80])
def test_a_part_is_predicted_by_the_mapping_of_the_others(training_of, metric, d):
    """In the distances of a metric that is learned without it."""
    X, y = some_labels(d)
    training = training_of(X, y, metric)
    latent = np.random.default_rng(1).standard_normal((len(X), 2))
    for division, fold in enumerate(training.divisions):
        parts = make_parts(training, division)
        assert len(parts) == fold.max() + 1
        for number, part in enumerate(parts):
            others = fold != number
            if metric == "unit":
                Z = in_units(X, others & (y >= 0))
            else:
                Z = in_learned(training, others, training.weights.without[division][number])
            out, rest = np.flatnonzero(~others), np.flatnonzero(others)
            np.testing.assert_array_equal(part.left_out, out)
            mean, variance = condition(Z, np.where(others, y, -1), latent, rest, out)
            found = part.predict(latent, y, make)
            np.testing.assert_allclose(found[0], mean, atol=1e-7)
            np.testing.assert_allclose(found[1], variance, atol=1e-7)


def test_the_only_samples_of_classes_are_left_out_together_and_unlabelled_ones_never(training_of):
    X, y = some_labels()
    training = training_of(X, y)
    latent = np.random.default_rng(1).standard_normal((len(X), 2))
    parts = make_parts(training, 0)
    in_parts = np.concatenate([part.left_out for part in parts])
    np.testing.assert_array_equal(np.sort(in_parts), np.delete(np.arange(45), [2, 7, 20, 30]))
    Z = in_metric(training.metric(), X)
    found = LeftOut.of(make(Z, centroid_weights(y)), latent, y, parts, make)
    for part in parts:
        mean, variance = part.predict(latent, y, make)
        np.testing.assert_array_equal(found.latent[part.left_out], mean)
        np.testing.assert_array_equal(found.variance[part.left_out], variance)
    np.testing.assert_array_equal(found.latent[[2, 30]], latent[[2, 30]])
    np.testing.assert_array_equal(found.variance[[2, 30]], 0.0)
    mean, variance = condition_on_others(Z, y, latent, [7, 20])
    np.testing.assert_allclose(found.latent[[7, 20]], mean, atol=1e-10)
    np.testing.assert_allclose(found.variance[[7, 20]], variance, atol=1e-10)


def test_samples_of_a_class_that_is_never_held_out_are_left_out_one_by_one(training_of):
    """All samples of one class are in one group."""
    X, y = classes()
    groups = np.where(y == 2, 0, 1 + np.arange(45) // 5)
    training = training_of(X, y, groups=groups)
    never = np.flatnonzero(y == 2)
    np.testing.assert_array_equal(training.divisions[0][never], -1)
    latent = np.random.default_rng(1).standard_normal((45, 2))
    Z = in_metric(training.metric(), X)
    found = LeftOut.of(make(Z, centroid_weights(y)), latent, y, make_parts(training, 0), make)
    for row in never:
        mean, variance = condition_on_others(Z, y, latent, [row])
        np.testing.assert_allclose(found.latent[row], mean[0], atol=1e-10)
        np.testing.assert_allclose(found.variance[row], variance[0], atol=1e-10)


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("d", [12, 80])
def test_left_out_samples_do_not_know_their_labels(training_of, d, grouped):
    """With other labels of one fold its own predictions are the same, and the others are not.

    For given weights of the metrics, and settings of the mapping.
    """
    X, y = classes(d=d)
    training = training_of(X, y, "auto", groups=np.arange(len(X)) // 3 if grouped else None)
    fold = training.divisions[0]
    other = np.where(fold == 1, (y + 1) % 3, y)
    latent = np.random.default_rng(1).standard_normal((len(X), 2))
    found = [
        [part.predict(latent, labels, make) for part in make_parts(own, 0)]
        for own, labels in ((training, y), (replace(training, classes=other), other))
    ]
    for number, pairs in enumerate(zip(*found, strict=True)):
        for before, after in zip(*pairs, strict=True):
            assert (np.abs(before - after).max() == 0.0) == (number == 1)


def test_left_out_samples_are_bounded_by_those_of_the_other_folds(training_of):
    """A feature with one more value in another fold."""
    X, y = classes()
    X = np.column_stack([X, np.zeros(len(X))])
    training = training_of(X, y, "auto")
    fold = training.divisions[0]
    out, rest = np.flatnonzero(fold == 0), np.flatnonzero(fold != 0)
    X[rest[0], -1] = 1.0
    found = []
    largest = X[rest, -1].mean() + X[rest, -1].std() * np.sqrt(len(rest) - 1.0)
    for value in (largest, 1e3):
        X[out[0], -1] = value
        found.append(make_parts(replace(training, X=X.copy()), 0)[0].cross)
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)


@pytest.mark.parametrize("d", [12, 80])
def test_distances_in_the_metric(training_of, d):
    """Between training samples and all others, in fewer coordinates than features if D > N."""
    X, y = classes(d=d)
    metric = training_of(X[:30], y[:30], "auto").metric()
    Z = in_metric(metric, X)
    assert Z.shape == (45, min(d, 29) + 1)
    mapped = metric.map(X)
    np.testing.assert_allclose(cdist(Z, Z[:30]), cdist(mapped, mapped[:30]), atol=1e-6)
    np.testing.assert_allclose(np.mean(np.sum(Z[:30] ** 2, axis=1)), 1.0)


def test_variance_relative_to_that_of_a_typical_sample():
    found = LeftOut(latent=np.zeros((3, 1)), variance=np.array([1.0, 0.0, 3.0]))
    assert found.typical_variance == 2.0
    np.testing.assert_array_equal(found.relative_variance, [0.5, 1.0, 1.5])


def test_scale_of_draws_of_the_mapping_is_recovered():
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 3))
    y = np.arange(400) % 2
    prior = make_mapping(X, centroid_weights(y), width=1.0, noise=0.1, mean_variance=1e-6)
    latent = np.sqrt(3.7) * prior.factor @ rng.standard_normal((400, 1))
    left_out = LeftOut.of(prior, latent, y, (), make)
    # 400 squares, correlated a little: 4 standard errors of a mean of 200 independent ones.
    assert left_out.scale(latent, y) == pytest.approx(3.7, rel=4 * np.sqrt(2 / 200))


# ------------------------------------------------------------------------------------------- groups


def test_groups_of_the_user_are_left_out_together_and_apart(training_of):
    """Parts that are judged have whole groups; single parts are divided as without groups."""
    X, y = classes()
    groups = np.arange(45) // 3
    training = training_of(X, y, "auto", groups=groups)
    for division in range(len(training.divisions)):
        for part in make_parts(training, division):
            assert np.isin(groups[part.left_out], groups[part.rest]).sum() == 0
    single = make_parts(training, None)
    assert any(np.isin(groups[part.left_out], groups[part.rest]).any() for part in single)
    alone = training_of(X, y, "auto").divisions[0]
    latent = np.random.default_rng(1).standard_normal((45, 2))
    for number, part in enumerate(single):
        np.testing.assert_array_equal(part.left_out, np.flatnonzero(alone == number))
        # Their metrics have the weights of all samples.
        Z = in_learned(training, alone != number, training.weights.every)
        mean, variance = condition(
            Z, np.where(alone != number, y, -1), latent, part.rest, part.left_out
        )
        found = part.predict(latent, y, make)
        np.testing.assert_allclose(found[0], mean, atol=1e-7)
        np.testing.assert_allclose(found[1], variance, atol=1e-7)


def test_groups_decide_what_is_judged_and_not_what_the_classifier_is_fitted_to():
    """Of the same metric and mapping; pairs of samples have the same features, but for noise."""
    X, y = classes()
    X = np.concatenate([X, X + 0.01 * np.random.default_rng(2).standard_normal(X.shape)])
    y = np.tile(y, 2)
    options = {"metric": "unit", "mapping": DGPLVMMapping(width=2.0, noise=0.05)}
    alone = fitted(X, y, **options)
    paired = fitted(X, y, groups=np.arange(len(X)) % 45, **options)
    one, two = (model._posterior.draws[0].functions[0] for model in (alone, paired))
    np.testing.assert_allclose(one.weights, two.weights, atol=1e-8)
    assert paired.held_out_score_ < alone.held_out_score_ - 0.1


# -------------------------------------------------------------------------- settings of the mapping


def log_priors(width, noise):
    """Squared distances from the prior medians, in standard deviations."""
    width = (np.log(width) - np.log(2.0)) / WIDTH_PRIOR.log_sd
    noise = (np.log(noise) - np.log(0.03)) / NOISE_PRIOR.log_sd
    return width**2 + noise**2


def geometric_means(losses):
    """Of widths and noises, by their losses: weights are exponentials of half of them."""
    loss = np.array(list(losses.values()))
    weight = np.exp(-0.5 * (loss - loss.min()))
    return np.exp(np.average(np.log(list(losses)), axis=0, weights=weight))


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("distance", [0.3, 1.5])
def test_settings_are_means_by_the_errors_of_left_out_indicators(training_of, distance, grouped):
    """Each part of either division is predicted without it; its error counts once."""
    X, y = classes(40, 5, seed=6, apart=distance)
    training = training_of(X, y, groups=np.arange(40) // 2 if grouped else None)
    assert len(training.divisions) == 2
    share = 0.6 if grouped else 1.0
    codes = whitened_indicators(y)
    losses = {}
    for width, noise in product(WIDTHS[::2], NOISES[::2]):
        square = []
        for fold in training.divisions:
            for number in range(fold.max() + 1):
                others = fold != number
                out, rest = np.flatnonzero(~others), np.flatnonzero(others)
                Z = in_units(X, others)
                own = np.where(others, y, -1)
                mean, _ = condition(Z, own, codes, rest, out, width=width, noise=noise)
                square.append((codes[out] - mean) ** 2)
        mean_square = np.concatenate(square).mean()
        losses[width, noise] = 0.5 * share * codes.size * np.log(mean_square)
        losses[width, noise] += 0.5 * log_priors(width, noise)
    parts = [*make_parts(training, 0), *make_parts(training, 1)]
    found = mean_settings(parts, y, WIDTHS[::2], NOISES[::2], n_divisions=2, share=share)
    np.testing.assert_allclose(found, geometric_means(losses), rtol=1e-8)


def test_settings_without_left_out_samples_are_those_of_their_prior():
    losses = {pair: 0.5 * log_priors(*pair) for pair in product(WIDTHS, NOISES)}
    found = mean_settings([], np.arange(3), WIDTHS, NOISES)
    np.testing.assert_allclose(found, geometric_means(losses), rtol=1e-10)


@pytest.mark.parametrize("given", [{"width": 1.3}, {"noise": 0.07}])
def test_a_given_setting_is_kept(given):
    X, y = classes()
    search = DGPLVMOptimization(max_iter=50)
    model = fitted(X, y, mapping=DGPLVMMapping(**given), optimization=search)
    for name, candidates in {"width": WIDTHS, "noise": NOISES}.items():
        found = getattr(model, f"map_{name}_")
        assert found == pytest.approx(given.get(name, found), rel=1e-12)
        assert min(candidates) < found < max(candidates)


# ------------------------------------------------------------------------------------ whole fits


@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes_of_one_sample_each_are_those_of_near_samples(n_classes):
    """Nothing is held out, and nothing is calibrated."""
    rng = np.random.default_rng(7)
    X = 3.0 * rng.standard_normal((n_classes, 6))
    model = fitted(X, np.arange(n_classes))
    assert np.isnan(model.held_out_score_)
    assert model.temperature_ == 1.0
    new = np.repeat(X, 20, axis=0) + 0.5 * rng.standard_normal((20 * n_classes, 6))
    np.testing.assert_array_equal(model.predict(new), np.repeat(np.arange(n_classes), 20))


def test_two_classes_of_one_sample_among_few():
    """Left out one by one, each would look like the others."""
    rng = np.random.default_rng(8)
    y = np.array([0, 1, 2, 2, 2])
    centres = 3.0 * rng.standard_normal((3, 6))
    model = fitted(centres[y] + 0.5 * rng.standard_normal((5, 6)), y)
    new = np.repeat(centres, 20, axis=0) + 0.5 * rng.standard_normal((60, 6))
    assert model.score(new, np.repeat(np.arange(3), 20)) > 0.9


def test_unlabelled_samples_are_in_every_metric():
    """They determine its axes, and are never left out."""
    X, y = classes(n=90, seed=1)
    given = np.where(np.arange(90) < 30, y, -1)
    model = fitted(X, given, unlabeled=-1)
    assert np.isfinite(model.held_out_log_proba_[:30]).all()
    assert np.isnan(model.held_out_log_proba_[30:]).all()
    few = fitted(X[:30], y[:30])
    assert np.abs(model._metric.map(X) - few._metric.map(X)).max() > 1e-6
    assert model.score(X[30:], y[30:]) > 0.6


def test_values_that_no_training_sample_can_have_are_set_to_the_largest():
    """The last feature is zero but in one sample."""
    X, y = classes()
    X = np.column_stack([X, np.where(np.arange(len(X)) == 4, 1e-3, 0.0)])
    model = fitted(X, y)
    largest = X[:, -1].mean() + X[:, -1].std() * np.sqrt(len(X) - 1.0)
    at_bound = X + np.eye(13)[-1] * (largest - X[:, -1:])
    far = X + np.eye(13)[-1] * 1e3
    for method in (model.predict_proba, model.transform):
        np.testing.assert_allclose(method(far), method(at_bound), atol=1e-9)
    assert (model.out_of_range(far) > 0.999).all()
    assert model.out_of_range(at_bound).mean() < 0.9
    tree = model.predict_idata(far)["predictions"]
    np.testing.assert_array_equal(tree["out_of_range"], model.out_of_range(far))


@pytest.mark.parametrize("metric", ["auto", "identity"])
def test_derivatives_of_the_mapping(metric):
    """The mean over training samples, in features of unit variance."""
    X, y = classes(d=6)
    units = np.geomspace(0.1, 10.0, 6)
    model, step = fitted(X * units, y, metric=metric), 1e-4
    for d in range(6):
        moved = [model.transform((X + sign * step * np.eye(6)[d]) * units) for sign in (1, -1)]
        slope = (moved[0] - moved[1]).mean(axis=0) / (2.0 * step)
        np.testing.assert_allclose(model.components_[:, d], slope, atol=1e-5)


# -------------------------------------------------------------------------------------------- draws


def noise():
    """Labels independent of the features, where the confidence is limited."""
    rng = np.random.default_rng(204)
    return rng.standard_normal((24, 100)), np.arange(24) % 3, rng.standard_normal((60, 100))


def few_classes():
    """Three classes in 20 features."""
    X, y = classes(130, 20, seed=201)
    return X[:30], y[:30], X[30:]


@pytest.fixture
def mode_of(training_of):
    """Problem with one division of its samples into folds, its mode, and new samples."""

    def found(make, groups=None):
        X, y, new = make()
        new = (new - X.mean(axis=0)) / X.std(axis=0)
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        training = training_of(X, y, "auto", groups=groups)
        training = replace(training, divisions=training.divisions[:1])
        metric = training.metric()
        task = DGPLVMProblem(X=in_metric(metric, X), y_index=y, n_components=2, training=training)
        return task, fit_map(task, np.random.default_rng(0)), in_metric(metric, new)

    return found


def moved(mode, n_draws, size):
    rng = np.random.default_rng(0)
    return mode.latent + size * rng.standard_normal((n_draws, *mode.latent.shape))


@pytest.mark.parametrize(
    ("make", "groups"), [(noise, None), (few_classes, None), (few_classes, np.arange(30) // 2)]
)
def test_draws_at_the_mode_predict_as_the_mode(mode_of, make, groups):
    """With its kernel, and with its limit of confidence where classes are not predictable."""
    task, mode, new = mode_of(make, groups)
    got, left_out, held_out = engines.draws_posterior(np.stack([mode.latent] * 3), mode, task)
    expected = engines.fit_mode(task, np.random.default_rng(0))
    assert len(got.draws) == 3
    np.testing.assert_allclose(
        got.log_probabilities(new), expected.posterior.log_probabilities(new), rtol=1e-8
    )
    np.testing.assert_allclose(left_out.mean, expected.left_out.mean, atol=1e-10)
    np.testing.assert_allclose(left_out.cov, expected.left_out.cov, atol=1e-10)
    np.testing.assert_allclose(
        held_out["held_out_log_proba"], expected.held_out_log_proba, rtol=1e-8
    )


@pytest.mark.slow
def test_two_hundred_draws_are_enough(mode_of, monkeypatch):
    """The probabilities are those of twice as many within .01."""
    task, mode, new = mode_of(few_classes)
    latents = moved(mode, 400, 1.0)
    some = engines.draws_posterior(latents, mode, task)[0]
    monkeypatch.setattr(engines, "N_DRAWS", 400)
    all_draws = engines.draws_posterior(latents, mode, task)[0]
    assert (len(some.draws), len(all_draws.draws)) == (200, 400)
    error = np.exp(some.log_probabilities(new)) - np.exp(all_draws.log_probabilities(new))
    assert np.sqrt(np.mean(error**2)) < 0.01
    assert np.abs(error).max() < 0.05
