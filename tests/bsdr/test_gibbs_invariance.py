"""Geweke's test of a sweep; the priors are heavy enough for all moments below to exist."""

from functools import partial

import numpy as np
import pytest

from bsdr_models.papers.bsdr import gibbs
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.mean_field import Data
from bsdr_models.papers.bsdr.priors import Priors

PRIORS = Priors(
    projection_shape=7.0,
    projection_rate=5.0,
    weight_shape=8.0,
    weight_rate=11.0,
    bias_shape=9.0,
    bias_rate=4.0,
    noise_shape=7.0,
    noise_rate=6.0,
    latent_scale=0.7,
)
R, K = 2, 3
# N, D: primal and dual ridge.
SIZES = {"tall": (5, 3), "wide": (3, 5)}
KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")


def draw_joint(kind, target, size, *, n_chains, rng):
    """Exact draws of unknowns and y; y has a chain axis."""
    (n, d), c, p = SIZES[size], n_chains, PRIORS
    X = np.random.default_rng(51).standard_normal((n, d))
    group = {"entrywise": (d, R), "columnwise": (1, R), "rowwise": (d, 1)}[kind]
    phi = rng.gamma(p.projection_shape, 1.0 / p.projection_rate, (c, *group))
    Q = rng.standard_normal((c, d, R)) / np.sqrt(phi)
    Z = X @ Q + p.latent_scale * rng.standard_normal((c, n, R))
    psi = rng.gamma(p.weight_shape, 1.0 / p.weight_rate, (c, R, K))
    lam = rng.gamma(p.bias_shape, 1.0 / p.bias_rate, (c, K))
    W = rng.standard_normal((c, R, K)) / np.sqrt(psi)
    b = rng.standard_normal((c, K)) / np.sqrt(lam)
    tau = rng.gamma(p.noise_shape, 1.0 / p.noise_rate, (c, K))
    regression = target == "regression"
    noise = 1.0 / np.sqrt(tau)[:, None] if regression else 1.0
    T = Z @ W + b[:, None] + noise * rng.standard_normal((c, n, K))
    y = {"multiclass": T.argmax(axis=2), "multilabel": T > 0.0, "regression": T}[target]
    state = gibbs.GibbsState(
        projection_precision=phi,
        projection=Q,
        latent=Z,
        weight_precision=psi,
        weights=W,
        bias_precision=lam,
        bias=b,
        utilities=None if regression else T,
        noise_precision=tau if regression else None,
    )
    return state, Data(design=DenseDesign(X), y=y, n_labels=K, target=target)


def functions(state, data):
    """Functions of unknowns and y, each (C,)."""
    X, Q, Z = data.design.X, state.projection, state.latent
    W, b = state.weights, state.bias
    y = data.y
    if data.target == "multiclass":
        y = np.eye(K)[y]
    found = {
        "log phi": np.log(state.projection_precision),
        "phi": state.projection_precision,
        "log psi": np.log(state.weight_precision),
        "log lambda": np.log(state.bias_precision),
        "q^2": Q**2,
        "q^2 phi": Q**2 * state.projection_precision,
        "w^2": W**2,
        "b^2": b**2,
        "b y": b[:, None] * y,
        "z^2": Z**2,
        "|z - Q'x|^2": (Z - X @ Q) ** 2,
        "z Q'x": Z * (X @ Q),
        "y W'z": y * (Z @ W),
        "y W'Q'x": y * (X @ Q @ W),
        "eta^2": (Z @ W + b[:, None]) ** 2,
        "|q1|^2 < |q2|^2": (Q[:, :, 0] ** 2).sum(axis=1) < (Q[:, :, 1] ** 2).sum(axis=1),
        "q1 w1 y2": Q[:, 0, :1] * W[:, 0, :1] * y[:, 0, 1:2],
    }
    if state.utilities is not None:
        T = state.utilities
        found |= {
            "t^2": T**2,
            "t eta": T * (Z @ W + b[:, None]),
            "t y": T * y,
            "t < 0.5": T < 0.5,
        }
    else:
        found["log tau"] = np.log(state.noise_precision)
        found["|y - eta|^2 tau"] = (y - Z @ W - b[:, None]) ** 2 * state.noise_precision[:, None]
    return found


# Every kind with every target, in both sizes in turn.
CASES = [
    (kind, target, list(SIZES)[(i + j) % 2])
    for i, kind in enumerate(KINDS)
    for j, target in enumerate(TARGETS)
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "target", "size"), CASES)
def test_joint_is_invariant(check_joint, kind, target, size):
    """About 20 functions in each of 9 runs: passed with 99.9 %."""
    draw = partial(draw_joint, kind, target, size)
    check_joint(draw, functions, gibbs.step, PRIORS, n_chains=8000, n_sweeps=8, seed=1)
