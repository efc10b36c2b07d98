r"""What engines of D-GPLVM get, and the density of the features given latent coordinates.

Every feature is a Gaussian process. With the kernel matrix K of the samples the density depends on
the features by D and S = X X' only. :func:`evaluate` integrates out the mean of each feature under
a flat prior,

.. math::
    \tfrac{D}{2} [\ln|K| + \ln(1' K^{-1} 1) - \ln N + (N - 1) \ln 2\pi] + \tfrac12 tr(P S), \qquad
    P = K^{-1} - K^{-1} 1 1' K^{-1} / 1' K^{-1} 1,

with :math:`K = v a \exp(-|x_i - x_j|^2 / 2 l^2) + v b I` and v the variance of the features. Values
are negative log densities in nats with all constants.
"""

import math
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import blas, lapack

from bsdr_models.data.training import Training
from bsdr_models.dgplvm.priors import DGPLVMMapping, DGPLVMOptimization, DGPLVMPriors
from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.factors import LOG_2PI
from bsdr_models.numerics.kernels import rbf, rbf_gradient
from bsdr_models.numerics.linalg import factorise_inplace, row_space, standardise

# Eigenvalues below this share of the largest, per sample, are rounding errors.
_RANK_TOL = 1e-15


@dataclass(frozen=True, slots=True, kw_only=True)
class DGPLVMProblem:
    """Training samples (N, B), classes (N,), -1 without a label, and options.

    Samples are in the metric of the training samples, if these are given. ``criterion`` is that of
    the priors or what "auto" stands for.
    """

    X: FloatArray
    y_index: IntArray
    n_components: int
    criterion: str = "trace_ratio"
    priors: DGPLVMPriors = field(default_factory=DGPLVMPriors)
    mapping: DGPLVMMapping = field(default_factory=DGPLVMMapping)
    optimization: DGPLVMOptimization = field(default_factory=DGPLVMOptimization)
    training: Training | None = None

    @property
    def known(self) -> IntArray:
        """Indices of the labelled samples."""
        return np.flatnonzero(self.y_index >= 0)

    @property
    def n_labels(self) -> int:
        """Number of classes, each of which has labelled samples."""
        return int(self.y_index.max()) + 1

    def starts(self, n_starts: int, rng: np.random.Generator) -> list[FloatArray]:
        """Initial latent coordinates (N, R): principal components, then normal draws.

        Columns have mean 0 and variance 1; those beyond the rank of the features are random.
        """
        if n_starts == 0:
            return []
        n = len(self.X)
        r = self.n_components
        centred = self.X - self.X.mean(axis=0)
        scores = (centred @ row_space(centred)[1])[:, :r]
        initial = [np.hstack([scores, rng.standard_normal((n, r - scores.shape[1]))])]
        initial += [rng.standard_normal((n, r)) for _ in range(n_starts - 1)]
        return [standardise(latent) for latent in initial]


def class_centroids(values: FloatArray, y_index: IntArray) -> FloatArray:
    """Means (C, D) of the samples of every class (N,) that has some; -1 is none."""
    labels = np.unique(y_index[y_index >= 0])
    return np.stack([values[y_index == label].mean(axis=0) for label in labels])


def relevance(latent: FloatArray, index: IntArray) -> FloatArray:
    """Share of each component in the scatter of the class centroids, (R,)."""
    scatter = class_centroids(latent, index).var(axis=0)
    return scatter / (scatter.sum() or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureGram:
    """Gram matrix of the features, to which the densities reduce them.

    ``root`` (N, r), in Fortran order, has root root' = X X'; ``variance`` is v, of one feature
    about its mean, averaged over features, and ``n_effective`` tr(S)^2 / tr(S^2), at most D.
    """

    root: FloatArray
    variance: float
    n_features: int
    n_effective: float

    @property
    def temper(self) -> float:
        """Power of the likelihood, the share of effective features."""
        return self.n_effective / self.n_features

    @classmethod
    def of(cls, X: FloatArray) -> "FeatureGram":
        """From centred features (N, D) of samples that are not all equal."""
        n_samples, n_features = X.shape
        wide = n_features >= n_samples
        size, axes = np.linalg.eigh(X @ X.T if wide else X.T @ X)
        total = float(size.sum())
        if not total > 0.0:
            raise ValueError("all samples of X are equal")
        kept = size > _RANK_TOL * n_samples * size[-1]
        axes = axes[:, kept]
        # The transpose of a product is in Fortran order without a copy.
        root = np.asfortranarray(axes * np.sqrt(size[kept])) if wide else (axes.T @ X.T).T
        return cls(
            root=root,
            variance=total / ((n_samples - 1) * n_features),
            n_features=n_features,
            n_effective=min(float(n_features), total**2 / float(size @ size)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """A negative log density, and its gradients in latent coordinates and log parameters."""

    value: float
    latent: FloatArray
    log_parameters: FloatArray


def evaluate(latent: FloatArray, log_kernel: FloatArray, gram: FeatureGram) -> Evaluation:
    """Density with the means of the features integrated out, at latent coordinates (N, R).

    ``log_kernel`` (3,) are logs of signal a, length-scale l and noise b, with a and b in units of
    the variance of the features. A LinAlgError, which the optimiser handles, says that the latent
    coordinates are not finite or the kernel matrix is not numerically positive definite.
    """
    signal, lengthscale, noise = np.exp(log_kernel) * [gram.variance, 1.0, gram.variance]
    smooth = rbf(latent, None, lengthscale, signal)
    factor, log_det = factorise(latent, smooth, noise)
    value, _, G = normal_density(factor, log_det, gram.root, gram.n_features, integrate_mean=True)
    total, gradient = rbf_gradient(latent, smooth, lengthscale, G)
    by_scale = -float(np.vdot(gradient, latent))  # K depends on latent / l only
    by_log = [total, by_scale, noise * np.trace(G)]
    return Evaluation(value=value, latent=gradient, log_parameters=np.array(by_log))


def factorise(latent: FloatArray, smooth: FloatArray, noise: float) -> tuple[FloatArray, float]:
    """Lower Cholesky factor of a symmetric kernel matrix with noise on its diagonal, and ln|K|."""
    if not math.isfinite(latent.sum()):
        raise np.linalg.LinAlgError("the latent coordinates are not finite")
    K = smooth.copy().T  # in Fortran order
    K[np.diag_indices_from(K)] += noise
    return factorise_inplace(K, name="the kernel matrix")


def normal_density(
    factor: FloatArray,
    log_det: float,
    root: FloatArray,
    n_outputs: int,
    *,
    integrate_mean: bool = False,
) -> tuple[float, FloatArray, FloatArray]:
    """Negative log density of D normal columns Y of covariance K, with Y Y' = root root'.

    From :func:`factorise`; the factor is overwritten. Also K^-1 root (P root, if the means are
    integrated out), and the lower triangle of the gradient in K.
    """
    n, r = root.shape
    half = np.empty((n, r + integrate_mean), order="F")
    half[:, :r] = root
    half[:, r:] = 1.0
    half = blas.dtrsm(1.0, factor, half, lower=1, overwrite_b=1)
    value = 0.5 * n_outputs * (log_det + (n - integrate_mean) * LOG_2PI)
    if integrate_mean:  # P = L^-T (I - e e') L^-1, e along L^-1 1
        ones = half[:, -1]
        weight = ones @ ones  # 1' K^-1 1
        blas.dger(-1.0 / weight, ones, ones @ half[:, :r], a=half[:, :r], overwrite_a=1)
        value += 0.5 * n_outputs * math.log(weight / n)
        ones *= math.sqrt(n_outputs / weight)
    value += 0.5 * float(np.vdot(half[:, :r], half[:, :r]))
    W = blas.dtrsm(1.0, factor, half, lower=1, trans_a=1, overwrite_b=1)
    inverse, _ = lapack.dpotri(factor, lower=1, overwrite_c=1)
    # G = (D K^-1 - W W') / 2
    G = blas.dsyrk(-0.5, W, beta=0.5 * n_outputs, c=inverse, lower=1, overwrite_c=1)
    return value, W[:, :r], G
