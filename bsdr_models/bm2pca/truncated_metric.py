r"""Within-class metric of large sparse X, from its leading directions.

With thousands of samples and features the scatter S of
`within_class_metric` has too many eigenvectors, and X in its row space is a
dense N x N array. Here Lanczos iterations, from products with the sparse X alone, find the leading
``N_DIRECTIONS`` of S, and all other eigenvalues are replaced by their mean
:math:`\bar s = (\operatorname{tr} S - \sum_j s_j) / (\operatorname{rank} S - J)`. With E the
directions, and up to a factor,

.. math::
    P = I + E \operatorname{diag}\Bigl\{\Bigl(\frac{\kappa + \bar s}{\kappa + s_j}\Bigr)^{1/2} - 1
        \Bigr\} E^\top .

P is exact along E and averaged elsewhere. Metric coordinates, as many as features, are not formed
but represented by an operator, which suffices for a shared subspace.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.within_class_metric import (
    Scatter,
    Spectrum,
    effective_sizes,
    sign_offsets,
)
from bsdr_models.numerics.row_space import RANK_TOL, Rows, squared_distance, weighted_mean

# The metric of sparse X is truncated if samples and features both exceed this.
MAX_EXACT = 4000
# Number of leading directions.
N_DIRECTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedMetric:
    """The map a(x) = g P (x - t). d features, J directions.

    Other attributes are as in :class:`bsdr_models.bm2pca.within_class_metric.Metric`.

    rows
        Training samples, (N, d).
    mean
        t, (d,).
    directions
        E, (d, J).
    shrunk
        Gain along them, relative to the other directions, (J,).
    """

    kappa: float
    rows: Rows
    mean: FloatArray
    directions: FloatArray
    shrunk: FloatArray
    outside_gain: float

    @property
    def A(self) -> Any:
        """Metric coordinates of the training samples, (N, d)."""
        return self.transform(self.rows)

    def transform(self, rows: Rows) -> Any:
        """Metric coordinates g P (x - t) of samples, (M, d), as an operator."""

        def product(Q: FloatArray) -> FloatArray:
            over_features = self.back(Q.reshape(len(Q), -1))
            return np.asarray(rows @ over_features) - self.mean @ over_features

        def transposed(G: FloatArray) -> FloatArray:
            G = G.reshape(len(G), -1)
            total = np.asarray(rows.T @ G)
            return self.back(total - np.multiply.outer(self.mean, G.sum(axis=0)))

        return LinearOperator(
            rows.shape,
            matvec=product,
            rmatvec=transposed,
            matmat=product,
            rmatmat=transposed,
            dtype=np.float64,
        )

    def outside(self, rows: Rows) -> FloatArray:
        """Zeros, (M,): the axes span all features."""
        return np.zeros(rows.shape[0])

    def back(self, Q: FloatArray) -> FloatArray:
        """Coefficients of x that have Q as coefficients of a: g P Q, (d, K)."""
        along = (self.shrunk - 1.0)[:, None] * (self.directions.T @ Q)
        return self.outside_gain * (Q + self.directions @ along)


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedSpectrum(Scatter):
    """Leading directions of the within-class scatter.

    rows
        Training samples, (N, d).
    labelled
        1 for labelled samples, else 0, (N,).
    mean
        t, (d,).
    directions
        E, (d, J).
    within
        Eigenvalues along them, (J,).
    rest, n_rest
        Mean and number of the other positive eigenvalues.
    dof, n_features
        n and d.
    """

    rows: Rows
    labelled: FloatArray
    mean: FloatArray
    directions: FloatArray
    within: FloatArray
    rest: float
    n_rest: int
    dof: float
    n_features: float

    @classmethod
    def fit(
        cls, X: Rows, Y: FloatArray, *, n_directions: int = N_DIRECTIONS
    ) -> "TruncatedSpectrum":
        """Find the leading J = ``n_directions`` of the scatter of sparse X in CSR format.

        Y (N, K) holds signs; a sample of zeros has no label and is not used.
        """
        labelled, offsets = sign_offsets(Y)
        d = X.shape[1]
        between = np.asarray(X.T @ offsets)
        own = X[labelled > 0.0]

        def scatter(v: FloatArray) -> FloatArray:
            return np.asarray(own.T @ (own @ v)) - between @ (between.T @ v)

        dof = float(labelled.sum()) - offsets.shape[1]
        rank = int(min(dof, d))
        # A fixed initial vector makes the result deterministic.
        within, directions = eigsh(
            LinearOperator((d, d), matvec=scatter, dtype=np.float64),
            k=min(n_directions, rank, d - 1),
            v0=np.random.default_rng(0).standard_normal(d),
        )
        within = np.where(within > RANK_TOL * within.max(), within, 0.0)
        total = float(own.multiply(own).sum()) - float(np.vdot(between, between))
        n_rest = rank - len(within)
        dof, size = effective_sizes(dof, d, rank)
        return cls(
            rows=X,
            labelled=labelled,
            mean=weighted_mean(X, labelled),
            directions=directions,
            within=within,
            rest=max(total - float(within.sum()), 0.0) / max(n_rest, 1),
            n_rest=n_rest,
            dof=dof,
            n_features=size,
        )

    @property
    def _positive(self) -> tuple[FloatArray, FloatArray]:
        """Positive eigenvalues and their multiplicities."""
        values, counts = np.append(self.within, self.rest), np.ones(len(self.within) + 1)
        counts[-1] = self.n_rest
        live = (values > 0.0) & (counts > 0.0)
        return values[live], counts[live]

    def metric(self, scale: float) -> TruncatedMetric:
        """Metric of `scaled_kappa`."""
        kappa = self.scaled_kappa(scale)
        shrunk = np.ones_like(self.within)
        if np.isfinite(kappa):
            shrunk = np.sqrt((kappa + self.rest) / (kappa + self.within))
        along = np.asarray(self.rows @ self.directions) - self.mean @ self.directions
        length = squared_distance(self.rows, self.mean) + along**2 @ (shrunk**2 - 1.0)
        mean_length = float(self.labelled @ length) / float(self.labelled.sum())
        return TruncatedMetric(
            kappa=kappa,
            rows=self.rows,
            mean=self.mean,
            directions=self.directions,
            shrunk=shrunk,
            outside_gain=1.0 / np.sqrt(mean_length) if mean_length > 0.0 else 1.0,
        )


def fit_spectrum(X: Rows, Y: FloatArray) -> Spectrum | TruncatedSpectrum:
    """Exact decomposition if affordable, else the leading directions."""
    if sparse.issparse(X) and min(np.count_nonzero(Y.any(axis=1)), X.shape[1]) > MAX_EXACT:
        return TruncatedSpectrum.fit(X, Y)
    return Spectrum.fit(X, Y)
