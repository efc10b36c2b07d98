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

*Large sparse samples.* With thousands of samples and features S has too many eigenvectors, and X in
its row space is a dense N x N array. Then (:class:`TruncatedSpectrum`) Lanczos iterations, from
products with the sparse X alone, find the leading eigenvectors E, and all other eigenvalues are
replaced by their mean :math:`\bar s = (\operatorname{tr} S - \sum_j s_j) / (\operatorname{rank} S -
J)`. Up to a factor,

.. math::
    P = I + E \operatorname{diag}\Bigl\{\Bigl(\frac{\kappa + \bar s}{\kappa + s_j}\Bigr)^{1/2} - 1
        \Bigr\} E^\top,

exact along E and averaged elsewhere. Metric coordinates, as many as features, are not formed but
represented by an operator, which suffices for a shared subspace.

References
----------
.. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin principal
       component analysis. AAAI. Its residuals are isotropic; here the within-class ones have
       a full covariance.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import eigh
from scipy.optimize import brentq
from scipy.sparse.linalg import LinearOperator, eigsh
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

# The metric of sparse X is truncated if samples and features both exceed this.
MAX_EXACT = 4000
# Number of leading directions.
N_DIRECTIONS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """The map a(x) = g P (x - t), with coordinates A (N, R) of the training samples.

    ``gain`` (R,) is the diagonal of g P along the axes, ``outside_gain`` g, which it is orthogonal
    to them, and kappa c kappa_ev, infinite for the Euclidean metric.
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


class Scatter:
    """Eigenvalues of the within-class scatter, whose evidence gives kappa."""

    __slots__ = ()
    within: FloatArray
    dof: float
    n_features: float

    @property
    def _positive(self) -> tuple[FloatArray, FloatArray]:
        """Positive eigenvalues and their multiplicities."""
        positive = self.within[self.within > 0.0]
        return positive, np.ones(len(positive))

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

    ``rows`` (N, R) are x_n - t along the axes, ``weight`` (N,) weights of the samples in t and in
    the scatter, 0 without a label, ``within`` (R,) the eigenvalues s, of which those that are 0
    separate classes perfectly, ``dof`` and ``n_features`` n and d of `effective_sizes`.
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
        fitted, rho = X if part.all() else X[part], weight[part]
        mean = weighted_mean(fitted, rho)
        decompose = _decompose_gram if fitted.shape[0] <= X.shape[1] else _decompose_scatter
        within, axes = decompose(fitted, mean, rho, offsets[part])
        n, d = effective_sizes(
            float(rho.sum()) - offsets.shape[1], X.shape[1], int(np.count_nonzero(within))
        )
        rows = axes.project(X)
        return cls(rows=rows, weight=weight, within=within, dof=n, n_features=d, axes=axes)

    def metric(self, scale: float) -> Metric:
        """Metric of `scaled_kappa`."""
        kappa = self.scaled_kappa(scale)
        shrunk = 1.0 / np.sqrt(1.0 + self.within / kappa)
        A = self.rows * shrunk
        length = float(self.weight @ np.sum(A**2, axis=1)) / float(self.weight.sum())
        g = 1.0 / np.sqrt(length) if length > 0.0 else 1.0
        return Metric(kappa=kappa, A=g * A, gain=g * shrunk, outside_gain=g, axes=self.axes)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatedMetric:
    """The map a(x) = g P (x - t) with directions E (d, J), for training samples (N, d).

    ``shrunk`` (J,) are gains along E relative to those of the other directions, the rest as of
    :class:`Metric`.
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
            Q = self.back(Q.reshape(len(Q), -1))
            return np.asarray(rows @ Q) - self.mean @ Q

        def transposed(G: FloatArray) -> FloatArray:
            G = G.reshape(len(G), -1)
            return self.back(np.asarray(rows.T @ G) - np.outer(self.mean, G.sum(axis=0)))

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
    """Leading directions E (d, J) of the scatter of samples (N, d), of eigenvalues ``within`` (J,).

    ``rest`` and ``n_rest`` are mean and number of the other positive eigenvalues, ``labelled`` (N,)
    is 0 without a label.
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
