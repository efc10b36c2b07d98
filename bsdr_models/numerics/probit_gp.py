r"""Binary Gaussian process classification with a probit link: what its approximations share.

The latent function has the values f ~ N(0, K) at N rows, and a sign :math:`z_i = \pm 1` has the
probability :math:`\Phi(z_i f_i)`. Both Laplace's method (`probit_laplace`) and expectation
propagation (`probit_ep`) replace every factor by a normal *site* of precision S and location nu,

.. math::
    q(f) \propto N(f; 0, K) \prod_i \exp(\nu_i f_i - S_i f_i^2 / 2),

whose posterior has the mean m = K b with b = nu - S m. With
:math:`B = I + S^{1/2} K S^{1/2} = L L^\top` the precision of a new row never divides by S [1]_:

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
    """Normal factors that stand for the signs, on the natural scale.

    precision
        S, (N,), not negative.
    location
        nu = precision times mean, (N,).
    """

    precision: FloatArray
    location: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """The normal posterior of N latent values that sites and a kernel matrix imply.

    root
        L^-1 S^(1/2), (N, N), lower triangular.
    half_log_det
        Half of log |B|.
    weights
        b, (N,).
    mean, variance
        Of the latent values, (N,).
    cavity_mean, cavity_variance
        The same without the site of the row itself, (N,).
    covariance
        (N, N), Fortran order, or None if it was not asked for.
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
        What the posterior was made of; a start for a similar kernel matrix.
    posterior
        Normal posterior of the latent values.
    drift
        (N,): change of the log evidence with the latent values, for unit changes of the prior
        values they follow. Zero where the approximation is stationary in its sites (EP).
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

        with u = ``drift``: a change dK adds the sum of G times dK.
        """
        b, u, root = self.posterior.weights, self.drift, self.posterior.root
        G = root.T @ root
        G *= -0.5
        half = np.outer(0.25 * b + 0.5 * u, b)
        G += half + half.T
        return G

    def predict(self, cross: FloatArray, diagonal: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of the latent function at M new rows, each (M,).

        Parameters
        ----------
        cross : (M, N)
            Kernel between new rows and those of the fit.
        diagonal : (M,)
            Kernel of every new row with itself.
        """
        explained = np.square(cross @ self.posterior.root.T).sum(axis=1)
        return cross @ self.posterior.weights, np.maximum(diagonal - explained, 0.0)


def solve_sites(kernel: FloatArray, sites: Sites, *, with_covariance: bool = False) -> Posterior:
    r"""Posterior of the latent values for given sites.

    The cavity of row i follows from :math:`1 - \Sigma_{ii} S_i = (B^{-1})_{ii}`:

    .. math::
        s_i^2 = \Sigma_{ii} / (B^{-1})_{ii}, \qquad \mu_i = m_i - s_i^2 b_i,

    which holds its digits where the site carries nearly all that is known of the row.

    Parameters
    ----------
    kernel : (N, N)
    sites : Sites
    with_covariance : bool
        Whether to return the covariance of all pairs of rows.
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
    """Log probability of the sign +1 at every row, as the other rows predict it, (N,)."""
    return log_probability(posterior.cavity_mean, posterior.cavity_variance)
