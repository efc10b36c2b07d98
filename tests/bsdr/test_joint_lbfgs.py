"""Joint search: gradient, profiled factors, preconditioner, ascent."""

from dataclasses import fields, replace

import numpy as np
import pytest

from bsdr_models.bsdr.paper import joint_lbfgs
from bsdr_models.bsdr.paper import mean_field as mf
from bsdr_models.bsdr.priors import PAPER, SPARSE, Priors

KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")
DESIGNS = [(kind, False) for kind in KINDS] + [("columnwise", True)]
# Enough nodes for accurate differences of bounds.
N_NODES = 32

every_problem = pytest.mark.parametrize(
    ("kind", "spectral", "target", "size"),
    [
        (*design, target, size)
        for design in DESIGNS
        for target in TARGETS
        for size in ("tall", "wide", "binary")
    ],
)


def started(lab, kind, target, size="tall", *, spectral=False, priors=None, n_steps=3):
    """A problem and its state after some sweeps."""
    problem = lab.make_problem(
        kind, target, size, spectral=spectral, priors=lab.PRIORS if priors is None else priors
    )
    state = mf.init(
        problem.data,
        replace(problem.priors, projection_prior=kind),
        n_components=problem.n_components,
        rng=np.random.default_rng(1),
        start="random",
    )
    for _ in range(n_steps):
        state, _ = mf.step(state, problem.data, problem.priors)
    return problem, state


def free_means(state, rng=None):
    """E[Q], E[Z], E[b, W]; with a generator, moved off their optimum."""
    means = {
        "projection": state.projection.mean,
        "latent": state.latent.mean,
        "weights": state.weights.mean,
    }
    if rng is None:
        return means
    return {name: mean + 0.3 * rng.standard_normal(mean.shape) for name, mean in means.items()}


def completed(problem, state, means, n_nodes=N_NODES):
    return joint_lbfgs.complete(
        state,
        problem.data,
        problem.priors,
        **means,
        fitted=problem.X @ means["projection"],
        n_nodes=n_nodes,
    )


def check_gradient(problem, state):
    """Each part of the gradient along random directions, against central differences."""
    rng = np.random.default_rng(2)
    means = free_means(state, rng)
    gradient = joint_lbfgs.gradient(completed(problem, state, means), problem.priors)
    parts = {name: getattr(gradient, name) for name in means}
    parts["projection"] = parts["projection"] + problem.X.T @ gradient.fitted
    for name, mean in means.items():
        for step in 1e-4 * rng.standard_normal((4, *mean.shape)):
            up, down = (
                problem.bound(mf, completed(problem, state, {**means, name: mean + sign * step}))
                for sign in (1.0, -1.0)
            )
            tolerance = 1e-5 * np.linalg.norm(parts[name]) * np.linalg.norm(step)
            assert abs((up - down) / 2.0 - np.vdot(parts[name], step)) < tolerance, name


@every_problem
def test_gradient_is_the_difference_of_bounds(lab, kind, spectral, target, size):
    check_gradient(*started(lab, kind, target, size, spectral=spectral))


@pytest.mark.parametrize("priors", [PAPER, SPARSE, Priors(latent_scale=0.1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_right_under_other_priors(lab, kind, priors):
    check_gradient(*started(lab, kind, "multiclass", priors=priors))


def weight_cov(state):
    """Sum over outcomes of E[tau] Cov(b, w), (1 + R, 1 + R)."""
    return np.einsum("k,kpq->pq", mf.noise_mean(state), state.weights.cov)


def one_sample(state):
    """What Cov(z) of all samples but one adds to the gradient in the weights."""
    weights = state.weights.mean
    each = np.vstack([0.0 * weights[:1], state.latent.cov @ weights[1:]])
    return (len(state.latent.mean) - 1) * each


# What each fault adds to the gradient in the means, by name, and a target that shows it.
FAULTS = {
    "Cov(b, w) missing": (lambda s, p: {"latent": weight_cov(s)[0, 1:]}, "multiclass"),
    "Cov(w) missing": (
        lambda s, p: {"latent": s.latent.mean @ weight_cov(s)[1:, 1:]},
        "multiclass",
    ),
    "Cov(z) of one sample for the sum of all": (
        lambda s, p: {"weights": one_sample(s)},
        "multilabel",
    ),
    "precision of the weights missing": (
        lambda s, p: {"weights": (s.weight_precision.mean - 1.0) * s.weights.mean},
        "multiclass",
    ),
    "noise precision missing from the pull of the targets on Z": (
        lambda s, p: {
            "latent": (s.utilities.mean - s.utilities.origin)
            * (1.0 - mf.noise_mean(s))
            @ s.weights.mean[1:].T
        },
        "regression",
    ),
    "precision of the projection missing": (
        lambda s, p: {"projection": (s.projection_precision.mean - 1.0) * s.projection.mean},
        "multiclass",
    ),
    "distance to the projected samples missing from Z": (
        lambda s, p: {"latent": (s.latent.mean - s.projection.fitted) / p.latent_scale**2},
        "multiclass",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_differences_detect_a_wrong_gradient(lab, fault, monkeypatch):
    added, target = FAULTS[fault]
    problem, state = started(lab, "columnwise", target)
    check_gradient(problem, state)
    sound = joint_lbfgs.gradient

    def faulty(state, priors):
        found = sound(state, priors)
        return replace(
            found,
            **{name: getattr(found, name) + more for name, more in added(state, priors).items()},
        )

    monkeypatch.setattr(joint_lbfgs, "gradient", faulty)
    with pytest.raises(AssertionError, match=r"latent|weights|projection"):
        check_gradient(problem, state)


def test_differences_detect_covariances_short_of_their_fixed_point(lab, monkeypatch):
    problem, state = started(lab, "columnwise", "multilabel")
    monkeypatch.setattr(joint_lbfgs, "N_INNER", 1)
    with pytest.raises(AssertionError, match=r"latent|weights|projection"):
        check_gradient(problem, state)


@every_problem
def test_complete_keeps_the_means_and_profiles_out_the_rest(lab, kind, spectral, target, size):
    problem, state = started(lab, kind, target, size, spectral=spectral)
    before = state.projection
    means = free_means(state, np.random.default_rng(3))
    state = completed(problem, state, means)
    for name, mean in free_means(state).items():
        np.testing.assert_array_equal(mean, means[name])
    for held in ("variance", "log_det", "gram_trace"):
        np.testing.assert_array_equal(getattr(state.projection, held), getattr(before, held))

    bound = problem.bound(mf, state)
    better = {
        name: lab.updated(mf, problem, state, name)
        for name in ("projection_precision", "weight_precision", "utilities", "noise_precision")
        if name in lab.updates(mf, problem)
    }
    for name in ("latent", "weights"):  # their covariance only
        best = getattr(lab.updated(mf, problem, state, name), name)
        best = replace(best, mean=getattr(state, name).mean)
        better[f"covariance of {name}"] = replace(state, **{name: best})
    for name, other in better.items():
        assert abs(problem.bound(mf, other) - bound) < 1e-9 * abs(bound), name
    assert problem.bound(mf, lab.updated(mf, problem, state, "projection")) > bound


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "spectral"), DESIGNS)
def test_bound_with_an_earlier_covariance_of_q_by_monte_carlo(lab, kind, spectral, target):
    problem, state = started(lab, kind, target, spectral=spectral, n_steps=2)
    cov = lab.ridge_cov(problem, state)
    state = replace(state, projection=mf.update_projection(state, problem.data, problem.priors))
    rng = np.random.default_rng(5)
    state = completed(problem, state, free_means(state, rng))
    size = 6_000
    draws, log_q = lab.draw_q(problem, state, cov, size=size, rng=rng)
    log_ratio = lab.log_joint(problem, draws) - log_q
    error = log_ratio.std() / np.sqrt(size)
    assert abs(log_ratio.mean() - problem.bound(mf, state)) < 4.0 * error


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "spectral"), DESIGNS)
def test_searches_and_sweeps_exceed_the_bound_of_many_sweeps(lab, kind, spectral, target):
    problem, state = started(lab, kind, target, spectral=spectral, n_steps=1)
    searched = state
    for _ in range(3):
        searched, info = joint_lbfgs.maximise(
            searched, problem.data, problem.priors, max_evaluations=40
        )
        assert info.elbo == pytest.approx(problem.bound(mf, searched), rel=1e-14)
        searched, after = mf.step(searched, problem.data, problem.priors)
        assert after.elbo >= info.elbo - 1e-9 * abs(info.elbo)
    for _ in range(80):
        state, plain = mf.step(state, problem.data, problem.priors)
    assert after.elbo > plain.elbo - 1e-3


@pytest.mark.parametrize("max_evaluations", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_maximise_never_lowers_the_bound(lab, kind, target, max_evaluations):
    for n_steps in (0, 60):
        problem, state = started(lab, kind, target, n_steps=n_steps)
        before = problem.bound(mf, state)
        _, info = joint_lbfgs.maximise(
            state, problem.data, problem.priors, max_evaluations=max_evaluations
        )
        assert info.elbo >= before - 1e-9 * abs(before)


def test_searches_and_sweeps_converge_to_a_stationary_point_of_the_sweeps(lab):
    problem, state = started(lab, "rowwise", "multilabel")
    for _ in range(8):
        state, _ = joint_lbfgs.maximise(state, problem.data, problem.priors, max_evaluations=60)
        state, info = mf.step(state, problem.data, problem.priors)
    for _ in range(50):
        state, after = mf.step(state, problem.data, problem.priors)
    assert 0.0 <= after.elbo - info.elbo < 1e-3


def test_maximise_calls_back_and_can_be_stopped(lab):
    problem, state = started(lab, "entrywise", "multiclass")
    seen = []

    def on_step(state, info):
        assert info.elbo == pytest.approx(problem.bound(mf, state), rel=1e-14)
        seen.append(info.elbo)
        return len(seen) == 4

    _, info = joint_lbfgs.maximise(
        state, problem.data, problem.priors, max_evaluations=100, on_step=on_step
    )
    assert len(seen) == 4
    assert np.all(np.diff(seen) > 0.0)
    assert info.elbo == pytest.approx(seen[-1], rel=1e-6)


@pytest.mark.parametrize("size", ["tall", "wide"])
@pytest.mark.parametrize(("kind", "spectral"), DESIGNS)
def test_preconditioner_is_a_change_of_variables(lab, kind, spectral, size):
    """Round trip, and the chain rule."""
    problem, state = started(lab, kind, "multiclass", size, spectral=spectral)
    rng = np.random.default_rng(4)
    preconditioner = joint_lbfgs._Preconditioner.at(state, problem.data.design, problem.priors)
    x = preconditioner.pack()
    here = preconditioner.unpack(x)
    q, z, w = free_means(state).values()
    for got, expected in zip(here, (q, problem.X @ q, z, w), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)
    slope = joint_lbfgs.Gradient(
        projection=rng.standard_normal(q.shape),
        fitted=rng.standard_normal(z.shape),
        latent=rng.standard_normal(z.shape),
        weights=rng.standard_normal(w.shape),
    )
    step = rng.standard_normal(x.size)
    change = sum(
        np.vdot(getattr(slope, field.name), moved - mean)
        for field, moved, mean in zip(
            fields(joint_lbfgs.Gradient), preconditioner.unpack(x + step), here, strict=True
        )
    )
    assert preconditioner.gradient(slope) @ step == pytest.approx(change, rel=1e-9)


@pytest.mark.parametrize("size", ["tall", "wide"])
@pytest.mark.parametrize(("kind", "spectral"), [("columnwise", False), ("columnwise", True)])
def test_preconditioner_whitens_the_quadratic_part(lab, kind, spectral, size):
    """With all else held fixed the bound is -|x|^2 / 2 along E[Q] and E[Z].

    This is exact for a columnwise prior, where columns have one precision.
    """
    problem, state = started(lab, kind, "regression", size, spectral=spectral)
    means = free_means(state)
    state = completed(problem, state, means)
    preconditioner = joint_lbfgs._Preconditioner.at(state, problem.data.design, problem.priors)
    x = preconditioner.pack()
    free = x.size - state.weights.mean.size

    def bound(x):
        projection, fitted, latent, _ = preconditioner.unpack(x)
        moved = replace(
            state,
            projection=replace(state.projection, mean=projection, fitted=fitted),
            latent=replace(state.latent, mean=latent),
        )
        return problem.bound(mf, moved)

    rng = np.random.default_rng(6)
    for _ in range(5):
        step = np.zeros_like(x)
        step[:free] = rng.standard_normal(free)
        curvature = bound(x + step) - 2.0 * bound(x) + bound(x - step)
        assert curvature == pytest.approx(-step @ step, rel=10 * joint_lbfgs.INNER_TOL)
