r"""Gaussian process classification of latent coordinates, by expectation propagation.

Each class has a one-against-rest problem with a probit link; two classes share one latent function.
With u the latent coordinates in units of the distance between classes,

.. math::
    k(u, u') = e^{t_0} \exp(-|u - u'|^2 / 2 e^{2 t_1}) + e^{t_2} u^\top u' + 10^{-6} \delta,

t maximises the sum of the log evidences of all problems and the log density of its prior. For the
model of the paper the kernel can be given, and the posteriors be those of Laplace's method.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.gp_classifier.probit_gp_functions import (
    Functions,
    fit_functions,
    rescale,
)
from bsdr_models.dgplvm.gp_classifier.probit_gp_low_rank import (
    Approximate,
    Sites,
    ep_by_features,
    numerical_factor,
)
from bsdr_models.dgplvm.gp_classifier.probit_kernels import NUGGET, Kernel, SmoothLinearKernel
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.numerics import temperature
from bsdr_models.numerics.folds import stratified_subset
from bsdr_models.numerics.kernels import squared_distances

# Bound on t in the optimisation, in standard deviations of its prior.
BOX = 4.0
# Maximum number of samples used to optimise t, at cubic cost.
SEARCH_SAMPLES = 200
SEARCH_ITER = 50
# Power of the relative variance by which log odds are divided.
DAMPING = 0.25
# Tolerance of an approximation during optimisation, in standard deviations of its marginals.
SEARCH_TOL = 1e-4
# Labelled samples above which the rank is limited; maximum number of inducing points.
EXACT_SAMPLES = 300
INDUCING_SAMPLES = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class GPClassifier:
    """Latent functions of P one-against-rest problems, and class probabilities from them.

    P is the number of classes with samples, or 1 for two of them (positive for the second), or 0
    for one; ``present`` are these classes, ascending, of ``n_labels``. ``kernel_parameters`` is t
    (3,), empty for a fixed kernel, ``temperature`` the divisor of the log odds, fitted to
    leave-one-out log odds, and ``left_out`` (N, K) the leave-one-out log probabilities of the
    training samples, where labels have moved the latent coordinates those at the ones before.
    """

    functions: Functions
    kernel_parameters: FloatArray
    present: IntArray
    n_labels: int
    n_samples: int
    temperature: float
    left_out: FloatArray
    log_evidence: float
    converged: bool

    @property
    def nbytes(self) -> int:
        """Memory of the latent functions, in bytes."""
        return self.functions.nbytes

    def log_probabilities(
        self, latent: FloatArray, relative_variance: FloatArray | None = None
    ) -> FloatArray:
        """Log class probabilities at latent coordinates (M, R), (M, K), normalised.

        ``relative_variance`` (M,) of the latent coordinates is relative to the training samples.
        """
        log_odds = probit_log_odds(self.functions.probits(latent))
        return self.from_log_odds(damp_log_odds(log_odds, relative_variance))

    def from_log_odds(self, log_odds: FloatArray) -> FloatArray:
        r"""Class probabilities from log odds, (M, P) -> (M, K).

        .. math::
            p_c \propto \exp(s_c / T)

        At T = 1 that is the probability of independent outcomes of all problems, given that
        exactly one is positive. A class without samples gets 1 / (N + K), the rule of succession;
        the others share the rest.
        """
        total = self.n_samples + self.n_labels
        n_absent = self.n_labels - len(self.present)
        result = np.full((len(log_odds), self.n_labels), -np.log(total))
        result[:, self.present] = np.log1p(-n_absent / total)
        if len(self.present) > 1:
            result[:, self.present] += temperature.log_probabilities(log_odds, self.temperature)
        return result


def fit_gp_classifier(
    latent: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    priors: Priors,
    kernel_parameters: FloatArray | None = None,
    kernel: Kernel | None = None,
    approximate: Approximate = ep_by_features,
    n_inducing: int | None = None,
    relative_variance: FloatArray | None = None,
    conservative_latent: FloatArray | None = None,
) -> GPClassifier:
    """Fit latent functions to the classes (N,) at latent coordinates (N, R), -1 without a label.

    Latent coordinates are leave-one-out ones, distributed as those of new samples; their variance
    (N,) may be given relative to its mean. The kernel parameters t are optimised, on a subset of
    many samples, unless they or a kernel are given. ``n_inducing`` is by default the numerical rank
    of the kernel matrix, and ``INDUCING_SAMPLES`` for more than ``EXACT_SAMPLES`` samples. The
    temperature fitted to ``conservative_latent`` (N, R), whose classes are less separated, is a
    lower bound, to limit the confidence.
    """
    known = np.flatnonzero(y_index >= 0)
    if len(known) == 0:
        raise ValueError("the classifier needs at least one sample with a label")
    present, y = np.unique(y_index[known], return_inverse=True)
    labelled, signs = latent[known], one_against_rest(y, len(present))
    kernel_converged = True
    if kernel is None:
        kernel = kernel_at_prior(labelled, y, len(present), priors)
        if kernel_parameters is not None:
            kernel = replace(kernel, log_values=kernel_parameters)
        elif len(signs):
            subset = stratified_subset(y, SEARCH_SAMPLES)
            kernel, kernel_converged = _optimise_kernel(
                kernel, labelled[subset], signs[:, subset], approximate, priors
            )
    if n_inducing is None and len(labelled) > EXACT_SAMPLES:
        n_inducing = INDUCING_SAMPLES
    fitted = fit_functions(kernel, labelled, signs, approximate, n_inducing)
    variance = None if relative_variance is None else relative_variance[known]
    log_odds = damp_log_odds(probit_log_odds(fitted.left_out), variance)
    # Problems of several classes are fitted separately, and their normalised odds may be over- or
    # underconfident. A single probit is calibrated.
    divisor = temperature.fit_temperature(log_odds, y) if len(present) > 2 else 1.0
    if conservative_latent is not None and len(present) > 1:
        conservative = probit_log_odds(fitted.functions.probits(conservative_latent[known]))
        divisor = max(divisor, temperature.fit_temperature(conservative, y))
    classifier = GPClassifier(
        functions=fitted.functions,
        kernel_parameters=getattr(kernel, "log_values", np.empty(0)),
        present=present,
        n_labels=n_labels,
        n_samples=len(y),
        temperature=divisor,
        left_out=np.empty((len(latent), n_labels)),
        log_evidence=float(fitted.log_evidence.sum()),
        converged=kernel_converged and fitted.converged,
    )
    unlabelled = y_index < 0
    classifier.left_out[known] = classifier.from_log_odds(log_odds)
    classifier.left_out[unlabelled] = classifier.log_probabilities(latent[unlabelled])
    return classifier


def one_against_rest(y: IntArray, n_labels: int) -> FloatArray:
    """Signs of every problem, +1 or -1, (P, N)."""
    signs = np.where(np.equal.outer(np.arange(n_labels), y), 1.0, -1.0)
    return signs[1:] if n_labels <= 2 else signs


def probit_log_odds(z: FloatArray) -> FloatArray:
    r"""Log odds of problems, :math:`\log \Phi(z) - \log \Phi(-z)`."""
    return np.asarray(log_ndtr(z) - log_ndtr(-z))


def damp_log_odds(log_odds: FloatArray, relative_variance: FloatArray | None) -> FloatArray:
    """Log odds (M, P) divided by the fourth root of the relative variance (M,).

    The functions are fitted to latent coordinates of mean variance. About half of the scatter is
    due to the mapping and the rest to scatter within classes, hence the fourth root. The most
    probable class does not change.
    """
    return (
        log_odds if relative_variance is None else log_odds / relative_variance[:, None] ** DAMPING
    )


def kernel_at_prior(
    latent: FloatArray, y: IntArray, n_labels: int, priors: Priors
) -> SmoothLinearKernel:
    """The kernel at the mean of its prior, scaled by the distances of the class centroids.

    No class may be empty. The scale is 1 if all centroids coincide.
    """
    centroids = np.stack([latent[y == label].mean(axis=0) for label in range(n_labels)])
    centre = centroids.mean(axis=0)
    scale = float(np.sqrt(np.square(centroids - centre).sum(axis=1).mean()))
    log_values = np.array([prior.log_median for prior in priors.classifier])
    return SmoothLinearKernel(centre=centre, scale=scale or 1.0, log_values=log_values)


def _optimise_kernel(
    start: SmoothLinearKernel,
    latent: FloatArray,
    signs: FloatArray,
    approximate: Approximate,
    priors: Priors,
) -> tuple[SmoothLinearKernel, bool]:
    """Kernel with the maximum a posteriori t, and whether the optimisation has converged.

    The variables are in standard deviations of the prior; the sites of an evaluation are the
    initial values of the next.
    """
    u = start.inputs(latent)
    squares, products = squared_distances(u), u @ u.T
    centre = np.array([prior.log_median for prior in priors.classifier])
    sd = np.array([prior.log_sd for prior in priors.classifier])
    sites: list[Sites | None] = [None] * len(signs)

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        t = centre + sd * x
        rate = np.exp(-2.0 * t[1])
        smooth = np.exp(t[0] - 0.5 * rate * squares)
        linear = np.exp(t[2]) * products
        K = smooth + linear
        F = rescale(numerical_factor(K)[0], np.diagonal(K), NUGGET)
        value, G = 0.5 * float(x @ x), np.zeros_like(K)
        for p, sign in enumerate(signs):
            fit = approximate(F, sign, start=sites[p], tol=SEARCH_TOL)
            sites[p] = fit.sites
            value -= fit.log_evidence
            G += fit.kernel_gradient(F)
        smooth *= G
        slope = np.array([smooth.sum(), rate * np.vdot(smooth, squares), np.vdot(G, linear)])
        return value, x - sd * slope

    found = minimize(
        value_and_slope,
        np.zeros(3),
        jac=True,
        method="L-BFGS-B",
        bounds=[(-BOX, BOX)] * 3,
        options={"maxiter": SEARCH_ITER, "gtol": 1e-4, "ftol": 1e-8},
    )
    return replace(start, log_values=centre + sd * found.x), bool(found.success)
