r"""Several latent functions with a probit link and one kernel: exact, or by inducing samples.

There is one function per column of signs. Exact functions store an N x N matrix each. For many
samples the kernel is approximated by *inducing* samples, and the remaining variance is treated as
independent (FITC [1]_),

.. math::
    K \approx F F^\top + D, \qquad D_{ii} = k_{ii} - |F_i|^2.

The independent variance only rescales the probit, :math:`\Phi(f / \sqrt{1 + D_{ii}})`, and is
absorbed into the features, :math:`F_i / \sqrt{1 + D_{ii}}`.

References
----------
.. [1] E. Snelson, Z. Ghahramani (2006). Sparse Gaussian processes using pseudo-inputs. NIPS.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from scipy.linalg import solve_triangular

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.probit_ep import expectation_propagation
from bsdr_models.numerics.probit_gp import Approximation
from bsdr_models.numerics.probit_gp_low_rank import (
    FeaturePosterior,
    ep_by_features,
    laplace_by_features,
    pivoted_cholesky,
)
from bsdr_models.numerics.probit_kernels import Kernel, kernel_matrix
from bsdr_models.numerics.probit_laplace import laplace

type Method = Literal["laplace", "ep"]

EXACT: dict[str, Callable[..., Approximation]] = {
    "laplace": laplace,
    "ep": expectation_propagation,
}
BY_FEATURES: dict[str, Callable[..., FeaturePosterior]] = {
    "laplace": laplace_by_features,
    "ep": ep_by_features,
}
# New samples whose covariances are held in memory at a time.
CHUNK = 4096
# For the choice of inducing samples, which is deterministic.
SEED = 0


class Functions(Protocol):
    """P latent functions."""

    @property
    def nbytes(self) -> int:
        """Memory of the largest arrays."""

    def moments(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance at latent coordinates (M, R), each (M, P)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Functions, and leave-one-out predictions of the training samples.

    functions
    left_out
        Leave-one-out probits, (N, P): the probability of the sign +1 is their normal distribution
        function.
    log_evidence
        Of each function, in nats, (P,).
    converged
    """

    functions: Functions
    left_out: FloatArray
    log_evidence: FloatArray
    converged: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFunctions:
    """Exact functions.

    kernel
    latent
        Training samples, (N, R).
    weights
        b, (P, N).
    roots
        L^-1 S^(1/2), (P, N, N).
    """

    kernel: Kernel
    latent: FloatArray
    weights: FloatArray
    roots: FloatArray

    @property
    def nbytes(self) -> int:
        """Memory of the roots."""
        return self.roots.nbytes

    def moments(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance at positions (M, R), each (M, P)."""
        mean, variance = np.empty((2, len(latent), len(self.weights)))
        for start in range(0, len(latent), CHUNK):
            rows = slice(start, start + CHUNK)
            cross, diagonal = self._covariances(latent[rows])
            mean[rows] = cross @ self.weights.T
            for p, root in enumerate(self.roots):
                variance[rows, p] = diagonal - np.square(cross @ root.T).sum(axis=1)
        return mean, np.maximum(variance, 0.0)

    def _covariances(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.kernel.cross(latent, self.latent), self.kernel.diagonal(latent)


@dataclass(frozen=True, slots=True, kw_only=True)
class InducedFunctions:
    """Functions by inducing samples.

    kernel
    inducing
        Inducing samples, (M, R).
    factor
        Lower triangular factor of their covariance, (M, M). Features are its inverse times the
        covariances with them.
    weights
        Means of the weights of the features, (P, M).
    roots
        (P, M, M): the covariance of the weights is root' root.
    """

    kernel: Kernel
    inducing: FloatArray
    factor: FloatArray
    weights: FloatArray
    roots: FloatArray

    @property
    def nbytes(self) -> int:
        """Memory of the roots."""
        return self.roots.nbytes

    def features(self, latent: FloatArray) -> FloatArray:
        """Features of samples, (L, R) -> (L, M)."""
        cross = self.kernel.cross(latent, self.inducing)
        return np.asarray(solve_triangular(self.factor, cross.T, lower=True).T)

    def moments(self, latent: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean and variance at latent coordinates (L, R), each (L, P)."""
        mean, variance = np.empty((2, len(latent), len(self.weights)))
        for start in range(0, len(latent), CHUNK):
            rows = slice(start, start + CHUNK)
            features = self.features(latent[rows])
            left = self.kernel.diagonal(latent[rows]) - np.square(features).sum(axis=1)
            mean[rows] = features @ self.weights.T
            for p, root in enumerate(self.roots):
                variance[rows, p] = np.square(features @ root.T).sum(axis=1) + left
        return mean, np.maximum(variance, 0.0)


def fit_exact(kernel: Kernel, latent: FloatArray, signs: FloatArray, method: Method) -> Fitted:
    """Fit exact functions.

    Parameters
    ----------
    kernel : Kernel
    latent : (N, R)
    signs : (P, N)
        +1 or -1.
    method : {"laplace", "ep"}
    """
    n = len(latent)
    K = kernel_matrix(kernel, latent)
    fits = [EXACT[method](K, sign) for sign in signs]
    z = [fit.posterior.cavity_mean / np.sqrt(1.0 + fit.posterior.cavity_variance) for fit in fits]
    return Fitted(
        functions=ExactFunctions(
            kernel=kernel,
            latent=latent,
            weights=np.array([fit.posterior.weights for fit in fits]).reshape(-1, n),
            roots=np.array([fit.posterior.root for fit in fits]).reshape(-1, n, n),
        ),
        left_out=np.array(z).reshape(-1, n).T,
        log_evidence=np.array([fit.log_evidence for fit in fits]),
        converged=all(fit.converged for fit in fits),
    )


def fit_induced(
    kernel: Kernel, latent: FloatArray, signs: FloatArray, method: Method, n_inducing: int
) -> Fitted:
    """Fit functions by at most ``n_inducing`` inducing samples, fewer if these suffice.

    Parameters
    ----------
    kernel : Kernel
    latent : (N, R)
    signs : (P, N)
        +1 or -1.
    method : {"laplace", "ep"}
    n_inducing : int
    """
    n, own = len(latent), kernel.own_variance
    diagonal = kernel.diagonal(latent) - own

    def column(i: int) -> FloatArray:
        return kernel.cross(latent[i : i + 1], latent)[0]

    rng = np.random.default_rng(SEED)
    F, pivots = pivoted_cholesky(column, diagonal, n_inducing, rng)
    m = len(pivots)
    factor = np.tril(F[pivots])
    left = np.maximum(diagonal - np.einsum("nm,nm->n", F, F), 0.0) + own
    F /= np.sqrt(1.0 + left)[:, None]
    fits = [BY_FEATURES[method](F, sign) for sign in signs]
    z = [mean / np.sqrt(1.0 + variance) for mean, variance in (fit.cavity for fit in fits)]
    return Fitted(
        functions=InducedFunctions(
            kernel=kernel,
            inducing=latent[pivots],
            factor=factor,
            weights=np.array([fit.weights for fit in fits]).reshape(-1, m),
            roots=np.array([fit.root for fit in fits]).reshape(-1, m, m),
        ),
        left_out=np.array(z).reshape(-1, n).T,
        log_evidence=np.array([fit.log_evidence for fit in fits]),
        converged=all(fit.converged for fit in fits),
    )
