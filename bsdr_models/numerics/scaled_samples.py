"""Scaled samples of a block, and the column statistics that define the scaling.

A block is anything that NumPy reads (an array of any float type, a memory-mapped file), read once
as float64, or SciPy's CSR, which stays sparse: centring is a rank-one term of every product. The
same holds for dense training samples in memory, since scaling them first would take a quarter of
the time of a map.
"""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from scipy import sparse

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.scaling import CONSTANT_TOL, TOO_LARGE, Scaler

# Entries scaled at a time, few enough for the processor's cache.
_CHUNK = 1 << 15
# Largest distance of the mean from 0, in standard deviations, for centring after a product.
_NEAR = 1e3
# Peaks between this and its inverse may be replaced by their reciprocals.
_MODERATE = 1e-100


class Rows(Protocol):
    """Products of scaled samples X, (n, P)."""

    @property
    def n_samples(self) -> int:
        """n."""

    def project(self, B: FloatArray) -> FloatArray:
        """X @ B: (P, R) -> (n, R)."""

    def back(self, A: FloatArray) -> FloatArray:
        """X.T @ A: (n, R) -> (P, R)."""

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """X' diag(weights) X, (P, P); X'X without weights."""

    def total(self) -> FloatArray:
        """Sum over samples, (P,)."""

    def square_lengths(self) -> FloatArray:
        """Sum of squares of each sample, (n,)."""


def scaled_samples(X: Any, scaler: Scaler | None = None, *, seen: bool = False) -> Rows:
    """Scaled samples of a block.

    Parameters
    ----------
    X : (n, P)
        Anything that NumPy reads, or SciPy's CSR. Read once.
    scaler : Scaler, optional
        None for no scaling.
    seen : bool
        Whether the scaler was fitted to these samples, so that none is far out. Scaling is then
        cheaper, and equal to ``Scaler.transform`` up to rounding.

    Raises
    ------
    ValueError
        If a scaled value is too large to compute with.
    """
    if sparse.issparse(X):
        return SparseSamples.read(X, scaler)
    if scaler is not None and seen and _is_mild(scaler):
        return ShiftedSamples.read(X, scaler)
    return DenseSamples.read(X, scaler)


def _is_mild(scaler: Scaler) -> bool:
    """Whether the scaling can be a factor and a shift without loss of precision."""
    peak, mean = scaler.peak[~scaler.constant], scaler.mean[~scaler.constant]
    near = np.abs(mean) < _NEAR * scaler.std[~scaler.constant]
    moderate = (peak > _MODERATE) & (peak < 1.0 / _MODERATE)
    return bool(near.all() and moderate.all() and np.all(scaler.std > _MODERATE))


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseSamples:
    """Explicitly scaled samples.

    X
        (n, P), scaled.
    """

    X: FloatArray

    @classmethod
    def read(cls, X: Any, scaler: Scaler | None) -> "DenseSamples":
        """``Scaler.transform`` without its temporary arrays."""
        if scaler is None:
            return cls(X=np.ascontiguousarray(X, dtype=np.float64))
        source = np.asarray(X)
        out = np.empty(source.shape)
        size = max(1, _CHUNK // max(source.shape[1], 1))
        none_constant = not scaler.constant.any()
        with np.errstate(over="ignore"):
            for begin in range(0, len(out), size):
                part = out[begin : begin + size]
                np.divide(source[begin : begin + size], scaler.peak, out=part, dtype=np.float64)
                part -= scaler.mean
                part /= scaler.std
                if not none_constant:
                    part[:, scaler.constant] = 0.0
                if max(part.max(), -part.min()) > TOO_LARGE:
                    _refuse(np.abs(part).max(axis=0))
        return cls(X=out)

    @property
    def n_samples(self) -> int:
        """n."""
        return self.X.shape[0]

    def project(self, B: FloatArray) -> FloatArray:
        """X @ B."""
        return self.X @ B

    def back(self, A: FloatArray) -> FloatArray:
        """X.T @ A."""
        return self.X.T @ A

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """X' diag(weights) X."""
        left = self.X if weights is None else self.X * weights[:, None]
        return left.T @ self.X

    def total(self) -> FloatArray:
        """Sum over samples."""
        return self.X.sum(axis=0)

    def square_lengths(self) -> FloatArray:
        """Sum of squares of each sample."""
        found: FloatArray = np.einsum("nd,nd->n", self.X, self.X)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ShiftedSamples:
    """Samples X diag(gain) - 1 shift' with X as given.

    X
        (n, P).
    gain, shift
        (P,).
    """

    X: FloatArray
    gain: FloatArray
    shift: FloatArray

    @classmethod
    def read(cls, X: Any, scaler: Scaler) -> "ShiftedSamples":
        """Samples in memory are not copied; a file is read once."""
        gain = np.where(scaler.constant, 0.0, 1.0 / scaler.peak / scaler.std)
        shift = np.where(scaler.constant, 0.0, scaler.mean / scaler.std)
        held = np.array(X, dtype=np.float64) if isinstance(X, np.memmap) else X
        return cls(X=np.asarray(held, dtype=np.float64), gain=gain, shift=shift)

    @property
    def n_samples(self) -> int:
        """n."""
        return self.X.shape[0]

    def project(self, B: FloatArray) -> FloatArray:
        """X @ B."""
        found: FloatArray = self.X @ (self.gain[:, None] * B)
        found -= self.shift @ B
        return found

    def back(self, A: FloatArray) -> FloatArray:
        """X.T @ A."""
        found: FloatArray = self.X.T @ A
        found *= self.gain[:, None]
        found -= np.multiply.outer(self.shift, A.sum(axis=0))
        return found

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """X' diag(weights) X, of explicitly scaled samples, since it is rarely needed."""
        return self._scaled().gram(weights)

    def total(self) -> FloatArray:
        """Sum over samples."""
        return self.gain * self.X.sum(axis=0) - self.n_samples * self.shift

    def square_lengths(self) -> FloatArray:
        """Sum of squares of each sample."""
        return self._scaled().square_lengths()

    def _scaled(self) -> DenseSamples:
        rows = self.X * self.gain
        rows -= self.shift
        return DenseSamples(X=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SparseSamples:
    """Samples S - 1 c' with S sparse.

    scaled
        S, (n, P): the stored entries, scaled but not centred.
    shift
        c, (P,): the centre in the same units.
    """

    scaled: sparse.csr_array
    shift: FloatArray

    @classmethod
    def read(cls, X: Any, scaler: Scaler | None) -> "SparseSamples":
        """Scale the stored entries; centring enters the products."""
        rows = sparse.csr_array(X, dtype=np.float64)
        if scaler is None:
            return cls(scaled=rows, shift=np.zeros(rows.shape[1]))
        column = rows.indices
        with np.errstate(over="ignore"):
            values = rows.data / scaler.peak[column] / scaler.std[column]
        values[scaler.constant[column]] = 0.0
        if values.size and max(values.max(), -values.min()) > TOO_LARGE:
            largest = np.zeros(rows.shape[1])
            np.maximum.at(largest, column, np.abs(values))
            _refuse(largest)
        return cls(
            scaled=sparse.csr_array((values, column, rows.indptr), shape=rows.shape),
            shift=np.where(scaler.constant, 0.0, scaler.mean / scaler.std),
        )

    @property
    def n_samples(self) -> int:
        """n."""
        return int(self.scaled.shape[0])

    def project(self, B: FloatArray) -> FloatArray:
        """X @ B."""
        found: FloatArray = self.scaled @ B
        found -= self.shift @ B
        return found

    def back(self, A: FloatArray) -> FloatArray:
        """X.T @ A."""
        found: FloatArray = self.scaled.T @ A
        found -= np.multiply.outer(self.shift, A.sum(axis=0))
        return found

    def gram(self, weights: FloatArray | None = None) -> FloatArray:
        """X' diag(weights) X."""
        weights = np.ones(self.n_samples) if weights is None else weights
        left = self.scaled.multiply(weights[:, None]).tocsr()
        found: FloatArray = (left.T @ self.scaled).toarray()
        sums = self.scaled.T @ weights
        cross = np.outer(sums - 0.5 * weights.sum() * self.shift, self.shift)
        found -= cross
        found -= cross.T
        return found

    def total(self) -> FloatArray:
        """Sum over samples."""
        found: FloatArray = self.scaled.T @ np.ones(self.n_samples)
        return found - self.n_samples * self.shift

    def square_lengths(self) -> FloatArray:
        """Sum of squares of each sample."""
        found: FloatArray = (self.scaled**2).sum(axis=1) - 2.0 * (self.scaled @ self.shift)
        return found + self.shift @ self.shift


def _refuse(largest: FloatArray) -> None:
    """Raise for scaled columns (P,) whose largest magnitudes are these."""
    raise ValueError(
        f"column {largest.argmax()} holds values too large to compute with, "
        f"{largest.max():.3g} after scaling: far from the training samples, or not standardised"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnStatistics:
    """Size, mean and spread of columns, additive over blocks (Chan's formula).

    count
        Number of samples.
    peak
        Largest magnitude of each column, (P,).
    mean
        In units of the peak, (P,); 0 where that is 0.
    square
        Sum of squared distances from the mean, in units of the squared peak, (P,).
    bad
        Row and column of the first non-finite value, or None; if set, other fields are undefined.
    """

    count: int
    peak: FloatArray
    mean: FloatArray
    square: FloatArray
    bad: tuple[int, int] | None = None

    def __add__(self, other: "ColumnStatistics") -> "ColumnStatistics":
        """Statistics of the samples of both."""
        if self.bad or other.bad:
            return replace(self, bad=self.bad or other.bad)
        count, peak = self.count + other.count, np.maximum(self.peak, other.peak)
        if count == 0:
            return self
        unit = np.where(peak > 0.0, peak, 1.0)
        ours, theirs = self.peak / unit, other.peak / unit
        gap = theirs * other.mean - ours * self.mean
        return ColumnStatistics(
            count=count,
            peak=peak,
            mean=ours * self.mean + gap * (other.count / count),
            square=ours**2 * self.square
            + theirs**2 * other.square
            + gap**2 * (self.count * other.count / count),
        )

    def scaler(self, *, standardize: bool = True) -> Scaler:
        """The scaler that ``Scaler.fit`` would return.

        Parameters
        ----------
        standardize : bool
            Divide columns by their standard deviations.
        """
        peak = _unit(self.peak)
        std = np.sqrt(self.square / max(self.count, 1))
        constant = std <= CONSTANT_TOL * np.maximum(np.abs(self.mean), CONSTANT_TOL)
        divisor = np.where(constant, 1.0, std) if standardize else 1.0 / peak
        return Scaler(peak=peak, mean=self.mean, std=divisor, constant=constant)


def column_statistics(X: Any, *, begin: int = 0) -> ColumnStatistics:
    """Statistics of the columns of a block.

    Parameters
    ----------
    X : (n, P)
        Anything that NumPy reads, or SciPy's CSR.
    begin : int
        Index of the first sample, for ``bad``.
    """
    if sparse.issparse(X):
        return _sparse_statistics(sparse.csr_array(X, dtype=np.float64), begin)
    rows = np.asarray(X)
    n, p = rows.shape
    total = ColumnStatistics(count=0, peak=np.zeros(p), mean=np.zeros(p), square=np.zeros(p))
    size = max(1, _CHUNK // max(p, 1))
    for first in range(0, n, size):
        part = rows[first : first + size].astype(np.float64)
        peak = np.abs(part).max(axis=0)
        if not np.isfinite(peak).all():
            row, column = np.argwhere(~np.isfinite(part))[0]
            return replace(total, bad=(begin + first + int(row), int(column)))
        part /= _unit(peak)
        mean = part.mean(axis=0)
        part -= mean
        square = np.einsum("np,np->p", part, part)
        total += ColumnStatistics(count=len(part), peak=peak, mean=mean, square=square)
    return total


def _sparse_statistics(rows: sparse.csr_array, begin: int) -> ColumnStatistics:
    """Statistics of CSR, (n, P), from its stored entries; the others are 0."""
    n, p = rows.shape
    finite = np.isfinite(rows.data)
    if not finite.all():
        first = int(np.flatnonzero(~finite)[0])
        row = int(np.searchsorted(rows.indptr, first, side="right")) - 1
        none = np.zeros(p)
        bad = (begin + row, int(rows.indices[first]))
        return ColumnStatistics(count=n, peak=none, mean=none, square=none, bad=bad)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    column = rows.indices
    peak = np.zeros(p)
    np.maximum.at(peak, column, np.abs(rows.data))
    values = rows.data / _unit(peak)[column]
    mean = np.bincount(column, values, p) / max(n, 1)
    stored = np.bincount(column, (values - mean[column]) ** 2, p)
    square = stored + (n - np.bincount(column, minlength=p)) * mean**2
    return ColumnStatistics(count=n, peak=peak, mean=mean, square=square)


def _unit(peak: FloatArray) -> FloatArray:
    """Divisor by which columns have a largest magnitude of at most 1."""
    return np.where(peak > 0.0, np.maximum(peak, np.finfo(np.float64).tiny), 1.0)
