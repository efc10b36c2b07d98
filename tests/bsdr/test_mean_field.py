"""Mean field of BSDR: exact bound, monotone and stationary updates, special cases, symmetries."""

from copy import deepcopy
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest

from bsdr_models.papers.bsdr import mean_field as mf
from bsdr_models.papers.bsdr.mean_field import make_data
from bsdr_models.papers.bsdr.priors import Priors

KINDS = ("entrywise", "columnwise", "rowwise")
SIZES = ("tall", "wide", "binary")
# The columnwise prior comes in both designs. The prior and the size decide the updates of the
# projection, the target those of weights and utilities.
every_problem = pytest.mark.parametrize(
    ("kind", "spectral", "target", "size"),
    [
        ("entrywise", False, "multiclass", "tall"),
        ("entrywise", False, "multilabel", "wide"),
        ("columnwise", False, "regression", "tall"),
        ("columnwise", True, "multiclass", "wide"),
        ("rowwise", False, "multilabel", "binary"),
        ("rowwise", False, "regression", "wide"),
    ],
)


@every_problem
def test_bound_is_the_monte_carlo_expectation(lab, kind, spectral, target, size):
    """6 comparisons at 4 standard errors: 0.04 % false alarms at other seeds."""
    problem = lab.make_problem(kind, target, size, spectral=spectral)
    lab.check_monte_carlo(problem, seed=0)


@every_problem
def test_no_single_update_lowers_the_bound(lab, kind, spectral, target, size):
    for seed in range(2):
        problem = lab.make_problem(kind, target, size, spectral=spectral, seed=seed)
        lab.check_monotone(problem, seed=seed)


@pytest.mark.parametrize(("kind", "size"), [*zip(KINDS, SIZES, strict=True)])
@pytest.mark.parametrize("latent_scale", [0.1, 1.0])
def test_no_single_update_lowers_the_bound_under_sparse_priors(lab, kind, size, latent_scale):
    """Precisions span many orders of magnitude."""
    priors = Priors(projection_shape=1e-3, projection_rate=1e-3, latent_scale=latent_scale)
    problem = lab.make_problem(kind, "multiclass", size, priors=priors)
    lab.check_monotone(problem, seed=0, n_updates=150)


@every_problem
def test_every_update_is_stationary(lab, kind, spectral, target, size):
    lab.check_stationary(lab.make_problem(kind, target, size, spectral=spectral), seed=0)


def assert_same(state, other):
    """All arrays of two states are equal up to rounding."""
    for f in fields(state):
        value, expected = getattr(state, f.name), getattr(other, f.name)
        if is_dataclass(value):
            assert_same(value, expected)
        elif value is not None:
            np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-9, err_msg=f.name)


@pytest.mark.parametrize("at_random", [False, True])
@every_problem
def test_a_step_improves_the_initial_state(lab, kind, spectral, target, size, at_random):
    problem = lab.make_problem(kind, target, size, spectral=spectral)
    n, d = problem.X.shape
    r, k = 6, problem.data.n_labels  # more components than directions
    state = mf.init(
        problem.data,
        replace(problem.priors, projection_prior=kind),
        n_components=r,
        rng=np.random.default_rng(13),
        at_random=at_random,
    )
    shape = {"entrywise": (d, r), "columnwise": (1, r), "rowwise": (d, 1)}[kind]
    assert state.projection_precision.mean.shape == shape
    assert state.latent.mean.shape == (n, r)
    assert np.abs(state.latent.mean).max(axis=0).min() > 0.0
    assert state.utilities.mean.shape == (n, k)
    before = problem.bound(state)
    _, info = mf.step(state, problem.data, problem.priors)
    assert before < info.elbo < 0.0
    assert info.elbo == pytest.approx(sum(info.terms.values()), rel=1e-14)


def test_discriminant_initialisation_separates_classes_that_a_principal_axis_does_not():
    rng = np.random.default_rng(14)
    y = np.arange(60) % 2
    X = np.column_stack([2.0 * rng.standard_normal(60), 0.3 * rng.standard_normal(60) + y])
    data = make_data(X - X.mean(axis=0), y, n_labels=2)
    latent = mf.init(data, Priors(), n_components=1, rng=rng).latent.mean[:, 0]
    assert abs(np.corrcoef(latent, y)[0, 1]) > 0.8 > 0.3 > abs(np.corrcoef(X[:, 0], y)[0, 1])


@every_problem
def test_step_is_its_updates_in_order_and_does_not_modify_its_input(
    lab, kind, spectral, target, size
):
    problem = lab.make_problem(kind, target, size, spectral=spectral)
    state, _ = lab.unfinished(problem, np.random.default_rng(15))
    copy = deepcopy(state)
    end, info = mf.step(state, problem.data, problem.priors)
    assert_same(state, copy)
    order = ["projection_precision", "projection", "latent", "weight_precision", "weights"]
    for name in [*order, *(["noise_precision"] if target == "regression" else []), "utilities"]:
        state = lab.updated(problem, state, name)
    assert_same(end, state)
    assert info.elbo == pytest.approx(problem.bound(state), rel=1e-12)
