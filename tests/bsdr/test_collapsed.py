"""The collapsed bound: its gradient, what it eliminates, and the climb."""

from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.bsdr import collapsed
from bsdr_models.bsdr import mean_field as mf
from bsdr_models.bsdr.priors import PAPER, SPARSE, Priors

KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")
DESIGNS = [(kind, False) for kind in KINDS] + [("columnwise", True)]
# Enough nodes that differences of bounds are not those of the quadrature.
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
    """A problem and a state some sweeps into its fit."""
    problem = lab.make_problem(
        kind, target, size, spectral=spectral, priors=lab.PRIORS if priors is None else priors
    )
    state = mf.init(
        problem.data,
        problem.priors,
        n_components=problem.n_components,
        projection_prior=kind,
        rng=np.random.default_rng(1),
        start="random",
    )
    for _ in range(n_steps):
        state, _ = mf.step(state, problem.data, problem.priors)
    return problem, state


def free_means(state, rng=None):
    """E[Z], E[b, W], log E[Phi]; moved off their optimum given the rest if there is a stream."""
    means = {
        "latent": state.latent.mean,
        "weights": state.weights.mean,
        "log_precision": np.log(state.projection_precision.mean),
    }
    if rng is None:
        return means
    return {name: mean + 0.3 * rng.standard_normal(mean.shape) for name, mean in means.items()}


def check_gradient(module, problem, state):
    """Each part of the gradient along random directions, against central differences."""
    rng = np.random.default_rng(2)
    means = free_means(state, rng)

    def complete(**means):
        return module.complete(state, problem.data, problem.priors, **means, n_nodes=N_NODES)

    gradient = module.gradient(complete(**means), problem.priors)
    for name, mean in means.items():
        part = getattr(gradient, name)
        for step in 1e-4 * rng.standard_normal((4, *mean.shape)):
            up, down = (
                problem.bound(mf, complete(**{**means, name: mean + sign * step}))
                for sign in (1.0, -1.0)
            )
            tolerance = 1e-5 * np.linalg.norm(part) * np.linalg.norm(step)
            assert abs((up - down) / 2.0 - np.vdot(part, step)) < tolerance, name


@every_problem
def test_gradient_is_the_difference_of_bounds(lab, kind, spectral, target, size):
    problem, state = started(lab, kind, target, size, spectral=spectral)
    check_gradient(collapsed, problem, state)


@pytest.mark.parametrize("priors", [PAPER, SPARSE, Priors(latent_scale=0.1)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_gradient_is_right_under_other_priors(lab, kind, priors):
    check_gradient(collapsed, *started(lab, kind, "multiclass", priors=priors))


@pytest.mark.parametrize(
    ("old", "new", "target"),
    [
        (" - cov[0, 1:]", "", "multiclass"),
        ("- z.mean @ cov[1:, 1:]", "", "multiclass"),
        ("z.mean.shape[0] * (z.cov @ w.mean[1:])", "(z.cov @ w.mean[1:])", "multilabel"),
        ("- state.weight_precision.mean * w.mean", "- w.mean", "multiclass"),
        ("slope = tau * (", "slope = (", "regression"),
        ("+ 0.5 * mean_field.tied_square(state)", "", "multiclass"),
        ("N_INNER, INNER_TOL = 30, 1e-10", "N_INNER, INNER_TOL = 1, 1e-10", "multilabel"),
    ],
)
def test_differences_see_a_wrong_gradient(lab, old, new, target):
    problem, state = started(lab, "columnwise", target)
    check_gradient(collapsed, problem, state)
    with pytest.raises(AssertionError, match=r"latent|weights|log_precision"):
        check_gradient(lab.planted(collapsed, old, new), problem, state)


@every_problem
def test_complete_keeps_the_means_and_leaves_nothing_to_gain(lab, kind, spectral, target, size):
    """Each eliminated factor is at its optimum, or the gradient would not be one."""
    problem, state = started(lab, kind, target, size, spectral=spectral)
    means = free_means(state, np.random.default_rng(3))
    state = collapsed.complete(state, problem.data, problem.priors, **means, n_nodes=N_NODES)
    for name, mean in free_means(state).items():
        np.testing.assert_allclose(mean, means[name], rtol=1e-13, atol=1e-13)

    bound = problem.bound(mf, state)
    better = {
        name: lab.updated(mf, problem, state, name)
        for name in ("projection", "weight_precision", "scores", "noise_precision")
        if name in lab.updates(mf, problem)
    }
    for name in ("latent", "weights"):  # of these the covariance alone
        best = getattr(lab.updated(mf, problem, state, name), name)
        best = replace(best, mean=getattr(state, name).mean)
        better[f"covariance of {name}"] = replace(state, **{name: best})
    for factor in (1.01, 0.99):  # the shape of q(Phi), its mean held
        phi = state.projection_precision
        moved = replace(phi, shape=phi.shape * factor, rate=phi.rate * factor)
        better["projection_precision"] = replace(state, projection_precision=moved)
        for name, other in better.items():
            assert problem.bound(mf, other) < bound + 1e-9 * abs(bound), name


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("kind", "spectral"), DESIGNS)
def test_maximise_climbs_past_many_sweeps(lab, kind, spectral, target):
    problem, state = started(lab, kind, target, spectral=spectral, n_steps=1)
    climbed, info = collapsed.maximise(state, problem.data, problem.priors, max_evaluations=80)
    assert info.elbo == pytest.approx(problem.bound(mf, climbed), rel=1e-14)
    _, after = mf.step(climbed, problem.data, problem.priors)
    assert after.elbo >= info.elbo - 1e-9 * abs(info.elbo)
    for _ in range(60):
        state, plain = mf.step(state, problem.data, problem.priors)
    assert info.elbo > plain.elbo - 1e-3


@pytest.mark.parametrize("max_evaluations", [1, 4])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", KINDS)
def test_maximise_never_lowers_the_bound(lab, kind, target, max_evaluations):
    for n_steps in (0, 60):
        problem, state = started(lab, kind, target, n_steps=n_steps)
        before = problem.bound(mf, state)
        _, info = collapsed.maximise(
            state, problem.data, problem.priors, max_evaluations=max_evaluations
        )
        assert info.elbo >= before - 1e-9 * abs(before)


def test_a_converged_climb_is_a_stationary_point_of_the_sweeps(lab):
    problem, state = started(lab, "rowwise", "multilabel")
    for _ in range(5):  # each call whitens anew
        state, info = collapsed.maximise(state, problem.data, problem.priors, max_evaluations=100)
    for _ in range(50):
        state, after = mf.step(state, problem.data, problem.priors)
    assert 0.0 <= after.elbo - info.elbo < 1e-3


def test_maximise_reports_its_steps_and_stops_when_told(lab):
    problem, state = started(lab, "entrywise", "multiclass")
    seen = []

    def on_step(state, info):
        assert info.elbo == pytest.approx(problem.bound(mf, state), rel=1e-14)
        seen.append(info.elbo)
        return len(seen) == 4

    _, info = collapsed.maximise(
        state, problem.data, problem.priors, max_evaluations=100, on_step=on_step
    )
    assert len(seen) == 4
    assert np.all(np.diff(seen) > 0.0)
    assert info.elbo == pytest.approx(seen[-1], rel=1e-6)


def test_the_frame_is_a_change_of_coordinates(lab):
    """Packing what unpacking gives, and the chain rule."""
    _, state = started(lab, "rowwise", "multiclass")
    rng = np.random.default_rng(4)
    frame = collapsed._Frame.at(state)
    x = frame.pack()
    means = free_means(state)
    for got, expected in zip(frame.unpack(x), means.values(), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-10, atol=1e-12)
    slope = {name: rng.standard_normal(mean.shape) for name, mean in means.items()}
    step = rng.standard_normal(x.size)
    change = sum(
        np.vdot(part, moved - mean)
        for part, moved, mean in zip(
            slope.values(), frame.unpack(x + step), frame.unpack(x), strict=True
        )
    )
    assert frame.pull(collapsed.Gradient(**slope)) @ step == pytest.approx(change, rel=1e-10)
