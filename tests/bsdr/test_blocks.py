"""The mean field over blocks of rows is the one in memory, however the rows are cut."""

import pickle
from functools import partial

import numpy as np
import pytest
from scipy import sparse

from bsdr_models.bsdr import blocks as by_blocks
from bsdr_models.bsdr import information
from bsdr_models.bsdr import mean_field as mf
from bsdr_models.bsdr.block_starts import prepare
from bsdr_models.bsdr.fit import fit_blocks, fit_mean_field
from bsdr_models.bsdr.predict import MeanFieldPosterior, label_log_probabilities, log_predictive
from bsdr_models.bsdr.priors import Priors
from bsdr_models.data import make_data
from bsdr_models.inference.row_blocks import Block, InProcess, Unread
from bsdr_models.numerics.scaling import Scaler

KINDS = ("entrywise", "columnwise", "rowwise")
TARGETS = ("multiclass", "multilabel", "regression")
CUTS = {1: [], 3: [17, 60], 7: [1, 2, 30, 31, 64, 80]}
PRIORS = Priors(latent_scale=0.7, projection_shape=2.0, weight_rate=1.5, noise_shape=2.5)
K = 4

every_problem = pytest.mark.parametrize("target", TARGETS)
every_prior = pytest.mark.parametrize("kind", KINDS)


def make_rows(target, n=90, d=6, *, seed=0):
    """Rows far from the origin, of different scales, and targets that depend on them."""
    rng = np.random.default_rng(seed)
    X = 3.0 + rng.standard_normal((n, d)) * np.geomspace(0.2, 5.0, d)
    eta = (X - 3.0) / np.geomspace(0.2, 5.0, d) @ rng.standard_normal((d, K))
    eta += rng.standard_normal((n, K))
    y = {"multiclass": eta.argmax(axis=1), "multilabel": eta > 0.0, "regression": eta}[target]
    return X, y


def cut(X, y, n_blocks, wrap=np.asarray):
    edges = [0, *CUTS[n_blocks], len(X)]
    pairs = zip(edges[:-1], edges[1:], strict=True)  # noqa: RUF007
    return InProcess([Block(X=wrap(X[a:b]), y=y[a:b], begin=a) for a, b in pairs])


def prepared(X, y, target, kind, n_blocks, wrap=np.asarray):
    """In memory and by blocks, from the same scaler."""
    scaler = Scaler.fit(X.astype(np.float64))
    rows = scaler.transform(X.astype(np.float64))
    data = make_data(rows, y, n_labels=K, target=target, projection_prior=kind)
    parts = prepare(
        cut(X, y, n_blocks, wrap), scaler, n_labels=K, target=target, projection_prior=kind
    )
    return data, parts


def started(data, parts, kind, r, start="discriminant"):
    options = {"n_components": r, "projection_prior": kind, "start": start}
    return (
        mf.init(data, PRIORS, rng=np.random.default_rng(1), **options),
        by_blocks.init(parts, PRIORS, rng=np.random.default_rng(1), **options),
    )


def assert_same(state, found, data, parts, *, rtol):
    """All factors, the projection over the features."""

    def close(got, expected):
        size = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol * size)

    shared = found.shared
    rows = parts.blocks.collect(found.rows)
    close(np.concatenate([own.latent for own in rows]), state.latent.mean)
    close(np.concatenate([own.scores for own in rows]), state.scores.mean)
    close(
        parts.design.loadings(shared.projection.mean), data.design.loadings(state.projection.mean)
    )
    phi, expected = shared.projection_precision, state.projection_precision
    close(
        parts.design.loading_variance(shared.projection.variance, phi.mean),
        data.design.loading_variance(state.projection.variance, expected.mean),
    )
    for got, factor in (
        (phi, expected),
        (shared.weight_precision, state.weight_precision),
        (shared.noise_precision, state.noise_precision),
    ):
        if factor is not None:
            close(got.shape, factor.shape)
            close(got.rate, factor.rate)
    close(shared.weights.mean, state.weights.mean)
    close(shared.weights.cov, state.weights.cov)
    close(shared.latent.cov, state.latent.cov)


def sweep(state, found, data, parts, n_sweeps, *, rtol=1e-9):
    """Step both, the terms of the bound agreeing all the way."""
    for _ in range(n_sweeps):
        state, expected = mf.step(state, data, PRIORS)
        found, info = by_blocks.step(found, parts, PRIORS)
        np.testing.assert_allclose(info.elbo, expected.elbo, rtol=rtol)
        assert info.terms.keys() == expected.terms.keys()
        for name, term in expected.terms.items():
            np.testing.assert_allclose(
                info.terms[name], term, rtol=rtol, atol=rtol * abs(expected.elbo), err_msg=name
            )
    return state, found


@every_problem
@every_prior
@pytest.mark.parametrize("n_blocks", CUTS)
def test_sweeps_are_those_in_memory(target, kind, n_blocks):
    data, parts = prepared(*make_rows(target), target, kind, n_blocks)
    state, found = started(data, parts, kind, K - 1)
    np.testing.assert_allclose(
        np.concatenate([own.latent for own in found.rows]), state.latent.mean, atol=1e-11
    )
    state, found = sweep(state, found, data, parts, 10)
    assert_same(state, found, data, parts, rtol=1e-9)


@every_prior
@pytest.mark.parametrize("wrap", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_blocks(kind, wrap):
    X, y = make_rows("multiclass")
    X[np.random.default_rng(3).random(X.shape) < 0.6] = 0.0
    data, parts = prepared(X, y, "multiclass", kind, 3, wrap)
    state, found = sweep(*started(data, parts, kind, 2), data, parts, 10)
    assert_same(state, found, data, parts, rtol=1e-9)


def test_single_precision_rows():
    X, y = make_rows("multiclass")
    X = X.astype(np.float32)
    data, parts = prepared(X, y, "multiclass", "entrywise", 3)
    state, found = sweep(*started(data, parts, "entrywise", 2), data, parts, 10)
    assert_same(state, found, data, parts, rtol=1e-9)


@every_prior
def test_more_features_than_rows_and_a_constant_one(kind):
    """In memory the sweeps take N x N systems here, and singular values; by blocks never."""
    X, y = make_rows("multiclass", 40, 70)
    X[:, 5] = 1.0
    scaler = Scaler.fit(X)
    data = make_data(scaler.transform(X), y, n_labels=K, projection_prior=kind)
    edges = (0, 11, 40)
    rows = InProcess(
        [Block(X=X[a:b], y=y[a:b], begin=a) for a, b in (edges[:2], edges[1:])],
    )
    parts = prepare(rows, scaler, n_labels=K, projection_prior=kind)
    assert parts.design.n_features == data.design.n_features
    state, found = sweep(*started(data, parts, kind, 2), data, parts, 10, rtol=1e-8)
    assert_same(state, found, data, parts, rtol=1e-7)


def test_principal_axes():
    """They have no sign, and the bound does not see it."""
    data, parts = prepared(*make_rows("multiclass"), "multiclass", "entrywise", 3)
    sweep(*started(data, parts, "entrywise", 3, "pca"), data, parts, 10)


def test_given_positions():
    X, y = make_rows("multiclass")
    _, parts = prepared(X, y, "multiclass", "entrywise", 3)
    given = np.random.default_rng(5).standard_normal((len(X), 3))
    options = {"n_components": 3, "projection_prior": "entrywise", "start": given}
    found = by_blocks.init(parts, PRIORS, rng=np.random.default_rng(1), **options)
    np.testing.assert_array_equal(np.concatenate([own.latent for own in found.rows]), given)
    np.testing.assert_allclose(found.cross, parts.scaler.transform(X).T @ given, atol=1e-10)


@pytest.mark.parametrize(("start", "r"), [("random", 3), ("discriminant", 6), ("pca", 5)])
def test_random_numbers_do_not_depend_on_the_cut(start, r):
    X, y = make_rows("multiclass", d=4)  # fewer features and classes than components
    found = []
    for n_blocks in CUTS:
        _, parts = prepared(X, y, "multiclass", "columnwise", n_blocks)
        state = by_blocks.init(
            parts,
            PRIORS,
            n_components=r,
            projection_prior="columnwise",
            rng=np.random.default_rng(2),
            start=start,
        )
        found.append(np.concatenate([own.latent for own in state.rows]))
    for other in found[1:]:
        np.testing.assert_allclose(found[0], other, atol=1e-9)
    centred = found[0] - found[0].mean(axis=0)
    assert np.linalg.matrix_rank(centred, tol=1e-3) == r
    n_found = {"random": 0, "discriminant": K - 1, "pca": 4}[start]
    spread = found[0].std(axis=0)
    np.testing.assert_allclose(spread[:n_found], 1.0, rtol=1e-9)
    expected = 1.0 if start == "random" else 0.1
    assert np.all(np.abs(spread[n_found:] / expected - 1.0) < 0.35)  # 4 standard errors


@every_problem
@every_prior
def test_squarem_is_that_in_memory(target, kind):
    data, parts = prepared(*make_rows(target), target, kind, 3)
    options = {"n_components": 2, "projection_prior": kind, "max_iter": 60, "tol": 0.0}
    expected = fit_mean_field(
        data, PRIORS, rng=np.random.default_rng(0), quasi_newton=False, **options
    )
    got = fit_blocks(parts, PRIORS, rng=np.random.default_rng(0), quasi_newton=False, **options)
    assert len(got.elbo) == len(expected.elbo)
    np.testing.assert_allclose(got.elbo, expected.elbo, rtol=1e-7)
    plain = fit_blocks(parts, PRIORS, rng=np.random.default_rng(0), accelerate=False, **options)
    assert got.elbo[-1] > plain.elbo[-1]  # it did extrapolate


class CountedRows(Unread):
    """Rows that count how often they are read."""

    def __init__(self, X):
        self.X, self.reads = X, 0

    @property
    def shape(self):
        return self.X.shape

    def read(self):
        self.reads += 1
        return self.X


@pytest.mark.parametrize("accelerate", [True, False])
def test_a_sweep_reads_the_rows_once(accelerate, monkeypatch):
    X, y = make_rows("multiclass")
    rows = CountedRows(X)
    blocks = InProcess([Block(X=rows, y=y, begin=0)])
    parts = prepare(blocks, Scaler.fit(X), n_labels=K)
    assert rows.reads == 1
    before = []  # the reads until each sweep
    step = by_blocks.step

    def watched(*args):
        before.append(rows.reads)
        return step(*args)

    monkeypatch.setattr(by_blocks, "step", watched)
    fit = fit_blocks(
        parts,
        PRIORS,
        n_components=2,
        projection_prior="entrywise",
        rng=np.random.default_rng(0),
        max_iter=12,
        tol=0.0,
        accelerate=accelerate,
        quasi_newton=False,
    )
    assert len(fit.elbo) == 12
    assert before == list(range(2, 2 + len(before)))  # one to start, and one for each sweep
    assert rows.reads == 2 + len(before)


def test_a_fit_goes_on_where_another_ended():
    _, parts = prepared(*make_rows("multiclass"), "multiclass", "rowwise", 3)
    fit = partial(
        fit_blocks,
        parts,
        PRIORS,
        n_components=2,
        projection_prior="rowwise",
        accelerate=False,
        tol=0.0,
    )
    whole = fit(rng=np.random.default_rng(0), max_iter=20)
    first = fit(rng=np.random.default_rng(0), max_iter=8)
    stored = pickle.loads(pickle.dumps(first.state))
    second = fit(rng=np.random.default_rng(9), max_iter=12, resume=stored)
    np.testing.assert_array_equal(np.concatenate([first.elbo, second.elbo]), whole.elbo)


@every_problem
@every_prior
def test_prediction_is_that_in_memory(target, kind):
    X, y = make_rows(target)
    data, parts = prepared(X, y, target, kind, 3)
    state, found = sweep(*started(data, parts, kind, 2), data, parts, 10)
    expected = MeanFieldPosterior(state=state, data=data, latent_scale=PRIORS.latent_scale)
    got = by_blocks.posterior(found, parts, PRIORS)
    got = pickle.loads(pickle.dumps(got))
    new, y_new = make_rows(target, 20, seed=4)
    rows = parts.scaler.transform(new)
    for one, other in zip(
        (got.positions(rows).mean, got.positions(rows).cov),
        (expected.positions(rows).mean, expected.positions(rows).cov),
        strict=True,
    ):
        np.testing.assert_allclose(one, other, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(
        log_predictive(got, rows, y_new), log_predictive(expected, rows, y_new), rtol=1e-7
    )
    if target != "regression":
        np.testing.assert_allclose(
            label_log_probabilities(got, rows), label_log_probabilities(expected, rows), rtol=1e-7
        )
    np.testing.assert_allclose(
        information.loading_variance(got.state, got.data, got.latent_scale, got.information),
        information.loading_variance(state, data, PRIORS.latent_scale),
        rtol=1e-6,
    )
