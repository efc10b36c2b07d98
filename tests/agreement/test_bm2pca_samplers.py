"""Gibbs with slack scales and NUTS on the declared model have one pseudo-posterior.

Labels overlap, and the prior of the weights has more moments than the default: hinges do not bound
the size of the scores.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bsdr_models.papers.bm2pca import SAMPLING, gibbs, mean_field
from bsdr_models.papers.bm2pca.model import declare
from bsdr_models.papers.sampler import sample

N, D, R = 30, 4, 2
C = 1.5
PRIORS = replace(SAMPLING, weight_shape=6.0, weight_rate=6.0)
PARAMETERS = ("loadings", "offset", "noise_precision")


def problem(n_outcomes):
    """Two directions in four features; labels with as much noise as signal."""
    rng = np.random.default_rng([71, n_outcomes])
    Z = rng.standard_normal((N, R))
    X = Z @ rng.standard_normal((R, D)) + 0.6 * rng.standard_normal((N, D))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    signal = Z @ rng.standard_normal((R, n_outcomes))
    y = signal + signal.std() * rng.standard_normal((N, n_outcomes))
    y = np.where(y > 0.0, 1.0, -1.0)
    assert np.abs(y.sum(axis=0)).max() < N - 12
    return X, y


def identified(values, X):
    """Functions that no rotation of the latent space changes, (chains, draws, ...)."""
    W, t, tau = (values[name] for name in PARAMETERS)
    found = {name: values[name] for name in ("coef", "intercept")}
    found["log tau"] = np.log(tau)[..., None]
    # Mean of W z + t given features alone, of five rows.
    A = np.eye(R) + tau[..., None, None] * (W.swapaxes(-1, -2) @ W)
    z = np.linalg.solve(A, tau[..., None, None] * W.swapaxes(-1, -2) @ (X[:5] - t[..., None, :]).mT)
    found["fitted"] = (W @ z).mT + t[..., None, :]
    found["W W'"] = W @ W.swapaxes(-1, -2)
    if "latent" in values:
        found["W z + t"] = values["latent"][..., :5, :] @ W.swapaxes(-1, -2) + t[..., None, :]
        found["scores"] = values["scores"]
    return found


def by_gibbs(n_outcomes, *, seed):
    X, y = problem(n_outcomes)
    data = mean_field.make_data(X, y, C)
    keep = ("coef", "intercept", *PARAMETERS)
    keep += ("latent", "scores") if y.shape[1] > 1 else ()

    def record(state):
        values = gibbs.to_variables(state)
        return {name: values[name] for name in keep}

    result = sample(
        partial(gibbs.init, data, PRIORS, n_components=R, n_chains=8),
        partial(gibbs.step, data=data, priors=PRIORS),
        record=record,
        draws=2000,
        tune=300,
        rng=np.random.default_rng(seed),
    )
    return identified(result.draws, X)


# Up to 300 comparisons, the standard errors of NUTS themselves from some hundred effective draws.
LIMIT = 4.5


@pytest.mark.slow
@pytest.mark.parametrize("n_outcomes", [1, 2])
def test_samplers_agree(n_outcomes, nuts, summaries):
    X, y = problem(n_outcomes)
    names = ["coef", "intercept", *PARAMETERS]
    names += ["latent", "scores"] if n_outcomes > 1 else []
    coords = {"feature": range(D), "outcome": range(n_outcomes)}
    model = declare(X, y, coords, n_components=R, C=C, priors=PRIORS, epsilon=None)
    drawn = identified(nuts(model, names, draws=1500, tune=500, seed=73), X)
    a, error_a = summaries(by_gibbs(n_outcomes, seed=72), 1.03)
    b, error_b = summaries(drawn, 1.03)
    z = (a - b) / np.hypot(error_a, error_b)
    assert np.abs(z).max() < LIMIT, z.round(1)
