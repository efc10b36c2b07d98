r"""Gaussian process classification of latent coordinates, by expectation propagation.

Each class has a one-against-rest problem with a probit link; two classes share one latent function.
With u the latent coordinates in units of the distance between classes,

.. math::
    k(u, u') = e^{t_0} \exp(-|u - u'|^2 / 2 e^{2 t_1}) + e^{t_2} u^\top u' + 10^{-6} \delta,

t maximises the sum of the log evidences of all problems and the log density of its prior.

The features of the latent functions are a factor of the kernel matrix of at most
``INDUCING_SAMPLES`` at its numerical rank. The remaining variance of other samples is treated as
independent (FITC [1]_),

.. math::
    K \approx F F^\top + D, \qquad D_{ii} = k_{ii} - |F_i|^2.

The independent variance only rescales the probit, :math:`\Phi(f / \sqrt{1 + D_{ii}})`, and is
absorbed into the features, :math:`F_i / \sqrt{1 + D_{ii}}`.

References
----------
.. [1] E. Snelson, Z. Ghahramani (2006). Sparse Gaussian processes using pseudo-inputs. NIPS.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize
from scipy.special import log_ndtr, log_softmax, logsumexp

from bsdr_models.dgplvm.priors import CLASSIFIER_PRIORS
from bsdr_models.dgplvm.probit import EP, Approximation, Sites, row_squares
from bsdr_models.dgplvm.problem import class_centroids
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.folds import evenly_spaced, stratified_subset
from bsdr_models.numerics.linalg import rbf, squared_distances

# Class centroids coincide if they differ by less than this, in units of the coordinates.
ROUNDING = 1e-9
# Variance independent between samples; it keeps kernel matrices positive definite.
NUGGET = 1e-6
# Part of the largest variance that a factor of the numerical rank leaves to a sample.
RANK_TOL = 1e-8
# Bound on t in the optimisation, in standard deviations of its prior.
BOX = 4.0
# Where the optimisation of t begins, in standard deviations from the prior mean: near the optimum
# of digits and faces. From the prior mean up to three times as many evaluations lead to the same.
START = (3.0, 3.0, -1.0)
# Maximum number of samples used to optimise t, at cubic cost.
SEARCH_SAMPLES = 200
SEARCH_ITER = 50
# Maximum number of problems used to optimise t. Those of 26 classes take two thirds of the time of
# a fit, for a kernel that predicts as well.
SEARCH_PROBLEMS = 10
# Probability that a class is random.
LAPSE = 0.003
# Maximum number of samples whose kernel matrix is factorised.
INDUCING_SAMPLES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Covariance:
    """Covariance of latent functions, without the nugget.

    The centre (R,) of u is the mean of the class centroids, the scale their root mean square
    distance from it; ``log_values`` is t.
    """

    log_values: FloatArray
    centre: FloatArray
    scale: float

    def inputs(self, latent: FloatArray) -> FloatArray:
        """Centred and scaled coordinates u, (N, R)."""
        return (latent - self.centre) / self.scale

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Covariances of different samples, (M, R) and (N, R) -> (M, N)."""
        a = self.inputs(new)
        b = self.inputs(latent)
        signal, lengthscale, linear = np.exp(self.log_values)
        return rbf(a, b, lengthscale, signal) + linear * (a @ b.T)

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Variances of samples (M, R), (M,)."""
        u = self.inputs(new)
        signal, _, linear = np.exp(self.log_values)
        return np.asarray(signal + linear * (u**2).sum(axis=1))


def numerical_factor(kernel: FloatArray) -> tuple[FloatArray, IntArray]:
    """Features of the numerical rank of a kernel matrix (N, N): (N, M), and their pivots (M,).

    Features of the pivots are a lower triangular matrix.
    """
    limit = RANK_TOL * float(np.diagonal(kernel).max(initial=0.0))
    factor, pivots, rank, _ = lapack.dpstrf(kernel, lower=1, tol=limit)
    features = np.empty((len(kernel), rank))
    features[pivots - 1] = np.tril(factor[:, :rank])
    return features, pivots[:rank] - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """P latent functions by features of M inducing samples (M, R).

    Features are the inverse of ``factor`` (M, M), lower triangular, times the covariances with
    them; ``weights`` (P, M) are their mean weights, whose covariances are root' root, (P, M, M).
    ``converged`` is whether the approximations of all their posteriors met their tolerance.
    """

    kernel: Covariance
    inducing: FloatArray
    factor: FloatArray
    weights: FloatArray
    roots: FloatArray
    converged: bool

    def moments(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance at latent coordinates (L, R), each (L, P)."""
        cross = self.kernel.cross(latent, self.inducing)
        features = solve_triangular(self.factor, cross.T, lower=True).T
        left = self.kernel.diagonal(latent) + NUGGET - np.square(features).sum(axis=1)
        explained = [row_squares(features, root) for root in self.roots]
        variance = np.array(explained).T + left[:, None]
        return features @ self.weights.T, np.maximum(variance, 0.0)

    def probits(self, latent: FloatArray) -> FloatArray:
        """Probits of the signs +1 at latent coordinates (L, R), (L, P)."""
        mean, variance = self.moments(latent)
        return mean / np.sqrt(1.0 + variance)


def fit_functions(
    kernel: Covariance,
    latent: FloatArray,
    signs: FloatArray,
    inducing: IntArray,
    approximation: Approximation = EP,
) -> tuple[Functions, FloatArray]:
    """Latent functions of signs (P, N) at latent coordinates (N, R); leave-one-out probits (N, P).

    Features are those of some samples, by their index.
    """
    places = latent[inducing]
    F, pivots = numerical_factor(kernel.cross(places, places))
    factor = np.tril(F[pivots])
    places = places[pivots]
    if len(inducing) < len(latent):
        F = solve_triangular(factor, kernel.cross(places, latent), lower=True).T
    F = add_residual_noise(F, kernel.diagonal(latent))
    fits = [approximation.posterior(F, sign) for sign in signs]
    z = [mean / np.sqrt(1.0 + variance) for mean, variance in (fit.cavity for fit in fits)]
    functions = Functions(
        kernel=kernel,
        inducing=places,
        factor=factor,
        weights=np.array([fit.weights for fit in fits]),
        roots=np.array([fit.root for fit in fits]),
        converged=all(fit.converged for fit in fits),
    )
    return functions, np.array(z).T


def add_residual_noise(features: FloatArray, diagonal: FloatArray) -> FloatArray:
    """Features (N, M) that absorb the nugget and the variance they leave of ``diagonal`` (N,)."""
    left = np.maximum(diagonal - np.einsum("nm,nm->n", features, features), 0.0) + NUGGET
    return features / np.sqrt(1.0 + left)[:, None]


def link(log_odds: FloatArray, temperature: float) -> FloatArray:
    r"""Log probabilities (..., K) from log odds (..., S, P): means over S classifiers.

    :math:`p_c \propto \exp(s_c / T)`. At T = 1 that is the probability of independent outcomes of
    all problems, given that exactly one is positive.
    """
    if log_odds.shape[-1] == 1:
        log_odds = np.concatenate([np.zeros_like(log_odds), log_odds], axis=-1)
    log_p = log_softmax(log_odds / temperature, axis=-1)
    log_p = logsumexp(log_p, axis=-2) - np.log(log_p.shape[-2])
    return np.logaddexp(np.log1p(-LAPSE) + log_p, np.log(LAPSE / log_p.shape[-1]))


def fit_gp_classifier(
    latent: FloatArray,
    y_index: IntArray,
    *,
    kernel: Covariance | None = None,
    approximation: Approximation = EP,
    fold: IntArray | None = None,
    held_out: FloatArray | None = None,
) -> tuple[Functions, FloatArray]:
    """Latent functions of the classes (N,), -1 without, at left-out latent coordinates (N, R).

    P is the number of classes, or 1 for two of them (positive for the second). Also the left-out
    log odds (N, P) of the labelled samples, NaN of others. Kernel parameters are optimised, on a
    subset of many samples, unless a kernel is given. Each ``fold`` (N,) is left out of the
    functions that predict it at ``held_out`` latent coordinates (N, R), instead of each sample.
    """
    known = y_index >= 0
    labelled = latent[known]
    y = y_index[known]
    signs = one_against_rest(y)
    own = kernel_at_prior(labelled, y)
    if kernel is not None:
        own = replace(own, log_values=kernel.log_values)
    else:
        some = stratified_subset(y, SEARCH_SAMPLES)
        typical = _typical_problems(own, labelled, signs)
        own = _optimise_kernel(
            own, labelled[some], typical[:, some], approximation, len(signs) / len(typical)
        )
    inducing = stratified_subset(y, INDUCING_SAMPLES)
    functions, z = fit_functions(own, labelled, signs, inducing, approximation)
    if fold is not None and held_out is not None:
        of_known = fold[known]
        for number in np.unique(of_known[of_known >= 0]):
            out = of_known == number
            rest = np.flatnonzero(~out)
            some = stratified_subset(y[rest], INDUCING_SAMPLES)
            without, _ = fit_functions(own, labelled[rest], signs[:, rest], some, approximation)
            z[out] = without.probits(held_out[known][out])
    log_odds = np.full((len(latent), z.shape[1]), np.nan)
    log_odds[known] = probit_log_odds(z)
    return functions, log_odds


def one_against_rest(y: IntArray) -> FloatArray:
    """Signs of every problem, +1 or -1, (P, N)."""
    signs = np.where(np.equal.outer(np.unique(y), y), 1.0, -1.0)
    return signs[1:] if len(signs) == 2 else signs


def probit_log_odds(z: FloatArray) -> FloatArray:
    r"""Log odds of problems, :math:`\log \Phi(z) - \log \Phi(-z)`."""
    return np.asarray(log_ndtr(z) - log_ndtr(-z))


def kernel_at_prior(latent: FloatArray, y: IntArray) -> Covariance:
    """The kernel at the mean of its prior; its scale is 1 if class centroids coincide."""
    centroids = class_centroids(latent, y)
    centre = centroids.mean(axis=0)
    scale = float(np.sqrt(np.square(centroids - centre).sum(axis=1).mean()))
    if scale <= ROUNDING * np.linalg.norm(latent) / np.sqrt(len(latent)):
        scale = 1.0
    log_values = np.array([prior.log_median for prior in CLASSIFIER_PRIORS])
    return Covariance(centre=centre, scale=scale, log_values=log_values)


def _typical_problems(kernel: Covariance, latent: FloatArray, signs: FloatArray) -> FloatArray:
    """Signs of up to ``SEARCH_PROBLEMS``, evenly spaced by their classes' mean distance from 0."""
    distance = np.linalg.norm(kernel.inputs(latent), axis=1)
    mean = (signs > 0.0) @ distance / (signs > 0.0).sum(axis=1)
    order = np.argsort(mean, kind="stable")
    return signs[np.sort(order[evenly_spaced(len(signs), SEARCH_PROBLEMS)])]


def _optimise_kernel(
    start: Covariance,
    latent: FloatArray,
    signs: FloatArray,
    approximation: Approximation,
    count: float,
) -> Covariance:
    """Kernel with the maximum a posteriori t, sought in standard deviations from the prior mean.

    Each problem stands for ``count`` of them.
    """
    u = start.inputs(latent)
    squares = squared_distances(u)
    products = u @ u.T
    sd = np.array([prior.log_sd for prior in CLASSIFIER_PRIORS])
    sites: list[Sites | None] = [None] * len(signs)

    def value_and_gradient(x: FloatArray) -> tuple[float, FloatArray]:
        t = start.log_values + sd * x
        rate = np.exp(-2.0 * t[1])
        smooth = np.exp(t[0] - 0.5 * rate * squares)
        linear = np.exp(t[2]) * products
        K = smooth + linear
        F = add_residual_noise(numerical_factor(K)[0], np.diagonal(K))
        value = 0.5 * float(x @ x)
        G = np.zeros_like(K)
        for p, sign in enumerate(signs):
            found = approximation.evidence(F, sign, start=sites[p])
            sites[p] = found.sites
            value -= count * found.value
            G += count * found.gradient
        smooth *= G
        by_t = np.array([smooth.sum(), rate * np.vdot(smooth, squares), np.vdot(G, linear)])
        return value, x - sd * by_t

    optimum = minimize(
        value_and_gradient,
        np.array(START),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-BOX, BOX)] * 3,
        options={"maxiter": SEARCH_ITER, "gtol": 1e-2, "ftol": 1e-6},
    )
    return replace(start, log_values=start.log_values + sd * optimum.x)
