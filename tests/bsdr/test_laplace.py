"""Laplace's method for the hierarchical model: derivatives, prior, agreement with sampling."""

import os

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.special import logsumexp
from sklearn.datasets import load_wine

from bsdr_models.block_sources import make_blocks
from bsdr_models.bsdr import laplace
from bsdr_models.bsdr.laplace import fit_laplace, fit_laplace_blocks, prepare
from bsdr_models.bsdr.laplace_prior import ProductPrior
from bsdr_models.bsdr.laplace_sums import Response, sum_data
from bsdr_models.bsdr.posterior import Metric, Problem
from bsdr_models.bsdr.priors import HierarchicalPriors
from bsdr_models.inference.sample_blocks import Block, InProcess, Unread
from bsdr_models.inference.tempering import Moves, run_tempering
from bsdr_models.numerics.scaling import Scaler

PRIORS = HierarchicalPriors()
# Target, labels, components: weights of full and lower rank, and more components than contrasts.
SHAPES = (
    ("multiclass", 3, 2),
    ("multiclass", 4, 2),
    ("multilabel", 3, 2),
    ("regression", 2, 1),
    ("regression", 1, 2),
)
every_shape = pytest.mark.parametrize(("target", "k", "r"), SHAPES)


def make_rows(target, n, d, k, r, *, seed=0, size=1.2):
    """Correlated features, and targets that depend on r combinations of them."""
    rng = np.random.default_rng(seed)
    X = 3.0 + rng.standard_normal((n, d)) @ (np.eye(d) + 0.3 * rng.standard_normal((d, d)))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    coef = rng.standard_normal((d, r)) @ rng.standard_normal((r, k)) * size / np.sqrt(d)
    t = Z @ coef + 0.3 * rng.standard_normal(k) + rng.standard_normal((n, k))
    return X, {"multiclass": t.argmax(axis=1), "multilabel": t > 0.0, "regression": t}[target]


def make_problem(target, n, d, k, r, **options):
    X, y = make_rows(target, n, d, k, r, **options)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    if target == "regression":
        y = (y - y.mean(axis=0)) / y.std(axis=0)
    return Problem.build(
        Metric.learn(X).whiten(X), y, n_labels=k, n_components=r, target=target, priors=PRIORS
    )


def make_search(problem, basis, at):
    response = Response(
        target=problem.target, n_labels=problem.contrasts.shape[1], priors=problem.priors
    )
    blocks = InProcess([Block(X=problem.X, y=problem.y, begin=0)])
    sums = blocks.reduce(sum_data, shared=response)
    prepared = laplace.Prepared(response=response, metric=None, sums=sums)
    search = laplace._Search(
        blocks, prepared, problem.n_components, None, lambda count, value: None
    )
    search.move_to(laplace.SearchState(basis, at, search.spread))
    return search


def coefficients(problem, theta):
    """Coefficients and biases, flattened: (S, B K + K)."""
    found = problem.parameters(theta, rng=np.random.default_rng(0))
    coef = np.einsum("srb,srk->sbk", found.projection, found.weights).reshape(len(theta), -1)
    return np.concatenate([coef, found.bias], axis=1)


# ------------------------------------------------------------------------------- derivatives


@every_shape
def test_gradient_and_hessian_against_finite_differences(target, k, r):
    problem = make_problem(target, 80, 5, k, max(r, 1))
    rng = np.random.default_rng(1)
    j, b = len(problem.contrasts), problem.X.shape[1]
    rank = min(r, j)
    n = b * rank + rank * (j - rank) + j + (k if target == "regression" else 0)
    basis = np.linalg.qr(rng.standard_normal((j, j)))[0] if rank < j else np.eye(j)
    search = make_search(problem, basis, 0.5 * rng.standard_normal(n))
    value = search(search.at)[0]
    step = 1e-5

    def change(x):
        pairs = [(search(x + step * e), search(x - step * e)) for e in np.eye(n)]
        slopes = [(up[0] - down[0]) / (2.0 * step) for up, down in pairs]
        return np.array(slopes), np.array([(up[1] - down[1]) / (2.0 * step) for up, down in pairs])

    np.testing.assert_allclose(search(search.at)[1], change(search.at)[0], rtol=1e-5, atol=1e-4)
    search.recentre()
    assert search(search.at)[0] == pytest.approx(value, rel=1e-10)  # the same product
    slope, curvature = change(search.at)
    np.testing.assert_allclose(search(search.at)[1], slope, rtol=1e-5, atol=1e-4)
    search.update_hessian()
    np.testing.assert_allclose(-search.precision, curvature, rtol=1e-4, atol=2e-2)


def test_log_likelihood_is_that_of_the_problem():
    for target, k, r in SHAPES:
        problem = make_problem(target, 60, 5, k, r)
        found = fit_laplace(problem, rng=np.random.default_rng(0), n_draws=30)
        expected = problem.log_likelihood(found.draws)[0]
        np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-9)


# ------------------------------------------------------------------------------- the prior


@pytest.mark.parametrize(("b", "r", "j"), [(10, 2, 2), (12, 3, 1), (8, 1, 1)])
def test_density_of_the_product_is_a_mean_over_weights_and_scale(b, r, j):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((b, min(r, j)))
    W = rng.standard_normal((200_000, r, j))
    log_tau = PRIORS.scale_location + PRIORS.scale_width * rng.standard_normal(len(W))
    T = np.exp(2.0 * log_tau)[:, None, None] * np.swapaxes(W, 1, 2) @ W
    log_p = -0.5 * b * np.linalg.slogdet(T)[1] - 0.5 * b * j * np.log(2.0 * np.pi)
    log_p -= 0.5 * np.einsum("sij,ji->s", np.linalg.inv(T), F.T @ F)
    found = ProductPrior(b, r, j, PRIORS).density(F, np.zeros((j, 0)))
    assert found == pytest.approx(logsumexp(log_p) - np.log(len(W)), abs=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(("b", "r", "j"), [(6, 1, 3), (10, 2, 2), (9, 3, 2), (10, 2, 4), (4, 2, 3)])
def test_unidentified_parameters_are_drawn_from_the_prior(b, r, j):
    """Parameters drawn given the product of a prior draw are distributed as the prior."""
    rng = np.random.default_rng(b)
    prior, rank = ProductPrior(b, r, j, PRIORS), min(r, j)
    first, again = [], []
    for _ in range(1500):
        Q, W, u = rng.standard_normal((r, b)), rng.standard_normal((r, j)), rng.standard_normal()
        M = np.exp(PRIORS.scale_location + PRIORS.scale_width * u) * Q.T @ W
        basis = np.linalg.qr(rng.standard_normal((j, j)))[0] if rank < j else np.eye(j)
        V0, aside = basis[:rank], basis[rank:]
        F = M @ V0.T
        A = np.linalg.lstsq(F, M @ aside.T, rcond=None)[0]
        V = V0 + A @ aside
        projection, weights, log_scale = prior.complete(F, A, V, rng=rng)
        tau = np.exp(PRIORS.scale_location + PRIORS.scale_width * log_scale)
        np.testing.assert_allclose(tau * projection.T @ weights, M, rtol=1e-6, atol=1e-8)
        for kept, values in ((first, (Q, W, u)), (again, (projection, weights, log_scale))):
            gram = values[1] @ values[1].T if r <= j else values[1].T @ values[1]
            log_det = np.linalg.slogdet(gram)[1]
            kept.append([values[2], np.sum(values[0] ** 2), np.trace(gram), log_det])
    for own, expected in zip(np.transpose(again), np.transpose(first), strict=True):
        assert stats.ks_2samp(own, expected).pvalue > 1e-3


# ------------------------------------------------------------------------------- the posterior


def check_against_sampling(problem, moves, *, widest=0.1, evidence=0.5, shift=0.25, **more):
    found = fit_laplace(problem, rng=np.random.default_rng(0), n_draws=2000)
    assert found.converged
    assert found.pareto_k < 0.7
    exact = run_tempering(
        problem.log_likelihood,
        problem.n_parameters,
        moves,
        rng=np.random.default_rng(1),
        **more,
    )
    assert found.log_evidence == pytest.approx(exact.log_evidence, abs=evidence)
    ours, theirs = (coefficients(problem, each.draws) for each in (found, exact))
    widths = [np.diff(np.quantile(each, [0.05, 0.95], axis=0), axis=0) for each in (ours, theirs)]
    ratio = widths[0] / widths[1]
    np.testing.assert_allclose(ratio, 1.0, atol=2.0 * widest)
    assert np.sqrt(np.mean((ratio - 1.0) ** 2)) < widest
    difference = (ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    assert np.abs(difference).max() < shift


@pytest.mark.slow
def test_regression_agrees_with_sampling():
    moves = Moves(n_particles=1000, n_moves=4, n_warm_up=8, n_kept=3, n_between=3)
    check_against_sampling(make_problem("regression", 1000, 5, 1, 1), moves)


@pytest.mark.slow
def test_classes_of_many_samples_agree_with_sampling():
    # With short trajectories directions known from the prior only are 20 % too narrow. The log
    # evidence of 100 particles has a standard error of one to two nats.
    moves = Moves(n_particles=100, n_moves=3, n_warm_up=8, n_kept=15, n_last=80, last_steps=64)
    problem = make_problem("multiclass", 5000, 10, 3, 2)
    more = {"jump": problem.rescale, "align": problem.align}
    check_against_sampling(problem, moves, evidence=3.0, **more)


@pytest.mark.slow
def test_weights_of_lower_rank_agree_with_sampling():
    moves = Moves(n_particles=200, n_moves=4, n_warm_up=10, n_kept=4, n_between=4)
    problem = make_problem("multiclass", 1000, 6, 4, 2)
    # The posterior is skewed, and the log evidence of 200 particles scatters by half a nat.
    check_against_sampling(problem, moves, widest=0.15, evidence=1.5, shift=0.4)


def test_pareto_k_is_large_for_few_separable_samples():
    X, y = load_wine(return_X_y=True)
    X, y = X[::8], y[::8]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    problem = Problem.build(
        Metric.learn(X).whiten(X),
        y,
        n_labels=3,
        n_components=2,
        target="multiclass",
        priors=PRIORS,
    )
    assert fit_laplace(problem, rng=np.random.default_rng(0)).pareto_k > 0.7


@pytest.mark.slow
def test_mode_is_invariant_to_permutations_of_classes_and_samples():
    problem = make_problem("multiclass", 600, 5, 4, 2)
    classes = np.array([2, 0, 3, 1])
    order = np.random.default_rng(0).permutation(600)
    other = Problem.build(
        problem.X[order],
        classes[problem.y[order]],
        n_labels=4,
        n_components=2,
        target="multiclass",
        priors=PRIORS,
    )
    ours, theirs = (
        fit_laplace(each, rng=np.random.default_rng(0), n_draws=400) for each in (problem, other)
    )
    assert ours.log_evidence == pytest.approx(theirs.log_evidence, abs=0.1)
    mode, permuted = (
        coefficients(p, f.mode[None])[0] for p, f in ((problem, ours), (other, theirs))
    )
    permuted = permuted.reshape(-1, 4)[:, classes].ravel()
    np.testing.assert_allclose(mode, permuted, atol=1e-5)


def test_interrupted_search_returns_its_best_parameters():
    problem = make_problem("multiclass", 300, 5, 3, 2)

    def stop(count, value):
        if count == 5:
            raise KeyboardInterrupt

    found = fit_laplace(problem, rng=np.random.default_rng(0), on_evaluation=stop)
    assert found.interrupted
    assert not found.converged
    assert np.isfinite(found.draws).all()


def test_fewer_features_than_components_raise():
    problem = make_problem("multiclass", 100, 2, 5, 2)
    wider = Problem.build(
        problem.X, problem.y, n_labels=5, n_components=3, target="multiclass", priors=PRIORS
    )
    with pytest.raises(ValueError, match="2 features that vary independently"):
        fit_laplace(wider, rng=np.random.default_rng(0))


# ------------------------------------------------------------------------------- in blocks


class OnDisk(Unread):
    """Samples that are read on demand."""

    def __init__(self, rows):
        self._samples = rows

    @property
    def shape(self):
        return self._samples.shape

    def read(self):
        return self._samples.copy()


def fit_in_blocks(blocks, scaler, target, k, r, **options):
    prepared = prepare(blocks, scaler, n_labels=k, target=target, priors=PRIORS)
    rng = np.random.default_rng(0)
    options = {"n_draws": 40, "n_starts": 1, **options}
    return fit_laplace_blocks(blocks, prepared, n_components=r, rng=rng, **options), prepared


def same(found, expected):
    sd = np.sqrt(np.diag(np.linalg.inv(expected.normal.precision)))
    difference = found.normal.mean - expected.normal.mean
    assert np.abs(difference).max() < 1e-6
    assert np.abs(difference / sd).max() < 1e-4
    ours, theirs = (np.linalg.inv(each.normal.precision) for each in (found, expected))
    np.testing.assert_allclose(ours, theirs, atol=1e-4 * np.abs(theirs).max())
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-4)
    np.testing.assert_allclose(found.draws, expected.draws, atol=1e-4)


@every_shape
def test_blocks_have_the_mode_of_samples_in_memory(target, k, r):
    X, y = make_rows(target, 400, 5, k, r)
    scaler = Scaler.fit(X)
    Z = scaler.transform(X)
    problem = Problem.build(
        Metric.learn(Z).whiten(Z), y, n_labels=k, n_components=r, target=target, priors=PRIORS
    )
    expected = fit_laplace(problem, rng=np.random.default_rng(0), n_draws=40, n_starts=1)
    assert expected.converged
    cuts = np.split(np.arange(400), [17, 90, 91, 300])
    for kind in (np.asarray, OnDisk, sparse.csr_array):
        blocks = InProcess([Block(X=kind(X[i]), y=y[i], begin=int(i[0])) for i in cuts])
        same(fit_in_blocks(blocks, scaler, target, k, r)[0], expected)


def test_samples_without_a_label_are_ignored():
    X, y = make_rows("multiclass", 300, 4, 3, 2)
    unlabelled = np.where(np.arange(300) % 3 == 0, -1, y)
    kept = unlabelled >= 0
    scaler = Scaler.fit(X)
    found, expected = (
        fit_in_blocks(make_blocks(*own, block_size=70), scaler, "multiclass", 3, 2)[0]
        for own in ((X, unlabelled), (X[kept], y[kept]))
    )
    np.testing.assert_allclose(found.normal.mean, expected.normal.mean, atol=1e-6)


@pytest.mark.slow
def test_workers_have_the_mode_of_one_process(threads_cluster):
    X, y = make_rows("multiclass", 900, 6, 4, 2)
    scaler = Scaler.fit(X)
    found, expected = (
        fit_in_blocks(make_blocks(X, y, block_size=130, client=client), scaler, "multiclass", 4, 2)[
            0
        ]
        for client in (threads_cluster, None)
    )
    same(found, expected)


def test_search_resumes_from_its_checkpoint(tmp_path):
    X, y = make_rows("multiclass", 500, 6, 4, 2)
    scaler, blocks = Scaler.fit(X), make_blocks(X, y, block_size=130)
    expected, _ = fit_in_blocks(blocks, scaler, "multiclass", 4, 2)

    def lose(count, value):
        if count == 17:
            raise ConnectionError

    options = {"checkpoint": tmp_path, "every": 5}
    with pytest.raises(ConnectionError):
        fit_in_blocks(blocks, scaler, "multiclass", 4, 2, on_evaluation=lose, **options)
    found, _ = fit_in_blocks(blocks, scaler, "multiclass", 4, 2, **options)
    same(found, expected)
    assert found.n_evaluations < expected.n_evaluations
    with pytest.raises(ValueError, match="n_components was 2 and is 3"):
        fit_in_blocks(blocks, scaler, "multiclass", 4, 3, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "k", "r"), SHAPES[:4])
def test_posterior_is_the_prior_of_further_samples(target, k, r):
    n = 3000
    X, y = make_rows(target, n, 5, k, r)
    scaler = Scaler.fit(X)
    _, prepared = fit_in_blocks(make_blocks(X, y, block_size=500), scaler, target, k, r)
    found, evidence = None, 0.0
    for begin, end in ((0, 1200), (1200, 1201), (1201, 2000), (2000, n)):
        batch = make_blocks(X[begin:end], y[begin:end])
        found = fit_laplace_blocks(
            batch,
            prepared,
            n_components=r,
            rng=np.random.default_rng(begin),
            n_starts=1,
            previous=None if found is None else found.normal,
        )
        assert found.converged
        evidence += found.log_evidence
    problem = Problem.build(
        np.zeros((1, 5)), y[:1], n_labels=k, n_components=r, target=target, priors=PRIORS
    )
    rng = np.random.default_rng(0)
    whole = fit_laplace_blocks(
        make_blocks(X, y),
        prepared,
        n_components=r,
        rng=rng,
        n_starts=1,
    )
    ours, theirs = (coefficients(problem, each.draws) for each in (found, whole))
    difference = (ours.mean(axis=0) - theirs.mean(axis=0)) / theirs.std(axis=0)
    assert np.sqrt(np.mean(difference**2)) < 0.3
    np.testing.assert_allclose(ours.std(axis=0) / theirs.std(axis=0), 1.0, atol=0.35)
    assert evidence == pytest.approx(whole.log_evidence, abs=1.0)


@pytest.mark.slow
def test_a_killed_worker_does_not_change_the_result():
    distributed = pytest.importorskip("distributed")
    X, y = make_rows("multiclass", 900, 6, 4, 2)
    scaler = Scaler.fit(X)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):

        def kill(count, value):
            if count == 6:
                os.kill(next(iter(client.run(os.getpid).values())), 9)

        found, expected = (
            fit_in_blocks(
                make_blocks(X, y, block_size=130, client=where),
                scaler,
                "multiclass",
                4,
                2,
                on_evaluation=watch,
            )[0]
            for where, watch in ((client, kill), (None, lambda count, value: None))
        )
    same(found, expected)
