"""Changes of basis: fitted values stay, and the prior is left alone as a whole.

Whatever depends on the fitted values only multiplies prior and posterior by the same number along
a move. A move that leaves the prior invariant therefore leaves every such posterior invariant.
"""

import numpy as np

from bsdr_models.bm2pca.paper import parameter_expansion_draws

N, D, R, K = 5, 4, 3, 2
SHAPE, RATE = 7.0, 5.0


def prior(n_chains, rng):
    """Columns of loadings as in a factor model: the first is the offset, of fixed precision."""
    c = n_chains
    Z = np.concatenate([np.ones((c, N, 1)), rng.standard_normal((c, N, R))], axis=2)
    rho = np.concatenate([np.full((c, 1), 1.7), rng.gamma(SHAPE, 1.0 / RATE, (c, R))], axis=1)
    nu = rng.gamma(7.0, 1.0 / 6.0, (c, K))
    T = rng.standard_normal((c, D, 1 + R)) / np.sqrt(rho)[:, None]
    E = rng.standard_normal((c, 1 + R, K)) / np.sqrt(nu)[:, None]
    return Z, T, E, rho, nu


def move(Z, T, E, rho, nu, rng):
    return (
        *parameter_expansion_draws.draw_expansion(
            Z, T, E, rho, nu, shape=SHAPE, rate=RATE, rng=rng
        ),
        nu,
    )


def test_fitted_values_and_scores_stay():
    rng = np.random.default_rng(35)
    before = prior(6, rng)
    copies = [array.copy() for array in before]
    after = move(*before, rng)
    for array, copy in zip(before, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    Z, T, E, rho, _ = before
    Z1, T1, E1, rho1, _ = after
    np.testing.assert_array_equal(Z1[:, :, 0], 1.0)
    np.testing.assert_array_equal(rho1[:, 0], rho[:, 0])
    np.testing.assert_allclose(Z1 @ T1.swapaxes(1, 2), Z @ T.swapaxes(1, 2), atol=1e-10)
    np.testing.assert_allclose(Z1 @ E1, Z @ E, atol=1e-10)
    for a, b in ((Z[:, :, 1:], Z1[:, :, 1:]), (T, T1), (E, E1), (rho[:, 1:], rho1[:, 1:])):
        assert np.all(a != b)


def test_prior_is_left_alone():
    """Paired differences of moments after eight moves, in standard errors."""
    rng = np.random.default_rng(36)
    n_chains = 20_000
    state = prior(n_chains, rng)

    def moments(Z, T, E, rho, nu):
        r, e, z = rho[:, 1:], E[:, 1:], Z[:, :, 1:]
        found = {
            "z^2": z**2,
            "z^4": z**4,
            "sum of z, squared": z.sum(axis=1) ** 2,
            "z1 z2, squared": (z[:, :, 0] * z[:, :, 1]).sum(axis=1) ** 2,
            "w^2": T[:, :, 1:] ** 2,
            "w^2 r": T[:, :, 1:] ** 2 * r[:, None],
            "w1 w2, squared": (T[:, :, 1] * T[:, :, 2]).sum(axis=1) ** 2,
            "t^2": T[:, :, 0] ** 2,
            "t w w z t": (T[:, :, 0] * T[:, :, 1]).sum(axis=1) ** 2,
            "log r": np.log(r),
            "r^2": r**2,
            "e^2 nu": e**2 * nu[:, None],
            "e0^2": E[:, 0] ** 2,
            "e w": (E[:, 1] * nu).sum(axis=1) ** 2 * r[:, 0],
            "|w1| < |w2|": (T[:, :, 1] ** 2).sum(axis=1) < (T[:, :, 2] ** 2).sum(axis=1),
        }
        return {
            k: np.asarray(v, float).reshape(n_chains, -1).mean(axis=1) for k, v in found.items()
        }

    before = moments(*state)
    for _ in range(8):
        state = move(*state, rng)
    after = moments(*state)
    for name, old in before.items():
        change = after[name] - old
        assert change.std() > 0.0, name
        assert abs(change.mean()) < 4.5 * change.std() / np.sqrt(n_chains), name
