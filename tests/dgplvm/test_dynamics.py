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


def circle(n, turn=0.3, noise=0.02, seed=0):
    """Latent coordinates on a circle, of unit variance along both axes."""
    angle = turn * np.arange(n)
    points = math.sqrt(2.0) * np.column_stack([np.cos(angle), np.sin(angle)])
    return points + noise * rng_of(9, seed).standard_normal((n, 2))


# ------------------------------------------------------------------------------- transitions


def test_transitions_stay_within_a_sequence():
    found = Dynamics.of(SEQUENCE)
    assert found.before.tolist() == BEFORE
    assert found.after.tolist() == AFTER


def test_invalid_sequences_raise():
    with pytest.raises(ValueError, match="no transition"):
        Dynamics.of([3, 1, 2])
    with pytest.raises(ValueError, match=r"shape \(N,\)"):
        Dynamics.of(np.ones((3, 2)))


# ------------------------------------------------------------------------------------- the value


@pytest.mark.parametrize("r", [1, 2, 4])
def test_value_is_a_normal_density_of_the_outputs(r):
    X = rng_of(1, r).standard_normal((len(SEQUENCE), r))
    law = stats.multivariate_normal(np.zeros(len(BEFORE)), covariance(X[BEFORE]))
    expected = -np.sum(law.logpdf(X[AFTER].T))
    assert Dynamics.of(SEQUENCE).evaluate(X, LOG).value == pytest.approx(expected, rel=1e-11)


def test_sequences_are_not_joined():
    """Two sequences on a circle, the second one in reverse."""
    X = np.vstack([circle(12), circle(12)[::-1]])
    apart = Dynamics.of(np.repeat([0, 1], 12))
    joined = Dynamics.of(np.zeros(24))
    assert len(apart.after) == 22
    assert len(joined.after) == 23
    law = stats.multivariate_normal(np.zeros(22), covariance(X[apart.before]))
    found = apart.evaluate(X, LOG)
    assert found.value == pytest.approx(-np.sum(law.logpdf(X[apart.after].T)), rel=1e-11)


# ---------------------------------------------------------------------------------- the gradients


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


def test_value_is_the_product_of_predictive_densities():
    """L_d of a sequence and one more step is L_d of it plus minus the log predictive density."""
    X = rng_of(8).standard_normal((7, 2))
    short = Dynamics.of(np.zeros(6))
    whole = Dynamics.of(np.zeros(7)).evaluate(X, LOG).value
    joint = covariance(X[:6])
    k = np.linalg.solve(joint[:-1, :-1], joint[:-1, -1])
    variance = joint[-1, -1] - k @ joint[:-1, -1]
    step = -stats.norm(k @ X[1:6], math.sqrt(variance)).logpdf(X[6]).sum()
    assert whole == pytest.approx(short.evaluate(X[:6], LOG).value + step, rel=1e-11)
