"""Alignment recovers planted signed permutations and changes no product."""

import numpy as np
import pytest

from bsdr_models.alignment import permute, signed_permutations


def scrambled(rng, base, *, n_draws, noise):
    """Draws around ``base`` (P, R), each in a signed permutation of its own."""
    p, r = base.shape
    order = np.array([rng.permutation(r) for _ in range(n_draws)])
    sign = rng.choice([-1.0, 1.0], size=(n_draws, r))
    clean = base + noise * rng.standard_normal((n_draws, p, r))
    # Component order[s, r] of the clean draw stands at place r.
    return np.take_along_axis(clean, order[:, None], axis=2) * sign[:, None], order, sign, clean


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_planted_signed_permutations_are_found(n_components, seed):
    rng = np.random.default_rng(seed)
    base = rng.standard_normal((12, n_components))
    mixed, _, _, clean = scrambled(rng, base, n_draws=200, noise=0.3)
    aligned = permute(mixed, *signed_permutations(mixed))

    # One signed permutation of all draws together is free: read it off the first draw.
    inner = clean[0].T @ aligned[0]
    place = np.abs(inner).argmax(axis=0)
    sign = np.sign(inner[place, np.arange(n_components)])
    np.testing.assert_array_equal(aligned, clean[:, :, place] * sign)


def test_products_over_components_are_unchanged():
    rng = np.random.default_rng(11)
    Q, W = rng.standard_normal((50, 7, 5)), rng.standard_normal((50, 5, 3))
    order, sign = signed_permutations(np.concatenate([Q, W.swapaxes(1, 2)], axis=1))
    new_Q = permute(Q, order, sign)
    new_W = permute(W.swapaxes(1, 2), order, sign).swapaxes(1, 2)
    np.testing.assert_allclose(new_Q @ new_W, Q @ W, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(np.sort(order, axis=1), np.tile(np.arange(5), (50, 1)))
    np.testing.assert_array_equal(np.abs(sign), 1.0)


def test_heavy_tails_of_a_few_draws_and_rows_do_not_rule_the_others():
    rng = np.random.default_rng(12)
    base = rng.standard_normal((12, 5))
    mixed, _, _, clean = scrambled(rng, base, n_draws=300, noise=0.3)
    size = np.where(rng.random(300) < 0.05, 1e4, 1.0)[:, None, None]
    unit = np.geomspace(1e-3, 1e3, 12)[:, None]
    order, sign = signed_permutations(mixed * size * unit)
    aligned = permute(mixed, order, sign)
    spread = aligned.std(axis=0).mean()
    assert spread == pytest.approx(clean.std(axis=0).mean(), rel=1e-12)


def test_zero_rows_and_zero_draws_are_harmless():
    draws = np.random.default_rng(13).standard_normal((20, 6, 3))
    draws[:, 2] = 0.0
    draws[4] = 0.0
    order, sign = signed_permutations(draws)
    assert np.isfinite(permute(draws, order, sign)).all()


def test_leading_axes_without_features_align_too():
    """Precisions (S, R) carry the component axis only, and no sign."""
    rng = np.random.default_rng(14)
    order = np.array([rng.permutation(3) for _ in range(4)])
    values = rng.gamma(2.0, size=(4, 3))
    moved = permute(values, order, np.ones((4, 3)))
    np.testing.assert_array_equal(moved[1], values[1, order[1]])
