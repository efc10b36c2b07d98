"""Climbs over blocks: their gradient, their coordinates, and where they end."""

import numpy as np
import pytest
from sklearn.datasets import load_wine

from bsdr_models.bsdr import blocks as by_blocks
from bsdr_models.bsdr import mean_field as mf
from bsdr_models.bsdr import natural_steps, settled
from bsdr_models.bsdr.block_starts import prepare
from bsdr_models.bsdr.fit import fit_blocks, fit_mean_field
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import make_data
from bsdr_models.inference.row_blocks import Block, InProcess
from bsdr_models.numerics.scaling import Scaler

KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel")
PRIORS = Priors(latent_scale=0.5, projection_shape=2.0, weight_rate=1.5)
K, R = 4, 2

every_target = pytest.mark.parametrize("target", TARGETS)
every_prior = pytest.mark.parametrize("kind", KINDS)


class CountedBlocks(InProcess):
    """Blocks that count their visits."""

    visits = 0

    def visit(self, function, *parts, shared=None):
        self.visits += 1
        return super().visit(function, *parts, shared=shared)


def make_rows(target="multiclass", n=120, d=5):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)) * np.geomspace(0.3, 3.0, d)
    eta = X @ rng.standard_normal((d, K)) + rng.standard_normal((n, K))
    return X, {"multiclass": eta.argmax(axis=1), "multilabel": eta > 0.0, "regression": eta}[target]


def prepared(X, y, kind="entrywise", target="multiclass", n_blocks=3):
    edges = np.linspace(0, len(y), n_blocks + 1).astype(int)
    pairs = zip(edges[:-1], edges[1:], strict=True)  # noqa: RUF007
    rows = CountedBlocks([Block(X=X[a:b], y=y[a:b], begin=int(a)) for a, b in pairs])
    return prepare(rows, Scaler.fit(X), n_labels=K, target=target, projection_prior=kind)


def swept(data, kind, n_sweeps=5):
    options = {"n_components": R, "projection_prior": kind, "rng": np.random.default_rng(1)}
    state = by_blocks.init(data, PRIORS, **options)
    for _ in range(n_sweeps):
        state, info = by_blocks.step(state, data, PRIORS)
    return state, info


def frame_of(state, data):
    curvature = settled._curvature(state, data, PRIORS)
    return settled._Frame.at(state.shared, curvature, data.design, PRIORS)


@every_target
@every_prior
def test_gradient_is_that_of_the_bound_whose_rows_are_at_their_optimum(kind, target):
    data = prepared(*make_rows(target), kind, target)
    state, _ = swept(data, kind)
    frame = frame_of(state, data)
    x = frame.pack(state.shared)

    def bound(x):
        shared = settled.complete(state.shared, PRIORS, *frame.unpack(x))
        told = by_blocks.Message.of(shared, data, PRIORS), 400
        _, sums = data.blocks.visit(settled.settle_rows, state.rows, shared=told)
        info = mf.info(shared, data.known, PRIORS, sums=sums.latent, scores=sums.scores)
        return info.elbo, frame.pull(*settled.gradient(shared, sums.latent, data, PRIORS))

    _, gradient = bound(x)
    assert np.linalg.norm(gradient) > 1.0
    rng = np.random.default_rng(2)
    for _ in range(3):
        step = 1e-4 * rng.standard_normal(len(x))
        slope = bound(x + step)[0] - bound(x - step)[0]
        assert slope == pytest.approx(2.0 * gradient @ step, rel=1e-5, abs=1e-9)


@every_prior
def test_coordinates_go_there_and_back(kind):
    data = prepared(*make_rows(), kind)
    state, _ = swept(data, kind)
    frame, shared = frame_of(state, data), state.shared
    x = frame.pack(shared)
    projection, weights = frame.unpack(x)
    np.testing.assert_allclose(projection, shared.projection.mean, rtol=1e-9)
    np.testing.assert_allclose(weights, shared.weights.mean, rtol=1e-9)
    slopes = np.cos(projection), np.sin(weights)
    other = np.random.default_rng(0).standard_normal(len(x))
    moved = frame.unpack(other)
    along = sum(float(np.vdot(slope, each)) for slope, each in zip(slopes, moved, strict=True))
    assert frame.pull(*slopes) @ other == pytest.approx(along, rel=1e-9)


@every_target
@every_prior
def test_a_climb_hands_back_the_exact_bound_of_a_state_that_a_sweep_raises(kind, target):
    data = prepared(*make_rows(target), kind, target)
    state, before = swept(data, kind)
    seen = []
    found, info = settled.maximise(
        state, data, PRIORS, max_evaluations=15, on_step=lambda _, at: seen.append(at.elbo)
    )
    assert info.elbo > before.elbo + 1.0
    assert 5 <= len(seen) <= 15
    assert np.all(np.diff(seen) > 0.0)
    assert info.elbo == pytest.approx(seen[-1], abs=0.1)
    assert info.elbo == pytest.approx(sum(info.terms.values()), rel=1e-12)
    _, after = by_blocks.step(found, data, PRIORS)
    assert after.elbo >= info.elbo - 1e-9 * abs(info.elbo)


def test_what_a_climb_costs():
    data = prepared(*make_rows())
    state, _ = swept(data, "entrywise")
    before = data.blocks.visits
    settled.maximise(state, data, PRIORS, max_evaluations=8)
    # The information first, all rows once more last, and a search along a line is ended.
    assert 8 + 2 <= data.blocks.visits - before <= 8 + 2 + 3


def test_a_callback_ends_a_climb():
    data = prepared(*make_rows())
    state, _ = swept(data, "entrywise")
    seen = []

    def stop(state, info):
        seen.append(info.elbo)
        return len(seen) == 3

    _, info = settled.maximise(state, data, PRIORS, max_evaluations=100, on_step=stop)
    assert len(seen) == 3
    assert info.elbo == pytest.approx(seen[-1], abs=1.0)


@every_target
@every_prior
def test_fits_end_where_those_in_memory_end(kind, target):
    X, y = make_rows(target)
    options = {"n_components": R, "projection_prior": kind, "max_iter": 3000}
    scaled = Scaler.fit(X).transform(X)
    data = make_data(scaled, y, n_labels=K, target=target, projection_prior=kind)
    expected = fit_mean_field(data, PRIORS, rng=np.random.default_rng(0), **options)
    parts = prepared(X, y, kind, target)
    found = fit_blocks(parts, PRIORS, rng=np.random.default_rng(0), **options)
    assert found.converged
    assert found.elbo[-1] == pytest.approx(expected.elbo[-1], abs=0.02)
    ours, theirs = found.state.shared, expected.state

    def effect(design, state):  # which no rotation of the components changes
        return design.loadings(state.projection.mean) @ state.weights.mean[1:]

    np.testing.assert_allclose(
        effect(parts.design, ours), effect(data.design, theirs), rtol=0.05, atol=0.02
    )


def test_where_sweeps_creep_a_climb_does_not():
    rng = np.random.default_rng(0)
    y = rng.integers(K, size=1000)
    centres = np.zeros((K, 20))
    centres[:, :3] = 2.0 * rng.standard_normal((K, 3))
    data = prepared(centres[y] + rng.standard_normal((1000, 20)), y)
    options = {"n_components": 3, "projection_prior": "entrywise", "rng": np.random.default_rng(0)}
    climbs = fit_blocks(data, PRIORS, max_iter=100, **options)
    sweeps = fit_blocks(data, PRIORS, max_iter=300, quasi_newton=False, **options)
    assert climbs.elbo[-1] > sweeps.elbo[-1] + 10.0


@pytest.mark.parametrize("n_blocks", [1, 7])
def test_a_climb_does_not_depend_on_how_rows_are_cut(n_blocks):
    X, y = load_wine(return_X_y=True)
    options = {"n_components": R, "projection_prior": "entrywise", "max_iter": 30, "tol": 0.0}
    found = [
        fit_blocks(prepared(X, y, n_blocks=n), PRIORS, rng=np.random.default_rng(0), **options)
        for n in (3, n_blocks)
    ]
    np.testing.assert_allclose(found[1].elbo, found[0].elbo, rtol=1e-5)


def test_real_targets_are_swept():
    data = prepared(*make_rows("regression"), target="regression")
    options = {"n_components": R, "projection_prior": "entrywise", "max_iter": 20, "tol": 0.0}
    found = [
        fit_blocks(data, PRIORS, rng=np.random.default_rng(0), quasi_newton=flag, **options)
        for flag in (True, False)
    ]
    np.testing.assert_array_equal(found[0].elbo, found[1].elbo)


@pytest.mark.parametrize("n_blocks", [1, 3, 110])
def test_the_information_is_that_of_all_rows(n_blocks):
    data = prepared(*make_rows(), n_blocks=n_blocks)
    state, _ = swept(data, "entrywise")
    message = by_blocks.Message.of(state.shared, data, PRIORS)
    each = [
        natural_steps.curvatures(
            message.joined(own, own.latent[:0]), message.targets(block), PRIORS
        )
        for block, own in zip(data.blocks._blocks, state.rows, strict=True)
    ]
    expected = np.concatenate(each).mean(axis=0)
    found = settled._curvature(state, data, PRIORS)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_most_blocks_may_have_none_of_the_rows_that_are_looked_at(monkeypatch):
    monkeypatch.setattr(settled, "N_CURVED", 5)
    found = []
    for n_blocks in (1, 110):
        data = prepared(*make_rows(), n_blocks=n_blocks)
        found.append(settled._curvature(swept(data, "entrywise")[0], data, PRIORS))
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6, atol=1e-9)
