"""Standard normals that belong to a row, however the rows are cut into blocks."""

import numpy as np
from scipy.special import ndtri

from bsdr_models.typing import FloatArray


def row_normals(seed: int, *, begin: int, n_rows: int, n_columns: int) -> FloatArray:
    """Standard normals of the rows from ``begin`` on, (n_rows, n_columns).

    Parameters
    ----------
    seed : int
    begin : int
        Number of the first row among all.
    n_rows, n_columns : int
    """
    # Inversion takes one number of the stream for each normal, so that a row's place is known.
    stream = np.random.Generator(np.random.PCG64(seed).advance(begin * n_columns))
    uniform = stream.random((n_rows, n_columns))
    found: FloatArray = ndtri(np.maximum(uniform, 2.0**-54))
    return found
