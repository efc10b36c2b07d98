r"""Whitening coordinates of a ridge problem.

For columns b_j with precision :math:`I + g_j X^\top X` a whitener is a linear map F with
:math:`F_j F_j^\top = (I + g_j X^\top X)^{-1}`, so that b_j = F_j theta_j has unit curvature in
theta_j. There are two such roots, for different shapes of X.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from bsdr_models.arrays import FloatArray


class Whitener(Protocol):
    """F for every column; arrays are (D, R), products with X are (N, R)."""

    def unfold(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """B = F theta, and X B."""

    def fold(self, slope: FloatArray, row_slope: FloatArray) -> FloatArray:
        """F' (slope + X' row_slope): the gradient in theta, from those in B and in X B."""

    def coordinates(self, B: FloatArray) -> FloatArray:
        """F^-1 B."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RotatedWhitener:
    """F = V (I + g_j Lambda)^-1/2 from all D axes of X, X'X = V Lambda V'.

    rows
        X, (N, D).
    basis
        V, (D, D); None if the axes are the coordinates.
    gain
        (I + g_j Lambda)^-1/2, (D, R).
    """

    rows: FloatArray
    basis: FloatArray | None
    gain: FloatArray

    def unfold(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See :class:`Whitener`."""
        B = self.gain * theta
        if self.basis is not None:
            B = self.basis @ B
        return B, self.rows @ B

    def fold(self, slope: FloatArray, row_slope: FloatArray) -> FloatArray:
        """See :class:`Whitener`."""
        total = slope + self.rows.T @ row_slope
        return self.gain * (total if self.basis is None else self.basis.T @ total)

    def coordinates(self, B: FloatArray) -> FloatArray:
        """See :class:`Whitener`."""
        return (B if self.basis is None else self.basis.T @ B) / self.gain


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSpaceWhitener:
    """F = (I + g_j X'X)^-1/2, the identity outside the row space of X.

    scores
        X V, (N, r).
    basis
        Orthonormal axes V of the row space, (D, r).
    gain
        (I + g_j Lambda)^-1/2, (r, R).
    """

    scores: FloatArray
    basis: FloatArray
    gain: FloatArray

    def unfold(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See :class:`Whitener`."""
        inside = self.basis.T @ theta
        return (
            theta + self.basis @ ((self.gain - 1.0) * inside),
            self.scores @ (self.gain * inside),
        )

    def fold(self, slope: FloatArray, row_slope: FloatArray) -> FloatArray:
        """See :class:`Whitener`."""
        inside = (self.gain - 1.0) * (self.basis.T @ slope)
        return slope + self.basis @ (inside + self.gain * (self.scores.T @ row_slope))

    def coordinates(self, B: FloatArray) -> FloatArray:
        """See :class:`Whitener`."""
        return B + self.basis @ ((1.0 / self.gain - 1.0) * (self.basis.T @ B))


def gains(eigenvalues: FloatArray, strength: FloatArray) -> FloatArray:
    """(I + g_j Lambda)^-1/2 for non-negative Lambda (r,) and g (R,): (r, R)."""
    return 1.0 / np.sqrt(1.0 + np.outer(eigenvalues, strength))
