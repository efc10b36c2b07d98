"""Mean field: bound, monotone and stationary updates, initial values, steps."""

import pickle
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.bm2pca.views import make_view
from bsdr_models.papers.bm2pca import mean_field as mf
from bsdr_models.papers.bm2pca.conjugate import BM2PCAProblem, fit_mean_field
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of


def without_targets(data):
    """The same samples, of whose targets none is observed."""
    unknown = np.zeros_like(data.margins.observed)
    return replace(data, margins=replace(data.margins, observed=unknown))


def test_bound_is_the_monte_carlo_expectation(lab, case):
    """9 comparisons at 4 standard errors: a false alarm has probability 0.1 %."""
    lab.check_monte_carlo(lab.make_problem(case), seed=0)


def test_no_single_update_lowers_the_bound(lab, case):
    for seed, initial in enumerate([False, True]):
        lab.check_monotone(lab.make_problem(case, seed=seed), seed=seed, initial=initial)


def test_no_single_update_lowers_the_bound_under_the_flat_priors_of_the_paper(lab, case):
    """Precisions run over many orders of magnitude here; small and large costs in turn."""
    cost = (0.01, 1000.0)[[*lab.CASES].index(case) % 2]
    problem = lab.make_problem(case, priors=PAPER, cost=cost)
    lab.check_monotone(problem, seed=3, n_updates=120, initial=True)


def test_every_update_is_stationary(lab, case):
    lab.check_stationary(lab.make_problem(case), seed=0)


def with_missing(share):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20, 5))
    X[rng.random(X.shape) < share] = np.nan
    return X


NORMAL = np.random.default_rng(2).standard_normal((20, 5))
HARD_ROWS = {
    "zeros": np.zeros((20, 5)),
    "wide zeros": np.zeros((5, 9)),
    "constant": np.ones((20, 5)),
    "one row": NORMAL[:1],
    "one feature": NORMAL[:, :1],
    "fewer rows than components": NORMAL[:3],
    "rank one": np.outer(NORMAL[:, 0], NORMAL[0]),
    "tiny": 1e-8 * NORMAL,
    "huge": 1e8 * NORMAL,
    "most entries missing": with_missing(0.9),
    "all entries missing": with_missing(1.1),
}


@pytest.mark.parametrize("rows", HARD_ROWS)
@pytest.mark.parametrize(("cost", "labelled"), [(1e-5, True), (10.0, False), (1e5, True)])
def test_bound_rises_for_extreme_data_and_costs(rows, cost, labelled):
    X = HARD_ROWS[rows]
    y = np.where(np.arange(X.shape[0]) % 2, 1.0, -1.0)[:, None]
    data = mf.ViewData(X=X, views=(make_view(X),), margins=margins_of(y, cost, None))
    data = data if labelled else without_targets(data)
    state = mf.init(data, PAPER, n_components=4, rng=np.random.default_rng(3))
    bounds = []
    for _ in range(30):
        state, info = mf.step(state, data, PAPER)
        bounds.append(info.elbo)
    assert np.all(np.diff(bounds) > -1e-9 * np.abs(bounds[1:]))


@pytest.mark.parametrize("n_components", [1, 7])
def test_init_makes_a_state_that_a_step_improves(lab, case, n_components):
    """Also with more components than there are initial directions."""
    problem = lab.make_problem(case, n_components=n_components)
    rng = np.random.default_rng(13)
    state = mf.init(problem.data, problem.priors, n_components=n_components, rng=rng)
    n, k = problem.y.shape
    assert state.latent.mean.shape == (n, n_components)
    assert state.weights.mean.shape == (1 + n_components, k)
    assert np.abs(state.latent.mean).max(axis=0).min() > 0.0
    before = problem.bound(state)
    _, info = mf.step(state, problem.data, problem.priors)
    assert before < info.elbo < 0.0
    assert info.elbo == pytest.approx(sum(info.terms.values()), rel=1e-14)


def test_label_initialisation(lab):
    one = lab.make_problem("binary")
    state = mf.init(one.data, one.priors, n_components=3, rng=np.random.default_rng(14))
    np.testing.assert_array_equal(state.latent.mean[:, :1], one.y)
    several = lab.make_problem("regression shared", n_components=6)
    state = mf.init(several.data, several.priors, n_components=6, rng=np.random.default_rng(14))
    found = state.latent.mean[:, :5]
    known = several.data.margins.observed
    mean = np.nanmean(np.where(known, several.y, np.nan), axis=0)
    centred = np.where(known, several.y - mean, 0.0)
    np.testing.assert_allclose(found.T @ found, len(found) * np.eye(5), atol=1e-9)
    np.testing.assert_allclose(found @ (found.T @ centred) / len(found), centred, atol=1e-9)


@pytest.mark.parametrize("n_labels", [1, 4])
def test_samples_without_a_label_begin_at_the_mean_of_the_others(n_labels):
    """Not at 0, which is far from all classes if most signs are negative."""
    rng = np.random.default_rng(15)
    y = np.where(np.arange(30)[:, None] % 5 == np.arange(n_labels), 1.0, -1.0)
    known = np.arange(30) % 3 > 0
    y[~known] = 0.0
    X = rng.standard_normal((30, 6))
    data = mf.ViewData(
        X=X,
        views=(make_view(X),),
        margins=margins_of(y, 1.0, None),
    )
    state = mf.init(data, PAPER, n_components=n_labels, rng=rng)
    found = state.latent.mean
    mean = np.tile(found[known].mean(axis=0), (10, 1))
    np.testing.assert_allclose(found[~known], mean, atol=1e-12)
    score = mean[0] @ state.weights.mean[1:] + state.weights.mean[0]
    np.testing.assert_allclose(score, y[known].mean(axis=0), atol=0.05)


@pytest.mark.parametrize("case", ["binary", "wide", "views"])
def test_pca_initialisation_is_the_principal_axes_of_all_views(lab, case):
    """X is centred, views have equal weight."""
    problem = lab.make_problem(case)
    data = without_targets(problem.data)
    state = mf.init(data, problem.priors, n_components=3, rng=np.random.default_rng(16))
    centred = [X - X.mean(axis=0) for X in problem.X]
    rows = np.hstack([X / np.linalg.norm(X) for X in centred])
    axes = np.linalg.svd(rows)[0][:, :3] * np.sqrt(len(rows))
    found = state.latent.mean
    np.testing.assert_allclose(np.abs(axes.T @ found), len(rows) * np.eye(3), atol=1e-8)


def test_step_is_its_updates_in_order_and_leaves_its_input_alone(lab, case):
    problem = lab.make_problem(case)
    state = lab.unfinished(problem, np.random.default_rng(15))
    before = pickle.dumps(state)
    end, info = mf.step(state, problem.data, problem.priors)
    assert pickle.dumps(state) == before
    for same in (
        mf.sweep(state, problem.data, problem.priors),
        lab.updated(problem, state, *lab.FACTORS),
    ):
        terms = mf.bound_terms(same, problem.data, problem.priors)
        assert terms == pytest.approx(dict(info.terms), rel=1e-10)
        np.testing.assert_allclose(same.latent.mean, end.latent.mean, rtol=1e-9, atol=1e-11)
        np.testing.assert_allclose(same.slack, end.slack, rtol=1e-9)


@pytest.mark.parametrize("case", ["shared", "regression shared", "missing shared", "views"])
def test_bound_of_a_fit_rises_to_convergence_and_is_reported(lab, case):
    p = lab.make_problem(case, priors=PAPER)
    ends = np.cumsum([0, *(X.shape[1] for X in p.X)])
    task = BM2PCAProblem(
        X=p.data.X,
        Y=np.where(p.known, p.y, 0.0 if p.epsilon is None else np.nan),
        cost=p.cost,
        epsilon=p.epsilon,
        columns=tuple(np.arange(*pair) for pair in pairwise(ends)),
        n_components=p.n_components,
    )
    result = fit_mean_field(task, rng=np.random.default_rng(0), max_iter=3000)
    assert result.converged
    assert np.all(np.diff(result.trace) >= -1e-9 * np.abs(result.trace[1:]))
    np.testing.assert_allclose(sum(result.terms.values()), result.trace, rtol=1e-12)
    assert result.trace[-1] == pytest.approx(p.bound(result.posterior.state))
