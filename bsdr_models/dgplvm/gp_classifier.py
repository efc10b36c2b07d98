r"""Gaussian process classification of latent positions, by Laplace's method or EP.

A class is told from the rest by the sign of a latent function with a probit link; two classes
share one function. With u the positions in units of the distance between classes,

.. math::
    k(u, u') = e^{t_0} \exp(-|u - u'|^2 / 2 e^{2 t_1}) + e^{t_2} u^\top u' + 10^{-6} \delta,

and t maximises the sum of the log evidences of all functions and the log density of its prior.
The paper [1]_ keeps the kernel of the features instead, which `FeatureKernel` offers.

References
----------
.. [1] R. Urtasun, T. Darrell (2007). Discriminative Gaussian process latent variable model for
       classification. ICML.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_ndtr

from bsdr_models.dgplvm.priors import Priors
from bsdr_models.numerics import temperature
from bsdr_models.numerics.kernels import squared_distances
from bsdr_models.numerics.probit_ep import expectation_propagation
from bsdr_models.numerics.probit_gp import Approximation, Sites
from bsdr_models.numerics.probit_laplace import laplace
from bsdr_models.typing import FloatArray, IntArray

type Method = Literal["laplace", "ep"]
METHODS: dict[str, Callable[..., Approximation]] = {
    "laplace": laplace,
    "ep": expectation_propagation,
}

# Variance that every row has to itself; it keeps the kernel matrix positive definite.
NUGGET = 1e-6
# A search for t stays within this many standard deviations of its prior.
BOX = 4.0
# Rows on which t is looked for, at most: a search is cubic in their number.
SEARCH_ROWS = 300
SEARCH_ITER = 50


class Kernel(Protocol):
    """Covariances of a latent function at positions."""

    def matrix(self, latent: FloatArray) -> FloatArray:
        """Of training rows, (N, R) -> (N, N), with what a row has to itself."""

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Between new rows (M, R) and training rows (N, R), (M, N)."""

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Of new rows with themselves, (M,)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifierKernel:
    """A smooth and a linear part, of positions in units of the distance between classes.

    centre
        Mean of the class centroids, (R,).
    scale
        Root mean square distance of the class centroids from it.
    log_values
        t, (3,): logs of the smooth variance, the length-scale and the linear variance.
    """

    centre: FloatArray
    scale: float
    log_values: FloatArray

    def inputs(self, latent: FloatArray) -> FloatArray:
        """u, (N, R)."""
        return (latent - self.centre) / self.scale

    def matrix(self, latent: FloatArray) -> FloatArray:
        """Of training rows, (N, N)."""
        u = self.inputs(latent)
        K = self._covariance(squared_distances(u), u @ u.T)
        K[np.diag_indices_from(K)] += NUGGET
        return K

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Between new and training rows, (M, N)."""
        a, b = self.inputs(new), self.inputs(latent)
        return self._covariance(squared_distances(a, b), a @ b.T)

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Of new rows, (M,)."""
        u = self.inputs(new)
        signal, _, linear = np.exp(self.log_values)
        return np.asarray(signal + NUGGET + linear * np.einsum("mr,mr->m", u, u))

    def _covariance(self, squares: FloatArray, products: FloatArray) -> FloatArray:
        signal, lengthscale, linear = np.exp(self.log_values)
        return np.asarray(signal * np.exp(squares / (-2.0 * lengthscale**2)) + linear * products)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureKernel:
    """Kernel of the features, [1]_, Eq. (5), taken over by the classifier as it is.

    The noise belongs to a row, new or old, and not to its position.

    signal_variance
        theta_1.
    lengthscale
        theta_2^(-1/2).
    bias_variance
        theta_3.
    noise_variance
        1 / theta_4.
    """

    signal_variance: float
    lengthscale: float
    bias_variance: float
    noise_variance: float

    def matrix(self, latent: FloatArray) -> FloatArray:
        """Of training rows, (N, N)."""
        K = self.cross(latent, latent)
        K[np.diag_indices_from(K)] += self.noise_variance
        return K

    def cross(self, new: FloatArray, latent: FloatArray) -> FloatArray:
        """Between new and training rows, (M, N)."""
        exponents = squared_distances(new, latent) / (-2.0 * self.lengthscale**2)
        return np.asarray(self.signal_variance * np.exp(exponents) + self.bias_variance)

    def diagonal(self, new: FloatArray) -> FloatArray:
        """Of new rows, (M,)."""
        return np.full(len(new), self.signal_variance + self.bias_variance + self.noise_variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class GPClassifier:
    """Latent functions of P one-against-rest problems, given N labelled rows.

    P is the number of classes with rows, or 1 for two of them (the sign of the second class), or
    0 for one.

    kernel
        Of all functions.
    latent
        Positions of the labelled rows, (N, R).
    present
        Classes with rows, ascending.
    n_labels
        K.
    weights
        b of every function, (P, N).
    roots
        L^-1 S^(1/2) of every function, (P, N, N).
    temperature
        By which scores are divided before they become probabilities; fitted to leave-out scores.
    left_out
        Log probabilities of training rows, each as the others predict it, (N_all, K).
    log_evidence
        Sum over functions, in nats.
    converged
        Whether every approximation, and the search for the kernel, has converged.
    """

    kernel: Kernel
    latent: FloatArray
    present: IntArray
    n_labels: int
    weights: FloatArray
    roots: FloatArray
    temperature: float
    left_out: FloatArray
    log_evidence: float
    converged: bool

    def latent_function(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of every function at positions (M, R), each (M, P)."""
        cross, diagonal = self.kernel.cross(latent, self.latent), self.kernel.diagonal(latent)
        mean = cross @ self.weights.T
        variance = np.empty_like(mean)
        for p, root in enumerate(self.roots):
            variance[:, p] = diagonal - np.square(cross @ root.T).sum(axis=1)
        return mean, np.maximum(variance, 0.0)

    def log_probabilities(self, latent: FloatArray) -> FloatArray:
        """Log class probabilities at positions (M, R), (M, K), normalised."""
        scores = class_scores(*self.latent_function(latent))
        return class_log_probabilities(
            scores, self.temperature, self.present, self.n_labels, n_rows=len(self.latent)
        )

    def loo_log_probabilities(self) -> FloatArray:
        """Log class probabilities of the training rows as the other rows predict them.

        Of rows without a label those that all labelled rows predict.
        """
        return self.left_out


def class_scores(mean: FloatArray, variance: FloatArray) -> FloatArray:
    r"""Log odds of every problem, :math:`\log \Phi(z) - \log \Phi(-z)`, z = m / sqrt(1 + v)."""
    z = mean / np.sqrt(1.0 + variance)
    return np.asarray(log_ndtr(z) - log_ndtr(-z))


def fit_class_temperature(scores: FloatArray, y: IntArray) -> float:
    """Temperature of leave-out scores (N, P); 1 for up to two classes.

    The probabilities of a single probit are as good as they get. Those of several problems were
    fitted apart, and what they say together is too timid or too bold.
    """
    return temperature.fit_temperature(scores, y) if scores.shape[1] > 1 else 1.0


def class_log_probabilities(
    scores: FloatArray, heat: float, present: IntArray, n_labels: int, *, n_rows: int
) -> FloatArray:
    r"""Class probabilities from scores, (M, P) -> (M, K).

    .. math::
        p_c \propto \exp(s_c / T)

    At T = 1 that is the probability of independent answers of all problems, given that exactly
    one of them is positive. A class without rows gets 1 / (N + K), the rule of succession, and
    the others share what is left.
    """
    n_absent = n_labels - len(present)
    result = np.full((len(scores), n_labels), -np.log(n_rows + n_labels))
    result[:, present] = np.log1p(-n_absent / (n_rows + n_labels))
    if len(present) > 1:
        result[:, present] += temperature.log_probabilities(scores, heat)
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
) -> GPClassifier:
    """Fit latent functions to the labels at positions.

    Parameters
    ----------
    latent : (N, R)
        Positions as new rows have them: leave-out positions, not those of the fit itself.
    y_index : (N,)
        Class of each row; rows with -1 do not take part.
    n_labels : int
        K.
    approximation : {"laplace", "ep"}
    priors : Priors
        Its ``classifier`` part.
    refit : bool
        Whether to look for the kernel parameters t; at the mean of their prior otherwise.
    reuse : Kernel, optional
        A kernel to be taken as it is.

    Returns
    -------
    GPClassifier

    Raises
    ------
    ValueError
        If no row has a label, or the approximation has no such name.
    """
    if approximation not in METHODS:
        raise ValueError(f"approximation must be 'laplace' or 'ep', got {approximation!r}")
    known = np.flatnonzero(y_index >= 0)
    if len(known) == 0:
        raise ValueError("the classifier needs at least one row with a label")
    present, y = np.unique(y_index[known], return_inverse=True)
    rows, signs = latent[known], one_against_rest(y, len(present))
    method, settled = METHODS[approximation], True
    kernel: Kernel
    if reuse is not None:
        kernel = reuse
    else:
        kernel = _prior_kernel(rows, y, len(present), priors)
        if refit and len(signs):
            some = _spread_rows(y, SEARCH_ROWS)
            kernel, settled = _search(kernel, rows[some], signs[:, some], method, priors)
    fits = [method(kernel.matrix(rows), sign) for sign in signs]
    return _assemble(kernel, latent, known, y, present, n_labels, fits, settled=settled)


def one_against_rest(y: IntArray, n_labels: int) -> FloatArray:
    """Signs of every problem, (P, N)."""
    signs = np.where(np.equal.outer(np.arange(n_labels), y), 1.0, -1.0)
    return signs[1:] if n_labels <= 2 else signs


def _prior_kernel(
    latent: FloatArray, y: IntArray, n_labels: int, priors: Priors
) -> ClassifierKernel:
    """The kernel at the mean of its prior, in units of these rows."""
    centroids = np.stack([latent[y == label].mean(axis=0) for label in range(n_labels)])
    centre = centroids.mean(axis=0)
    scale = float(np.sqrt(np.square(centroids - centre).sum(axis=1).mean()))
    log_values = np.array([prior.log_median for prior in priors.classifier])
    return ClassifierKernel(centre=centre, scale=scale or 1.0, log_values=log_values)


def _spread_rows(y: IntArray, most: int) -> IntArray:
    """At most about ``most`` rows, the same share of every class."""
    if len(y) <= most:
        return np.arange(len(y))
    groups = [np.flatnonzero(y == label) for label in range(int(y.max()) + 1)]
    return np.sort(
        np.concatenate(
            [
                group[np.linspace(0, len(group) - 1, -(-len(group) * most // len(y))).astype(int)]
                for group in groups
            ]
        )
    )


def _search(
    kernel: ClassifierKernel,
    latent: FloatArray,
    signs: FloatArray,
    method: Callable[..., Approximation],
    priors: Priors,
) -> tuple[ClassifierKernel, bool]:
    """Kernel whose t has the highest posterior density, and whether the search has settled.

    The search moves in standard deviations of the prior; every evaluation starts from the sites
    of the last one.
    """
    u = kernel.inputs(latent)
    squares, products, nugget = squared_distances(u), u @ u.T, NUGGET * np.eye(len(u))
    centre = np.array([prior.log_median for prior in priors.classifier])
    sd = np.array([prior.log_sd for prior in priors.classifier])
    starts: list[Sites | None] = [None] * len(signs)

    def value_and_slope(x: FloatArray) -> tuple[float, FloatArray]:
        t = centre + sd * x
        rate = np.exp(-2.0 * t[1])
        smooth = np.exp(t[0] - 0.5 * rate * squares)
        linear = np.exp(t[2]) * products
        value, G = 0.5 * float(x @ x), np.zeros_like(smooth)
        for p, sign in enumerate(signs):
            fit = method(smooth + linear + nugget, sign, start=starts[p])
            starts[p] = fit.sites
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
    t = centre + sd * found.x
    best = ClassifierKernel(centre=kernel.centre, scale=kernel.scale, log_values=t)
    return best, bool(found.success)


def _assemble(
    kernel: Kernel,
    latent: FloatArray,
    known: IntArray,
    y: IntArray,
    present: IntArray,
    n_labels: int,
    fits: list[Approximation],
    *,
    settled: bool,
) -> GPClassifier:
    """Collect the arrays of all problems."""
    n = len(known)
    mean = np.array([fit.posterior.cavity_mean for fit in fits]).reshape(-1, n).T
    variance = np.array([fit.posterior.cavity_variance for fit in fits]).reshape(-1, n).T
    scores = class_scores(mean, variance)
    heat = fit_class_temperature(scores, y)
    classifier = GPClassifier(
        kernel=kernel,
        latent=latent[known],
        present=present,
        n_labels=n_labels,
        weights=np.array([fit.posterior.weights for fit in fits]).reshape(-1, n),
        roots=np.array([fit.posterior.root for fit in fits]).reshape(-1, n, n),
        temperature=heat,
        left_out=np.empty((0, n_labels)),
        log_evidence=sum(fit.log_evidence for fit in fits),
        converged=settled and all(fit.converged for fit in fits),
    )
    left_out = classifier.log_probabilities(latent)
    left_out[known] = class_log_probabilities(scores, heat, present, n_labels, n_rows=n)
    return replace(classifier, left_out=left_out)
