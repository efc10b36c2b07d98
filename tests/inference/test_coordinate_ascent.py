"""Coordinate ascent on a quadratic bound whose maximum is known."""

import numpy as np
import pytest

from bsdr_models.papers.coordinate_ascent import (
    N_ROUNDS,
    Bound,
    Extrapolation,
    FallingBoundError,
    maximise,
)
from tests.toys import stopped

# The bound is TOP - x'Ax/2, so close to a ridge that coordinate ascent crawls along it.
A = np.array([[1.0, 0.98, 0.1], [0.98, 1.0, 0.1], [0.1, 0.1, 1.0]])
TOP = 5.0
START = np.array([3.0, -2.0, 1.0])


def info(x, *, lie=0.0):
    parts = {"first": TOP - 0.5 * x[0] * (A[0] @ x), "rest": -0.5 * x[1:] @ A[1:] @ x + lie}
    return Bound(parts)


def step(x):
    """Each coordinate at its optimum given the others, in turn."""
    x = x.copy()
    for i in range(x.size):
        x[i] -= A[i] @ x / A[i, i]
    return x, info(x)


def fit(step=step, **settings):
    settings = {"rng": np.random.default_rng(0), "tol": 1e-9, "max_iter": 20_000} | settings
    init = settings.pop("init", lambda rng: START)
    return maximise(init, step, **settings)


PLAIN = Extrapolation(pack=lambda x: x, unpack=lambda vector, x: vector)


def assert_rises(result):
    assert np.all(np.diff(result.trace) >= 0.0)
    np.testing.assert_allclose(sum(result.terms.values()), result.trace, rtol=1e-12)


def test_ascends_to_the_maximum_and_reports_convergence():
    result = fit()
    assert result.converged
    assert not result.interrupted
    assert_rises(result)
    assert result.trace[-1] == info(result.posterior).elbo
    assert TOP - result.trace[-1] < 1e-6
    assert result.restarts == (result.trace[-1],)
    gains = result.trace[N_ROUNDS:] - result.trace[:-N_ROUNDS]
    assert gains[-1] < 1e-9 <= gains[:-1].min()


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("max_iter", [1, 2, 3, 7])
def test_stops_at_the_limit_and_says_so(max_iter, accelerated):
    result = fit(max_iter=max_iter, extrapolation=PLAIN if accelerated else None)
    assert len(result.trace) == max_iter
    assert not result.converged
    assert_rises(result)


def test_tolerance_is_a_gain_in_nats_whatever_the_bound():
    def far(x):
        x, at = step(x)
        return x, Bound(at.terms | {"constant": -1e6})

    assert len(fit(far, tol=1e-3).trace) == len(fit(tol=1e-3).trace)


def two_tops(x):
    """Half way to the nearer of two maxima: 0 at -1 and 1 at +1."""
    x = 0.5 * (x + np.sign(x))
    elbo = float(x > 0) - (abs(x) - 1.0) ** 2
    return x, Bound({"all": elbo})


def test_the_best_restart_is_kept_and_all_are_reported():
    starts = [-3.0, 0.1, -0.2, 2.0]
    result = fit(two_tops, init=[lambda rng, start=start: start for start in starts])
    assert result.posterior == pytest.approx(1.0, abs=1e-3)
    assert result.restarts == pytest.approx((0.0, 1.0, 0.0, 1.0), abs=1e-6)
    assert result.trace[-1] == max(result.restarts)
    assert result.converged


def test_parallel_have_streams_of_their_own_that_repeat():
    def run(seed, n_restarts):
        drawn = []

        def init(rng):
            drawn.append(rng.normal())
            return drawn[-1]

        fit(two_tops, init=[init] * n_restarts, rng=np.random.default_rng(seed))
        return drawn

    assert len(set(run(3, 5))) == 5
    assert run(3, 5) == run(3, 5)
    assert run(3, 5)[:2] == run(3, 2)


def test_extrapolation_saves_most_sweeps():
    plain, fast = fit(), fit(extrapolation=PLAIN)
    assert_rises(fast)
    assert fast.converged
    there, later = (np.argmax(TOP - result.trace < 1e-6) for result in (fast, plain))
    assert 0 < there < 0.2 * later


def raising(error):
    def unpack(vector, x):
        raise error("no such state")

    return unpack


@pytest.mark.parametrize(
    "unpack",
    [
        lambda vector, x: 100.0 * vector + 50.0,
        lambda vector, x: np.full_like(vector, np.nan),
        lambda vector, x: np.full_like(vector, 1e200),
        raising(np.linalg.LinAlgError),
        raising(FloatingPointError),
        raising(ValueError),
    ],
)
def test_an_extrapolation_that_does_not_pay_changes_nothing(unpack):
    guarded = fit(extrapolation=Extrapolation(pack=PLAIN.pack, unpack=unpack), max_iter=50)
    plain = fit(max_iter=50)
    np.testing.assert_array_equal(guarded.trace, plain.trace)
    np.testing.assert_array_equal(guarded.posterior, plain.posterior)


def test_a_vector_that_does_not_move_is_not_extrapolated():
    still = Extrapolation(pack=lambda x: np.zeros(2), unpack=raising(AssertionError))
    np.testing.assert_array_equal(fit(extrapolation=still, max_iter=9).trace, fit(max_iter=9).trace)


def falling(at):
    """A step that from its ``at``-th call on loses 0.01 nats in one term and gains in another."""
    calls = 0

    def faulty(x):
        nonlocal calls
        calls += 1
        x, right = step(x)
        drop = 100.0 if calls >= at else 0.0
        terms = {"sound": right.elbo + 0.1 * drop, "broken": -drop}
        return x, Bound(terms)

    return faulty


@pytest.mark.parametrize("extrapolation", [None, PLAIN])
def test_a_falling_bound_is_an_error_that_names_the_term(extrapolation):
    with pytest.raises(FallingBoundError, match=r"fell by 9\d.*broken -100") as caught:
        fit(falling(6), extrapolation=extrapolation)
    assert "sound" not in str(caught.value)


def test_rounding_is_not_a_fall():
    noise = np.random.default_rng(1)

    def noisy(x):
        x, at = step(x)
        return x, Bound(at.terms | {"rounding": 1e-12 * noise.standard_normal()})

    assert fit(noisy, tol=1e-10).converged


def test_a_bound_that_is_no_number_is_an_error_that_names_the_term():
    def faulty(x):
        return x, Bound({"sound": 1.0, "broken": np.nan, "too": np.inf})

    with pytest.raises(FloatingPointError, match=r"not finite: broken, too$"):
        fit(faulty)


def test_an_interrupt_keeps_what_was_reached():
    result = fit(stopped(step, 6))
    assert result.interrupted
    assert not result.converged
    assert len(result.trace) == 5
    np.testing.assert_array_equal(result.posterior, fit(max_iter=5).posterior)
    assert result.trace[-1] == info(result.posterior).elbo


def test_an_interrupt_ends_all_restarts_and_keeps_the_best():
    n_first = len(fit(two_tops, init=lambda rng: 4.0).trace)
    result = fit(
        stopped(two_tops, n_first + 3),
        init=[lambda rng, start=start: start for start in (4.0, -4.0, 4.0)],
    )
    assert result.interrupted
    assert len(result.restarts) == 2
    assert result.posterior == pytest.approx(1.0, abs=1e-3)
    assert result.converged  # the one that is returned was


def test_an_interrupt_before_anything_was_reached_goes_through():
    with pytest.raises(KeyboardInterrupt):
        fit(stopped(step, 1))
