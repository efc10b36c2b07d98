"""The averaged sampler beside NUTS on separated classes, under tails that both can travel.

NUTS sees another representation: one offset for each row, a Gauss-Hermite rule for the scores and,
in columns and rows, explicit precisions. Compared are means and quantiles of class probabilities,
of asinh of the class-centred coefficients and biases (they have no useful moments of their own),
within 4.5 Monte Carlo standard errors.
"""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from arviz_stats.base import array_stats

from bsdr_models.bsdr import averaged, averaged_target, gibbs, trees
from bsdr_models.bsdr.model import build_model
from bsdr_models.bsdr.predict import log_likelihood
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import Data
from bsdr_models.inference.gibbs import run_gibbs
from bsdr_models.numerics.design import DenseDesign

N, D, R, K = 45, 3, 2, 3
# Student-t of 3 degrees of freedom: separated classes are hard for NUTS, but not yet too hard.
PRIORS = Priors(
    projection_shape=1.5,
    projection_rate=1.0,
    weight_shape=1.5,
    weight_rate=2.0,
    bias_shape=1.5,
    bias_rate=1.5,
    latent_scale=0.8,
)
KINDS = ("entrywise", "columnwise", "rowwise")
NAMES = ["projection", "weights", "bias"]


def problem():
    """Classes that touch in one corner."""
    rng = np.random.default_rng(131)
    y = np.arange(N) % K
    return rng.standard_normal((N, D)) + 2.5 * np.eye(K, D)[y], y


def by_averaging(kind):
    X, y = problem()
    data = Data(design=DenseDesign(X), y=y, n_labels=K)
    options = {"n_components": R, "projection_prior": kind}
    posed = averaged_target.pose(data, PRIORS, **options)

    def start(rng):
        return averaged.init(
            posed, gibbs.init(data, PRIORS, n_chains=4, rng=rng, **options), rng=rng
        )

    return run_gibbs(
        start,
        partial(sweep, posed),
        record=lambda state: dict(
            zip(
                NAMES,
                averaged_target.split(state.entries * posed.unit, posed),
                strict=True,
            )
        ),
        draws=3000,
        tune=300,
        rng=np.random.default_rng(132),
    ).draws


def sweep(posed, state, rng):
    return averaged.step(state, posed, tune=300, rng=rng)


def by_nuts(kind):
    X, y = problem()
    with build_model(X, y, n_components=R, variant="paper", projection_prior=kind, priors=PRIORS):
        trace = pm.sample(
            draws=1500,
            tune=1000,
            chains=2,
            cores=1,
            target_accept=0.98,
            random_seed=133,
            var_names=NAMES,
            progressbar=False,
            quiet=True,
            compute_convergence_checks=False,
        )
    return {name: trace["posterior"][name].values for name in NAMES}


def summaries(draws):
    """Mean, 10 % and 90 % quantiles of each quantity, and their standard errors."""
    X, y = problem()
    posterior = trees.draw_posterior(draws, latent_scale=PRIORS.latent_scale, target="multiclass")
    Q, W, b = (draws[name] for name in NAMES)
    parts = [
        np.exp(log_likelihood(posterior, X, y)),
        np.arcsinh(Q @ (W - W.mean(axis=-1, keepdims=True))),
        np.arcsinh(b - b.mean(axis=-1, keepdims=True)),
    ]
    flat = np.concatenate([part.reshape(*b.shape[:2], -1) for part in parts], axis=2)
    values = np.moveaxis(flat, 2, 0)
    assert max(array_stats.rhat(v) for v in values) < 1.03
    found, error = [], []
    for v in values:
        found += [v.mean(), *np.quantile(v, [0.1, 0.9])]
        error += [array_stats.mcse(v)]
        error += [array_stats.mcse(v, method="quantile", prob=p) for p in (0.1, 0.9)]
    return np.array(found), np.array(error)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_averaged_sampler_agrees_with_nuts(kind):
    ours, our_error = summaries(by_averaging(kind))
    theirs, their_error = summaries(by_nuts(kind))
    # Quantiles of a probability that is next to one in most draws are ties.
    clear = np.minimum(our_error, their_error) > 1e-5
    assert clear.mean() > 0.7
    z = (ours - theirs)[clear] / np.hypot(our_error, their_error)[clear]
    # Of 150 quantities; NUTS has a few divergences here, and errors of quantiles are estimates.
    assert np.abs(z).max() < 5.5, z.round(1)
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.6  # neither too far apart nor errors too large
