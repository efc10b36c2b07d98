"""Views of BM2PCA: what has no value, and principal scores."""

from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.factor_model import principal_scores
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.bm2pca.views import make_view
from bsdr_models.papers.bm2pca import mean_field as mf
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of


def test_an_empty_sample_and_feature_have_their_priors():
    X = np.random.default_rng(43).standard_normal((9, 5)) + 1.0
    X[2], X[:, 4] = np.nan, np.nan
    y = np.where(np.arange(9) % 2, 1.0, -1.0)[:, None]
    y[2] = 0.0
    data = mf.ViewData(X=X, views=(make_view(X),), margins=margins_of(y, 2.0, None))
    state = mf.init(data, PAPER, n_components=2, rng=np.random.default_rng(3))
    for _ in range(5):
        state = mf.sweep(state, data, PAPER)
    (own,), (moments,), (view,) = state.views, state.latent.moments, data.views
    own = replace(own, loadings=views.loadings(own, moments, view))
    own = replace(own, offset=views.offset(own, moments, view, PAPER))
    state = replace(state, views=(own,))
    np.testing.assert_array_equal(own.loadings.mean[4], 0.0)
    np.testing.assert_allclose(
        own.loadings.cov[4], np.diag(1.0 / own.loading_precision.mean), rtol=1e-12
    )
    assert own.offset.mean[4] == 0.0
    assert own.offset.variance[4] == pytest.approx(1.0 / PAPER.offset_precision)
    np.testing.assert_allclose(state.latent.mean[2], 0.0, atol=1e-14)
    np.testing.assert_allclose(state.latent.cov[2], np.eye(2), atol=1e-14)


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (30, 3), (3, 30)])
def test_principal_scores_are_those_of_the_centred_samples(shape):
    X = 2.0 + np.random.default_rng(6).standard_normal(shape) * np.arange(1.0, 1.0 + shape[1])
    found = principal_scores([make_view(X)], 3)
    left = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, : min(3, shape[0] - 1)]
    agreement = np.abs(np.sum(left * found, axis=0)) / np.sqrt(shape[0])
    np.testing.assert_allclose(agreement, 1.0, rtol=1e-8)
