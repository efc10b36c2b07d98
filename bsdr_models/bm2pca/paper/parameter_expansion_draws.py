r"""Parameter-expansion moves of a factor model along changes of its latent basis.

With :math:`\tilde z = [1, z]`, columns T = [t, W] and weights E = [e_0; \eta], the fitted features
:math:`T \tilde z` and class scores :math:`E^\top \tilde z` are invariant to

.. math::
    z_i \to g \,(z_i + \textstyle\sum_{j \ne i} a_j \tilde z_j), \qquad
    T_j \to T_j - a_j T_i, \quad E_j \to E_j - a_j E_i, \quad
    T_i \to T_i / g, \quad E_i \to E_i / g .

Only the priors :math:`z \sim N(0, I)`, :math:`T_j \sim N(0, I / \rho_j)`,
:math:`E_{jc} \sim N(0, 1 / \nu_c)`, :math:`\rho_i \sim Ga(a, b)` change: a is drawn from its normal
conditional, and g, with :math:`\rho_i \to g^2 \rho_i`, by slice sampling. Gibbs updates of latents
and loadings alone mix slowly along these directions if there is little noise.
"""

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.paper import slice_draws
from bsdr_models.numerics import linalg

_WIDTH = 1.0  # of the bracket for log g, which has a deviation of about 1 / sqrt(2 N)


def draw_expansion(
    latent: FloatArray,
    loadings: FloatArray,
    weights: FloatArray,
    loading_precision: FloatArray,
    weight_precision: FloatArray,
    *,
    shape: float,
    rate: float,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """One move of each of k components against all others, then of their scales.

    Parameters
    ----------
    latent : (C, N, 1 + k)
        Column 0 is one.
    loadings : (C, d, 1 + k)
        T; column 0 is the intercept.
    weights : (C, 1 + k, K)
        E; row 0 is the bias.
    loading_precision : (C, 1 + k)
        rho; that of the intercept is constant.
    weight_precision : (C, K)
        nu.
    shape, rate : float
        Of the Gamma prior of rho_i, i >= 1.
    rng : numpy.random.Generator

    Returns
    -------
    latent, loadings, weights, loading_precision
        New arrays of the same shapes.
    """
    Z, T, E, rho = latent.copy(), loadings.copy(), weights.copy(), loading_precision.copy()
    n_chains, n, size = Z.shape
    gram = np.swapaxes(Z, 1, 2) @ Z
    for i in range(1, size):
        others = np.delete(np.arange(size), i)
        t_i, e_i = T[:, :, [i]], E[:, [i]]
        e_nu = (weight_precision[:, None] * e_i)[:, 0, :, None]  # (C, K, 1)
        precision = gram[:, others[:, None], others]
        ridge = rho[:, others, None] * np.sum(t_i**2, axis=1, keepdims=True) + e_i @ e_nu
        np.einsum("cii->ci", precision)[...] += ridge[:, :, 0]
        linear = rho[:, others, None] * (np.swapaxes(T[:, :, others], 1, 2) @ t_i)
        linear += E[:, others] @ e_nu - gram[:, others, i, None]
        a = linalg.draw_normal(precision, linear, name="basis precision", rng=rng)  # (C, k, 1)
        Z[:, :, [i]] += Z[:, :, others] @ a
        T[:, :, others] -= t_i * np.swapaxes(a, 1, 2)
        E[:, others] -= a * e_i
        gram[:, :, i] = gram[:, i] = (np.swapaxes(Z, 1, 2) @ Z[:, :, [i]])[:, :, 0]

    zz = np.einsum("cii->ci", gram)[:, 1:].ravel()
    ee = np.einsum("cik,ck->ci", E[:, 1:] ** 2, weight_precision).ravel()
    grown = 0.5 * zz + rate * rho[:, 1:].ravel()
    power = n - E.shape[2] + 2.0 * shape

    def log_density(log_g: FloatArray) -> FloatArray:
        square = np.exp(2.0 * log_g)
        found: FloatArray = power * log_g - grown * square - 0.5 * ee / square
        return found

    log_g = slice_draws.draw_slices(log_density, _WIDTH, n_chains=zz.size, rng=rng)
    g = np.exp(np.insert(log_g.reshape(n_chains, -1), 0, 0.0, axis=1))  # (C, 1 + k)
    return Z * g[:, None], T / g[:, None], E / g[:, :, None], rho * g**2
