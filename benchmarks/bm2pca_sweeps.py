"""BM2PCA: seconds per sweep with its bound, and of the two products with X in the same run."""

from dataclasses import dataclass

import numpy as np

from benchmarks.page import table as as_markdown
from benchmarks.sweeps import products
from benchmarks.timing import Work, medians
from bsdr_models.bm2pca.priors import PAPER
from bsdr_models.papers.bm2pca import mean_field
from bsdr_models.papers.bm2pca.mean_field import FactorState, ViewData

COST, N_WARM = 10.0, 3


@dataclass(frozen=True, kw_only=True)
class Case:
    """Samples, features, components, labels of a subspace, missing values.

    ``most`` is the largest ratio to the products aimed at.
    """

    n: int
    d: int
    r: int = 10
    outcomes: int = 1
    gaps: float = 0.0
    most: float | None = None


CASES = (
    Case(n=1000, d=100),
    Case(n=10_000, d=100, most=3.0),
    Case(n=10_000, d=100, r=30, most=3.0),
    Case(n=100_000, d=100, most=3.0),
    Case(n=1000, d=1000),
    Case(n=10_000, d=1000, most=1.5),
    Case(n=10_000, d=1000, r=30, most=1.5),
    Case(n=10_000, d=1000, outcomes=10),
    Case(n=80, d=1024, outcomes=40),
    Case(n=2000, d=100, gaps=0.1),
    Case(n=2000, d=100, outcomes=10, gaps=0.1),
)


def rows(case: Case) -> np.ndarray:
    """Up to 20 directions of signal in normal noise, (N, D)."""
    rng = np.random.default_rng(0)
    rank = min(case.d, 20)
    X = rng.standard_normal((case.n, rank)) @ rng.standard_normal((rank, case.d))
    X += rng.standard_normal(X.shape)
    if case.gaps:
        X[rng.random(X.shape) < case.gaps] = np.nan
    return X


def problem(case: Case) -> ViewData:
    """Signs of random linear functions."""
    X, rng = rows(case), np.random.default_rng(1)
    scores = np.nan_to_num(X) @ rng.standard_normal((case.d, case.outcomes))
    return mean_field.make_data(X, np.where(scores > 0.0, 1.0, -1.0), COST)


def started(data: ViewData, n_components: int) -> FactorState:
    """A state a few sweeps into a fit."""
    rng = np.random.default_rng(0)
    state = mean_field.init(data, PAPER, n_components=n_components, rng=rng)
    for _ in range(N_WARM):
        state = mean_field.sweep(state, data, PAPER)
    return state


def measure(case: Case) -> list[str]:
    """One line of the table."""
    data = problem(case)
    state, bounds = started(data, case.r), []

    def sweep(_: object) -> None:
        nonlocal state
        state, info = mean_field.step(state, data, PAPER)
        bounds.append(info.elbo)

    seconds, floor = medians(Work(run=sweep), products(data.views[0].X, case.r))
    check(state, data, np.array(bounds))
    aim, missed = "-", False
    if case.most is not None:
        aim, missed = f"{case.most:g} products", seconds > case.most * floor
    counts = [str(n) for n in (case.n, case.d, case.r, case.outcomes)]
    return [
        ", ".join(counts) + (f", {case.gaps:.0%} missing" if case.gaps else ""),
        *(f"{1e3 * value:.3g}" for value in (seconds, floor)),
        f"{seconds / floor:.2f}",
        aim + (" **missed**" if missed else ""),
    ]


def check(state: FactorState, data: ViewData, bounds: np.ndarray) -> None:
    """The timed sweeps never lowered the bound, and latent coordinates solve their equations."""
    assert np.all(np.diff(bounds) >= -1e-9 * np.abs(bounds[1:])), "the bound fell"
    latent = mean_field.update_latent(state, data)
    own, view, eta = state.views[0], data.views[0], state.weights
    W, tau = own.loadings.mean, own.noise_precision.mean
    second = eta.cov + np.einsum("qk,sk->kqs", eta.mean, eta.mean)
    for n in range(3):
        there = np.ones(len(W)) if view.mask is None else view.mask[n]
        spread = np.tensordot(there, own.loadings.cov, 1) if view.mask is not None else None
        spread = view.n_features * own.loadings.cov[0] if spread is None else spread
        y, w = data.margins.y[n], COST**2 / state.slack[0, n]
        precision = np.eye(W.shape[1]) + tau * (W.T * there @ W + spread)
        precision += np.einsum("k,krs->rs", w, second[:, 1:, 1:])
        linear_term = tau * W.T @ (there * (view.X[n] - own.offset.mean))
        linear_term += eta.mean[1:] @ (COST * y + w * y) - w @ second[:, 0, 1:]
        expected = np.linalg.solve(precision, linear_term)
        np.testing.assert_allclose(latent.mean[n], expected, rtol=1e-6, atol=1e-9)


def report() -> str:
    """Markdown tables."""
    head = ["N, D, R, K", "sweep ms", "products ms", "sweep / products", "aim"]
    return (
        "## BM2PCA: seconds per sweep\n\n"
        "All updates and the exact bound, K labels in one subspace. The products are X B and X'A "
        "and nothing else, with X in the coordinates in which the package holds it: N where there "
        "are more features than samples.\n\n"
        f"{as_markdown(head, [measure(case) for case in CASES])}\n"
    )
