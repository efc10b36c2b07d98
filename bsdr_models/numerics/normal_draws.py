"""Stacked draws of normals given by precision and linear term."""

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.numerics.linalg import cholesky


def draw(
    precision: FloatArray, linear: FloatArray, *, name: str, rng: np.random.Generator
) -> FloatArray:
    r"""Columns of :math:`N(P^{-1} l, P^{-1})`, independent given P.

    Parameters
    ----------
    precision : (..., p, p)
        P, symmetric positive definite.
    linear : (..., p, m)
        l, a column for each draw.
    name : str
        Name of P, for the error message.
    rng : numpy.random.Generator

    Returns
    -------
    (..., p, m)
    """
    half = np.linalg.inv(cholesky(precision, name=name))  # P^{-1} = half' half
    white = half @ linear + rng.standard_normal(linear.shape)
    return np.swapaxes(half, -1, -2) @ white
