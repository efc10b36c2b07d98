r"""Several latent functions with a probit link and one kernel, by features of the samples.

There is one function per column of signs. The features are a factor of the kernel matrix at its
numerical rank or, for many samples, those of a few *inducing* samples. The remaining variance is
treated as independent (FITC [1]_),

.. math::
    K \approx F F^\top + D, \qquad D_{ii} = k_{ii} - |F_i|^2.

The independent variance only rescales the probit, :math:`\Phi(f / \sqrt{1 + D_{ii}})`, and is
absorbed into the features, :math:`F_i / \sqrt{1 + D_{ii}}`.

References
----------
.. [1] E. Snelson, Z. Ghahramani (2006). Sparse Gaussian processes using pseudo-inputs. NIPS.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.gp_classifier.probit_gp_low_rank import (
    Approximate,
    ep_by_features,
    numerical_factor,
    pivoted_cholesky,
)
from bsdr_models.dgplvm.gp_classifier.probit_kernels import Kernel

# New samples whose covariances are held in memory at a time.
CHUNK = 4096
# For the choice of inducing samples, which is deterministic.
SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Functions:
    """P latent functions by features of M inducing samples (M, R).

    Features are the inverse of ``factor`` (M, M), lower triangular, times the covariances with
    them; ``weights`` (P, M) are their mean weights, whose covariances are root' root, (P, M, M).
    """

    kernel: Kernel
    inducing: FloatArray
    factor: FloatArray
    weights: FloatArray
    roots: FloatArray

    @property
    def nbytes(self) -> int:
        """Memory of the roots, in bytes."""
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

    def probits(self, latent: FloatArray) -> FloatArray:
        """Probits of the signs +1 at latent coordinates (L, R), (L, P)."""
        mean, variance = self.moments(latent)
        return mean / np.sqrt(1.0 + variance)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Functions, leave-one-out probits (N, P), and log evidence of each function, in nats, (P,)."""

    functions: Functions
    left_out: FloatArray
    log_evidence: FloatArray
    converged: bool


def fit_functions(
    kernel: Kernel,
    latent: FloatArray,
    signs: FloatArray,
    approximate: Approximate = ep_by_features,
    n_inducing: int | None = None,
) -> Fitted:
    """Fit latent functions to signs (P, N) at latent coordinates (N, R).

    The number of inducing samples is by default the numerical rank of the kernel matrix.
    """
    n, own = len(latent), kernel.own_variance
    diagonal = kernel.diagonal(latent) - own
    if n_inducing is None:
        F, pivots = numerical_factor(kernel.cross(latent, latent))
    else:
        rng = np.random.default_rng(SEED)
        F, pivots = pivoted_cholesky(
            lambda i: kernel.cross(latent[i : i + 1], latent)[0], diagonal, n_inducing, rng
        )
    m = len(pivots)
    factor = np.tril(F[pivots])
    F = rescale(F, diagonal, own)
    fits = [approximate(F, sign) for sign in signs]
    z = [mean / np.sqrt(1.0 + variance) for mean, variance in (fit.cavity for fit in fits)]
    return Fitted(
        functions=Functions(
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


def rescale(features: FloatArray, diagonal: FloatArray, own: float) -> FloatArray:
    """Features (N, M) that absorb ``own`` and the variance they leave of ``diagonal`` (N,)."""
    left = np.maximum(diagonal - np.einsum("nm,nm->n", features, features), 0.0) + own
    return features / np.sqrt(1.0 + left)[:, None]
