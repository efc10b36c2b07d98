"""Milliseconds per density and gradient of D-GPLVM, and the lower bound by LAPACK.

GPy, if installed, is timed on the same data, without and with its discriminative prior.
"""

import importlib
import importlib.util
import warnings
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from benchmarks.timing import Work, medians
from bsdr_models.dgplvm.likelihood import Evaluation, FeatureGram, evaluate, evaluate_paper
from bsdr_models.numerics.kernels import squared_distances

N_FEATURES, N_COMPONENTS, N_LABELS = 256, 2, 3
LOG_KERNEL = np.log([0.3, 1.0, 0.7])
SIZES = (20, 100, 300, 1000, 2000)
# Plain NumPy takes seconds from here on, and GPy's prior, with Python loops, many more.
PLAIN_UP_TO, PRIOR_UP_TO = 1000, 1000


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


def rival(case: Problem, *, discriminative: bool) -> Work:
    """Objective and gradient of GPy's GPLVM, whose likelihood is checked against the paper's."""
    GPy = importlib.import_module("GPy")
    kernel = GPy.kern.RBF(N_COMPONENTS) + GPy.kern.Bias(N_COMPONENTS)
    model = GPy.models.GPLVM(case.X, N_COMPONENTS, X=case.latent.copy(), kernel=kernel)
    ours = evaluate_paper(case.latent, np.zeros(4), case.gram)  # all hyper-parameters are 1
    assert abs(model.log_likelihood() + ours.value) < 1e-6 * abs(ours.value)
    assert np.abs(model.X.gradient + ours.latent).max() < 1e-5 * np.abs(ours.latent).max()
    if discriminative:
        priors = importlib.import_module("GPy.core.parameterization.priors")
        one_hot = np.eye(N_LABELS)[np.arange(len(case.X)) % N_LABELS]
        prior = priors.DGPLVM(1e-4, one_hot, case.latent.shape)
        model.X.set_prior(prior, warning=False)
    rng, start = np.random.default_rng(3), model.optimizer_array.copy()
    # Another point each time: GPy caches the last one.
    return Work(
        prepare=lambda: start + 1e-6 * rng.standard_normal(start.shape), run=model._objective_grads
    )


def measure(n_samples: int) -> list[str]:
    """One line of the table."""
    case = problem(n_samples)
    works = {
        "ours": Work(run=lambda _: evaluate(case.latent, LOG_KERNEL, case.gram)),
        "floor": exact_floor(case),
    }
    if n_samples <= PLAIN_UP_TO:
        check_exact(case)
        works["plain"] = Work(run=lambda _: plain(case))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that GPy uses
        if importlib.util.find_spec("GPy") is not None:
            works["GPy"] = rival(case, discriminative=False)
            if n_samples <= PRIOR_UP_TO:
                works["GPy with prior"] = rival(case, discriminative=True)
        seconds = dict(zip(works, medians(*works.values(), seconds=4.0), strict=True))
    milliseconds = {name: f"{1e3 * value:.3g}" for name, value in seconds.items()}
    others = [milliseconds.get(name, "-") for name in ("plain", "GPy", "GPy with prior")]
    ratio = f"{seconds['ours'] / seconds['floor']:.2f}"
    return [str(n_samples), milliseconds["ours"], milliseconds["floor"], ratio, *others]


def report() -> str:
    """Markdown table."""
    lines = [
        ["N", "ms", "floor ms", "ratio", "plain formulas", "GPy", "GPy, discriminative"],
        ["---"] * 7,
        *(measure(n_samples) for n_samples in SIZES),
    ]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return (
        f"## D-GPLVM: the density of the features and its gradient\n\n"
        f"D = {N_FEATURES}, R = {N_COMPONENTS}, the means integrated out. The floor is the factor "
        "of the kernel matrix, its inverse from it, two triangular solutions for the root of X X' "
        "and one symmetric product. GPy's likelihood has a zero mean; - where it is not "
        f"installed or was not run.\n\n{table}\n"
    )
