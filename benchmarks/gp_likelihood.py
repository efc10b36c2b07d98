"""Milliseconds per density and objective of D-GPLVM with gradients, and the bound by LAPACK."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from benchmarks.page import table as as_markdown
from benchmarks.timing import Work, medians
from bsdr_models.dgplvm.back_constraint import centroid_weights, make_mapping
from bsdr_models.dgplvm.priors import DGPLVMPriors
from bsdr_models.dgplvm.problem import (
    Evaluation,
    FeatureGram,
    WellPosedObjective,
    evaluate,
    make_criterion,
)
from bsdr_models.numerics.linalg import squared_distances

N_FEATURES, N_COMPONENTS, N_LABELS = 256, 2, 3
LOG_KERNEL = np.log([0.3, 1.0, 0.7])
SIZES = (20, 100, 300, 1000, 2000)
# Plain NumPy takes seconds from here on.
PLAIN_UP_TO = 1000


@dataclass(frozen=True, kw_only=True)
class Problem:
    """Features (N, D), centred, latent coordinates (N, R), and what the density precomputes."""

    X: np.ndarray
    latent: np.ndarray
    gram: FeatureGram


def problem(n_samples: int) -> Problem:
    """Sines of the latent coordinates, and noise."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((n_samples, N_COMPONENTS))
    X = np.sin(latent @ rng.standard_normal((N_COMPONENTS, N_FEATURES)))
    X += rng.standard_normal(X.shape)
    X -= X.mean(axis=0)
    return Problem(X=X, latent=latent, gram=FeatureGram.of(X))


def plain(case: Problem) -> Evaluation:
    """The formulas as they stand, with full matrices and a general inverse."""
    signal, lengthscale, noise = np.exp(LOG_KERNEL) * [case.gram.variance, 1.0, case.gram.variance]
    n, d = case.X.shape
    distances = squared_distances(case.latent)
    R = signal * np.exp(-0.5 * distances / lengthscale**2)
    K = R + noise * np.eye(n)
    inverse = np.linalg.inv(K)
    by_one = inverse.sum(axis=1)
    P = inverse - np.outer(by_one, by_one) / by_one.sum()
    S = case.X @ case.X.T
    PS = P @ S
    log_det = np.linalg.slogdet(K)[1] + np.log(by_one.sum() / n) + (n - 1) * np.log(2.0 * np.pi)
    G = 0.5 * (d * P - PS @ P)
    H = G * R
    latent = (-2.0 / lengthscale**2) * (H.sum(axis=1)[:, None] * case.latent - H @ case.latent)
    slopes = [H.sum(), np.sum(H * distances) / lengthscale**2, noise * np.trace(G)]
    value = 0.5 * (d * log_det + np.trace(PS))
    return Evaluation(value=value, latent=latent, log_parameters=np.array(slopes))


def check_exact(case: Problem) -> None:
    """Value and gradients of the package are those of the formulas."""
    got, expected = evaluate(case.latent, LOG_KERNEL, case.gram), plain(case)
    assert abs(got.value - expected.value) < 1e-9 * abs(expected.value), "value"
    for a, b in ((got.latent, expected.latent), (got.log_parameters, expected.log_parameters)):
        assert np.abs(a - b).max() < 1e-7 * np.abs(b).max(), "gradient"


def exact_floor(case: Problem) -> Work:
    """Factor, inverse from it, two triangular solutions for the root, one symmetric product."""
    K = np.exp(-0.5 * squared_distances(case.latent)) + np.eye(len(case.latent))

    def run(arrays: tuple[np.ndarray, np.ndarray]) -> None:
        factor, info = lapack.dpotrf(arrays[0], lower=1, clean=0, overwrite_a=1)
        assert info == 0
        W = blas.dtrsm(1.0, factor, arrays[1], lower=1, overwrite_b=1)
        W = blas.dtrsm(1.0, factor, W, lower=1, trans_a=1, overwrite_b=1)
        inverse, info = lapack.dpotri(factor, lower=1, overwrite_c=1)
        assert info == 0
        blas.dsyrk(-0.5, W, beta=1.0, c=inverse, lower=1, overwrite_c=1)

    return Work(run=run, prepare=lambda: (K.copy(order="F"), case.gram.root.copy(order="F")))


def objective_of(case: Problem) -> Work:
    """Density, criterion, whitening and map by all samples, with the gradient, which is checked."""
    n_samples = len(case.X)
    y = np.arange(n_samples) % N_LABELS
    weights = centroid_weights(y)
    objective = WellPosedObjective(
        gram=case.gram,
        mapping=make_mapping(case.X, weights, width=2.0, noise=0.03, mean_variance=0.3),
        criterion=make_criterion("trace_ratio", y),
        weight=100.0,
        known=np.arange(n_samples),
        parameter_priors=DGPLVMPriors().kernel,
        n_components=N_COMPONENTS,
        temper=case.gram.temper,
    )
    x = objective.pack(case.latent, LOG_KERNEL)
    _, gradient = objective(x)
    step = 1e-6 * gradient / np.linalg.norm(gradient)
    derivative = (objective(x + step)[0] - objective(x - step)[0]) / 2e-6
    assert abs(derivative - np.linalg.norm(gradient)) < 1e-4 * derivative
    return Work(run=lambda _: objective(x))


def measure(n_samples: int) -> list[str]:
    """One line of the table."""
    case = problem(n_samples)
    works = {
        "density": Work(run=lambda _: evaluate(case.latent, LOG_KERNEL, case.gram)),
        "floor": exact_floor(case),
        "objective": objective_of(case),
    }
    if n_samples <= PLAIN_UP_TO:
        check_exact(case)
        works["plain"] = Work(run=lambda _: plain(case))
    seconds = dict(zip(works, medians(*works.values(), seconds=4.0), strict=True))
    shown = {name: f"{1e3 * value:.3g}" for name, value in seconds.items()}
    ratio = f"{seconds['density'] / seconds['floor']:.2f}"
    whole = f"{seconds['objective'] / seconds['floor']:.2f}"
    return [str(n_samples), shown["floor"], shown["density"], ratio, shown.get("plain", "-"),
            shown["objective"], whole]  # fmt: skip


def report() -> str:
    """Markdown table."""
    head = [
        "N",
        "floor ms",
        "density ms",
        "density / floor",
        "plain formulas",
        "objective ms",
        "objective / floor",
    ]
    return (
        "## D-GPLVM: the density of the features and the whole objective\n\n"
        f"With gradients, D = {N_FEATURES}, R = {N_COMPONENTS}, the means integrated out. The "
        "floor is the factor of the kernel matrix, its inverse from it, two triangular solutions "
        "for the root of X X' and one symmetric product. The objective adds whitening, criterion "
        "and map by all samples; plain formulas have a general inverse; - where they were not run."
        f"\n\n{as_markdown(head, [measure(n_samples) for n_samples in SIZES])}\n"
    )
