"""Seconds per sweep, and the lower bound of the same problem in the same run."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack
from scipy.special import log_ndtr, logsumexp

from benchmarks.page import table as as_markdown
from benchmarks.timing import Work, medians
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.papers import orthant
from bsdr_models.papers.bsdr import mean_field
from bsdr_models.papers.bsdr.design import DenseDesign
from bsdr_models.papers.bsdr.mean_field import Data, State, make_data
from bsdr_models.papers.bsdr.priors import Priors, ProjectionPrior

PRIORS = Priors()
# Seconds of the argmax moments per sample, competing class and node: one factor in a bare loop
# over cached numbers (docs/decisions/0013-hot-loops.md).
REGION_SECONDS = 1.4e-9
# Sweeps before the timing, and before the state that is checked.
N_WARM = 5


@dataclass(frozen=True, kw_only=True)
class Case:
    """One line of the table; ``target`` is the largest ratio to the floor aimed at."""

    n: int
    d: int
    k: int
    r: int
    prior: ProjectionPrior
    target: float | None = None


def _cases() -> list[Case]:
    small = [Case(n=1000, d=64, k=10, r=5, prior=p) for p in ("entrywise", "columnwise", "rowwise")]
    sizes = [(1000, 649, 10), (1000, 2000, 10), (200, 2000, 5)]
    large = [
        Case(n=n, d=d, k=k, r=5, prior=prior, target=target)
        for n, d, k in sizes
        for prior, target in (("entrywise", 2.0), ("columnwise", 1.5))
    ]
    return [
        *small,
        *large,
        Case(n=200, d=15_000, k=5, r=5, prior="columnwise", target=1.5),
        Case(n=100_000, d=64, k=10, r=5, prior="entrywise"),
    ]


def features(case: Case) -> np.ndarray:
    """Normal features, (N, D)."""
    return np.random.default_rng(0).standard_normal((case.n, case.d))


def problem(case: Case) -> Data:
    """Labels by the largest of K noisy linear functions of up to 50 features."""
    X, rng = features(case), np.random.default_rng(1)
    live = min(case.d, 50)
    scores = X[:, :live] @ rng.standard_normal((live, case.k)) / 3.0
    scores += rng.standard_normal((case.n, case.k))
    return make_data(X, scores.argmax(axis=1), n_labels=case.k, projection_prior=case.prior)


def started(case: Case, data: Data) -> State:
    """A state a few sweeps into a fit."""
    state = mean_field.init(
        data,
        replace(PRIORS, projection_prior=case.prior),
        n_components=case.r,
        rng=np.random.default_rng(0),
    )
    for _ in range(N_WARM):
        state, _ = mean_field.step(state, data, PRIORS)
    return state


def measure(case: Case) -> list[str]:
    """One line of the table."""
    data = problem(case)
    state = started(case, data)
    bounds = []

    def sweep(_: object) -> None:
        nonlocal state
        state, info = mean_field.step(state, data, PRIORS)
        bounds.append(info.elbo)

    precision = state.projection_precision.mean
    seconds, factor, product, reduced = medians(
        Work(run=sweep),
        factorisations(data, precision, PRIORS.latent_scale**2),
        products(features(case), case.r),
        products(data.design.X, case.r),
    )
    check(state, data, np.array(bounds))
    region = region_seconds(data, mean_field.N_NODES)
    floor = factor + product + region
    aim = "-" if case.target is None else f"{case.target:g}"
    if case.target is not None and seconds > case.target * floor:
        aim += " **missed**"
    return [
        f"{case.n}, {case.d}, {case.k}, {case.r}",
        case.prior,
        *(f"{1e3 * value:.3g}" for value in (seconds, floor, factor, product, region)),
        f"{seconds / floor:.2f}",
        f"{seconds / (factor + reduced + region):.2f}",
        aim,
    ]


def check(state: State, data: Data, bounds: np.ndarray) -> None:
    """The timed sweeps never lowered the bound; the last one's factors solve their equations."""
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])), "the bound fell"
    X, v = data.design.X, PRIORS.latent_scale**2
    state = replace(state, projection=mean_field.update_projection(state, data, PRIORS))
    phi = np.broadcast_to(state.projection_precision.mean, state.projection.mean.shape)
    matrix = X.T @ X / v + np.diag(phi[:, 0])
    inverse = np.linalg.inv(matrix)
    expected = inverse @ (X.T @ state.latent.mean[:, 0]) / v
    np.testing.assert_allclose(state.projection.mean[:, 0], expected, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(state.projection.variance[:, 0], np.diag(inverse), rtol=1e-6)
    np.testing.assert_allclose(
        state.projection.log_det[0], -np.linalg.slogdet(matrix)[1], rtol=1e-9, atol=1e-6
    )
    rows = slice(0, 200)
    eta = mean_field.linear_predictor_mean(state)[rows]
    region = orthant.moments(eta, data.y[rows], n_nodes=mean_field.N_NODES)
    np.testing.assert_allclose(region.log_prob, _log_prob(eta, data.y[rows]), atol=1e-6)


def _log_prob(eta: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log probability of each label on a fine plain grid, (N,)."""
    u = np.linspace(-14.0, 14.0, 1401)
    own = np.take_along_axis(eta, y[:, None], axis=1)
    terms = log_ndtr(u[:, None, None] + own - eta)  # (U, N, K)
    np.put_along_axis(terms, np.broadcast_to(y[:, None], (len(u), len(y), 1)), 0.0, axis=2)
    log_f = terms.sum(axis=2) - 0.5 * u[:, None] ** 2
    return logsumexp(log_f, axis=0) + np.log((u[1] - u[0]) / np.sqrt(2.0 * np.pi))


def region_seconds(data: Data, n_nodes: int) -> float:
    """Time of the factors of the integrand, by count."""
    return REGION_SECONDS * data.n_samples * (data.n_labels - 1) * n_nodes


def products(X: FloatArray, n_components: int) -> Work:
    """The two products with X, (N, D)."""
    rng = np.random.default_rng(0)
    projection = rng.standard_normal((X.shape[1], n_components))
    latent = rng.standard_normal((X.shape[0], n_components))
    return Work(run=lambda _: (X @ projection, X.T @ latent))


def factorisations(data: Data, precision: FloatArray, variance: float) -> Work:
    """For every distinct phi_s, (D, 1) or (D, R): Cholesky factor and triangular inverse.

    With few samples the three calls of Woodbury's identity: product, Cholesky factor, solution.
    """
    design = data.design
    if not isinstance(design, DenseDesign):
        return Work(run=lambda _: None)
    if design.prefers_rows:
        return Work(
            prepare=lambda: [np.asfortranarray(design.X / np.sqrt(phi)) for phi in precision.T],
            run=lambda rows: [_by_rows(X, variance) for X in rows],
        )
    return Work(
        prepare=lambda: [
            np.asfortranarray(design.gram / variance + np.diag(phi)) for phi in precision.T
        ],
        run=lambda matrices: [_by_features(matrix) for matrix in matrices],
    )


def _by_features(matrix: FloatArray) -> None:
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    assert info == 0
    _, info = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    assert info == 0


def _by_rows(X: FloatArray, variance: float) -> None:
    start = np.eye(len(X), order="F")
    matrix = blas.dsyrk(1.0, X, variance, start, lower=1, overwrite_c=1)
    factor, info = lapack.dpotrf(matrix, lower=1, clean=0, overwrite_a=1)
    assert info == 0
    blas.dtrsm(1.0, factor, X, lower=1, overwrite_b=1)


def report() -> str:
    """Markdown table of all cases."""
    head = ["N, D, K, R", "prior", "sweep ms", "floor ms", "factorisations", "products", "region"]
    head += ["sweep / floor", "the same, rank for D", "aim"]
    table = as_markdown(head, [measure(case) for case in _cases()])
    return (
        "## Seconds per sweep\n\n"
        "The floor is bare LAPACK factorisations, the two products with X, and "
        f"{1e9 * REGION_SECONDS:.1f} ns per sample, other class and node "
        f"({mean_field.N_NODES} nodes) for the moments of the argmax region. Under a columnwise "
        "prior the package works in the row space of X; the last ratio counts the products there "
        "as well.\n\n"
        f"{table}\n"
    )
