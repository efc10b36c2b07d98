r"""Latent coordinates: relevance of their components and of features, and outliers.

Outlier measures of a linear map of the features are Hotelling's T2, the squared distance within the
latent space, and the squared residual Q. With latent coordinates :math:`z = Q^\top x` of centred
samples, S their covariance over N training samples, and B the least squares fit of the features on
z (the loadings of partial least squares, [1]_),

.. math::
    T^2 = (z - \bar z)^\top S^{-1} (z - \bar z), \qquad
    Q = |x - \bar x - B^\top (z - \bar z)|^2 .

For a new sample from the normal distribution of the training samples, with A the rank of S,

.. math::
    T^2 \frac{N (N - A)}{A (N^2 - 1)} \sim F(A, N - A), \qquad
    Q \approx g\, \chi^2_h, \quad g = \frac{v}{2 m}, \quad h = \frac{2 m^2}{v}

[2]_, m and v the mean and variance of Q over training samples, each left out of the mean, of S and
of B, but not of the projection.

References
----------
.. [1] S. Wold, M. Sjöström, L. Eriksson (2001). PLS-regression: a basic tool of chemometrics.
       Chemometrics and Intelligent Laboratory Systems 58(2), 109-130.
.. [2] P. Nomikos, J. F. MacGregor (1995). Multivariate SPC charts for monitoring batch processes.
       Technometrics 37(1), 41-59. The chi-square of Q is that of G. E. P. Box (1954).
"""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import eigh
from scipy.special import chdtrc, fdtrc
from scipy.stats import chi2, f

from bsdr_models.numerics.arrays import FloatArray, Rows
from bsdr_models.numerics.scaling import squared_distance, weighted_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentCoordinates:
    """Latent coordinates of M samples, one normal distribution each."""

    mean: FloatArray  # (M, R)
    cov: FloatArray  # (M, R, R)

    @property
    def std(self) -> FloatArray:
        """Marginal standard deviations, (M, R)."""
        return np.sqrt(np.einsum("mrr->mr", self.cov))


def spread(draws: FloatArray, mean: FloatArray) -> FloatArray:
    """Covariance (M, R, R) of draws of latent coordinates (S, M, R) about their mean (M, R)."""
    gap = draws - mean
    return np.einsum("smr,smq->mrq", gap, gap, optimize=True) / len(gap)


# Relevance below which a component counts as switched off.
ALIVE = 0.01


def relevance(
    latent: FloatArray, contrast: FloatArray, sample_weight: FloatArray | None = None
) -> FloatArray:
    """Share of each component (N, R) in the variance of class scores with weights (R, K), (R,).

    Weights are centred over classes if only their differences matter.
    """
    centred = latent - np.average(latent, axis=0, weights=sample_weight)
    variance = np.average(centred**2, axis=0, weights=sample_weight)
    return _shares(variance * np.sum(contrast**2, axis=1))


def feature_relevance(projection: FloatArray, contrast: FloatArray) -> FloatArray:
    """Share of each feature in the squared coefficients (P, R) @ (R, K), (P,)."""
    return _shares(np.sum((projection @ contrast) ** 2, axis=-1))


def rescale_to_median_size(coef: FloatArray, *, centred: bool) -> FloatArray:
    """Draws of coefficients, rescaled to the median of their root mean squares, (S, P, K).

    If classes separate, the common size of the coefficients of a draw is hardly bounded by the
    data, and would be most of the spread of each. Signs, and ratios within a draw, do not change.
    Root mean squares may be those of coefficients centred over the K classes.
    """
    values = coef - coef.mean(axis=-1, keepdims=True) if centred else coef
    size = np.sqrt(np.mean(values**2, axis=(1, 2)))
    factor = np.divide(np.median(size), size, out=np.ones_like(size), where=size > 0.0)
    return coef * factor[:, None, None]


def _shares(values: FloatArray) -> FloatArray:
    total = values.sum()
    return values / total if total > 0.0 else np.full(len(values), 1.0 / len(values))


# Relative size below which a direction of z is rounding error.
RANK_TOL = 1e-10
# Relative size below which a residual is rounding error.
EXACT = 1e-12


def _t2_factor(n_samples: int, rank: int) -> float:
    """T2 of a new sample times this has an F distribution."""
    return n_samples * (n_samples - rank) / (rank * (n_samples**2 - 1.0))


def t2_limit(prob: float, n_samples: int, rank: int) -> float:
    """Quantile of the T2 of a new sample."""
    return float(f.ppf(prob, rank, n_samples - rank) / _t2_factor(n_samples, rank))


def q_limit(prob: float, scale: float, dof: float) -> float:
    """Quantile of the Q of a new sample: that of ``scale`` chi2(dof)."""
    return float(scale * chi2.ppf(prob, dof))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Reference distribution: N training samples, D features, R components, rank A.

    Outlier measures are, by name, (M,) each, ``t2``, ``q_residual`` in the squared units of the
    scaled features, and ``tail_probability``: that a normal sample has either of the two so large,
    twice the smaller of their tail probabilities, at most 1.
    """

    n_samples: int  # N
    rank: int  # A
    mean: FloatArray  # of the training samples, (D,)
    projection: FloatArray  # Q, (D, R)
    whitening: FloatArray  # V with V V' the pseudo-inverse of the scatter of z, (R, A)
    loadings: FloatArray  # fit of the features on V' z, (A, D)
    q_scale: float = 0.0  # g, 0 if there is no residual
    q_dof: float = 1.0  # h, 1 if there is no residual

    @classmethod
    def learn(cls, rows: Rows, projection: FloatArray) -> Self | None:
        """From training samples (N, D), complete, dense or sparse.

        None if there are too few samples, or if all have the same latent coordinates.
        """
        n = rows.shape[0]
        mean = weighted_mean(rows, np.ones(n))
        centre = mean @ projection
        scores = np.asarray(rows @ projection) - centre
        values, vectors = eigh(scores.T @ scores)
        rounding = n * EXACT**2 * float(centre @ centre)
        kept = values > max(RANK_TOL * values[-1], rounding)
        rank = int(kept.sum())
        if rank == 0 or n < rank + 3:
            return None
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        reference = cls(
            n_samples=n,
            rank=rank,
            mean=mean,
            projection=projection,
            whitening=whitening,
            loadings=np.asarray(rows.T @ (scores @ whitening)).T,
        )
        square, residual, length = reference._parts(rows)
        if residual.mean() <= EXACT * length.mean():
            return reference
        _, q = reference._leave_out(square, residual)
        m = q.mean()
        v = np.maximum(q.var(ddof=1), EXACT * q.mean() ** 2)
        return replace(reference, q_scale=float(v / (2.0 * m)), q_dof=float(2.0 * m**2 / v))

    def compare(self, rows: Rows) -> dict[str, FloatArray]:
        """Outlier measures of new samples (M, D), complete, dense or sparse."""
        square, residual, _ = self._parts(rows)
        return self._judge((self.n_samples - 1.0) * square, residual, self.n_samples)

    def compare_training(self, rows: Rows) -> dict[str, FloatArray]:
        """Outlier measures of the training samples (N, D), each compared with the others."""
        square, residual, _ = self._parts(rows)
        return self._judge(*self._leave_out(square, residual), self.n_samples - 1)

    def _leave_out(self, square: FloatArray, residual: FloatArray) -> tuple[FloatArray, FloatArray]:
        """T2 and Q of each training sample without it in mean and scatter, (N,) each."""
        n = self.n_samples
        # Without sample n the mean moves by z_n / (N - 1), and the scatter loses a rank-one term.
        left = np.maximum(1.0 - square * n / (n - 1.0), EXACT)
        t2 = (n - 2.0) * (n / (n - 1.0)) ** 2 * square / left
        return t2, residual / np.maximum(1.0 - 1.0 / n - square, EXACT) ** 2

    def attrs(self) -> dict[str, float]:
        """Root attributes from which plots compute limits."""
        return {
            "reference_rows": self.n_samples,
            "t2_rank": self.rank,
            "q_scale": self.q_scale,
            "q_dof": self.q_dof,
        }

    def _parts(self, rows: Rows) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Squared lengths of whitened z, residual and centred sample, (M,) each."""
        white = (np.asarray(rows @ self.projection) - self.mean @ self.projection) @ self.whitening
        along = np.asarray(rows @ self.loadings.T) - self.loadings @ self.mean
        length = squared_distance(rows, self.mean)
        fitted = np.sum((white @ (self.loadings @ self.loadings.T)) * white, axis=1)
        residual = length - 2.0 * np.sum(white * along, axis=1) + fitted
        return np.sum(white**2, axis=1), np.maximum(residual, 0.0), length

    def _judge(self, t2: FloatArray, q: FloatArray, n_samples: int) -> dict[str, FloatArray]:
        factor = _t2_factor(n_samples, self.rank)
        tail = np.asarray(fdtrc(self.rank, n_samples - self.rank, factor * t2))
        if self.q_scale > 0.0:
            tail = np.minimum(2.0 * np.minimum(tail, chdtrc(self.q_dof, q / self.q_scale)), 1.0)
        return {"t2": t2, "q_residual": q, "tail_probability": tail}
