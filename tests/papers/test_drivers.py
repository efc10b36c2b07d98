"""The drivers with the papers' steps, as a user calls them."""

from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import scale

from bsdr_models import BM2PCAPriors
from bsdr_models.papers import (
    PaperBM2PCAClassifier,
    PaperBSDRClassifier,
    bm2pca,
    bsdr,
    maximise,
    sample,
)

SETS = {"iris": load_iris, "wine": load_wine}


def of_bsdr(X, y):
    """Steps with their data, and the estimator."""
    data, priors = bsdr.mean_field.make_data(X, y), bsdr.Priors()
    return bsdr.mean_field, data, priors, PaperBSDRClassifier(random_state=0)


def of_bm2pca(X, y):
    signs = np.where(y[:, None] == np.arange(3), 1.0, -1.0)
    data = bm2pca.mean_field.make_data(X, signs, cost=1.0)
    return bm2pca.mean_field, data, BM2PCAPriors(), PaperBM2PCAClassifier(2, C=1.0, random_state=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["iris", "wine"])
@pytest.mark.parametrize("model", [of_bsdr, of_bm2pca])
def test_fits_end_within_a_hundredth_of_a_nat_of_a_long_run(model, name):
    X, y = SETS[name](return_X_y=True)
    X, y = scale(X[::2]), y[::2]
    engine, data, priors, estimator = model(X, y)
    run = partial(
        maximise,
        partial(engine.init, data, priors, n_components=2),
        partial(engine.step, data=data, priors=priors),
        extrapolation=engine.extrapolation(data),
        rng=np.random.default_rng(0),
    )
    found = run()
    best = run(tol=1e-7, max_iter=20_000)
    assert found.converged
    assert best.converged
    assert 0.0 <= best.trace[-1] - found.trace[-1] < 0.01
    assert abs(estimator.fit(X, y).lower_bounds_[-1] - best.trace[-1]) < 0.01


@pytest.mark.parametrize("model", [of_bsdr, of_bm2pca])
def test_gibbs_sampling_by_the_steps(model):
    X, y = load_iris(return_X_y=True)
    _, data, _, _ = model(scale(X), y)
    folder = bsdr if model is of_bsdr else bm2pca
    sampled = sample(
        partial(folder.gibbs.init, data, folder.SAMPLING, n_components=2, n_chains=3),
        partial(folder.gibbs.step, data=data, priors=folder.SAMPLING),
        stats=partial(folder.gibbs.sample_stats, data=data, priors=folder.SAMPLING),
        draws=5,
        tune=5,
        rng=np.random.default_rng(0),
    )
    assert sampled.draws["latent"].shape == (3, 5, 150, 2)
    assert sampled.sample_stats["lp"].shape == (3, 5)
