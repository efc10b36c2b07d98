"""Gibbs sampling and NUTS, which integrates utilities and precisions out, have one posterior."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from bsdr_models.papers.bsdr import gibbs
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.mean_field import Data
from bsdr_models.papers.bsdr.model import build_model as build_paper_model
from bsdr_models.papers.bsdr.priors import SAMPLING
from bsdr_models.papers.sampler import sample

N, D, R, K = 40, 3, 2, 3
NAMES = ["coef", "bias_centered"]
# Joint-distribution tests have the other priors of the projection.
PRIORS = replace(SAMPLING, projection_prior="entrywise")


def problem():
    """Overlapping classes: the utilities have as much noise as signal."""
    rng = np.random.default_rng(61)
    X = rng.standard_normal((N, D))
    y = (X @ rng.standard_normal((D, K)) + 1.5 * rng.standard_normal((N, K))).argmax(axis=1)
    assert np.bincount(y).min() >= 8
    declare = partial(build_paper_model, X, y, n_components=R, priors=PRIORS)
    return Data(design=DenseDesign(X), y=y, n_labels=K), declare


def by_gibbs(*, seed):
    data, _ = problem()

    def record(state):
        W, b = state.weights, state.bias
        contrast = W - W.mean(axis=-1, keepdims=True)
        return {
            "coef": state.projection @ contrast,
            "bias_centered": b - b.mean(axis=-1, keepdims=True),
        }

    result = sample(
        partial(gibbs.init, data, PRIORS, n_components=R, n_chains=8),
        partial(gibbs.step, data=data, priors=PRIORS),
        record=record,
        draws=3000,
        tune=300,
        rng=np.random.default_rng(seed),
    )
    return {name: values[:, 1::2] for name, values in result.draws.items()}


@pytest.mark.slow
def test_samplers_agree(nuts, summaries):
    by_nuts = nuts(problem()[1](), NAMES, draws=700, tune=400, seed=65)
    (a, error_a), (b, error_b) = summaries(by_gibbs(seed=63), 1.06), summaries(by_nuts, 1.06)
    z = (a - b) / np.hypot(error_a, error_b)
    assert np.abs(z).max() < 4.0, z.round(1)
