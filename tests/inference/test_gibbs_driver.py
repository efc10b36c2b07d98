"""The Gibbs driver, on a bivariate normal whose answer is known."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest

from bsdr_models.papers import sample
from tests.toys import stopped

RHO = 0.6
CHAINS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    x: np.ndarray  # (C,)
    y: np.ndarray  # (C, 2)


def init(rng, n_chains=CHAINS):
    return Pair(x=rng.normal(size=n_chains), y=np.zeros((n_chains, 2)))


def step(state, rng):
    """Full conditionals of (x, y_1) with correlation RHO; y_2 counts sweeps."""
    sd = np.sqrt(1.0 - RHO**2)
    n_chains = len(state.x)
    y = np.stack([RHO * state.x + sd * rng.normal(size=n_chains), state.y[:, 1] + 1], axis=1)
    x = RHO * y[:, 0] + sd * rng.normal(size=n_chains)
    return replace(state, x=x, y=y)


def record(state):
    return {"x": state.x, "y": state.y}


def run(seed=1, *, draws=40, tune=10, init=init, step=step, **options):
    rng = np.random.default_rng(seed)
    return sample(init, step, draws=draws, tune=tune, record=record, rng=rng, **options)


def test_draws_have_the_target_law():
    result = run(draws=600, tune=50, init=partial(init, n_chains=100))
    x, y = result.draws["x"].ravel(), result.draws["y"][..., 0].ravel()
    # An autoregression of coefficient RHO**2 has (1 + RHO**2) / (1 - RHO**2) = 2.1 draws per one.
    error = np.sqrt(2.2 / len(x))
    assert abs(x.mean()) < 4.5 * error
    assert abs(np.corrcoef(x, y)[0, 1] - RHO) < 4.5 * error


def test_shapes_and_which_sweeps_are_kept():
    result = run(draws=7, tune=5)
    assert result.draws["x"].shape == (CHAINS, 7)
    assert result.draws["y"].shape == (CHAINS, 7, 2)
    np.testing.assert_array_equal(result.draws["y"][0, :, 1], 5 + np.arange(1, 8))
    assert not result.interrupted


def test_statistics_are_those_of_the_kept_sweeps():
    result = run(draws=7, tune=5, stats=lambda state: {"lp": state.x**2})
    np.testing.assert_array_equal(result.sample_stats["lp"], result.draws["x"] ** 2)
    assert result.attrs["tuning_steps"] == 5
    assert result.attrs["sampling_time"] > 0.0


def test_seed_decides_and_the_callers_stream_is_not_consumed():
    np.testing.assert_array_equal(run(seed=4).draws["x"], run(seed=4).draws["x"])
    assert np.all(run(seed=4).draws["x"] != run(seed=5).draws["x"])
    rng = np.random.default_rng(6)
    sample(init, step, draws=3, tune=0, rng=rng)
    assert rng.random() == np.random.default_rng(6).random()


def test_kept_draws_do_not_follow_arrays_that_are_reused():
    buffer = np.zeros(CHAINS)

    def reusing(state, rng):
        new = step(state, rng)
        buffer[:] = new.x
        return replace(new, x=buffer)

    np.testing.assert_array_equal(run(step=reusing).draws["x"], run().draws["x"])


def test_interrupt_keeps_the_draws_so_far():
    result = run(step=stopped(step, 26))
    assert result.interrupted
    np.testing.assert_array_equal(result.draws["x"], run().draws["x"][:, :15])


def test_interrupt_before_the_first_draw_is_an_interrupt():
    with pytest.raises(KeyboardInterrupt):
        run(step=stopped(step, 11))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_named(value):
    def breaking(state, rng):
        new = step(state, rng)
        return replace(new, x=np.full(CHAINS, value)) if new.y[0, 1] == 12 else new

    with pytest.raises(FloatingPointError, match=r"sweep 12: x$"):
        run(step=breaking)
