"""Mean field of BSDR: exact bound, monotone and stationary updates, special cases, symmetries."""

from copy import deepcopy
from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
from scipy.special import gammaln

from bsdr_models.papers.bsdr import mean_field as mf
from bsdr_models.papers.bsdr.mean_field import make_data
from bsdr_models.papers.bsdr.priors import Priors
from bsdr_models.papers.factors import NormalColumns, NormalRows

KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")
SIZES = ("tall", "wide", "binary")
# The columnwise prior comes in both designs.
DESIGNS = [(kind, False) for kind in KINDS] + [("columnwise", True)]

# Every pair of a design and a target, each with one of the sizes, so that all pairs occur.
every_problem = pytest.mark.parametrize(
    ("kind", "spectral", "target", "size"),
    [
        (*design, target, SIZES[(i + j) % len(SIZES)])
        for i, design in enumerate(DESIGNS)
        for j, target in enumerate(TARGETS)
    ],
)


@every_problem
def test_bound_is_the_monte_carlo_expectation(lab, kind, spectral, target, size):
    """12 comparisons at 4 standard errors: 0.1 % false alarms at other seeds."""
    problem = lab.make_problem(kind, target, size, spectral=spectral)
    lab.check_monte_carlo(problem, seed=0)


@every_problem
def test_no_single_update_lowers_the_bound(lab, kind, spectral, target, size):
    for seed in range(4):
        problem = lab.make_problem(kind, target, size, spectral=spectral, seed=seed)
        lab.check_monotone(problem, seed=seed)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("latent_scale", [0.1, 1.0])
def test_no_single_update_lowers_the_bound_under_sparse_priors(lab, kind, seed, latent_scale):
    """Precisions span many orders of magnitude."""
    priors = Priors(projection_shape=1e-3, projection_rate=1e-3, latent_scale=latent_scale)
    size = SIZES[seed % 3]
    problem = lab.make_problem(kind, "multiclass", size, priors=priors, seed=seed)
    lab.check_monotone(problem, seed=seed, n_updates=150)


@every_problem
def test_every_update_is_stationary(lab, kind, spectral, target, size):
    lab.check_stationary(lab.make_problem(kind, target, size, spectral=spectral), seed=0)


def known_rows(mean):
    r = mean.shape[1]
    return NormalRows(mean=mean, cov=np.zeros((r, r)), log_det=0.0)


def known_columns(mean):
    p, k = mean.shape
    return NormalColumns(mean=mean, cov=np.zeros((k, p, p)), log_det=np.zeros(k))


@pytest.mark.parametrize("size", ["tall", "wide"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", TARGETS)
def test_bound_is_the_evidence_when_the_weights_vanish(lab, target, kind, size):
    """With zero weights and biases y is independent of Z and Q.

    log p(y) is then -N log K, -N K log 2, or that of normals with one Gamma precision per
    output; and q(Z) q(Q) misses the prior of (Z, Q) by half the log of the product of the
    determinants of its conditional precisions over that of its joint precision.
    """
    tight = dict.fromkeys(
        ("projection_shape", "projection_rate", "weight_shape", "bias_shape"), 1e6
    )
    priors = Priors(**tight, weight_rate=1e-6, bias_rate=1e-6, noise_shape=1.7, noise_rate=2.9)
    problem = lab.make_problem(kind, target, size, priors=replace(priors, latent_scale=0.6))
    (n, d), r, k = problem.X.shape, problem.n_components, problem.data.n_labels
    state, _ = lab.scrambled(problem, np.random.default_rng(6))
    for _ in range(3):
        state = replace(
            state,
            latent=replace(state.latent, mean=np.zeros((n, r))),
            weights=replace(
                state.weights, mean=np.zeros((1 + r, k)), cov=1e-12 * state.weights.cov
            ),
        )
        state, info = mf.step(state, problem.data, problem.priors)

    y = problem.data.y
    shape, rate = priors.noise_shape, priors.noise_rate
    evidence = {
        "multiclass": -n * np.log(k),
        "multilabel": -n * k * np.log(2.0),
        "regression": np.sum(
            shape * np.log(rate)
            - gammaln(shape)
            + gammaln(shape + n / 2)
            - (shape + n / 2) * np.log(rate + np.sum(np.square(y, dtype=float), axis=0) / 2)
            - n / 2 * np.log(2.0 * np.pi)
        ),
    }[target]
    v = 0.6**2
    both = np.block(
        [
            [np.eye(d) + problem.X.T @ problem.X / v, -problem.X.T / v],
            [-problem.X / v, np.eye(n) / v],
        ]
    )
    parts = np.linalg.slogdet(both[:d, :d])[1] + np.linalg.slogdet(both[d:, d:])[1]
    missed = 0.5 * r * (parts - np.linalg.slogdet(both)[1])
    assert missed > 1.0
    np.testing.assert_allclose(info.elbo, evidence - missed, atol=1e-4)


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
def test_utilities_term_is_the_evidence_given_the_linear_predictor(lab, target):
    problem = lab.make_problem("entrywise", target)
    state, _ = lab.scrambled(problem, np.random.default_rng(7))
    state = replace(
        state, latent=known_rows(state.latent.mean), weights=known_columns(state.weights.mean)
    )
    state = lab.updated(problem, state, "utilities")
    log_prob, mean = lab.truncated_moments(mf.linear_predictor_mean(state), problem)
    np.testing.assert_allclose(state.utilities.mean, mean, rtol=1e-9, atol=1e-11)
    terms = mf.elbo_terms(state, problem.data, problem.priors)
    np.testing.assert_allclose(terms["utilities"], log_prob.sum(), rtol=1e-10)


def run(state, data, priors, n_steps=6):
    for _ in range(n_steps):
        state, info = mf.step(state, data, priors)
    return state, info


def assert_same(state, other):
    """All arrays of two states are equal up to rounding."""
    for f in fields(state):
        value, expected = getattr(state, f.name), getattr(other, f.name)
        if is_dataclass(value):
            assert_same(value, expected)
        elif value is not None:
            np.testing.assert_allclose(value, expected, rtol=1e-8, atol=1e-9, err_msg=f.name)


@pytest.mark.parametrize("target", TARGETS)
def test_columnwise_fit_is_the_same_in_features_and_in_spectral_coordinates(lab, target):
    """More samples than features, full rank: the two models are rotations of each other."""
    dense = lab.make_problem("columnwise", target, "tall")
    spectral = lab.make_problem("columnwise", target, "tall", spectral=True)
    basis = spectral.data.design.basis
    assert basis.shape == (5, 5)
    state, cov = lab.unfinished(dense, np.random.default_rng(9))
    rotated = np.einsum("pd,rpq,qe->rde", basis, cov, basis)
    start = replace(
        state, projection=lab.summaries(basis.T @ state.projection.mean, rotated, spectral.X)
    )
    end, info = run(state, dense.data, dense.priors, n_steps=30)
    other, other_info = run(start, spectral.data, spectral.priors, n_steps=30)
    assert other_info.terms == pytest.approx(dict(info.terms), rel=1e-8)
    np.testing.assert_allclose(other.latent.mean, end.latent.mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(
        spectral.data.design.loadings(other.projection.mean), end.projection.mean, atol=1e-9
    )
    np.testing.assert_allclose(
        other.projection_precision.mean, end.projection_precision.mean, rtol=1e-8
    )


@pytest.mark.parametrize("at_random", [False, True])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "spectral"), DESIGNS)
def test_a_step_improves_the_initial_state(lab, kind, spectral, target, at_random):
    problem = lab.make_problem(kind, target, "binary", spectral=spectral)
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
