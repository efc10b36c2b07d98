"""Gauss-Hermite rules for the standard normal density."""

from functools import lru_cache

import numpy as np

from bsdr_models.arrays import FloatArray


@lru_cache(maxsize=32)
def gauss_hermite(n_nodes: int) -> tuple[FloatArray, FloatArray]:
    r"""Nodes and weights of the probabilists' rule, exact to degree 2 n_nodes - 1.

    .. math::
        E[g(u)] \approx \sum_q w_q \, g(v_q), \qquad u \sim N(0, 1)

    Returns
    -------
    nodes, weights : ndarray of shape (n_nodes,)
        Read-only, since the arrays are shared between calls. The weights sum to one.
    """
    if n_nodes < 1:
        raise ValueError(f"n_nodes must be at least 1, got {n_nodes}")
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    weights /= weights.sum()
    nodes.setflags(write=False)
    weights.setflags(write=False)
    return nodes, weights
