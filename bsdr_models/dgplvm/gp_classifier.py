r"""Gaussian process classification of latent positions, by Laplace's method or EP.

A class is told from the rest by the sign of a latent function with a probit link; two classes
share one function. With u the positions in units of the distance between classes,

.. math::
    k(u, u') = e^{t_0} \exp(-|u - u'|^2 / 2 e^{2 t_1}) + e^{t_2} u^\top u' + 10^{-6} \delta,

and t maximises the sum of the log evidences of all functions and the log density of its prior.
The paper [1]_ keeps the kernel of the features instead; ``reuse`` takes that or any other.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dgplvm.priors import Priors
from bsdr_models.numerics import temperature
from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.numerics.probit_gp import Sites
from bsdr_models.numerics.probit_gp_functions import (
    EXACT,
    Fitted,
    Functions,
    Method,
    fit_exact,
    fit_induced,
)
from bsdr_models.numerics.probit_kernels import NUGGET, Kernel, SmoothLinearKernel

# A search for t stays within this many standard deviations of its prior.
BOX = 4.0
# Rows on which t is looked for, at most: a search is cubic in their number.
SEARCH_SAMPLES = 200
SEARCH_ITER = 50
# Power of the variance of a position by which scores are divided.
DAMPING = 0.25
# Accuracy of an approximation during the search, in standard deviations of its marginals.
SEARCH_TOL = 1e-5
# With more labelled rows the functions go by inducing rows, and by how many at most.
EXACT_SAMPLES = 300
INDUCING_SAMPLES = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class GPClassifier:
    """Latent functions of P one-against-rest problems, and class probabilities from them.

    P is the number of classes with rows, or 1 for two of them (positive for the second), or 0
    for one.

    functions
        Of all problems.
    present
        Classes with rows, ascending.
    n_labels
        K.
    n_samples
        Labelled rows of the fit.
    temperature
        By which scores are divided before they become probabilities; fitted to leave-out scores.
    left_out
        Log probabilities of the N rows of the fit, each as the others predict it, (N, K).
    log_evidence
        Sum over functions, in nats.
    converged
        Whether every approximation, and the search for the kernel, has converged.
    """

    functions: Functions
    present: IntArray
    n_labels: int
    n_samples: int
    temperature: float
    left_out: FloatArray
    log_evidence: float
    converged: bool

    def latent_function(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of every function at positions (M, R), each (M, P)."""
        return self.functions.moments(latent)

    def log_probabilities(self, latent: FloatArray, spread: FloatArray | None = None) -> FloatArray:
        """Log class probabilities at positions (M, R), (M, K), normalised.

        ``spread`` (M,) is the variance of each position, in units of that of the rows of the fit.
        """
        mean, variance = self.functions.moments(latent)
        return self.from_scores(damped(log_odds(mean / np.sqrt(1.0 + variance)), spread))

    def loo_log_probabilities(self) -> FloatArray:
        """Log class probabilities of the rows of the fit as the other rows predict them.

        Of rows without a label those that all labelled rows predict.
        """
        return self.left_out

    def from_scores(self, scores: FloatArray) -> FloatArray:
        r"""Class probabilities from log odds, (M, P) -> (M, K).

        .. math::
            p_c \propto \exp(s_c / T)

        At T = 1 that is the probability of independent answers of all problems, given that
        exactly one is positive. A class without rows gets 1 / (N + K), the rule of succession,
        and the others share what is left.
        """
        total = self.n_samples + self.n_labels
        n_absent = self.n_labels - len(self.present)
        result = np.full((len(scores), self.n_labels), -np.log(total))
        result[:, self.present] = np.log1p(-n_absent / total)
        if len(self.present) > 1:
            result[:, self.present] += temperature.log_probabilities(scores, self.temperature)
        return result


def fit_gp_classifier(
    latent: FloatArray,
    y_index: IntArray,
    n_labels: int,
    *,
    approximation: Method,
    priors: Priors,
    refit: bool = True,
    reuse: Kernel | None = None,
    n_inducing: int | None = None,
    spread: FloatArray | None = None,
    believed: FloatArray | None = None,
) -> GPClassifier:
    """Fit latent functions to the labels at positions.

    Parameters
    ----------
    latent : (N, R)
        Latent coordinates as new rows have them: leave-out positions, not those of the fit itself.
    y_index : (N,)
        Class of each row; rows with -1 do not take part.
    n_labels : int
        K.
    approximation : {"laplace", "ep"}
    priors : Priors
        Its ``classifier`` part.
    refit : bool
        Whether to look for the kernel parameters t; at the mean of their prior otherwise. Of more
        than ``SEARCH_SAMPLES`` rows some are taken for it.
    reuse : Kernel, optional
        A kernel to be taken as it is.
    n_inducing : int, optional
        Inducing rows. By default all rows count up to ``EXACT_SAMPLES``, and ``INDUCING_SAMPLES``
        stand for more.
    spread : (N,), optional
        Variance of each position, in units of the mean of all.
    believed : (N, R), optional
        Latent coordinates that limit the confidence, where the classes of ``latent`` lie farther apart
        than is known: the temperature is not below what these ask for.

    Returns
    -------
    GPClassifier

    Raises
    ------
    ValueError
        If no row has a label, or the approximation has no such name.
    """
    if approximation not in EXACT:
        raise ValueError(f"approximation must be 'laplace' or 'ep', got {approximation!r}")
    known = np.flatnonzero(y_index >= 0)
    if len(known) == 0:
        raise ValueError("the classifier needs at least one row with a label")
    present, y = np.unique(y_index[known], return_inverse=True)
    rows, signs = latent[known], one_against_rest(y, len(present))
    kernel, settled = reuse, True
    if kernel is None:
        start = kernel_at_prior(rows, y, len(present), priors)
        some = _spread_samples(y, SEARCH_SAMPLES)
        kernel = start
        if refit and len(signs):
            kernel, settled = _search(start, rows[some], signs[:, some], approximation, priors)
    if n_inducing is None and len(rows) > EXACT_SAMPLES:
        n_inducing = INDUCING_SAMPLES
    if n_inducing is None:
        fitted = fit_exact(kernel, rows, signs, approximation)
    else:
        fitted = fit_induced(kernel, rows, signs, approximation, n_inducing)
    scores = damped(log_odds(fitted.left_out), None if spread is None else spread[known])
    classifier = _calibrate(fitted, scores, y, present, n_labels, settled=settled)
    if believed is not None and len(present) > 1:
        mean, variance = classifier.functions.moments(believed[known])
        heat = temperature.fit_temperature(log_odds(mean / np.sqrt(1.0 + variance)), y)
        classifier = replace(classifier, temperature=max(heat, classifier.temperature))
    left_out = np.empty((len(latent), n_labels))
    left_out[known] = classifier.from_scores(scores)
    others = y_index < 0
    left_out[others] = classifier.log_probabilities(latent[others])
    return replace(classifier, left_out=left_out)


def one_against_rest(y: IntArray, n_labels: int) -> FloatArray:
    """Signs of every problem, (P, N)."""
    signs = np.where(np.equal.outer(np.arange(n_labels), y), 1.0, -1.0)
    return signs[1:] if n_labels <= 2 else signs


def log_odds(z: FloatArray) -> FloatArray:
    r"""Scores of problems, :math:`\log \Phi(z) - \log \Phi(-z)`."""
    return np.asarray(log_ndtr(z) - log_ndtr(-z))


def damped(scores: FloatArray, spread: FloatArray | None) -> FloatArray:
    """Scores (M, P) of positions that are better or worse known than those of the fit.

    The functions have learned from rows of all spreads what the mean one blurs. About half of it
    is the map, the rest the scatter within classes, so that the odds fall with the fourth root of
    the variance. The class that is most probable stays.
    """
    return scores if spread is None else scores / spread[:, None] ** DAMPING


def kernel_at_prior(
    latent: FloatArray, y: IntArray, n_labels: int, priors: Priors
) -> SmoothLinearKernel:
    """The kernel at the mean of its prior, in units of these rows, none of whose classes is empty.

    The unit is 1 where classes coincide, or there is one.
    """
    centroids = np.stack([latent[y == label].mean(axis=0) for label in range(n_labels)])
    centre = centroids.mean(axis=0)
    scale = float(np.sqrt(np.square(centroids - centre).sum(axis=1).mean()))
    log_values = np.array([prior.log_median for prior in priors.classifier])
    return SmoothLinearKernel(centre=centre, scale=scale or 1.0, log_values=log_values)


def _calibrate(
    fitted: Fitted,
    scores: FloatArray,
    y: IntArray,
    present: IntArray,
    n_labels: int,
    *,
    settled: bool,
) -> GPClassifier:
    """Classifier with the temperature that leave-out scores ask for; 1 for up to two classes.

    Problems of several classes are fitted apart, and what they say together is too timid or too
    bold. A single probit is calibrated as it is.
    """
    heat = 1.0
    if len(present) > 2:
        heat = temperature.fit_temperature(scores, y)
    return GPClassifier(
        functions=fitted.functions,
        present=present,
        n_labels=n_labels,
        n_samples=len(y),
        temperature=heat,
        left_out=np.empty((0, n_labels)),
        log_evidence=float(fitted.log_evidence.sum()),
        converged=settled and fitted.converged,
    )


def _spread_samples(y: IntArray, most: int) -> IntArray:
    """At most about ``most`` rows, the same share of every class."""
    if len(y) <= most:
        return np.arange(len(y))
    kept = []
    for label in range(int(y.max()) + 1):
        group = np.flatnonzero(y == label)
        share = -(-len(group) * most // len(y))
        kept.append(group[np.linspace(0, len(group) - 1, share).astype(int)])
    return np.sort(np.concatenate(kept))


def _search(
    start: SmoothLinearKernel,
    latent: FloatArray,
    signs: FloatArray,
    approximation: Method,
    priors: Priors,
) -> tuple[SmoothLinearKernel, bool]:
    """Kernel whose t has the highest posterior density, and whether the search has settled.

    The search moves in standard deviations of the prior; every evaluation starts from the sites
    of the last one.
    """
    u = start.inputs(latent)
    squares, products, nugget = squared_distances(u), u @ u.T, NUGGET * np.eye(len(u))
    centre = np.array([prior.log_median for prior in priors.classifier])
    sd = np.array([prior.log_sd for prior in priors.classifier])
    sites: list[Sites | None] = [None] * len(signs)

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        t = centre + sd * x
        rate = np.exp(-2.0 * t[1])
        smooth = np.exp(t[0] - 0.5 * rate * squares)
        linear = np.exp(t[2]) * products
        K = smooth + linear + nugget
        value, G = 0.5 * float(x @ x), np.zeros_like(K)
        for p, sign in enumerate(signs):
            fit = EXACT[approximation](K, sign, start=sites[p], tol=SEARCH_TOL)
            sites[p] = fit.sites
            value -= fit.log_evidence
            G += fit.kernel_gradient
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
