"""Mean field gives the same fit in every data format, and has the symmetries of the model."""

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from bsdr_models.bm2pca import views
from bsdr_models.bm2pca.paper import mean_field as mf
from bsdr_models.bm2pca.paper.loss_augmentation import margins_of


def run(state, data, priors, n_sweeps=6):
    for _ in range(n_sweeps):
        state = mf.sweep(state, data, priors)
    return state


def assert_same(state, other, rtol=1e-9):
    """Every number of two states, to rounding of some sweeps."""
    for f in fields(state):
        value, expected = getattr(state, f.name), getattr(other, f.name)
        if isinstance(value, tuple):
            for own, wanted in zip(value, expected, strict=True):
                assert_same(own, wanted, rtol)
            continue
        elif is_dataclass(value):
            assert_same(value, expected, rtol)
            continue
        elif value is None:
            continue
        scale = np.abs(expected).max()
        np.testing.assert_allclose(value, expected, rtol=rtol, atol=rtol * scale, err_msg=f.name)


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


@pytest.mark.parametrize("case", ["sparse", "sparse wide"])
def test_sparse_and_dense_fits_agree(lab, case, monkeypatch):
    """Also if wide sparse X is not reduced because its basis is too large."""
    monkeypatch.setattr(views, "MAX_BASIS", 0)
    sparse = lab.make_problem(case)
    assert sparse.data.views[0].basis is None
    dense = with_views(sparse, unreduced_view(sparse.X[0]))
    state = lab.scrambled(sparse, np.random.default_rng(4))
    end = run(state, sparse.data, sparse.priors)
    other = run(state, dense.data, dense.priors)
    assert_same(end, other)
    same_terms(end, sparse.data, other, dense.data, sparse.priors)


@pytest.mark.parametrize("case", ["wide", "sparse wide"])
def test_wide_data_are_reduced_to_the_row_space_without_loss(lab, case):
    """Loadings and offset stay in the row space."""
    reduced = lab.make_problem(case)
    basis = reduced.data.views[0].basis
    assert basis.shape == (13, 7)
    np.testing.assert_allclose(basis.T @ basis, np.eye(7), atol=1e-12)
    whole = with_views(reduced, unreduced_view(reduced.X[0]))
    state = lab.scrambled(reduced, np.random.default_rng(5))
    own = state.views[0]
    lifted = replace(
        own,
        loadings=replace(own.loadings, mean=basis @ own.loadings.mean),
        offset=replace(own.offset, mean=own.offset.mean @ basis.T),
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


def problem_alone(state, p):
    """One of the problems of a state."""
    changed = {}
    for f in fields(state):
        value = getattr(state, f.name)
        if isinstance(value, tuple):
            changed[f.name] = tuple(problem_alone(own, p) for own in value)
        elif is_dataclass(value):
            changed[f.name] = problem_alone(value, p)
        elif isinstance(value, np.ndarray):
            changed[f.name] = value[p : p + 1]
    return replace(state, **changed)


@pytest.mark.parametrize("case", ["batch", "missing shared batch", "sparse batch"])
def test_joint_and_separate_fits_of_problems_agree(lab, case):
    """Of different targets and costs."""
    both = lab.make_problem(case)
    state = lab.scrambled(both, np.random.default_rng(6))
    end = run(state, both.data, both.priors)
    margins = both.data.margins
    assert margins.cost[0] != margins.cost[1]
    bounds = []
    for p in range(2):
        own = margins_of(margins.y[p : p + 1], margins.cost[p : p + 1], None)
        alone = replace(both.data, margins=own)
        start = replace(problem_alone(state, p), slack=state.slack[:, p : p + 1])
        other = run(start, alone, both.priors)
        assert_same(replace(problem_alone(end, p), slack=end.slack[:, p : p + 1]), other)
        bounds.append(mf.info(other, alone, both.priors).elbo)
    assert mf.info(end, both.data, both.priors).elbo == pytest.approx(sum(bounds), rel=1e-10)
