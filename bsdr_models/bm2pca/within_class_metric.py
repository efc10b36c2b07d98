r"""Within-class metric, estimated from the training samples.

Samples are modelled as :math:`x_n = t + b_{y_n} + e_n` with flat t and b,
:math:`e_n \sim N(0, \Psi)` and :math:`\Psi \sim IW(\nu_0, \kappa I_d)`, :math:`\nu_0 = d + 1`.
With S the within-class scatter, n its degrees of freedom and :math:`s_j` its eigenvalues,

.. math::
    \log m(\kappa) = \tfrac{\nu_0 d}{2} \log\kappa
        - \tfrac{\nu_0 + n}{2} \sum_{j=1}^d \log(\kappa + s_j) + \text{const}, \qquad
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

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy import sparse
from scipy.linalg import eigh

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.wishart_evidence import best_scale, effective_sizes, log_evidence
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

    scale
        c; infinite for the Euclidean metric.
    kappa
        c kappa_ev.
    A
        Metric coordinates of the training samples, (N, R).
    gain
        Diagonal of g P along the axes, (R,).
    outside_gain
        g, the gain orthogonal to the axes.
    axes
        Directions and centre.
    log_evidence
        log m(kappa); -inf for the Euclidean metric.
    """

    scale: float
    kappa: float
    A: FloatArray
    gain: FloatArray
    outside_gain: float
    axes: Axes
    log_evidence: float

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
class Spectrum:
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
        n_features: int | None = None,
    ) -> "Spectrum":
        r"""Decompose the scatter of the samples around the offsets of their classes.

        Parameters
        ----------
        X : (N, d)
            Dense, or sparse in CSR format.
        Y : (N, K)
            Signs; a sample of zeros has no label and is not used. Offsets are the least squares
            fit of X on [1, Y]: class means, if each sample has one positive sign.
        responsibilities : (N, K), optional
            Class probabilities of each sample, of sum one, or zeros to leave it out. They replace
            Y: :math:`S = \sum_{nc} p_{nc} (x_n - m_c)(x_n - m_c)^\top`.
        n_features : int, optional
            d of the model, if X already holds coordinates in a subspace of the features.

        Raises
        ------
        ValueError
            If no sample has a label.
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
            X.shape[1] if n_features is None else n_features,
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
    def varies(self) -> bool:
        """Whether samples vary within classes; if not, only c = inf is defined."""
        return bool(self.within.any())

    def evidence_kappa(self) -> float:
        """kappa_ev, which maximises the evidence."""
        return best_scale(*self._spectrum, self.dof, self.n_features)

    def log_evidence(self, kappa: float) -> float:
        """log m(kappa), without the constants of the flat offsets."""
        return log_evidence(kappa, *self._spectrum, self.dof, self.n_features)

    @property
    def _spectrum(self) -> tuple[FloatArray, FloatArray]:
        """Positive eigenvalues and their multiplicities."""
        positive = self.within[self.within > 0.0]
        return positive, np.ones(len(positive))

    def metric(self, scale: float) -> Metric:
        """Metric for kappa = ``scale`` * kappa_ev; infinite for the Euclidean one.

        Raise a ValueError if samples do not vary within classes and ``scale`` is finite.
        """
        kappa = scaled_kappa(self, scale)
        shrunk = 1.0 / np.sqrt(1.0 + self.within / kappa)
        A = self.rows * shrunk
        length = float(self.weight @ np.sum(A**2, axis=1)) / float(self.weight.sum())
        g = 1.0 / np.sqrt(length) if length > 0.0 else 1.0
        return Metric(
            scale=scale,
            kappa=kappa,
            A=g * A,
            gain=g * shrunk,
            outside_gain=g,
            axes=self.axes,
            log_evidence=self.log_evidence(kappa),
        )


class HasEvidence(Protocol):
    """A decomposition of the within-class scatter."""

    @property
    def varies(self) -> bool:
        """Whether samples vary within classes; if not, only c = inf is defined."""

    def evidence_kappa(self) -> float:
        """kappa_ev, which maximises the evidence."""


def scaled_kappa(spectrum: HasEvidence, scale: float) -> float:
    """C kappa_ev; see :meth:`Spectrum.metric`."""
    if not scale > 0.0:
        raise ValueError(f"the scale must be positive, got {scale}")
    if np.isinf(scale):
        return np.inf
    if not spectrum.varies:
        raise ValueError(
            "samples of one class do not differ, so there is no within-class metric: only the "
            "Euclidean one (an infinite scale) is defined"
        )
    return scale * spectrum.evidence_kappa()


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
