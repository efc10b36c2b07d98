r"""Within-class metric, estimated from the training samples.

Samples are modelled as :math:`x_n = t + b_{y_n} + e_n` with flat t and b,
:math:`e_n \sim N(0, \Psi)` and :math:`\Psi \sim IW(\nu_0, \kappa I_d)`, :math:`\nu_0 = d + 1`.
With S the within-class scatter, n its degrees of freedom and :math:`s_j` its eigenvalues,

.. math::
    \log m(\kappa) = \log \frac{\Gamma_d(\frac{\nu_0 + n}{2})}{\Gamma_d(\frac{\nu_0}{2})}
        - \tfrac{nd}{2} \log \pi + \tfrac{\nu_0 d}{2} \log\kappa
        - \tfrac{\nu_0 + n}{2} \sum_{j=1}^d \log(\kappa + s_j), \qquad
    E[\Psi^{-1}] = (\nu_0 + n)(\kappa I + S)^{-1},

has a unique maximum :math:`\kappa_{ev}`. Metric coordinates are

.. math::
    a(x) = g\,P (x - t), \qquad P = (I + S/\kappa)^{-1/2}, \qquad \kappa = c\,\kappa_{ev},

where the number g makes the mean of :math:`|a_n|^2` one; c = inf is the Euclidean metric. The
classifiers do not influence this model: given the metric their posterior is a modular ("cut") one,
not a joint one.

All computations use axes of the training samples in which S is diagonal, so one decomposition
(:class:`Spectrum`) serves every c. For N < d it needs inner products of samples alone.

References
----------
.. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin principal
       component analysis. AAAI. Its residuals are isotropic; here the within-class ones have
       a full covariance.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.special import gammaln

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The map a(x) = g P (x - t). N training samples, R axes, d features.

    kappa
        c kappa_ev; infinite for the Euclidean metric.
    A
        Metric coordinates of the training samples, (N, R).
    gain
        Diagonal of g P along the axes, (R,).
    outside_gain
        g, the gain orthogonal to the axes.
    axes
        Directions and centre.
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


class Scatter(ABC):
    """Eigenvalues of the within-class scatter, whose evidence gives kappa."""

    __slots__ = ()
    within: FloatArray
    dof: float
    n_features: float

    @property
    @abstractmethod
    def _positive(self) -> tuple[FloatArray, FloatArray]:
        """Positive eigenvalues and their multiplicities."""

    @property
    def varies(self) -> bool:
        """Whether samples vary within classes; if not, only c = inf is defined."""
        return bool(self.within.any())

    def evidence_kappa(self) -> float:
        """kappa_ev, which maximises the evidence."""
        return best_scale(*self._positive, self.dof, self.n_features)

    def log_evidence(self, kappa: float) -> float:
        """log m(kappa), without the constants of the flat offsets."""
        return log_evidence(kappa, *self._positive, self.dof, self.n_features)

    def scaled_kappa(self, scale: float) -> float:
        """C kappa_ev, infinite for the Euclidean metric.

        Raise a ValueError if samples do not vary within classes and ``scale`` is finite.
        """
        if not scale > 0.0:
            raise ValueError(f"the scale must be positive, got {scale}")
        if np.isinf(scale):
            return np.inf
        if not self.varies:
            raise ValueError(
                "samples of one class do not differ, so there is no within-class metric: only the "
                "Euclidean one (an infinite scale) is defined"
            )
        return scale * self.evidence_kappa()


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectrum(Scatter):
    """Training samples in axes along which their within-class scatter is diagonal.

    rows
        x_n - t along the axes, (N, R).
    weight
        Weight of each sample in t and in the scatter, (N,); 0 without a label.
    within
        s, (R,), not negative; axes with s = 0 separate classes perfectly.
    dof, n_features
        n (samples less class offsets) and d, adjusted by `effective_sizes`.
    axes
        Directions and centre.
    """

    rows: FloatArray
    weight: FloatArray
    within: FloatArray
    dof: float
    n_features: float
    axes: Axes

    @classmethod
    def fit(
        cls,
        X: Rows,
        Y: FloatArray,
        *,
        responsibilities: FloatArray | None = None,
    ) -> "Spectrum":
        r"""Decompose the scatter of X (N, d), dense or CSR, around the offsets of the classes.

        Y (N, K) holds signs; a sample of zeros has no label and is not used. Offsets are the least
        squares fit of X on [1, Y]: class means, if each sample has one positive sign. Class
        probabilities (N, K) of sum one, or zero to leave a sample out, replace Y if given:
        :math:`S = \sum_{nc} p_{nc} (x_n - m_c)(x_n - m_c)^\top`. Raise a
        ValueError without a label.
        """
        weight, offsets = (
            sign_offsets(Y) if responsibilities is None else soft_offsets(responsibilities)
        )
        part = weight > 0.0
        if not part.any():
            raise ValueError("no sample has a label")
        fitted = X if part.all() else X[part]
        rho = weight[part]
        mean = weighted_mean(fitted, rho)
        wide = fitted.shape[0] <= fitted.shape[1]
        solve = _decompose_gram if wide else _decompose_scatter
        within, axes = solve(fitted, mean, rho, offsets[part])
        dof, size = effective_sizes(
            float(rho.sum()) - offsets.shape[1],
            X.shape[1],
            int(np.count_nonzero(within)),
        )
        return cls(
            rows=axes.project(X),
            weight=weight,
            within=within,
            dof=dof,
            n_features=size,
            axes=axes,
        )

    @property
    def _positive(self) -> tuple[FloatArray, FloatArray]:
        """Positive eigenvalues and their multiplicities."""
        positive = self.within[self.within > 0.0]
        return positive, np.ones(len(positive))

    def metric(self, scale: float) -> Metric:
        """Metric of `scaled_kappa`."""
        kappa = self.scaled_kappa(scale)
        shrunk = 1.0 / np.sqrt(1.0 + self.within / kappa)
        A = self.rows * shrunk
        length = float(self.weight @ np.sum(A**2, axis=1)) / float(self.weight.sum())
        g = 1.0 / np.sqrt(length) if length > 0.0 else 1.0
        return Metric(
            kappa=kappa,
            A=g * A,
            gain=g * shrunk,
            outside_gain=g,
            axes=self.axes,
        )


def sign_offsets(Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (N,) and an orthonormal basis (N, J) of [1, Y] on the labelled samples."""
    weight = (Y != 0.0).any(axis=1).astype(np.float64)
    regressors = np.column_stack([weight, Y])
    basis, size, _ = np.linalg.svd(regressors, full_matrices=False)
    return weight, basis[:, size > 1e-10 * max(size[0], 1.0)]


def soft_offsets(shares: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Weights (N,), and U (N, K) with S = X'(diag(weights) - U U')X; empty classes left out."""
    count = shares.sum(axis=0)
    return shares.sum(axis=1), shares[:, count > 0.0] / np.sqrt(count[count > 0.0])


def _decompose_gram(
    X: Rows, mean: FloatArray, rho: FloatArray, offsets: FloatArray
) -> tuple[FloatArray, Axes]:
    """Within-class eigenvalues and axes from inner products of samples, for N <= d."""
    size, vectors = eigh(centred_gram(X, mean))
    kept = size > RANK_TOL * max(size[-1], 0.0)
    length = np.sqrt(size[kept])
    rows = vectors[:, kept] * length
    within, rotation = _diagonalise(rows, rho, offsets)
    return within, make_axes(X, mean, (vectors[:, kept] / length) @ rotation)


def _decompose_scatter(
    X: Rows, mean: FloatArray, rho: FloatArray, offsets: FloatArray
) -> tuple[FloatArray, Axes]:
    """Within-class eigenvalues and axes from the d x d scatter, for d < N."""
    within, rotation = _diagonalise(X if sparse.issparse(X) else X - mean, rho, offsets)
    return within, DenseAxes(mean=mean, matrix=rotation)


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

    In general position the rank is the smaller of the two. With repeated samples or dependent
    features it is lower, the density is singular, and the evidence is unbounded at kappa = 0; the
    smaller of n and d is therefore set to the rank.
    """
    if n_samples <= n_features:
        return (float(rank) if rank < np.floor(n_samples) else n_samples), float(n_features)
    return n_samples, float(rank)


def best_scale(
    eigenvalues: FloatArray, counts: FloatArray, n_samples: float, n_features: float
) -> float:
    r"""Kappa of the largest evidence.

    It is the root of :math:`\sum_j \kappa/(\kappa + s_j) = r - d n/(\nu_0 + n)`, r the rank. The
    left side increases with kappa, so the root is unique; its bracket has a closed form. The
    positive ``eigenvalues`` s and their multiplicities ``counts`` are (J,), the numbers n and d
    from :func:`effective_sizes`.
    """
    rank = float(counts.sum())
    target = rank - n_features * n_samples / (n_features + 1.0 + n_samples)
    low = target * eigenvalues.min() / rank
    high = target * eigenvalues.max() / (rank - target)
    low, high = np.log(min(low, high)) - 1e-6, np.log(max(low, high)) + 1e-6
    root = brentq(
        lambda u: float(np.sum(counts / (1.0 + eigenvalues * np.exp(-u)))) - target,
        low,
        high,
        xtol=1e-12,
    )
    return float(np.exp(root))


def log_evidence(
    kappa: float, eigenvalues: FloatArray, counts: FloatArray, n_samples: float, n_features: float
) -> float:
    """log m(kappa), arguments as in :func:`best_scale`; -inf for an infinite kappa."""
    if np.isinf(kappa):
        return -np.inf
    d, n, nu0 = n_features, n_samples, n_features + 1.0
    log_det = float(counts @ np.log(kappa + eigenvalues)) + (d - counts.sum()) * np.log(kappa)
    order = 0.5 * (nu0 + 1.0 - np.arange(1, round(d) + 1))
    constant = float(np.sum(gammaln(order + 0.5 * n) - gammaln(order))) - 0.5 * n * d * np.log(
        np.pi
    )
    return float(constant + 0.5 * nu0 * d * np.log(kappa) - 0.5 * (nu0 + n) * log_det)
