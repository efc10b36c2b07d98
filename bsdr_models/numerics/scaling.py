"""Centring and scaling without overflow or division by rounding errors; means and distances.

NaN is missing. Constant features are left out of scaled samples, so that no model and no setting
depends on them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray, Rows

# A feature with a smaller standard deviation, relative to its mean, is constant: 1.4e-14, or 128
# roundings of a float64. Computed features that should be constant, such as sums of shares, vary by
# some roundings: by less than log2(P) if NumPy adds P numbers. Others have at least two digits.
CONSTANT_TOL = 64.0 * np.finfo(np.float64).eps
# Larger scaled values are refused, since sums of products of their squares would overflow.
TOO_LARGE = 1e100
# Largest divisor, in place of infinity.
HUGE = 1e200
# Size from which arrays are rounded to single precision.
LARGE = 2**19


def single_precision(values: FloatArray) -> FloatArray:
    """A large array rounded to single precision, which takes much less space in a zip archive."""
    return values.astype(np.float32).astype(np.float64) if values.size > LARGE else values


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """Columns x -> (x / peak - mean) / std, without the constant ones."""

    peak: FloatArray  # largest training magnitudes (1 where 0), so that no square overflows
    mean: FloatArray  # of the columns divided by their peak
    std: FloatArray  # of these; 1 / peak if columns are only centred
    constant: BoolArray  # columns without variation in the training samples

    @classmethod
    def fit(
        cls, X: FloatArray, *, standardize: bool = True, weights: FloatArray | None = None
    ) -> "Scaler":
        """Fit to training samples, (N, P); a column of missing values only is constant."""
        size = np.fmax.reduce(np.abs(X), axis=0, initial=0.0)
        return cls.of_moments(size, *_moments(X / cls.peak_of(size), weights), standardize)

    @staticmethod
    def peak_of(size: FloatArray) -> FloatArray:
        """Divisors of columns whose largest magnitudes are given, (P,)."""
        return np.where(size > 0.0, np.maximum(size, np.finfo(np.float64).tiny), 1.0)

    @classmethod
    def of_moments(
        cls, size: FloatArray, mean: FloatArray, std: FloatArray, standardize: bool
    ) -> "Scaler":
        """From the largest magnitudes, and moments of the columns divided by :meth:`peak_of`."""
        peak = cls.peak_of(size)
        constant = std <= CONSTANT_TOL * np.abs(mean)
        std = np.where(constant, 1.0, std)
        std = std if standardize else 1.0 / peak
        return cls(peak=peak, mean=mean, std=std, constant=constant)

    @classmethod
    def identity(cls, n_columns: int) -> "Scaler":
        """Scaler that leaves so many columns unchanged."""
        one = np.ones(n_columns)
        return cls(peak=one, mean=0.0 * one, std=one, constant=one == 0.0)

    @property
    def varies(self) -> BoolArray:
        """Columns of scaled samples among those given, (P,)."""
        return ~self.constant

    def of_varying(self) -> "Scaler":
        """The scaler of samples without the constant columns."""
        if not self.constant.any():
            return self
        return Scaler(**{name: getattr(self, name)[self.varies] for name in self.__slots__})

    def select(self, X: Rows) -> Rows:
        """Samples, (M, P) or sparse, without the constant columns."""
        return X[:, self.varies] if self.constant.any() else X

    def transform(self, X: FloatArray) -> FloatArray:
        """Scale samples, (M, P); ValueError if a scaled value is too large to compute with."""
        own = self.of_varying()
        with np.errstate(over="ignore"):
            scaled = (self.select(X) / own.peak - own.mean) / own.std
        largest = np.fmax.reduce(np.abs(scaled), axis=0, initial=0.0)
        if largest.max(initial=0.0) > TOO_LARGE:
            column = np.flatnonzero(self.varies)[largest.argmax()]
            raise ValueError(
                f"column {column} holds values too large to compute with, "
                f"{largest.max():.3g} after scaling: far from the training samples, or not "
                "standardised"
            )
        return np.ascontiguousarray(scaled)  # the layout decides how products are rounded

    def with_common_scale(self, X: FloatArray) -> "Scaler":
        """The same centring with a common divisor for all columns, the root mean square of X."""
        unit = self.transform(X)
        present = ~np.isnan(unit)
        peak = float(np.abs(unit[present]).max(initial=0.0))
        if peak == 0.0:
            return self
        size = peak * np.sqrt(np.mean((unit[present] / peak) ** 2))
        with np.errstate(over="ignore"):  # of features negligible beside the others
            return replace(self, std=np.minimum(self.std * size, HUGE))

    def inverse(self, scaled: FloatArray) -> FloatArray:
        """Samples in original units from scaled ones, constant columns included, (M, P)."""
        return (pad(scaled, self.constant, axis=1) * self.std + self.mean) * self.peak

    def positions(self, views: Sequence[tuple[str, IntArray]]) -> list[tuple[str, IntArray]]:
        """Columns of views among those of scaled samples; ValueError if a view has none."""
        position = np.cumsum(self.varies) - 1
        found = [(name, position[columns[self.varies[columns]]]) for name, columns in views]
        for name, columns in found:
            if not columns.size:
                raise ValueError(f"view {name!r} has no feature that varies")
        return found

    @property
    def location(self) -> FloatArray:
        """Centre in original units, (P,)."""
        return self.mean * self.peak

    @property
    def units(self) -> FloatArray:
        """Standard deviations of scaled columns as given, relative to the largest."""
        own = self.of_varying()
        size = own.std * (own.peak / own.peak.max(initial=1e-300))
        return np.asarray(size / size.max(initial=1e-300))

    @property
    def scale(self) -> FloatArray:
        """Divisor in original units, (P,); 1 for constant columns."""
        return np.where(self.constant, 1.0, self.std * self.peak)


def pad(values: FloatArray, constant: BoolArray | None, *, axis: int) -> FloatArray:
    """Values of the features that vary with zeros for the constant ones, along an axis."""
    if constant is None or not constant.any():
        return values
    columns = np.flatnonzero(constant)
    return np.insert(values, columns - np.arange(len(columns)), 0.0, axis=axis)


def largest_scaled(X: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Largest magnitude that a standardised column of as many observed values can have, (P,).

    It is sqrt(n - 1), if one of n values differs from all others (P. A. Samuelson, 1968, Journal of
    the American Statistical Association 63, 1522-1525), of the smallest weight if values have some.
    """
    weights = np.ones(len(X)) if weights is None else weights / weights.min()
    return np.sqrt(np.maximum(weights @ ~np.isnan(X) - 1.0, 0.0))


def bounded(X: FloatArray, training: FloatArray) -> FloatArray:
    """Samples (M, P) with values no farther from the mean than training samples (N, P) can be."""
    mean = training.mean(axis=0)
    reach = training.std(axis=0) * largest_scaled(training)
    return np.clip(X, mean - reach, mean + reach)


def _moments(X: FloatArray, weights: FloatArray | None) -> tuple[FloatArray, FloatArray]:
    """Weighted mean and standard deviation of the observed entries of each column, 0 if none."""
    present = ~np.isnan(X)

    def total(values: FloatArray | float) -> FloatArray:
        kept = np.where(present, values, 0.0)
        return np.asarray(kept.sum(axis=0) if weights is None else weights @ kept)

    count = total(1.0)
    count[count == 0.0] = 1.0
    mean = total(X) / count
    return mean, np.sqrt(total((X - mean) ** 2) / count)


def weighted_mean(rows: Rows, weight: FloatArray) -> FloatArray:
    """Weighted mean of the samples, (D,), with unnormalised weights (N,)."""
    return np.asarray(rows.T @ weight) / weight.sum()


def squared_distance(rows: Rows, mean: FloatArray) -> FloatArray:
    """|x - t|**2 for each sample, (M,)."""
    if not sparse.issparse(rows):
        return np.asarray(np.sum((rows - mean) ** 2, axis=1))
    square = np.asarray(rows.multiply(rows).sum(axis=1)).reshape(-1)
    return np.asarray(square - 2.0 * (rows @ mean) + mean @ mean)


def as_dense(rows: Rows) -> FloatArray:
    """Samples as a dense array."""
    return rows.toarray() if sparse.issparse(rows) else rows
