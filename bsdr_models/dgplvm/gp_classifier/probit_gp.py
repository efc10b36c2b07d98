r"""Binary Gaussian process classification with a probit link: common parts of approximations.

The latent function has the values f ~ N(0, K) at N samples, and a sign :math:`z_i = \pm 1` has
probability :math:`\Phi(z_i f_i)`. Both Laplace's method (`probit_laplace`) and expectation
propagation (`probit_ep`) replace every factor by a normal *site* of precision S and location nu,

.. math::
    q(f) \propto N(f; 0, K) \prod_i \exp(\nu_i f_i - S_i f_i^2 / 2),

with the posterior mean m = K b, b = nu - S m. With
:math:`B = I + S^{1/2} K S^{1/2} = L L^\top` predictions for a new sample need no division by S
[1]_:

.. math::
    E[f_*] = k_*^\top b, \qquad
    \operatorname{var} f_* = k_{**} - |L^{-1} S^{1/2} k_*|^2.

References
----------
.. [1] C. E. Rasmussen, C. K. I. Williams (2006). Gaussian Processes for Machine Learning.
       Chapter 3.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack
from scipy.special import log_ndtr

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.linalg import factorise_inplace


@dataclass(frozen=True, slots=True, kw_only=True)
class Sites:
    """Normal factors that approximate those of the signs, by natural parameters.

    precision
        S, (N,), non-negative.
    location
        nu = precision times mean, (N,).
    """

    precision: FloatArray
    location: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The normal posterior of N latent values for given sites and kernel matrix.

    root
        L^-1 S^(1/2), (N, N), lower triangular.
    half_log_det
        Half of log |B|.
    weights
        b, (N,).
    mean, variance
        Of the latent values, (N,).
    cavity_mean, cavity_variance
        The same without the sample's own site, (N,).
    covariance
        (N, N), Fortran order, or None.
    """

    root: FloatArray
    half_log_det: float
    weights: FloatArray
    mean: FloatArray
    variance: FloatArray
    cavity_mean: FloatArray
    cavity_variance: FloatArray
    covariance: FloatArray | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approximation:
    """An approximate posterior of the latent values, and its evidence.

    log_evidence
        log p(signs), in nats.
    sites
        Those of the posterior; initial values for a similar kernel matrix.
    posterior
        Normal posterior of the latent values.
    drift
        (N,): gradient of the log evidence through the mode, in the prior values. Zero if the
        approximation is stationary in its sites (EP).
    converged
    n_iterations
        Newton steps, or sweeps.
    """

    log_evidence: float
    sites: Sites
    posterior: Posterior
    drift: FloatArray
    converged: bool
    n_iterations: int

    @property
    def kernel_gradient(self) -> FloatArray:
        r"""Derivative of the log evidence in K, (N, N), symmetric.

        .. math::
            G = \tfrac12 (b b^\top - S^{1/2} B^{-1} S^{1/2}) + \tfrac12 (u b^\top + b u^\top)

        with u = ``drift``.
        """
        b, u, root = self.posterior.weights, self.drift, self.posterior.root
        G = root.T @ root
        G *= -0.5
        half = np.outer(0.25 * b + 0.5 * u, b)
        G += half + half.T
        return G

    def predict(self, cross: FloatArray, diagonal: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent function at M new samples, each (M,).

        Parameters
        ----------
        cross : (M, N)
            Kernel between new and training samples.
        diagonal : (M,)
            Kernel of every new sample with itself.
        """
        explained = np.square(cross @ self.posterior.root.T).sum(axis=1)
        return cross @ self.posterior.weights, np.maximum(diagonal - explained, 0.0)


def solve_sites(kernel: FloatArray, sites: Sites, *, with_covariance: bool = False) -> Posterior:
    r"""Posterior of the latent values for given sites.

    The cavity of sample i follows from :math:`1 - \Sigma_{ii} S_i = (B^{-1})_{ii}`:

    .. math::
        s_i^2 = \Sigma_{ii} / (B^{-1})_{ii}, \qquad \mu_i = m_i - s_i^2 b_i,

    which does not cancel if the site dominates the marginal.

    Parameters
    ----------
    kernel : (N, N)
    sites : Sites
    with_covariance : bool
        Whether to return the full covariance.
    """
    K, s = kernel, np.sqrt(sites.precision)
    B = np.asfortranarray(s[:, None] * K * s)
    B.flat[:: len(B) + 1] += 1.0
    factor, log_det = factorise_inplace(B, name="I + S^1/2 K S^1/2")
    inverse, _ = lapack.dtrtri(factor, lower=1, overwrite_c=1)
    inverse_diagonal = np.einsum("ij,ij->j", inverse, inverse)
    root = inverse * s
    projected = root @ K
    b = sites.location - root.T @ (projected @ sites.location)
    m = K @ b
    if with_covariance:
        covariance = np.asfortranarray(K - projected.T @ projected)
        variance = np.diagonal(covariance).copy()
    else:
        covariance = None
        variance = np.diagonal(K) - np.einsum("ij,ij->j", projected, projected)
    cavity = variance / inverse_diagonal
    return Posterior(
        root=root,
        half_log_det=0.5 * log_det,
        weights=b,
        mean=m,
        variance=variance,
        cavity_mean=m - cavity * b,
        cavity_variance=cavity,
        covariance=covariance,
    )


def log_probability(mean: FloatArray, variance: FloatArray) -> FloatArray:
    r"""Log probability of the sign +1, :math:`\log \Phi(m / \sqrt{1 + v})`, any shape."""
    return np.asarray(log_ndtr(mean / np.sqrt(1.0 + variance)))


def loo_log_probability(posterior: Posterior) -> FloatArray:
    """Leave-one-out log probability of the sign +1 at every sample, (N,)."""
    return log_probability(posterior.cavity_mean, posterior.cavity_variance)
