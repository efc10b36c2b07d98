"""Does the averaged sampler leave the joint distribution alone?

As in the test of the Gibbs sweeps: unknowns and y are drawn from the joint exactly, and sweeps
given y must not change the mean of any function. One point of each row is the noise that made its
label, the others are standard normal. Chains with the same labels run as one batch. The priors are
as heavy as the paper's, so all functions grow like logarithms at most.
"""

import math
from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.bsdr import averaged, averaged_target
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import Data
from bsdr_models.numerics import hmc
from bsdr_models.numerics.design import DenseDesign

PRIORS = Priors(
    projection_shape=1.0,
    projection_rate=2.0,
    weight_shape=1.2,
    weight_rate=0.8,
    bias_shape=0.9,
    bias_rate=1.5,
    latent_scale=0.7,
)
N, D, R, K, M = 3, 4, 2, 3, 5
KINDS = ("entrywise", "columnwise", "rowwise")
X = np.random.default_rng(111).standard_normal((N, D))
# Trajectories here: acceptance about 0.9, and lengths of order one.
STEP_SIZE, MAX_STEPS = 0.25, 10
# Standard errors. 17 functions in each of 6 honest runs: 4.5 is passed with 99.9 %.
BOUND = 4.5


def draw_joint(kind, n_chains, rng):
    """Q, W, b, points (C, M, R + 1, N) and labels (C, N)."""
    p = PRIORS
    group = {"entrywise": (D, R), "columnwise": (1, R), "rowwise": (D, 1)}[kind]

    def normals(shape, rate, size, precisions):
        phi = rng.gamma(shape, 1.0 / rate, (n_chains, *precisions))
        return rng.standard_normal((n_chains, *size)) / np.sqrt(phi)

    Q = normals(p.projection_shape, p.projection_rate, (D, R), group)
    W = normals(p.weight_shape, p.weight_rate, (R, K), (R, K))
    b = normals(p.bias_shape, p.bias_rate, (K,), (K,))
    points = rng.standard_normal((n_chains, M, R + 1, N))
    Z = X @ Q + p.latent_scale * points[:, 0, :R].swapaxes(1, 2)
    noise = rng.standard_normal((n_chains, N, K))
    y = (Z @ W + b[:, None] + noise).argmax(axis=2)
    points[:, 0, R] = np.take_along_axis(noise, y[:, :, None], axis=2)[:, :, 0]
    return (Q, W, b), points, y


def pose(kind, y):
    data = Data(design=DenseDesign(X), y=y, n_labels=K)
    return averaged_target.pose(data, PRIORS, n_components=R, projection_prior=kind)


def functions(state, problem):
    """Functions of unknowns and y, each (C,)."""
    Q, W, b = averaged_target.split(state.entries * problem.unit, problem)
    eps, u = state.points[:, 0, :R].swapaxes(1, 2), state.points[:, 0, R]
    Z = X @ Q + problem.latent_scale * eps
    eta = Z @ W + b[:, None]
    own = eta[:, np.arange(N), problem.y]
    gap = own - eta.mean(axis=2)
    others = state.points[:, 1:]
    found = {
        "asinh |q|": np.arcsinh(np.abs(Q)),
        "asinh |w|": np.arcsinh(np.abs(W)),
        "asinh |b|": np.arcsinh(np.abs(b)),
        "|q| > 3": np.abs(Q) > 3.0,
        "|w| > 3": np.abs(W) > 3.0,
        "log |Q|": 0.5 * np.log(np.sum(Q**2, axis=(1, 2))),
        "log |W|": 0.5 * np.log(np.sum(W**2, axis=(1, 2))),
        "log |QW|": 0.5 * np.log(np.sum((Q @ W) ** 2, axis=(1, 2))),
        "|q_1| < 2 |q_2|": np.sum(Q[..., 0] ** 2, 1) < 4.0 * np.sum(Q[..., 1] ** 2, 1),
        "asinh b of y": np.arcsinh(b[:, problem.y]),
        "asinh b, centred": np.arcsinh(np.abs(b - b.mean(axis=1, keepdims=True))),
        "asinh x'QW of y": np.arcsinh(
            (X @ Q @ (W - W.mean(axis=2, keepdims=True)))[:, np.arange(N), problem.y]
        ),
        "asinh gap": np.arcsinh(gap),
        "eps^2": eps**2,
        "u": u,
        "tanh eps tanh z": np.tanh(eps) * np.tanh(Z),
        "others^2": others**2,
    }
    return {
        name: np.asarray(value, dtype=float).reshape(len(Q), -1).mean(axis=1)
        for name, value in found.items()
    }


def drifts(kind, *, n_chains, n_sweeps, seed):
    """Mean change of each function in standard errors."""
    rng = np.random.default_rng([113, seed])
    blocks, points, y = draw_joint(kind, n_chains, rng)
    search = hmc.DualAveraging(centre=math.log(STEP_SIZE))
    changes = []
    for labels in np.unique(y, axis=0):
        rows = (y == labels).all(axis=1)
        problem = pose(kind, labels)
        flat = averaged_target.join(tuple(block[rows] for block in blocks))
        state = averaged.State(entries=flat / problem.unit, points=points[rows], search=search)
        before = functions(state, problem)
        for _ in range(n_sweeps):
            state = averaged.step(state, problem, tune=0, rng=rng)
        after = functions(state, problem)
        changes.append({name: after[name] - before[name] for name in before})
    joined = {name: np.concatenate([part[name] for part in changes]) for name in changes[0]}
    assert all(change.std() > 0.0 for change in joined.values())
    return {
        name: float(change.mean() / (change.std() / np.sqrt(n_chains)))
        for name, change in joined.items()
    }


def worst(drift):
    name = max(drift, key=lambda key: abs(drift[key]))
    return name, drift[name]


@pytest.fixture(autouse=True)
def _short_trajectories(monkeypatch):
    monkeypatch.setattr(averaged, "MAX_STEPS", MAX_STEPS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sweep_keeps_the_joint(kind):
    drift = drifts(kind, n_chains=40_000, n_sweeps=15, seed=1)
    assert abs(worst(drift)[1]) < BOUND, worst(drift)


@pytest.mark.parametrize("kind", KINDS)
def test_sweep_keeps_the_joint_in_a_short_run(kind):
    drift = drifts(kind, n_chains=5000, n_sweeps=4, seed=2)
    assert abs(worst(drift)[1]) < BOUND, worst(drift)


# Faults, each planted in one piece.


def scale_without_its_measure(monkeypatch):
    monkeypatch.setattr(averaged, "orbit_measure", lambda t, exponents: 0.0 * t)


def scale_in_the_wrong_measure(monkeypatch):
    """dg for dg / g: one power of g too many."""
    measure = averaged.orbit_measure
    monkeypatch.setattr(averaged, "orbit_measure", lambda t, exponents: measure(t, exponents) + t)


def coordinates_without_their_jacobian(monkeypatch):
    monkeypatch.setattr(
        averaged_target, "log_jacobian", lambda x: (np.zeros(len(x)), np.zeros_like(x))
    )


def acceptance_of_the_other_sign(monkeypatch):
    accept = hmc.acceptance_probability
    monkeypatch.setattr(
        hmc, "acceptance_probability", lambda gain: np.where(gain > -50.0, accept(-gain), 0.0)
    )


def any_point_is_kept(monkeypatch):
    monkeypatch.setattr(
        averaged,
        "choose_points",
        lambda share, *, rng: rng.integers(share.shape[1], size=share[:, 0].shape),
    )


def no_point_is_kept(monkeypatch):
    def refresh(state, problem, *, rng):
        return replace(state, points=rng.standard_normal(state.points.shape))

    monkeypatch.setattr(averaged, "refresh_points", refresh)


def points_are_not_turned(monkeypatch):
    monkeypatch.setattr(averaged, "turn_points", lambda points, angle, pair: points)


def half_the_degrees_of_freedom(monkeypatch):
    honest = averaged_target.pose

    def wrong(*args, **kwargs):
        problem = honest(*args, **kwargs)
        return replace(problem, dof=0.5 * problem.dof)

    monkeypatch.setattr(averaged_target, "pose", wrong)


def translation_in_units_of_its_size(monkeypatch):
    """The slice of a row sees the density at half the shift."""
    draw = averaged.slice_draws.draw

    def wrong(log_density, width, *, n_chains, rng):
        if width == 2.0:
            return draw(lambda t: log_density(0.5 * t), width, n_chains=n_chains, rng=rng)
        return draw(log_density, width, n_chains=n_chains, rng=rng)

    monkeypatch.setattr(averaged.slice_draws, "draw", wrong)


def variance_for_scale(monkeypatch):
    honest = averaged_target.pose

    def wrong(*args, **kwargs):
        problem = honest(*args, **kwargs)
        return replace(problem, unit=problem.unit**2)

    monkeypatch.setattr(averaged_target, "pose", wrong)


FAULTS = (
    scale_without_its_measure,
    scale_in_the_wrong_measure,
    coordinates_without_their_jacobian,
    acceptance_of_the_other_sign,
    any_point_is_kept,
    no_point_is_kept,
    points_are_not_turned,
    half_the_degrees_of_freedom,
    translation_in_units_of_its_size,
    variance_for_scale,
)


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_planted_fault_is_found(plant, monkeypatch):
    plant(monkeypatch)
    n_chains = 24_000 if plant is points_are_not_turned else 4000  # a fault that shows little
    drift = drifts("entrywise", n_chains=n_chains, n_sweeps=4, seed=3)
    assert abs(worst(drift)[1]) > BOUND + 1.0, worst(drift)
