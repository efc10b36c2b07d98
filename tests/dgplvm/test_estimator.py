"""The public interface of the classifier, its metric and calibration."""

import warnings

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

from bsdr_models import DGPLVMOptimization
from bsdr_models.dgplvm.gp_classifier import LAPSE, fit_gp_classifier
from bsdr_models.papers import PaperDGPLVMClassifier
from bsdr_models.papers.dgplvm import predict


def test_the_common_scale_of_the_paper(wine):
    train, test, y_train, y_test = wine
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the search stopped|.* ended at a bound")
        model = PaperDGPLVMClassifier(standardize=False, random_state=0)
        model.set_params(optimization__max_iter=100).fit(train, y_train)
    assert not model.standardized_
    # With a common scale proline has nearly all of the variance.
    variance = model.idata_["constant_data/X"].values.var(axis=0)
    np.testing.assert_allclose(variance.mean(), 1.0)
    assert variance[12] > 0.9 * variance.sum()
    assert model.score(test, y_test) > 0.6


# ------------------------------------------------------------------------------------ calibration


@pytest.mark.parametrize("random_labels", [False, True])
def test_the_paper_is_calibrated_by_samples_left_out_of_its_classifier(wine, random_labels):
    """Temperature and weight of the model against that of the class frequencies, by sums.

    Without a weight the latent coordinates do not separate random labels.
    """
    X, X_new, y, _ = wine
    options = {"optimization": DGPLVMOptimization(max_iter=60)}
    if random_labels:
        y = np.random.default_rng(1).permutation(y)
        options["weight"] = 1e-6
    with warnings.catch_warnings(action="ignore"):
        model = PaperDGPLVMClassifier(random_state=0, **options).fit(X, y)
    functions, log_odds = fit_gp_classifier(model.latent_, y)

    def probabilities(log_odds, temperature):
        return (1.0 - LAPSE) * softmax(log_odds / temperature, axis=1) + LAPSE / 3.0

    frequency = np.bincount(y) / len(y)
    log_t = np.linspace(-1.5, 2.5, 2001)
    prior = norm.pdf(log_t, 0.5, 0.5)
    truth = np.arange(len(y)), y
    gain = [np.log(probabilities(log_odds, t)[truth] / frequency[y]).sum() for t in np.exp(log_t)]
    weight = prior / prior.sum() * np.exp(0.5 * np.array(gain))
    temperature = np.exp(weight @ log_t / weight.sum())
    signal = 0.8 * weight.sum() / (0.8 * weight.sum() + 0.2)
    assert (signal < 0.9) == random_labels
    assert model.idata_.attrs["temperature"] == pytest.approx(temperature, rel=1e-3)
    assert model.idata_.attrs["signal"] == pytest.approx(signal, rel=1e-3)
    mean, variance = functions.moments(model.transform(X_new))
    z = mean / np.sqrt(1.0 + variance)
    p = probabilities(norm.logcdf(z) - norm.logcdf(-z), temperature)
    expected = signal * p + (1.0 - signal) * frequency
    found = model.predict_proba(X_new)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    scaled = (X_new - model.mean_) / model.scale_
    np.testing.assert_allclose(predict(model.idata_, scaled), found, atol=1e-9)
