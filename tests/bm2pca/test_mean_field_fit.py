"""Fits by mean field: acceleration, convergence, restarts."""

from dataclasses import replace

import numpy as np
import pytest

from bsdr_models.bm2pca.paper import mean_field, rotation, views
from bsdr_models.bm2pca.paper.loss_augmentation import EpsilonInsensitive, Hinge
from bsdr_models.bm2pca.paper.mean_field_fit import fit_mean_field
from bsdr_models.bm2pca.priors import PAPER

N, D, R = 24, 6, 3


def make_data(kind, *, n_problems=1, n_outcomes=1):
    """Data of low rank; every kind of view and target."""
    rng = np.random.default_rng([31, n_problems, n_outcomes])
    X = rng.standard_normal((N, 2)) @ rng.standard_normal((2, D)) + rng.standard_normal((N, D))
    X[:, 0] += 3.0
    y = np.where(X @ rng.standard_normal((D, n_problems * n_outcomes)) > 0.5, 1.0, -1.0)
    y = np.ascontiguousarray(y.reshape(N, n_problems, n_outcomes).swapaxes(0, 1))
    cost = np.full((n_problems, 1, 1), 2.0)
    if kind == "missing":
        X[rng.random(X.shape) < 0.2] = np.nan
    margins = Hinge(y=y, cost=cost)
    if kind == "real":
        margins = EpsilonInsensitive(
            y=y * 0.7, observed=np.ones(y.shape, bool), cost=cost, epsilon=0.1
        )
    found = [views.make_view(X)]
    if kind == "two views":
        found.append(views.make_view(rng.standard_normal((N, 4))))
    return mean_field.Data(views=tuple(found), margins=margins)


def started(data, n_sweeps):
    state = mean_field.init(data, PAPER, n_components=R, rng=np.random.default_rng(5))
    for _ in range(n_sweeps):
        state = mean_field.sweep(state, data, PAPER)
    return state


@pytest.mark.parametrize("kind", ["plain", "real", "missing", "two views"])
def test_unpack_inverts_pack_up_to_the_next_sweep(kind):
    """All that a sweep recomputes is corrupted first; two problems, two outcomes."""
    data = make_data(kind, n_problems=2, n_outcomes=2)
    state, other = started(data, 4), started(data, 1)
    spoilt = replace(
        state,
        views=tuple(
            replace(own, loadings=wrong.loadings)
            for own, wrong in zip(state.views, other.views, strict=True)
        ),
        latent=replace(state.latent, moments=other.latent.moments),
    )
    vector = mean_field.pack(spoilt)
    assert vector.ndim == 1
    again = mean_field.unpack(vector, spoilt, data)
    expected = mean_field.info(mean_field.sweep(state, data, PAPER), data, PAPER)
    got = mean_field.info(mean_field.sweep(again, data, PAPER), data, PAPER)
    assert got.terms == pytest.approx(expected.terms, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("accelerate", [False, True])
def test_bound_rises_and_is_reported(accelerate):
    data = make_data("plain")
    result = fit_mean_field(
        data,
        PAPER,
        n_components=R,
        rng=np.random.default_rng(0),
        max_iter=3000,
        accelerate=accelerate,
    )
    assert result.converged
    assert np.all(np.diff(result.elbo) >= -1e-9 * np.abs(result.elbo[1:]))
    assert result.elbo[-1] == pytest.approx(mean_field.info(result.state, data, PAPER).elbo)


def test_acceleration_reaches_the_bound_in_fewer_sweeps():
    data = make_data("plain")
    found = [
        fit_mean_field(
            data,
            PAPER,
            n_components=R,
            rng=np.random.default_rng(0),
            max_iter=5000,
            tol=1e-6,
            accelerate=accelerate,
        ).elbo
        for accelerate in (False, True)
    ]
    plain, fast = found
    assert fast[-1] > plain[-1] - 1e-2
    assert len(fast) < len(plain) / 2


def test_the_first_restart_has_the_given_initial_values():
    data = make_data("plain")
    starts = []

    def watch(iteration, state, info):
        starts.append(info.elbo)
        return True

    fit_mean_field(
        data,
        PAPER,
        n_components=R,
        rng=np.random.default_rng(0),
        start="pca",
        n_restarts=2,
        callbacks=[watch],
    )
    first, second = np.random.default_rng(0).spawn(2)
    for stream, start, got in zip((first, second), ("pca", "random"), starts, strict=True):
        state = mean_field.init(data, PAPER, n_components=R, rng=stream, start=start)
        assert got == pytest.approx(mean_field.step(state, data, PAPER)[1].elbo)


def test_no_rotation_in_the_first_rounds(monkeypatch):
    data, sweeps, turned_at = make_data("plain"), [], []
    rotate = rotation.rotate

    def watched(state, *arguments):
        turned_at.append(len(sweeps))
        return rotate(state, *arguments)

    monkeypatch.setattr(rotation, "rotate", watched)
    fit_mean_field(
        data,
        PAPER,
        n_components=R,
        rng=np.random.default_rng(0),
        n_restarts=2,
        max_iter=60,
        tol=0.0,
        callbacks=[lambda iteration, state, info: sweeps.append(iteration)],
    )
    (restart,) = np.flatnonzero(np.diff(sweeps) < 0) + 1
    for begin in (0, restart):
        assert 10 <= next(t for t in turned_at if t > begin) - begin < 20
