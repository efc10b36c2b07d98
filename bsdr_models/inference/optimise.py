"""Maximum a posteriori by L-BFGS from several initial points, for any negative log density.

The final values of all restarts are returned, since differences between them are informative.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.optimize import Bounds, minimize

from bsdr_models.inference.tasks import ProgressBar, run_restarts
from bsdr_models.numerics.arrays import FloatArray

type Objective = Callable[[FloatArray], tuple[float, FloatArray]]

# Value of an initial point at which the objective cannot be computed.
_REFUSED = 1e300
# A line search that fails after an iteration that gained less, relative to 1 + |value|, has met the
# rounding errors of an optimum.
_ROUNDING = 1e-9
# Correction pairs of L-BFGS.
_MEMORY = 20
# Restarts whose values differ by less, relative to 1 + |value|, count as the same optimum.
AGREEMENT = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class MapResult:
    """Best point of all restarts."""

    x: FloatArray  # (P,)
    value: float  # negative log density there, in nats
    values: tuple[float, ...]  # final ones of the restarts with a finite objective
    trace: FloatArray  # values at the start and after each iteration of the best restart
    converged: bool  # whether it ended at an optimum; otherwise x is the best point until then
    interrupted: bool

    @property
    def n_iter(self) -> int:
        """Iterations of the best restart."""
        return len(self.trace) - 1

    @property
    def share_agreeing(self) -> float:
        """Share of the restarts that reach the value of the best one."""
        limit = self.value + AGREEMENT * (1.0 + abs(self.value))
        return sum(value <= limit for value in self.values) / len(self.values)


def advise(n_iter: int, max_iter: int) -> str:
    """Warning of a search that has not converged after some iterations."""
    if n_iter >= max_iter:
        return (
            f"the search stopped after max_iter={max_iter} iterations; the result is usable, but a "
            "larger max_iter brings it closer to the optimum"
        )
    return (
        f"the search failed after iteration {n_iter}, where its objective is not finite or does "
        "not improve, and the result is the best point until then: judge it by held-out samples, "
        "and look for extreme values in the features"
    )


def run_map(
    objective: Objective,
    starts: Sequence[FloatArray],
    *,
    bounds: tuple[FloatArray, FloatArray] | None = None,
    max_iter: int = 500,
    tol: float = 1e-6,
    relative: bool = False,
    progressbar: bool = False,
) -> MapResult:
    """Minimise from every initial point (P,), and keep the lowest value.

    The objective may raise LinAlgError or return non-finite values far out, from which the search
    steps back. A restart has converged when an iteration gains less than about ``tol`` nats, or
    than that share of the value if ``relative``. FloatingPointError if no initial point has a
    finite objective.
    """
    best, ends = run_restarts(
        partial(_descend, objective, bounds, max_iter, tol, relative),
        starts,
        value=lambda end: -end.value,
        title="MAP",
        max_iter=max_iter,
        progressbar=progressbar,
    )
    if not np.isfinite(best.value):
        if best.interrupted:
            raise KeyboardInterrupt
        raise FloatingPointError("the objective is not finite at any initial point")
    return replace(best, values=tuple(end.value for end in ends if np.isfinite(end.value)))


def _descend(
    objective: Objective,
    bounds: tuple[FloatArray, FloatArray] | None,
    max_iter: int,
    tol: float,
    relative: bool,
    bar: ProgressBar,
    start: FloatArray,
) -> MapResult:
    """L-BFGS from one initial point."""
    x = np.array(start, dtype=np.float64)
    if bounds is not None:
        x = np.clip(x, *bounds)
    best = origin = x, np.inf, np.zeros_like(x)  # at all points; where a line search begins
    trace: list[float] = []
    interrupted = converged = refused = False

    def guarded(x: FloatArray) -> tuple[float, FloatArray]:
        nonlocal best, refused
        refused = True
        try:
            value, gradient = objective(x)
        except np.linalg.LinAlgError:
            return _refuse(x, *origin)
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            return _refuse(x, *origin)
        refused = False
        if value < best[1]:
            best = x.copy(), float(value), gradient.copy()
        return float(value), gradient

    def after_iteration(_: FloatArray) -> None:
        nonlocal origin
        origin = best
        trace.append(best[1])
        bar.update(value=best[1])

    try:
        first, _ = guarded(x)
        origin = best
        trace.append(best[1])
        result = minimize(
            guarded,
            x,
            jac=True,
            method="L-BFGS-B",
            bounds=None if bounds is None else Bounds(*bounds),
            callback=after_iteration,
            options={
                "maxiter": max_iter,
                "maxfun": 20 * max_iter,
                "maxcor": _MEMORY,
                "ftol": tol if relative else tol / (1.0 + abs(first)),
                "gtol": 1e-7,
            },
        )
        gain = trace[-2] - trace[-1] if len(trace) > 2 else np.inf
        at_rounding = gain <= _ROUNDING * (1.0 + abs(best[1])) and len(trace) <= max_iter
        converged = np.isfinite(best[1]) and not refused and (result.success or at_rounding)
    except KeyboardInterrupt:
        interrupted = True
    return MapResult(
        x=best[0],
        value=best[1],
        values=(best[1],),
        trace=np.array(trace),
        converged=bool(converged),
        interrupted=interrupted,
    )


def _refuse(
    x: FloatArray, origin: FloatArray, value: float, gradient: FloatArray
) -> tuple[float, FloatArray]:
    """Substitute for value and gradient where the objective cannot be computed.

    They are those of a parabola whose derivative at x is opposite to that at the origin of the
    line, so that the line search takes about a seventh of its step. After a huge value it would
    return to the origin and stop there.
    """
    if not np.isfinite(value):
        return _REFUSED, np.zeros_like(x)
    return value + abs(float(gradient @ (x - origin))), -gradient
