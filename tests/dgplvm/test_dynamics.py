"""The dynamical prior against SciPy's normal density, its gradients and its predictions."""

import math

import numpy as np
import pytest
from scipy import stats

from bsdr_models.dgplvm.dynamics import Dynamics

# Three interleaved sequences; the last has one sample and no transition.
SEQUENCE = np.array(["b", "a", "b", "b", "a", "c", "a", "b", "a"])
BEFORE = [1, 4, 6, 0, 2, 3]
AFTER = [4, 6, 8, 2, 3, 7]
LOG = np.log([0.4, 0.8, 0.7, 0.2])


def rng_of(*key):
    return np.random.default_rng([43, *key])


def covariance(start, log_parameters=LOG):
    """K_X entry by entry."""
    s, scale, m, q = np.exp(log_parameters)
    K = np.empty((len(start), len(start)))
    for i, a in enumerate(start):
        for j, b in enumerate(start):
            K[i, j] = s * math.exp(-np.sum((a - b) ** 2) / (2.0 * scale**2)) + m * (a @ b)
    return K + q * np.eye(len(start))


def test_transitions_stay_within_a_sequence():
    found = Dynamics.of(SEQUENCE)
    assert found.before.tolist() == BEFORE
    assert found.after.tolist() == AFTER


@pytest.mark.parametrize("r", [1, 2, 4])
def test_value_is_a_normal_density_of_the_outputs(r):
    X = rng_of(1, r).standard_normal((len(SEQUENCE), r))
    law = stats.multivariate_normal(np.zeros(len(BEFORE)), covariance(X[BEFORE]))
    expected = -np.sum(law.logpdf(X[AFTER].T))
    assert Dynamics.of(SEQUENCE).evaluate(X, LOG).value == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("r", [1, 3])
def test_gradients_are_those_of_differences(r, differences):
    dynamics = Dynamics.of(SEQUENCE)
    X = rng_of(5, r).standard_normal((len(SEQUENCE), r))
    found = dynamics.evaluate(X, LOG)
    by_latent = differences(lambda Z: dynamics.evaluate(Z, LOG).value, X, 2e-3)
    by_log = differences(lambda t: dynamics.evaluate(X, t).value, LOG, 2e-3)
    np.testing.assert_allclose(found.latent, by_latent, atol=1e-8 * np.abs(by_latent).max())
    np.testing.assert_allclose(found.log_parameters, by_log, atol=1e-8 * np.abs(by_log).max())
    assert not found.latent[SEQUENCE == "c"].any()
