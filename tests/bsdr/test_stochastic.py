"""Steps from parts of the rows: EM where they should be, unbiased, and soon near the top."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

from bsdr_models import BSDRClassifier
from bsdr_models.bsdr import blocks as by_blocks
from bsdr_models.bsdr import fit as fits
from bsdr_models.bsdr import mean_field as mf
from bsdr_models.bsdr import natural_steps, settled, stochastic
from bsdr_models.bsdr.block_starts import prepare
from bsdr_models.bsdr.fit import fit_blocks
from bsdr_models.bsdr.priors import Priors
from bsdr_models.inference.row_blocks import Block, InProcess
from bsdr_models.numerics.scaling import Scaler

KINDS = ("entrywise", "columnwise", "rowwise")
PRIORS = Priors(latent_scale=0.7, projection_shape=2.0, weight_rate=1.5)
K, R = 4, 2


def make_rows(n=90, d=6, *, target="multiclass", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    eta = X @ rng.standard_normal((d, K)) + rng.standard_normal((n, K))
    return X, eta.argmax(axis=1) if target == "multiclass" else eta > 0.0


def cut(X, y, n_blocks):
    edges = np.linspace(0, len(y), n_blocks + 1).astype(int)
    pairs = zip(edges[:-1], edges[1:], strict=True)  # noqa: RUF007
    return InProcess([Block(X=X[a:b], y=y[a:b], begin=int(a)) for a, b in pairs])


def prepared(n_blocks, *, kind="entrywise", target="multiclass", n=90):
    X, y = make_rows(n, target=target)
    blocks = cut(X, y, n_blocks)
    return prepare(blocks, Scaler.fit(X), n_labels=K, target=target, projection_prior=kind)


def swept(data, kind, n_sweeps=3):
    """A state after some exact sweeps, and the globals that the next one gives its positions."""
    state = by_blocks.init(
        data, PRIORS, n_components=R, projection_prior=kind, rng=np.random.default_rng(1)
    )
    for _ in range(n_sweeps):
        state, _ = by_blocks.step(state, data, PRIORS)
    return state, ahead(state, data)


def ahead(state, data):
    """The globals with the updates that a sweep makes before it meets the rows."""
    shared = state.shared
    phi = mf.update_projection_precision(shared, PRIORS)
    cross = data.inside(state.cross)
    projection = data.design.ridge_from(cross, phi.mean, PRIORS.latent_scale**2)
    return replace(shared, projection_precision=phi, projection=projection)


def lesson(shared, data, **more):
    k = data.known.n_labels
    nothing = natural_steps.Running(
        anchor=np.full((data.design.n_features, R), 7.0),
        pull=np.full((data.design.n_features, R), 7.0),
        moment=np.eye(1 + R),
        drive=np.full((1 + R, k), 7.0),
        curvature=np.eye(k),
    )
    options = {
        "progress": stochastic.Progress(shared=shared, running=nothing, n_steps=0),
        "message": by_blocks.Message.of(shared, data, PRIORS),
        "known": data.known,
        "chosen": frozenset([0]),
        "rate": lambda n_steps: 1.0,
        "batch_rows": 1000,
        "n_inner": 1,
        "seed": 0,
        "complete": True,
    }
    return stochastic.Lesson(**(options | more))


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


@pytest.mark.parametrize("target", ["multiclass", "multilabel"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_em_from_all_rows_is_the_exact_sweep(kind, target):
    data = prepared(1, kind=kind, target=target)
    state, shared = swept(data, kind)
    exact, _ = by_blocks.step(state, data, PRIORS)

    told = lesson(shared, data)
    rows, learned = data.blocks.visit(stochastic.learn, state.rows, shared=told)
    information = natural_steps.complete_information(shared, PRIORS)
    found = natural_steps.update_means(
        shared, learned_mean(learned), data.design, PRIORS, information
    )

    close(rows[0].latent, exact.rows[0].latent)
    close(found.weights.mean, exact.shared.weights.mean)
    close(found.weights.cov, exact.shared.weights.cov)
    close(found.weight_precision.rate, exact.shared.weight_precision.rate)
    # The projection of the next sweep, but for its precisions, which are made new once a visit.
    phi = shared.projection_precision.mean
    ridge = data.design.ridge_from(data.inside(exact.cross), phi, PRIORS.latent_scale**2)
    close(found.projection.mean, ridge.mean)


def learned_mean(learned):
    return stochastic._combine(lambda value: value / learned.n_rows, learned.running)


def test_precisions_are_those_of_the_exact_sweep():
    data = prepared(1)
    state, shared = swept(data, "entrywise")
    expected = ahead(replace(state, shared=shared), data)
    found = natural_steps.update_precisions(shared, data.design, PRIORS)
    close(found.projection_precision.rate, expected.projection_precision.rate)
    close(found.projection.variance, expected.projection.variance)
    close(found.projection.mean, shared.projection.mean)


@pytest.mark.parametrize("kind", KINDS)
def test_targets_of_parts_average_to_those_of_all_rows(kind):
    data = prepared(3, kind=kind)
    state, shared = swept(data, kind)
    begins = np.concatenate([[0], np.cumsum(data.blocks.sizes)[:-1]])
    whole = prepared(1, kind=kind)
    rows = (
        by_blocks.OwnRows(
            latent=np.concatenate([own.latent for own in state.rows]),
            scores=np.concatenate([own.scores for own in state.rows]),
            mode=np.concatenate([own.mode for own in state.rows]),
        ),
    )
    parts = [
        data.blocks.visit(
            stochastic.learn,
            state.rows,
            shared=lesson(shared, data, chosen=frozenset([int(begin)])),
        )[1].running
        for begin in begins
    ]
    _, learned = whole.blocks.visit(stochastic.learn, rows, shared=lesson(shared, whole))
    for name in ("anchor", "pull", "moment", "drive"):
        close(sum(getattr(part, name) for part in parts), getattr(learned.running, name))


def test_the_observed_information_is_that_of_differences():
    """Of the collapsed likelihood of one row in its prior position, rows at their optimum."""
    data = prepared(1)
    _, shared = swept(data, "entrywise")
    block = data.blocks._blocks[0]
    rows = data.scaler.transform(block.X)
    fitted = rows @ shared.projection.mean
    bare = replace(shared, weights=replace(shared.weights, cov=0.0 * shared.weights.cov))
    targets = by_blocks.Message.of(shared, data, PRIORS).targets(block)
    v = PRIORS.latent_scale**2

    def gradient(moved):
        found = natural_steps.join(bare, moved, moved)
        found = natural_steps.settle(found, targets, PRIORS, n_inner=200, n_nodes=32)
        return (found.latent.mean - moved) / v, found

    _, settled = gradient(fitted)
    few = natural_steps.CURVATURE_ROWS
    K_bar = natural_steps.mean_curvature(settled, targets, PRIORS)
    W, h = bare.weights.mean[1:], 1e-4
    for s in range(R):
        step = h * np.eye(R)[s]
        change = (gradient(fitted + step)[0] - gradient(fitted - step)[0]) / (2.0 * h)
        expected = -change[:few].mean(axis=0)
        np.testing.assert_allclose((W @ K_bar @ W.T)[s], expected, rtol=0.02, atol=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_estimates_from_blocks_average_to_the_exact_bound(kind):
    data = prepared(3, kind=kind)
    state, shared = swept(data, kind)
    shared = natural_steps.without_rows(shared)
    shared = replace(shared, latent=mf.update_latent(shared, PRIORS))
    _, info = settled.settle_all(shared, state.rows, data, PRIORS, n_inner=40)
    told = lesson(shared, data, n_inner=40)
    each = []
    for begin in np.concatenate([[0], np.cumsum(data.blocks.sizes)[:-1]]):
        one = replace(told, chosen=frozenset([int(begin)]))
        _, learned = data.blocks.visit(stochastic.learn, state.rows, shared=one)
        each.append(learned.elbo / learned.n_rows)
    assert np.std(each) > 1.0
    assert np.mean(each) == pytest.approx(info.elbo, rel=1e-6)


def test_the_bound_that_is_handed_back_is_that_of_the_state():
    data = prepared(3)
    result = fit(data, passes=2)
    _, again = settled.settle_all(result.state.shared, result.state.rows, data, PRIORS, n_inner=1)
    assert again.elbo >= result.info.elbo - 1e-9
    _, info = by_blocks.step(result.state, data, PRIORS)
    assert info.elbo >= again.elbo - 1e-6


def fit(data, kind="entrywise", **options):
    options = {"n_components": R, "projection_prior": kind, "passes": 5} | options
    return stochastic.fit_stochastic(data, PRIORS, rng=np.random.default_rng(0), **options)


@pytest.mark.parametrize("at_once", [1, 4])
@pytest.mark.parametrize("kind", KINDS)
def test_five_passes_come_near_and_climbs_finish(kind, at_once):
    data = prepared(4, kind=kind, n=4000)
    result = fit(data, kind, at_once=at_once, batch_rows=50)
    options = {"n_components": R, "projection_prior": kind, "rng": np.random.default_rng(0)}
    best = fit_blocks(data, PRIORS, max_iter=120, tol=0.1, **options)
    assert len(result.estimates) == 5 * 4 / at_once
    assert result.info.elbo > best.elbo[-1] * (1.03 if at_once == 1 else 1.07)
    finished = fit_blocks(data, PRIORS, max_iter=120, tol=0.1, resume=result.state, **options)
    assert finished.elbo[0] >= result.info.elbo - 1e-6
    assert finished.elbo[-1] == pytest.approx(best.elbo[-1], rel=1e-3)


def test_newton_gets_further_than_em():
    data = prepared(4, n=4000)
    steps = fit(data, passes=2)
    told = stochastic.Lesson
    try:
        stochastic.Lesson = lambda **given: told(**given, complete=True)
        em = fit(data, passes=2)
    finally:
        stochastic.Lesson = told
    assert steps.info.elbo > em.info.elbo + 10.0


def test_the_same_stream_gives_the_same_fit_and_sparse_rows_nearly():
    X, y = make_rows(400)
    X[np.abs(X) < 0.7] = 0.0
    scaler = Scaler.fit(X)
    runs = []
    for rows in (X, X, sparse.csr_array(X)):
        data = prepare(cut(rows, y, 2), scaler, n_labels=K)
        runs.append(fit(data, passes=1).info.elbo)
    assert runs[0] == runs[1]
    assert runs[2] == pytest.approx(runs[0], rel=1e-8)


def test_a_callback_ends_it_before_the_first_pass_has():
    data = prepared(4, n=400)
    seen = []
    result = fit(data, callbacks=[lambda *args: seen.append(args) or len(seen) == 2])
    assert result.interrupted
    assert [number for number, _, _ in seen] == [1, 2]
    assert len(result.estimates) == 2
    assert np.isfinite(result.info.elbo)
    assert [len(own.latent) for own in result.state.rows] == list(data.blocks.sizes)


def test_what_travels_can_be_pickled():
    data = prepared(2)
    _, shared = swept(data, "entrywise", 1)
    told = lesson(shared, data, rate=stochastic.Rate(forgetting=0.7, delay=1.0))
    assert pickle.loads(pickle.dumps(told)).batch_rows == 1000


@pytest.mark.parametrize(
    "options",
    [{"forgetting": 0.5}, {"forgetting": 1.1}, {"delay": -1.0}, {"passes": 0}, {"at_once": 0}],
)
def test_arguments_out_of_range(options):
    with pytest.raises(ValueError, match="must be"):
        fit(prepared(1), **options)


# ------------------------------------------------------------------------ as a start of sweeps


@pytest.mark.parametrize("kind", KINDS)
def test_sweeps_go_on_from_a_stochastic_start(kind):
    data = prepared(4, kind=kind, n=400)
    options = {"n_components": R, "projection_prior": kind, "max_iter": 10}
    # A restart has a stream of its own, spawned from that of the fit.
    rng = np.random.default_rng(3).spawn(1)[0]
    begun = stochastic.fit_stochastic(data, PRIORS, n_components=R, projection_prior=kind, rng=rng)
    result = fit_blocks(data, PRIORS, start="stochastic", rng=np.random.default_rng(3), **options)
    resumed = fit_blocks(data, PRIORS, resume=begun.state, rng=np.random.default_rng(0), **options)
    assert result.elbo[0] >= begun.info.elbo - 1e-6
    np.testing.assert_array_equal(result.elbo, resumed.elbo)


@pytest.fixture
def visits(monkeypatch):
    """Blocks at once of every stochastic start."""
    found, learn = [], fits.fit_stochastic

    def watched(*args, at_once, **options):
        found.append(at_once)
        return learn(*args, at_once=at_once, **options)

    monkeypatch.setattr(fits, "fit_stochastic", watched)
    return found


ARGUMENTS = {"latent_scale": 0.7, "block_rows": 100, "start": "stochastic", "random_state": 0}


@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
@pytest.mark.parametrize("n_sweeps", [3, 25])
def test_a_checkpoint_is_gone_on_from_without_the_passes(n_sweeps, visits, tmp_path):
    """Though it was stopped before the twentieth sweep, when the first state of a climb is due."""
    X, y = make_rows(400)
    more = {**ARGUMENTS, "checkpoint": tmp_path, "tol": 1e-9}
    begun = BSDRClassifier(R, max_iter=n_sweeps, **more).fit(X, y)
    ended = BSDRClassifier(R, max_iter=40, **more).fit(X, y)
    assert visits == [1]
    assert ended.lower_bounds_[0] >= begun.lower_bounds_[0] - 1e-9
    assert ended.lower_bounds_[-1] > begun.lower_bounds_[-1]


@pytest.mark.filterwarnings("ignore:mean field stopped after max_iter")
def test_the_scale_is_chosen_on_rows_in_memory_from_their_own_start(visits):
    X, y = make_rows(200)
    model = BSDRClassifier(R, max_iter=8, **{**ARGUMENTS, "latent_scale": None}).fit(X, y)
    assert model.latent_scale_ in (0.03, 0.1, 0.3, 1.0)
    assert visits == [1]


def test_only_the_first_restart_is_stochastic(visits):
    X, y = make_rows(200)
    model = BSDRClassifier(R, n_restarts=2, tol=1.0, **ARGUMENTS).fit(X, y)
    assert len(model._mixture.fits[0].result.restarts) == 2
    assert visits == [1]


def test_real_targets_are_refused():
    X, _ = make_rows()
    data = prepare(cut(X, X[:, :2], 1), None, n_labels=2, target="regression")
    with pytest.raises(ValueError, match="labels"):
        fit(data)
