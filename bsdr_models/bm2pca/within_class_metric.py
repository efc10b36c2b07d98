r"""Within-class metric, estimated from the training samples.

Samples are normal about offsets of their classes, with flat priors, and a covariance
:math:`\Psi \sim IW(\nu_0, \kappa I_d)`, :math:`\nu_0 = d + 1`. With S the within-class scatter, n
its degrees of freedom and :math:`s_j` its eigenvalues, the evidence

.. math::
    \log m(\kappa) = \text{const} + \tfrac{\nu_0 d}{2} \log\kappa
        - \tfrac{\nu_0 + n}{2} \sum_{j=1}^d \log(\kappa + s_j)

has a unique maximum :math:`\kappa_{ev}`. Metric coordinates are

.. math::
    a(x) = g\,P (x - t), \qquad P = (I + S/\kappa)^{-1/2}, \qquad \kappa = c\,\kappa_{ev},

where the number g makes the mean of :math:`|a_n|^2` one; c = inf is the Euclidean metric, the only
one if samples do not vary within classes. One decomposition, :class:`Spectrum`, serves every c; for
N < d it needs inner products of samples alone.

With thousands of sparse samples and features S has too many eigenvectors, and X in its row space is
a dense N x N array. Then the metric is Euclidean (:class:`SparseMetric`), which on texts predicts
as well.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.sparse.linalg import aslinearoperator

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.row_space import (
    RANK_TOL,
    Axes,
    DenseAxes,
    Rows,
    centred_gram,
    make_axes,
    squared_distance,
    weighted_mean,
)

# The metric of sparse X is Euclidean if samples and features both exceed this.
MAX_EXACT = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The map a(x) = g P (x - t), with coordinates A (N, R) of the training samples.

    ``gain`` (R,) is the diagonal of g P along the axes, and ``outside_gain`` is g, its value
    orthogonal to them.
    """

    kappa: float
    A: FloatArray
    gain: FloatArray
    outside_gain: float
    axes: Axes

    @property
    def mean(self) -> FloatArray:
        """t, (d,)."""
        return self.axes.mean

    def transform(self, rows: Rows) -> FloatArray:
        """Metric coordinates of samples: (M, d) -> (M, R)."""
        return self.axes.project(rows) * self.gain

    def outside(self, rows: Rows) -> FloatArray:
        """Squared metric length of x - t orthogonal to the axes: (M, d) -> (M,)."""
        if len(self.gain) == len(self.mean):
            return np.zeros(rows.shape[0])
        along = np.sum(self.axes.project(rows) ** 2, axis=1)
        rest = squared_distance(rows, self.mean) - along
        return self.outside_gain**2 * np.maximum(rest, 0.0)

    def back(self, Q: FloatArray) -> FloatArray:
        """Coefficients of x that have Q as coefficients of a: (R, K) -> (d, K)."""
        return self.axes.back(self.gain[:, None] * Q)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseMetric:
    """The Euclidean metric of many sparse samples (N, d), whose coordinates are an operator."""

    rows: Rows
    mean: FloatArray
    outside_gain: float  # g

    @classmethod
    def fit(cls, X: Rows, Y: FloatArray) -> "SparseMetric":
        """With t the mean of the labelled samples, whose signs Y (N, K) are not all zero."""
        weight = Y.any(axis=1).astype(np.float64)
        mean = weighted_mean(X, weight)
        length = float(weight @ squared_distance(X, mean)) / float(weight.sum())
        return cls(rows=X, mean=mean, outside_gain=1.0 / np.sqrt(length) if length > 0.0 else 1.0)

    def metric(self, scale: float) -> "SparseMetric":
        """The metric of every scale, as of a `Spectrum`."""
        return self

    @property
    def A(self) -> Any:
        """Metric coordinates of the training samples, (N, d)."""
        return self.transform(self.rows)

    def transform(self, rows: Rows) -> Any:
        """Metric coordinates g (x - t) of samples, (M, d), as an operator."""
        ones = aslinearoperator(np.ones((rows.shape[0], 1)))
        centred = aslinearoperator(rows) - ones @ aslinearoperator(self.mean[None])
        return self.outside_gain * centred

    def outside(self, rows: Rows) -> FloatArray:
        """Zeros, (M,): the axes are the features."""
        return np.zeros(rows.shape[0])

    def back(self, Q: FloatArray) -> FloatArray:
        """Coefficients of x that have Q as coefficients of a: (d, K)."""
        return self.outside_gain * Q


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectrum:
    """Training samples in axes along which their within-class scatter is diagonal."""

    rows: FloatArray  # x_n - t along the axes, (N, R)
    weight: FloatArray  # of the samples in t and in the scatter, (N,), 0 without a label
    within: FloatArray  # Eigenvalues s, (R,); those that are 0 separate classes perfectly
    kappa: float  # kappa_ev, infinite if all eigenvalues are 0
    axes: Axes

    @classmethod
    def fit(
        cls, X: Rows, Y: FloatArray, *, responsibilities: FloatArray | None = None
    ) -> "Spectrum":
        r"""Decompose the scatter of X (N, d), dense or CSR, around the offsets of the classes.

        Y (N, K) holds signs; a sample of zeros is not used. Offsets are the least squares fit of X
        on [1, Y]: class means, if each sample has one positive sign. Class probabilities (N, K) of
        sum one, or zero to leave a sample out, replace Y if given:
        :math:`S = \sum_{nc} p_{nc} (x_n - m_c)(x_n - m_c)^\top`.
        """
        weight, offsets = (
            sign_offsets(Y) if responsibilities is None else soft_offsets(responsibilities)
        )
        part = weight > 0.0
        fitted, rho, offsets = X if part.all() else X[part], weight[part], offsets[part]
        mean = weighted_mean(fitted, rho)
        axes: Axes
        if fitted.shape[0] <= X.shape[1]:  # by inner products of samples
            size, vectors = eigh(centred_gram(fitted, mean))
            kept = size > RANK_TOL * max(size[-1], 0.0)
            vectors, length = vectors[:, kept], np.sqrt(size[kept])
            within, rotation = _diagonalise(vectors * length, rho, offsets)
            axes = make_axes(fitted, mean, (vectors / length) @ rotation)
        else:
            centred = fitted if sparse.issparse(fitted) else fitted - mean
            within, rotation = _diagonalise(centred, rho, offsets)
            axes = DenseAxes(mean=mean, matrix=rotation)
        dof = float(rho.sum()) - offsets.shape[1]
        kappa = evidence_kappa(within, dof, X.shape[1])
        return cls(rows=axes.project(X), weight=weight, within=within, kappa=kappa, axes=axes)

    def metric(self, scale: float) -> Metric:
        """Metric of kappa = ``scale`` kappa_ev."""
        kappa = scale * self.kappa
        shrunk = 1.0 / np.sqrt(1.0 + self.within / kappa)
        A = self.rows * shrunk
        length = float(self.weight @ np.sum(A**2, axis=1)) / float(self.weight.sum())
        g = 1.0 / np.sqrt(length) if length > 0.0 else 1.0
        return Metric(kappa=kappa, A=g * A, gain=g * shrunk, outside_gain=g, axes=self.axes)


def sign_offsets(Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (N,) and an orthonormal basis (N, J) of [1, Y] on the labelled samples."""
    weight = (Y != 0.0).any(axis=1).astype(np.float64)
    basis, size, _ = np.linalg.svd(np.column_stack([weight, Y]), full_matrices=False)
    return weight, basis[:, size > 1e-10 * max(size[0], 1.0)]


def soft_offsets(shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (N,), and U (N, K) with S = X'(diag(weights) - U U')X; empty classes left out."""
    count = shares.sum(axis=0)
    return shares.sum(axis=1), shares[:, count > 0.0] / np.sqrt(count[count > 0.0])


def _diagonalise(rows: Rows, rho: FloatArray, offsets: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues and eigenvectors of X'(diag(rho) - U U')X, which is invariant to centring."""
    if sparse.issparse(rows):
        total = (rows.T @ (rows.multiply(rho[:, None])).tocsr()).toarray()
    else:
        total = rows.T @ (rho[:, None] * rows)
    between = np.asarray(rows.T @ offsets)
    within, rotation = eigh(total - between @ between.T)
    return np.where(within > RANK_TOL * np.trace(total), within, 0.0), rotation


def effective_sizes(n_samples: float, n_features: float, rank: int) -> tuple[float, float]:
    """n and d of a scatter of the given rank.

    In general position the rank is the smaller of the two. It is lower with repeated samples or
    dependent features, where the evidence is unbounded at kappa = 0; the smaller of n and d is
    therefore set to the rank.
    """
    if n_samples <= n_features:
        return (float(rank) if rank < np.floor(n_samples) else n_samples), float(n_features)
    return n_samples, float(rank)


def evidence_kappa(eigenvalues: FloatArray, n_samples: float, n_features: float) -> float:
    r"""Kappa of the largest evidence, from eigenvalues s, (J,).

    It is the root of :math:`\sum_j \kappa/(\kappa + s_j) = r - d n/(\nu_0 + n)`, r the rank, n and
    d of `effective_sizes`. The left side increases with kappa, so the root is unique; its bracket
    has a closed form. Infinite if no eigenvalue is positive.
    """
    eigenvalues = eigenvalues[eigenvalues > 0.0]
    rank = len(eigenvalues)
    if not rank:
        return np.inf
    n, d = effective_sizes(n_samples, n_features, rank)
    target = rank - d * n / (d + 1.0 + n)
    low = target * eigenvalues.min() / rank
    high = target * eigenvalues.max() / (rank - target)
    low, high = np.log(min(low, high)) - 1e-6, np.log(max(low, high)) + 1e-6
    root = brentq(
        lambda u: float(np.sum(1.0 / (1.0 + eigenvalues * np.exp(-u)))) - target,
        low,
        high,
        xtol=1e-12,
    )
    return float(np.exp(root))


def is_large(X: Rows, Y: FloatArray) -> bool:
    """Whether labelled sparse samples are too many for eigenvectors: the metric is Euclidean."""
    return sparse.issparse(X) and min(np.count_nonzero(Y.any(axis=1)), X.shape[1]) > MAX_EXACT
