r"""Variational bound of the density of the features, at linear cost in the number of samples.

The bound has M inducing points [1]_: with :math:`Q = K_{fu} K_{uu}^{-1} K_{uf}` in place of the
kernel matrix of the signal and :math:`s^2 = v b` the noise,

.. math::
    \tfrac{D}{2} [\ln|C (Q + s^2 I) C'| + (N - 1) \ln 2\pi]
    + \tfrac12 tr((C (Q + s^2 I) C')^{-1} C X X' C') + \tfrac{D}{2 s^2} tr(K - Q)

is an upper bound of :func:`bsdr_models.dgplvm.likelihood.evaluate`, and equal to it if the inducing
points are the latent coordinates. C are N - 1 orthonormal contrasts, so the means of the features
are integrated out exactly: C'C centres the columns of :math:`K_{fu}`. The last term may have all
samples instead of the contrasts since K - Q is positive semidefinite.

The samples are processed in blocks, first for sufficient statistics and then for the gradient. No
array of size N x M is stored.

References
----------
.. [1] M. Titsias (2009). Variational learning of inducing variables in sparse Gaussian processes.
       AISTATS.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from bsdr_models.arrays import FloatArray
from bsdr_models.dgplvm.likelihood import FeatureGram, check_latent
from bsdr_models.numerics.kernels import rbf, rbf_cross_slopes, rbf_slopes, squared_distances

_LN_2PI = math.log(2.0 * math.pi)
# Added to the diagonal of the kernel matrix of the inducing points, relative to it. It loosens the
# bound slightly, which stays valid.
JITTER = 1e-8
# Entries of a block of K_fu: a few of these fit in the second-level cache.
_BLOCK_ENTRIES = 2**15
# Samples per inducing point, and iterations, of the k-means initialisation.
_SAMPLES_PER_CENTRE, _ROUNDS = 30, 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseEvaluation:
    """Upper bound of a negative log density, and its gradients.

    value
        In nats, all constants included.
    latent
        Gradient with respect to the latent coordinates, (N, R).
    log_kernel
        Gradient with respect to the logs of the kernel parameters, (3,).
    inducing
        Gradient with respect to the inducing points, (M, R).
    """

    value: float
    latent: FloatArray
    log_kernel: FloatArray
    inducing: FloatArray


def evaluate_sparse(
    latent: FloatArray, log_kernel: FloatArray, inducing: FloatArray, gram: FeatureGram
) -> SparseEvaluation:
    """Bound of the density with the means of the features integrated out.

    Parameters
    ----------
    latent : (N, R)
    log_kernel : (3,)
        As in :func:`bsdr_models.dgplvm.likelihood.evaluate`: logs of signal, length-scale, noise.
    inducing : (M, R)
    gram : FeatureGram
        Of centred features.

    Raises
    ------
    numpy.linalg.LinAlgError
        If ``latent`` or ``inducing`` is not finite or a matrix not numerically positive definite.
    """
    check_latent(latent, inducing)
    signal, lengthscale, noise = np.exp(log_kernel)
    signal, noise = signal * gram.variance, noise * gram.variance
    n, d, m = len(latent), gram.n_features, len(inducing)
    L = _factor(rbf(inducing, None, lengthscale, signal) + JITTER * signal * np.eye(m))
    kernel = _Kernel(latent=latent, inducing=inducing, scale=lengthscale, signal=signal, factor=L)

    # With A = L^-1 K_uf, H = I - 11'/N: A A', A 1 / N, T = A root, B = I + A H A' / s2.
    AA, mean, T = _statistics(kernel, gram.root)
    AHA = AA - n * np.multiply.outer(mean, mean)
    L_B = _factor(np.eye(m) + AHA / noise)
    E = blas.dtrsm(1.0, L_B, T, lower=1)
    Z = blas.dtrsm(1.0, L_B, E, lower=1, trans_a=1)  # B^-1 T
    B_inverse = lapack.dpotrs(L_B, np.eye(m), lower=1)[0]
    missing = (n * signal - np.trace(AA)) / noise  # tr(K - Q) / s2
    log_det = (n - 1) * (_LN_2PI + math.log(noise)) + 2.0 * np.log(np.diagonal(L_B)).sum()
    explained, weight = np.vdot(E, E) / noise**2, np.vdot(Z, Z) / noise**2
    value = 0.5 * (d * (log_det + missing) + gram.total / noise - explained)

    # The gradient with respect to A is [(W - D I) A - W mean 1' - Z root' / s2] / s2.
    W = d * B_inverse + Z @ Z.T / noise**2
    total, by_latent, by_inducing = _backpropagate(
        kernel, (W - d * np.eye(m)) / noise, W @ mean / noise, Z / noise**2, gram.root
    )
    along_A = (W @ AHA - d * AA - Z @ T.T / noise) / noise  # times A'
    G = -0.5 * _solve_transposed(L, _solve_transposed(L, along_A).T)  # with respect to K_uu
    total_uu, by_inducing_uu = rbf_slopes(inducing, lengthscale, signal, np.asfortranarray(G))
    by_inducing = by_inducing + by_inducing_uu

    by_signal = total + total_uu + JITTER * signal * np.trace(G) + 0.5 * d * n * signal / noise
    by_scale = -(np.vdot(by_latent, latent) + np.vdot(by_inducing, inducing))
    by_noise = d * (n - 1 - m + np.trace(B_inverse) - missing)
    by_noise = 0.5 * (by_noise - gram.total / noise + explained + weight)
    return SparseEvaluation(
        value=float(value),
        latent=by_latent,
        log_kernel=np.array([by_signal, by_scale, by_noise]),
        inducing=by_inducing,
    )


def initial_inducing(latent: FloatArray, n_inducing: int, rng: np.random.Generator) -> FloatArray:
    """Initial inducing points by k-means++ and a few iterations of k-means.

    Parameters
    ----------
    latent : (N, R)
    n_inducing : int
        M. If there are fewer distinct latent coordinates, each of them is taken once.

    Returns
    -------
    (M, R), or fewer
    """
    if n_inducing >= len(latent):
        return np.unique(latent, axis=0)
    if len(latent) > _SAMPLES_PER_CENTRE * n_inducing:
        latent = latent[rng.choice(len(latent), _SAMPLES_PER_CENTRE * n_inducing, replace=False)]
    centres = _seeds(latent, n_inducing, rng)
    for _ in range(_ROUNDS):
        nearest = np.argmin(squared_distances(latent, centres), axis=1)
        counts = np.bincount(nearest, minlength=len(centres))
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, latent)
        centres = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return centres


def _seeds(latent: FloatArray, n_inducing: int, rng: np.random.Generator) -> FloatArray:
    """k-means++ seeding: probabilities are proportional to the squared distance to the seeds."""
    chosen = [int(rng.integers(len(latent)))]
    distances = squared_distances(latent, latent[chosen])[:, 0]
    while len(chosen) < n_inducing and distances.any():
        chosen.append(int(rng.choice(len(latent), p=distances / distances.sum())))
        np.minimum(distances, squared_distances(latent, latent[chosen[-1:]])[:, 0], out=distances)
    return latent[chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kernel:
    """Latent coordinates, inducing points, kernel parameters, and the lower factor L of K_uu."""

    latent: FloatArray
    inducing: FloatArray
    scale: float
    signal: float
    factor: FloatArray

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Slices of samples, and A = L^-1 K_uf of them, (M, B)."""
        n, size = len(self.latent), max(1, _BLOCK_ENTRIES // len(self.inducing))
        for start in range(0, n, size):
            block = slice(start, min(start + size, n))
            K_fu = rbf(self.latent[block], self.inducing, self.scale, self.signal)
            yield block, blas.dtrsm(1.0, self.factor, K_fu.T, lower=1, overwrite_b=1)


def _statistics(kernel: _Kernel, root: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A A', (M, M); A 1 / N, (M,); A root, (M, r)."""
    m = len(kernel.inducing)
    AA, mean, T = np.zeros((m, m)), np.zeros(m), np.zeros((m, root.shape[1]))
    for block, A in kernel.blocks():
        AA += A @ A.T
        mean += A.sum(axis=1)
        T += A @ root[block]
    return AA, mean / len(root), T


def _backpropagate(
    kernel: _Kernel, by_A: FloatArray, shift: FloatArray, by_root: FloatArray, root: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Gradients from that with respect to A, which is by_A A - shift 1' - by_root root'.

    Returns
    -------
    total : float
        With respect to the log of the signal.
    latent : (N, R)
    inducing : (M, R)
    """
    total, latent, inducing = 0.0, np.empty_like(kernel.latent), np.zeros_like(kernel.inducing)
    for block, A in kernel.blocks():
        along = (root[block] @ by_root.T).T  # (M, B) in Fortran order
        np.subtract(by_A @ A, along, out=along)
        along -= shift[:, None]
        along = blas.dtrsm(1.0, kernel.factor, along, lower=1, trans_a=1, overwrite_b=1)
        part, latent[block], by_inducing = rbf_cross_slopes(
            kernel.latent[block], kernel.inducing, kernel.scale, kernel.signal, along.T
        )
        total += part
        inducing += by_inducing
    return total, latent, inducing


def _solve_transposed(L: FloatArray, matrix: FloatArray) -> FloatArray:
    """L^-T matrix."""
    return np.asarray(blas.dtrsm(1.0, L, matrix, lower=1, trans_a=1))


def _factor(matrix: FloatArray) -> FloatArray:
    factor, info = lapack.dpotrf(matrix, lower=1)
    if info != 0:
        raise np.linalg.LinAlgError("the kernel of the inducing points is not positive definite")
    return np.asarray(factor)
