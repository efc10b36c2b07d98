"""Geweke's test of a sweep.

The hinge is no density of the labels, but it never exceeds one: with the labels fixed, unknowns and
X are drawn from their joint by rejection.
"""

from functools import partial

import numpy as np
import pytest

from bsdr_models.bm2pca.priors import BM2PCAPriors
from bsdr_models.papers.bm2pca import gibbs
from bsdr_models.papers.bm2pca.loss_augmentation import margins_of
from bsdr_models.papers.bm2pca.mean_field import ViewData

PRIORS = BM2PCAPriors(
    loading_shape=8.0,
    loading_rate=11.0,
    noise_shape=9.0,
    noise_rate=5.0,
    weight_shape=7.0,
    weight_rate=6.0,
    offset_precision=1.7,
)
N, D, R = 4, 3, 2
COST = 0.8
# Labels, some missing, by their number.
LABELS = {
    1: np.array([[1.0], [-1.0], [1.0], [0.0]]),
    2: np.array([[1.0, -1.0], [-1.0, 1.0], [0.0, -1.0], [0.0, 0.0]]),
}


def draw_prior(n_labels, n_draws, rng):
    """Unknowns and X, before any label."""
    p, c = PRIORS, n_draws
    r = rng.gamma(p.loading_shape, 1.0 / p.loading_rate, (c, R))
    tau = rng.gamma(p.noise_shape, 1.0 / p.noise_rate, c)
    nu = rng.gamma(p.weight_shape, 1.0 / p.weight_rate, (c, n_labels))
    t = rng.standard_normal((c, D)) / np.sqrt(p.offset_precision)
    W = rng.standard_normal((c, D, R)) / np.sqrt(r)[:, None]
    Z = rng.standard_normal((c, N, R))
    eta = rng.standard_normal((c, 1 + R, n_labels)) / np.sqrt(nu)[:, None]
    noise = rng.standard_normal((c, N, D)) / np.sqrt(tau)[:, None, None]
    X = Z @ W.swapaxes(1, 2) + t[:, None] + noise
    state = {
        "offset": t,
        "loading_precision": r,
        "loadings": W,
        "noise_precision": tau,
        "latent": Z,
        "weight_precision": nu,
        "weights": eta,
    }
    return state, X, Z @ eta[:, 1:] + eta[:, :1]


def draw_joint(n_labels, *, n_chains, rng):
    """Exact draws of all unknowns and X, which has a chain axis."""
    labels = LABELS[n_labels]
    found, kept = [], 0
    while kept < n_chains:
        state, X, f = draw_prior(n_labels, 50_000, rng)
        loss = (labels != 0.0) * np.maximum(0.0, 1.0 - labels * f)
        accepted = rng.standard_exponential(len(f)) > 2.0 * COST * loss.sum(axis=(1, 2))
        kept += accepted.sum()
        found.append({name: value[accepted] for name, value in {**state, "X": X, "f": f}.items()})
    whole = {k: np.concatenate([part[k] for part in found])[:n_chains] for k in found[0]}
    X, f = whole.pop("X"), whole.pop("f")
    slack = 1.0 / rng.wald(1.0 / np.abs(COST * (1.0 - labels * f)), 1.0)
    problem = ViewData(views=(), X=X, margins=margins_of(labels, COST, None))
    return gibbs.MarginGibbsState(**whole, slack_scale=slack[:, None]), problem


def functions(state, problem):
    """Functions of unknowns and data, each (C,)."""
    X, Z, W, t = problem.X, state.latent, state.loadings, state.offset[:, None]
    margins, eta, tau = problem.margins, state.weights, state.noise_precision[:, None, None]
    fitted = Z @ W.swapaxes(1, 2) + t
    f = Z @ eta[:, 1:] + eta[:, :1]
    values = gibbs.to_variables(state)
    known = LABELS[f.shape[2]] != 0.0
    y = margins.y * known
    slack = state.slack_scale[:, 0, known]
    return {
        "log r": np.log(state.loading_precision),
        "log tau": np.log(state.noise_precision),
        "log nu": np.log(state.weight_precision),
        "w^2": W**2,
        "w^2 r": W**2 * state.loading_precision[:, None],
        "t^2": t**2,
        "t x": t * X,
        "x^2 tau": X**2 * tau,
        "z^2": Z**2,
        "|x - t - W z|^2 tau": (X - fitted) ** 2 * tau,
        "x fitted": X * fitted,
        "|w1|^2 < |w2|^2": (W[:, :, 0] ** 2).sum(axis=1) < (W[:, :, 1] ** 2).sum(axis=1),
        "w1 z1 x": W[:, :1, 0] * Z[:, :, 0] * X[:, :, 0],
        "e0^2": eta[:, 0] ** 2,
        "eta^2 nu": eta[:, 1:] ** 2 * state.weight_precision[:, None],
        "e0 f": eta[:, :1] * f,
        "f^2": f**2,
        "f y": f * y,
        "f > 0.5": f > 0.5,
        "e0 y": eta[:, :1] * y,
        "coef^2": values["coef"] ** 2,
        "coef x y": (X @ values["coef"] + values["intercept"][:, None]) * y,
        "lambda": np.sqrt(slack),
        "1 / lambda": (1.0 / slack) < 2.0,
        "lambda y f": np.log(slack) * (y * f)[:, known],
    }


@pytest.mark.parametrize(
    ("n_labels", "n_chains", "n_sweeps"),
    [(1, 4000, 6), pytest.param(2, 10_000, 8, marks=pytest.mark.slow)],
)
def test_sweep_keeps_the_joint(check_joint, n_labels, n_chains, n_sweeps):
    """About 25 functions in each run: passed with 99.9 %."""
    sizes = {"n_chains": n_chains, "n_sweeps": n_sweeps}
    draw = partial(draw_joint, n_labels)
    check_joint(draw, functions, gibbs.step, PRIORS, seed=n_labels, **sizes)
