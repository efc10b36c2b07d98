"""Predictions from posterior draws: agreement with the mode, and how many draws they average."""

import warnings

import numpy as np
import pytest

from bsdr_models import DGPLVMClassifier
from bsdr_models.dgplvm import engines
from bsdr_models.dgplvm.map_search import fit_map


def noise():
    """Labels independent of the features, where the confidence is limited."""
    rng = np.random.default_rng(204)
    return rng.standard_normal((24, 100)), np.arange(24) % 3, rng.standard_normal((60, 100))


def classes():
    """Three classes in 20 features."""
    rng = np.random.default_rng(201)
    y = np.arange(130) % 3
    X = rng.standard_normal((130, 20))
    X[np.arange(130), y] += 1.5
    return X[:30], y[:30], X[30:]


def fitted(make):
    X, y, new = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DGPLVMClassifier().fit(X, y)
    mode = fit_map(model._problem, np.random.default_rng(0))
    return model, mode, model._samples(new)


def average(model, mode, latents):
    return engines.draws_posterior(latents, mode, model._problem)[0]


def moved(mode, n_draws, size):
    rng = np.random.default_rng(0)
    return mode.latent + size * rng.standard_normal((n_draws, *mode.latent.shape))


@pytest.mark.parametrize("make", [noise, classes])
def test_draws_at_the_mode_predict_as_the_mode(make):
    """With its kernel, and with its limit of confidence where classes are not predictable."""
    model, mode, new = fitted(make)
    got = average(model, mode, np.stack([mode.latent] * 3))
    expected = model._posterior
    np.testing.assert_allclose(got.log_probabilities(new), expected.log_probabilities(new))
    np.testing.assert_allclose(
        got.draws[0].classifier.left_out, expected.draws[0].classifier.left_out
    )


@pytest.mark.slow
def test_two_hundred_draws_are_enough(monkeypatch):
    """The probabilities are those of twice as many within .01."""
    model, mode, new = fitted(classes)
    latents = moved(mode, 400, 1.0)
    some = average(model, mode, latents)
    monkeypatch.setattr(engines, "N_DRAWS", 400)
    all_draws = average(model, mode, latents)
    assert (len(some.draws), len(all_draws.draws)) == (200, 400)
    error = np.exp(some.log_probabilities(new)) - np.exp(all_draws.log_probabilities(new))
    assert np.sqrt(np.mean(error**2)) < 0.01
    assert np.abs(error).max() < 0.05
