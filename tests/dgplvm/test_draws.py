"""Predictions from posterior draws: agreement with the mode, and how many draws they average."""

from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.dgplvm import engines
from bsdr_models.dgplvm.left_out import in_metric
from bsdr_models.dgplvm.map_search import fit_map
from bsdr_models.dgplvm.problem import DGPLVMProblem


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


@pytest.fixture
def fitted(training_of):
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
    ("make", "groups"), [(noise, None), (classes, None), (classes, np.arange(30) // 2)]
)
def test_draws_at_the_mode_predict_as_the_mode(fitted, make, groups):
    """With its kernel, and with its limit of confidence where classes are not predictable."""
    task, mode, new = fitted(make, groups)
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
def test_two_hundred_draws_are_enough(fitted, monkeypatch):
    """The probabilities are those of twice as many within .01."""
    task, mode, new = fitted(classes)
    latents = moved(mode, 400, 1.0)
    some = engines.draws_posterior(latents, mode, task)[0]
    monkeypatch.setattr(engines, "N_DRAWS", 400)
    all_draws = engines.draws_posterior(latents, mode, task)[0]
    assert (len(some.draws), len(all_draws.draws)) == (200, 400)
    error = np.exp(some.log_probabilities(new)) - np.exp(all_draws.log_probabilities(new))
    assert np.sqrt(np.mean(error**2)) < 0.01
    assert np.abs(error).max() < 0.05
