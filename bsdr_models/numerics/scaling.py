"""Centring and scaling that neither overflow nor divide by a rounding error."""

from dataclasses import dataclass

import numpy as np

from bsdr_models.typing import BoolArray, FloatArray

# A feature whose standard deviation is below this share of its size is constant.
CONSTANT_TOL = 1e-8
# Scaled values beyond this are refused: their squares, summed and multiplied, would overflow.
TOO_LARGE = 1e100


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaler:
    """Columns x -> (x / peak - mean) / std, with constant columns sent to 0.

    peak
        Largest magnitude of each training column (1 where it is 0), so that no square overflows.
    mean, std
        Of the columns divided by their peak; std is 1 where only centring was asked for.
    constant
        Columns without variation in the training rows.
    """

    peak: FloatArray
    mean: FloatArray
    std: FloatArray
    constant: BoolArray

    @classmethod
    def fit(cls, X: FloatArray, *, standardize: bool = True) -> "Scaler":
        """Learn from training rows, (N, P)."""
        size = np.abs(X).max(axis=0)
        peak = np.where(size > 0.0, np.maximum(size, np.finfo(np.float64).tiny), 1.0)
        unit = X / peak
        mean, std = unit.mean(axis=0), unit.std(axis=0)
        constant = std <= CONSTANT_TOL * np.maximum(np.abs(mean), CONSTANT_TOL)
        std = np.where(constant, 1.0, std)
        return cls(
            peak=peak,
            mean=mean,
            std=std if standardize else 1.0 / peak,
            constant=constant,
        )

    def transform(self, X: FloatArray) -> FloatArray:
        """Scale rows, (M, P).

        Raises
        ------
        ValueError
            If a scaled value is too large to compute with.
        """
        with np.errstate(over="ignore"):
            scaled = (X / self.peak - self.mean) / self.std
        scaled[:, self.constant] = 0.0
        if (largest := np.abs(scaled).max(axis=0, initial=0.0)).max(initial=0.0) > TOO_LARGE:
            raise ValueError(
                f"column {largest.argmax()} holds values too large to compute with, "
                f"{largest.max():.3g} after scaling: far from the training rows, or not "
                "standardised"
            )
        return scaled

    @property
    def location(self) -> FloatArray:
        """Centre in the units of the data, (P,)."""
        return self.mean * self.peak

    @property
    def scale(self) -> FloatArray:
        """Divisor in the units of the data, (P,); 1 for constant columns."""
        return np.where(self.constant, 1.0, self.std * self.peak)
