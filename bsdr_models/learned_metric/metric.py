r"""Metric of the features: the prior covariance of linear effects, learned within classes.

Effects of the features on a class score are :math:`\beta \sim N(0, \Lambda)` a priori, up to a
scale, so that samples are as similar as :math:`x^\top \Lambda x'`. The covariance is an average,

.. math::
    \Lambda = \sum_j w_j \Lambda_j, \qquad
    \Lambda_j = c_j D_j^{-1} \hat W_j^{-e_j} D_j^{-1}, \qquad \operatorname{tr}(\Lambda_j S) = 1,

over candidates that differ in the divisors :math:`D_j` of the features (:data:`Scale`) and in the
power of the within-class covariance :math:`\hat W_j` of the features so divided, shrunk towards a
multiple of the identity [1]_; S is the covariance of the training samples. If class means are
N(m, A) and samples vary about them with covariance W, effects have the covariance
:math:`W^{-1} A W^{-1}`: a candidate is a belief about the directions in which class means differ.

The weights are chosen by held-out samples (:mod:`bsdr_models.learned_metric.weights`).

Samples are centred and scaled to unit variance, and ``units`` (D,) are the standard deviations of
the features as given, up to a common factor.

References
----------
.. [1] O. Ledoit, M. Wolf (2004). A well-conditioned estimator for large-dimensional covariance
       matrices. Journal of Multivariate Analysis 88(2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from scipy.linalg import eigh
from sklearn.utils import gen_batches

from bsdr_models.numerics.arrays import FloatArray, IntArray

MetricName = Literal["auto", "unit", "identity"]
Scale = Literal["common", "total", "within", "signal"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """Scale of the features, and power of their within-class precision."""

    scale: Scale
    exponent: float = 0.0


CANDIDATES: Mapping[str, Candidate] = {
    "as they are": Candidate("common"),
    "unit variance": Candidate("total"),
    "unit within-class variance": Candidate("within"),
    "whitened as they are": Candidate("common", 1.0),
    "half whitened": Candidate("within", 0.5),
    "whitened": Candidate("within", 1.0),
    "separation": Candidate("signal"),
    "separation, half whitened": Candidate("signal", 0.5),
}
NAMES = tuple(CANDIDATES)
# Weights of a metric that the user names.
ALONE = {"unit": {"unit variance": 1.0}, "identity": {"as they are": 1.0}}


def named_weights(metric: MetricName) -> FloatArray:
    """Weights of the candidates (J,) of a metric that the user names; equal ones for "auto"."""
    given = ALONE.get(metric, dict.fromkeys(NAMES, 1.0 / len(NAMES)))
    return np.array([given.get(name, 0.0) for name in NAMES])


# Share of the total variance in the within-class variance of a feature, which few samples may show
# to be zero by chance.
TOTAL_SHARE = 0.1
# Least excess of an F statistic over one: a feature that does not separate classes counts little.
LEAST_SEPARATION = 1e-3
# Least share by which covariances are shrunk.
LEAST_SHRUNK = 1e-3
# Variances, and squared lengths of residuals, below this share of the largest are rounding errors.
NO_VARIANCE = 1e-12
# Features whose products are computed together.
BLOCK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassBasis:
    r"""Classes of N samples, by an orthonormal basis U (N, J) of their indicators.

    The within-class scatter is :math:`X^\top (I - U U^\top) X`. Dependent samples count by their
    effective number, ``share`` of that of all. Samples of weights w, and their indicators, are
    multiplied by the roots of these (:func:`weigh`).
    """

    basis: FloatArray
    share: float = 1.0
    weights: FloatArray | None = None  # of the samples, (N,); None if all are one

    @classmethod
    def of(
        cls, classes: IntArray, share: float = 1.0, weights: FloatArray | None = None
    ) -> "ClassBasis":
        """From the class of each sample, (N,), or of its T labels, (N, T); -1 if unknown."""
        columns = classes.reshape(len(classes), -1)
        parts = [np.ones((len(columns), 1)), *(class_indicators(own) for own in columns.T)]
        indicators = weigh(np.concatenate(parts, axis=1), weights)
        basis, size, _ = np.linalg.svd(indicators, full_matrices=False)
        return cls(basis=basis[:, size > 1e-10 * size[0]], share=share, weights=weights)

    @classmethod
    def of_probabilities(cls, shares: FloatArray) -> "ClassBasis":
        """From class probabilities of sum one, (N, K)."""
        count = shares.sum(axis=0)
        return cls(basis=shares[:, count > 0.0] / np.sqrt(count[count > 0.0]))

    @classmethod
    def one(cls, n_samples: int, weights: FloatArray | None = None) -> "ClassBasis":
        """All samples in one class."""
        total = n_samples if weights is None else weights.sum()
        return cls(basis=weigh(np.full((n_samples, 1), total**-0.5), weights), weights=weights)

    @property
    def n_classes(self) -> int:
        """Number of classes, J."""
        return self.basis.shape[1]

    @property
    def total(self) -> float:
        """Sum of the weights of the samples."""
        return len(self.basis) if self.weights is None else float(self.weights.sum())

    @property
    def n_effective(self) -> float:
        """Effective number of samples."""
        return self.share * self.total

    @property
    def dof(self) -> float:
        """Degrees of freedom of the within-class scatter, at least 1."""
        return max(self.n_effective - self.n_classes, 1.0)

    def scatter(self, X: FloatArray) -> FloatArray:
        """Within-class scatter of samples (N, B), (B, B)."""
        between = self.basis.T @ X
        return X.T @ X - between.T @ between

    def scales(
        self, X: FloatArray, units: FloatArray, needed: set[Scale]
    ) -> dict[Scale, FloatArray]:
        """Divisors of the features of centred samples (N, D) by name; infinite if constant."""
        total = np.einsum("nd,nd->d", X, X) / self.total
        varies = total > NO_VARIANCE * total.max(initial=0.0)
        with np.errstate(divide="ignore", over="ignore"):  # of features negligible in their units
            found: dict[Scale, FloatArray] = {"common": 1.0 / units, "total": np.sqrt(total)}
        if needed & {"within", "signal"}:
            means = self.basis.T @ X
            between = self.share * np.einsum("jd,jd->d", means, means)
            residual = np.maximum(self.n_effective * total - between, 0.0) / self.dof
            within = (1.0 - TOTAL_SHARE) * residual + TOTAL_SHARE * total
            found["within"] = np.sqrt(within)
            between /= max(self.n_classes - 1, 1)
            ratio = np.divide(between, within, out=np.ones_like(within), where=varies)
            excess = np.maximum(ratio - 1.0, 0.0) + LEAST_SEPARATION
            found["signal"] = np.sqrt(within / excess)
        # In one order, since the order of a set differs between processes.
        return {
            name: np.where(varies, divisor, np.inf)
            for name, divisor in found.items()
            if name in needed
        }

    def shrink(self, X: FloatArray, n_features: int) -> tuple[FloatArray, FloatArray, float]:
        """Spectrum of the shrunk within-class covariance of samples in B axes, (N, B).

        Eigenvalues (B,) and eigenvectors, and the eigenvalue in every other direction.
        """
        value, axes = eigh(self.scatter(X))
        residual = X - self.basis @ (self.basis.T @ X)
        value, elsewhere = self.shrink_spectrum(value, np.sum(residual**2, axis=1), n_features)
        return value, axes, elsewhere

    def shrink_spectrum(
        self, value: FloatArray, squares: FloatArray, n_features: int
    ) -> tuple[FloatArray, float]:
        """Shrunk eigenvalues (B,) of the within-class covariance, and that elsewhere [1]_.

        From those of the within-class scatter, and the squared distances (N,) of the samples from
        their class means.
        """
        n = self.n_effective
        value = np.maximum(self.share * value / self.dof, 0.0)
        mu = value.sum() / max(n_features, 1)
        distance = np.sum(value**2) - n_features * mu**2  # from mu I, squared
        if self.weights is not None:
            squares = squares / np.sqrt(self.weights)  # which are in them twice
        fourth = self.share * float(np.sum(squares**2)) * n / self.dof**2
        error = (fourth - np.sum(value**2)) / n
        rho = 1.0 if distance <= 0.0 else float(np.clip(error / distance, LEAST_SHRUNK, 1.0))
        if mu == 0.0:  # no variation within classes
            return np.ones_like(value), 1.0
        return (1.0 - rho) * value + rho * mu, rho * mu


def weigh(X: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Samples (N, ...) times the roots of their weights (N,), whose products are weighted."""
    return X if weights is None else X * np.sqrt(weights)[:, None]


def class_indicators(classes: IntArray) -> FloatArray:
    """Indicators of the classes, (N, K), zero where the class is unknown."""
    n_classes = int(classes.max(initial=0)) + 1
    return np.equal.outer(classes, np.arange(n_classes)).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Metric:
    r"""A metric and the principal axes of the training samples in it.

    The covariance is :math:`\Lambda = D^2 - F F^\top = R R^\top` with D diagonal and a root
    :math:`R = D (I - P \operatorname{diag}(c) P^\top)`. Whitened features are
    :math:`\phi(x) = V^\top R^\top (x - t)`, with the B principal axes V of the training samples,
    whose mean squared length is one. Root and axes are computed when they are needed.
    """

    mean: FloatArray  # t, (D,)
    diagonal: FloatArray  # D, (D,), 0 of constant features
    fall: FloatArray  # F, (D, L)
    effects: FloatArray  # R V: coefficients of the features in the whitened ones, (D, B)
    weights: FloatArray  # of `CANDIDATES`, (J,)

    @classmethod
    def learn(
        cls,
        X: FloatArray,
        classes: ClassBasis,
        weights: FloatArray,
        units: FloatArray,
        *,
        every: FloatArray | None = None,
    ) -> "Metric":
        """From scaled samples (N, D), and weights (J,).

        The principal axes are those of ``every`` sample (M, D), if others have no class.
        """
        centre = np.average(X, axis=0, weights=classes.weights)
        X = weigh(X - centre, classes.weights)
        everything = X if every is None else every - centre
        pairs = zip(CANDIDATES.values(), weights, strict=True)
        used = [(candidate, weight) for candidate, weight in pairs if weight > 0.0]
        kinds = {candidate.scale for candidate, _ in used}
        square = np.zeros(X.shape[1])
        falls = [np.empty((0, X.shape[1]))]
        parts = []
        for scale, divisor in classes.scales(X, units, kinds).items():
            axes, coordinates = _principal_axes(X, divisor)
            n_features = int(np.isfinite(divisor).sum())
            value, rotation, elsewhere = classes.shrink(coordinates, n_features)
            axes = axes.turned(rotation)
            coordinates = coordinates @ rotation
            variance = np.sum(coordinates**2, axis=0) / classes.total
            inside = np.zeros(len(value))
            outside = 0.0
            for candidate, weight in used:
                if candidate.scale == scale:
                    own = value**-candidate.exponent
                    factor = weight / (float(own @ variance) or 1.0)
                    inside += factor * own
                    outside += factor * elsewhere**-candidate.exponent
            square += outside * (1.0 / divisor) ** 2
            lower = np.maximum(outside - inside, 0.0)
            if lower.any():
                falls.append(axes.scaled(np.sqrt(lower)).effects())
            parts.append(_Part(axes, coordinates, inside))
        diagonal = np.sqrt(square)
        # By columns, so that products with one sample take half the time.
        fall = np.concatenate(falls).T
        if every is None and X.shape[1] > len(X):
            effects = _effects_of_span(parts)
        else:
            turned, removed = _root(diagonal, fall)
            mapped = _apply(turned, removed, everything * diagonal)
            axes, coordinates = _principal_axes(mapped, np.ones(X.shape[1]))
            own = axes.scaled(_signs(coordinates)).effects()
            effects = diagonal[:, None] * _apply(turned, removed, own).T
        return cls(
            mean=centre,
            diagonal=diagonal,
            fall=fall,
            effects=np.asfortranarray(effects),
            weights=weights,
        )

    def __getstate__(self) -> dict[str, object]:
        """The fields, without root and axes, which files need not hold."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def _root(self) -> tuple[FloatArray, FloatArray]:
        return _root(self.diagonal, self.fall)

    @property
    def turned(self) -> FloatArray:
        """P, (D, L)."""
        return self._root[0]

    @property
    def removed(self) -> FloatArray:
        """The shares c of its columns that the root removes, (L,)."""
        return self._root[1]

    @cached_property
    def axes(self) -> FloatArray:
        """Principal axes V, (D, B): the inverse of the root times the effects."""
        scaled = self.effects / np.where(self.diagonal > 0.0, self.diagonal, np.inf)[:, None]
        left = 1.0 - self.removed
        gain = np.divide(self.removed, left, out=np.zeros_like(left), where=left > 0.0)
        return _apply(self.turned, -gain, scaled.T).T

    @property
    def width(self) -> int:
        """Number of whitened features, B."""
        return self.effects.shape[1]

    @property
    def shares(self) -> dict[str, float]:
        """Weights of the candidates by name, the largest first."""
        named = zip(NAMES, self.weights.tolist(), strict=True)
        return dict(sorted(named, key=lambda pair: -pair[1]))

    def map(self, X: FloatArray) -> FloatArray:
        """R'(x - t): samples (M, D) in the metric, whose distances are Euclidean."""
        return _apply(self.turned, self.removed, (X - self.mean) * self.diagonal)

    def whiten(self, X: FloatArray) -> FloatArray:
        """Whitened features (M, B) of samples (M, D)."""
        return (X - self.mean) @ self.effects

    def outside_sd(self, X: FloatArray, whitened: FloatArray | None = None) -> FloatArray:
        """Length of the part of samples (M, D) orthogonal to the axes, (M,).

        Their whitened features (M, B) may be known.
        """
        if whitened is None:
            whitened = self.whiten(X)
        X = X - self.mean
        norm = np.sum((X * self.diagonal) ** 2, axis=1)
        square = norm - np.sum((X @ self.fall) ** 2, axis=1)
        square -= np.sum(whitened**2, axis=1)
        # The root of a rounding error is not small.
        return np.sqrt(np.where(square > NO_VARIANCE * norm, square, 0.0))

    def outside_loadings(self, normal: FloatArray) -> FloatArray:
        """Effects that whitened features do not determine, (..., D), from normals (..., D)."""
        rest = normal - (normal @ self.axes) @ self.axes.T
        return self.diagonal * _apply(self.turned, self.removed, rest)


class _Axes(NamedTuple):
    """Axes (D, B) of samples divided by feature: ``basis.T / divisor`` times ``turn``.

    The basis is orthonormal, or that of the samples (N, D), divided twice.
    """

    basis: FloatArray  # (P, D)
    divisor: FloatArray  # of its columns, (D,)
    turn: FloatArray  # (P, B)

    def turned(self, rotation: FloatArray) -> "_Axes":
        """The axes times a matrix (B, C)."""
        return self._replace(turn=self.turn @ rotation)

    def scaled(self, factor: FloatArray) -> "_Axes":
        """The axes times a factor each, (B,)."""
        return self._replace(turn=self.turn * factor)

    def effects(self) -> FloatArray:
        """Effects of the features along the axes, (B, D).

        A few features at a time, which stay in the processor's cache.
        """
        out = np.empty((self.turn.shape[1], self.basis.shape[1]))
        for columns in gen_batches(self.basis.shape[1], BLOCK):
            out[:, columns] = self.turn.T @ (self.basis[:, columns] / self.divisor[columns])
        return out


class _Part(NamedTuple):
    """Training samples in one scale, and the part of a metric that is learned in it."""

    axes: _Axes
    coordinates: FloatArray  # of the samples, (N, B)
    inside: FloatArray  # prior variance of effects along each axis, (B,)


def _effects_of_span(parts: list[_Part]) -> FloatArray:
    """Effects (D, B) of more features than training samples, which the axes of each part span.

    With the covariance Lambda and the eigenvectors E and eigenvalues k of X Lambda X', they are
    Lambda X' E k^(-1/2).
    """
    whitened = np.concatenate([own.coordinates * np.sqrt(own.inside) for own in parts], axis=1)
    value, vector = eigh(whitened @ whitened.T)
    kept = value > NO_VARIANCE * value[-1]
    solved = _signs(vector[:, kept]) * vector[:, kept] / np.sqrt(value[kept])
    effects = np.zeros((solved.shape[1], parts[0].axes.basis.shape[1]))
    for own in parts:
        effects += own.axes.turned(own.inside[:, None] * (own.coordinates.T @ solved)).effects()
    return effects.T


def _apply(turned: FloatArray, removed: FloatArray, X: FloatArray) -> FloatArray:
    """(I - P diag(c) P') times vectors (..., D)."""
    return X - ((X @ turned) * removed) @ turned.T if len(removed) else X


def _principal_axes(X: FloatArray, divisor: FloatArray) -> tuple[_Axes, FloatArray]:
    """Axes in which centred samples (N, D) over divisors (D,) vary, and coordinates (N, B)."""
    if X.shape[1] <= len(X):
        Z = X / divisor
        value, vector = eigh(Z.T @ Z)
        axes = np.ascontiguousarray(vector[:, value > NO_VARIANCE * value[-1]])
        return _Axes(axes.T, divisor, np.eye(axes.shape[1])), Z @ axes
    value, vector = eigh(inner_products(X, divisor))
    kept = value > NO_VARIANCE * value[-1]
    size = np.sqrt(value[kept])
    return _Axes(X, divisor**2, vector[:, kept] / size), vector[:, kept] * size


def inner_products(X: FloatArray, divisor: FloatArray) -> FloatArray:
    """Inner products (N, N) of samples (N, D) over divisors (D,).

    A few features at a time, which stay in the processor's cache.
    """
    products = np.zeros((len(X), len(X)))
    for columns in gen_batches(X.shape[1], BLOCK):
        Z = X[:, columns] / divisor[columns]
        products += Z @ Z.T
    return products


def _signs(coordinates: FloatArray) -> FloatArray:
    """Signs of axes (B,) by the skewness of samples (N, B), which no rounding error changes."""
    return np.where(np.sum(coordinates**3, axis=0) < 0.0, -1.0, 1.0)


def _root(diagonal: FloatArray, F: FloatArray) -> tuple[FloatArray, FloatArray]:
    """P (D, L) and c (L,) with D (I - P c P')^2 D = D^2 - F F', of F (D, .)."""
    if not F.shape[1]:
        return F, np.empty(0)
    F = np.divide(F, diagonal[:, None], out=np.zeros_like(F), where=diagonal[:, None] > 0.0)
    wide = F.shape[1] >= len(F)
    square, vector = eigh(F @ F.T if wide else F.T @ F)
    kept = square > NO_VARIANCE
    square = square[kept]
    vector = vector[:, kept]
    turned = vector if wide else F @ (vector / np.sqrt(square))
    return np.ascontiguousarray(turned), 1.0 - np.sqrt(np.maximum(1.0 - square, 0.0))
