"""The example of a fourth model: its mathematics, and what it gets from the package."""

import warnings

import class_means
import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_wine
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

from bsdr_models import StackedClassifier, cross_validated_map, diagnose, plots

X, y = load_wine(return_X_y=True)
TRAIN = slice(None, None, 3)


@pytest.fixture(scope="module")
def model():
    return class_means.ClassMeansClassifier(random_state=0).fit(X[TRAIN], y[TRAIN])


def scaled(model, samples):
    return (samples - model.mean_) / model.scale_


def test_the_posterior_has_the_density_of_the_pymc_model(model):
    posterior = model._posterior
    samples = scaled(model, X[TRAIN])
    declared = class_means.build_model(samples, y[TRAIN], posterior.within, posterior.spread)
    log_density = declared.compile_logp()
    rng = np.random.default_rng(0)
    differences = []
    for _ in range(4):
        mean = posterior.mean + rng.standard_normal(posterior.mean.shape)
        own = norm.logpdf(mean, posterior.mean, posterior.sd).sum()
        differences.append(float(log_density({"class_mean": mean})) - own)
    np.testing.assert_allclose(differences, differences[0], rtol=1e-9)


def test_the_evidence_is_that_of_the_averages(model):
    """By the joint normal density of all averages, and the best spread by a grid."""
    posterior = model._posterior
    samples = scaled(model, X[TRAIN])
    averages = np.stack([samples[y[TRAIN] == k].mean(axis=0) for k in range(3)]) / posterior.within
    count = np.bincount(y[TRAIN])

    def evidence(spread):
        own = zip(averages, count, strict=True)
        cov = np.eye(averages.shape[1])
        return sum(
            multivariate_normal.logpdf(each, cov=(spread + 1.0 / n) * cov) for each, n in own
        )

    assert posterior.log_evidence == pytest.approx(evidence(posterior.spread), rel=1e-9)
    grid = posterior.spread * np.exp(np.linspace(-1.0, 1.0, 21))
    assert max(map(evidence, grid)) <= posterior.log_evidence + 1e-6


def test_scores_are_log_densities(model):
    posterior = model._posterior
    samples = scaled(model, X)
    of_classes = [
        norm.logpdf(samples, mean, posterior.within).sum(axis=1) for mean in posterior.mean
    ]
    expected = np.stack(of_classes, axis=1) + posterior.log_frequency
    difference = posterior.scores(samples) - expected
    np.testing.assert_allclose(difference, difference[:, :1] * np.ones(3), atol=1e-8)


def test_latent_coordinates_hold_all_that_the_features_tell(model):
    at = model._log_proba_at(model.transform(X))
    np.testing.assert_allclose(at, model.predict_log_proba(X), atol=1e-9)


def test_it_predicts_as_well_as_it_says(model):
    p = model.predict_proba(np.delete(X, np.arange(len(X))[TRAIN], axis=0))
    loss = log_loss(np.delete(y, np.arange(len(X))[TRAIN]), p)
    assert loss < 0.15
    assert abs(loss + model.held_out_score_) < 0.1


def test_noise_is_told_to_be_noise():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="no evidence"):
        class_means.ClassMeansClassifier(random_state=0).fit(
            rng.standard_normal((60, 8)), np.arange(60) % 3
        )


def test_it_has_what_all_models_have(model):
    assert "class_mean" in model.idata_["posterior"]
    assert diagnose(model.idata_) is not None
    plots.plot_map(model.predict_idata(X, y))
    plots.plot_features(model.idata_)
    assert model.coef_.shape == (3, 13)
    estimator = class_means.ClassMeansClassifier(random_state=0)
    assert cross_val_score(estimator, X[TRAIN], y[TRAIN], cv=3).mean() > 0.9
    with warnings.catch_warnings(action="ignore"):
        assert cross_validated_map(estimator, X[TRAIN], y[TRAIN], cv=3) is not None
    stack = StackedClassifier([("means", estimator)], random_state=0).fit(X[TRAIN], y[TRAIN])
    assert stack.score(X, y) > 0.9
