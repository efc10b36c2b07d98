"""A known density is kept, small steps lose little energy, dual averaging finds its target."""

import numpy as np
from scipy import stats

from bsdr_models.numerics import hmc


def normal(scale):
    def density(x):
        return -0.5 * np.sum((x / scale) ** 2, axis=1), -x / scale**2

    return density


def test_normal_is_kept():
    """20 000 chains start in the density; a Kolmogorov distance of 0.014 has a p of 1e-3."""
    rng = np.random.default_rng(95)
    scale = np.array([0.5, 2.0])
    x = scale * rng.standard_normal((20_000, 2))
    for _ in range(5):
        x, acceptance = hmc.draw(x, normal(scale), step_size=0.8, n_steps=3, rng=rng)
    assert 0.5 < acceptance.mean() < 0.99
    for column, size in zip(x.T, scale, strict=True):
        assert stats.kstest(column / size, "norm").statistic < 0.014


def test_what_is_not_a_number_is_never_accepted():
    def nowhere(x):
        return np.where(x[:, 0] == 0.0, 0.0, np.nan), np.zeros_like(x)

    start = np.zeros((4, 3))
    rng = np.random.default_rng(96)
    x, acceptance = hmc.draw(start, nowhere, step_size=1.0, n_steps=2, rng=rng)
    np.testing.assert_array_equal(x, start)
    np.testing.assert_array_equal(acceptance, 0.0)


def test_acceptance_of_small_steps_is_one_to_second_order():
    """The energy error of the leapfrog falls by four when the step is halved, at equal length."""
    loss = []
    for step_size, n_steps in ((0.2, 8), (0.1, 16)):
        rng = np.random.default_rng(97)
        start = rng.standard_normal((500, 3))
        _, acceptance = hmc.draw(
            start, normal(np.ones(3)), step_size=step_size, n_steps=n_steps, rng=rng
        )
        loss.append(1.0 - acceptance.mean())
    assert 3.5 < loss[0] / loss[1] < 4.5


def test_search_finds_the_step_of_its_target():
    """Acceptance exp(-step) has the mean 0.8 at step log(1 / 0.8)."""
    rng = np.random.default_rng(98)
    search = hmc.DualAveraging(centre=0.0)
    assert search.step_size == search.final == 1.0
    for _ in range(2000):
        search = search.after(float(np.clip(np.exp(-search.step_size) + 0.02 * rng.normal(), 0, 1)))
    np.testing.assert_allclose(search.final, -np.log(0.8), rtol=0.03)
