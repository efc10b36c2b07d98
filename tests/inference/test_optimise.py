"""The search for a mode: known optima, what several starts say, what can go wrong on the way."""

import numpy as np
import pytest
from scipy.optimize import minimize

from bsdr_models.inference.optimise import AGREEMENT, MapResult, run_map
from tests.toys import stopped

CENTRE = np.array([1.0, -2.0, 0.5])
SIZES = np.array([1.0, 10.0, 100.0])


def bowl(x):
    """Parabola with its minimum 7 at CENTRE."""
    away = x - CENTRE
    return 7.0 + 0.5 * SIZES @ away**2, SIZES * away


def valley(x):
    """Rosenbrock's function: minimum 0 at (1, 1)."""
    a, b = x
    value = 100.0 * (b - a * a) ** 2 + (1.0 - a) ** 2
    return value, np.array([-400.0 * a * (b - a * a) - 2.0 * (1.0 - a), 200.0 * (b - a * a)])


def wells(x):
    """Minima near -1 and 1; the second is about 0.6 lower."""
    t = x[0]
    return (t * t - 1.0) ** 2 - 0.3 * t, np.array([4.0 * t * (t * t - 1.0) - 0.3])


def test_a_curved_valley():
    found = run_map(valley, [np.array([-1.2, 1.0])], tol=1e-12)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-5)
    assert found.converged
    assert (np.diff(found.trace) <= 0.0).all()
    np.testing.assert_allclose(found.trace[-1], found.value, rtol=1e-12)


def test_bounds_hold_and_the_start_is_moved_within_them():
    low, high = np.array([-np.inf, -1.0, -np.inf]), np.array([0.5, np.inf, np.inf])
    seen, start = [], np.array([5.0, -9.0, 0.0])

    def watched(x):
        seen.append(x.copy())
        return bowl(x)

    found = run_map(watched, [start], bounds=(low, high))
    np.testing.assert_array_equal(start, [5.0, -9.0, 0.0])
    np.testing.assert_allclose(found.x, [0.5, -1.0, 0.5], atol=1e-4)
    assert all((low <= x).all() and (x <= high).all() for x in seen)
    # Even where the unbounded point is lower than all that are allowed.
    found = run_map(watched, [CENTRE], bounds=(low, high))
    assert found.x[0] <= 0.5
    assert found.x[1] >= -1.0


def test_starts_in_two_valleys():
    left, right = (minimize(wells, [t], jac=True, tol=1e-12).fun for t in (-1.0, 1.0))
    found = run_map(wells, [np.array([t]) for t in (-1.5, 1.5, 0.8, -0.7)])
    np.testing.assert_allclose(found.values, [left, right, right, left], atol=1e-8)
    np.testing.assert_allclose(found.value, right, atol=1e-8)
    np.testing.assert_allclose(found.x, 1.0, atol=0.05)
    assert found.share_agreeing == 0.5
    assert (np.diff(found.trace) <= 0.0).all()
    np.testing.assert_allclose(found.trace[-1], right, atol=1e-8)  # of the best start


def test_starts_agree_up_to_a_share_of_the_value():
    def result(*values):
        return MapResult(
            x=np.zeros(1),
            value=min(values),
            values=values,
            trace=np.zeros(1),
            converged=True,
            interrupted=False,
        )

    near, far = 999.0 + 0.9 * AGREEMENT * 1e3, 999.0 + 1.1 * AGREEMENT * 1e3
    assert result(999.0, near).share_agreeing == 1.0
    assert result(far, 999.0).share_agreeing == 0.5
    assert result(-999.0, -999.0 + 0.9 * AGREEMENT * 1e3).share_agreeing == 1.0
    assert result(0.0, 2e-3).share_agreeing == 0.5


@pytest.mark.parametrize("how", ["error", "nan", "infinity", "gradient"])
def test_the_search_steps_back_from_where_nothing_can_be_computed(how):
    """A wall between start and optimum's far side, which the first long steps run into."""
    refused = []

    def walled(x):
        if x[0] > 1.5 or x[1] < -2.5:
            refused.append(x)
            if how == "error":
                raise np.linalg.LinAlgError("not positive definite")
            if how == "gradient":
                return 0.0, np.full(3, np.nan)
            return (np.nan if how == "nan" else -np.inf), np.zeros(3)
        return bowl(x)

    found = run_map(walled, [np.array([-30.0, 40.0, 2.0])], tol=1e-10)
    assert refused
    np.testing.assert_allclose(found.value, 7.0, rtol=1e-6)


def broken(x):
    raise np.linalg.LinAlgError("not positive definite")


@pytest.mark.parametrize("objective", [broken, lambda x: (np.nan, x), lambda x: (np.inf, x)])
def test_nothing_finite_at_any_start(objective):
    with pytest.raises(FloatingPointError, match="not finite at any initial point"):
        run_map(objective, [np.zeros(2), np.ones(2)])


def test_a_start_that_cannot_begin_does_not_count():
    def half(x):
        return broken(x) if x[0] < -5.0 else bowl(x)

    found = run_map(half, [np.full(3, -9.0), np.zeros(3)])
    assert len(found.values) == 1
    assert found.share_agreeing == 1.0
    assert found.converged
    np.testing.assert_allclose(found.value, 7.0, rtol=1e-6)


@pytest.mark.parametrize("calls", [1, 2, 5, 12])
def test_an_interrupt_keeps_the_best_point(calls):
    start = np.array([-1.2, 1.0])
    seen = []

    def watched(x):
        seen.append(valley(x)[0])
        return valley(x)

    found = run_map(stopped(watched, calls + 1), [start])
    assert found.interrupted
    assert not found.converged
    assert found.value == min(seen) == valley(found.x)[0]
    assert len(seen) == calls
    assert found.trace[-1] >= found.value
    assert len(found.trace) >= 1


def test_an_interrupt_before_there_is_a_point_is_handed_on():
    with pytest.raises(KeyboardInterrupt):
        run_map(stopped(bowl, 1), [np.zeros(3)])
    with pytest.raises(KeyboardInterrupt):
        run_map(stopped(lambda x: (np.nan, x), 3), [np.zeros(3)] * 9)


def test_an_interrupt_of_a_later_start_keeps_the_earlier_ones():
    calls = []
    first = run_map(stopped(bowl, np.inf, calls), [np.zeros(3)])  # never
    starts = [np.zeros(3), np.full(3, 50.0), CENTRE]
    for more in (0, 1):  # at the first point of the second start, and after it
        found = run_map(stopped(bowl, len(calls) + 1 + more), starts)
        assert found.interrupted
        assert found.value == first.value
        assert len(found.values) == 1 + more  # the third was not begun


def test_the_limit_of_iterations():
    short = run_map(valley, [np.array([-1.2, 1.0])], max_iter=5)
    assert not short.converged
    assert short.n_iter == 5
    whole = run_map(valley, [np.array([-1.2, 1.0])], max_iter=500)
    assert whole.converged
    assert whole.n_iter < 500
    np.testing.assert_allclose(short.trace, whole.trace[:6])
    # Done with the last iteration allowed: nothing is missing.
    exact = run_map(valley, [np.array([-1.2, 1.0])], max_iter=whole.n_iter)
    np.testing.assert_allclose(exact.value, whole.value, atol=1e-12)


def test_convergence_of_the_best_start_is_reported():
    """A start at the end of whose iterations there is more to gain, though another is done."""
    low = run_map(wells, [np.array([1.4]), np.array([-1.0])], max_iter=1)
    assert not low.converged
    assert low.value == min(low.values)
