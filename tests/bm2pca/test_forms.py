"""Mean field gives the same fit in every data format, and has the symmetries of the model."""

from dataclasses import replace

import numpy as np

from bsdr_models.bm2pca import views
from bsdr_models.papers.bm2pca import mean_field as mf


def run(state, data, priors, n_sweeps=6):
    for _ in range(n_sweeps):
        state = mf.sweep(state, data, priors)
    return state


def same_terms(state, data, other, other_data, priors):
    terms = mf.bound_terms(state, data, priors)
    expected = mf.bound_terms(other, other_data, priors)
    for name, value in terms.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-9, err_msg=name)


def unreduced_view(X, n_features=None):
    """A view that is not reduced."""
    return views.View(
        X=X,
        mask=None,
        n_features=n_features or X.shape[1],
        basis=None,
        count=np.array([float(len(X))]),
        total=X.sum(axis=0),
        square=float(np.sum(X**2)),
    )


def with_views(problem, *own):
    return replace(problem, data=replace(problem.data, views=own))


def test_wide_data_are_reduced_to_the_row_space_without_loss(lab):
    """Loadings and offset stay in the row space."""
    reduced = lab.make_problem("wide")
    basis = reduced.data.views[0].basis
    assert basis.shape == (13, 7)
    np.testing.assert_allclose(basis.T @ basis, np.eye(7), atol=1e-12)
    whole = with_views(reduced, unreduced_view(reduced.X[0]))
    state = lab.scrambled(reduced, np.random.default_rng(5))
    own = state.views[0]
    lifted = replace(
        own,
        loadings=replace(own.loadings, mean=basis @ own.loadings.mean),
        offset=replace(own.offset, mean=basis @ own.offset.mean),
    )
    z = state.latent
    other = replace(
        state, views=(lifted,), latent=mf.make_latent(z.mean, z.cov, z.log_det, whole.data)
    )
    end = run(state, reduced.data, reduced.priors, 20)
    other = run(other, whole.data, whole.priors, 20)
    same_terms(end, reduced.data, other, whole.data, reduced.priors)
    np.testing.assert_allclose(end.latent.mean, other.latent.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        basis @ end.views[0].loadings.mean, other.views[0].loadings.mean, rtol=1e-8, atol=1e-10
    )
