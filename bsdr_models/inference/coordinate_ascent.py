"""Coordinate ascent on a variational bound: restarts, acceleration, convergence.

The driver knows nothing of any model. It sees a ``step`` that never lowers the bound, and may be
given an extrapolation (SQUAREM [1]_) and a ``leap`` (any optimiser of the same bound); whatever
these propose is kept only if the exact bound after one more step is higher.

References
----------
.. [1] R. Varadhan, C. Roland (2008). Simple and globally convergent methods for accelerating
       the convergence of any EM algorithm. Scandinavian Journal of Statistics 35(2).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from bsdr_models.typing import FloatArray

# A plain step that lowers the bound by more than this share of it is a fault of the model; less
# can be rounding, where a small latent scale makes the row covariance ill-conditioned.
FALL_TOL = 1e-6
# Largest number of steps of a leap between two sweeps.
LEAP_EVALUATIONS = 150


class BoundInfo(Protocol):
    """What a step reports."""

    @property
    def elbo(self) -> float:
        """Lower bound in nats."""

    @property
    def terms(self) -> Mapping[str, float]:
        """The bound by factor name."""


class FallingBoundError(RuntimeError):
    """A step lowered the bound; the message names the terms that fell."""


type Step[S] = Callable[[S], tuple[S, BoundInfo]]
type Callback[S] = Callable[[int, S, BoundInfo], bool | None]
type Leap[S] = Callable[[S, int, Callable[[S, BoundInfo], bool]], tuple[S, BoundInfo]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation[S]:
    """How a state becomes a vector and back, for SQUAREM.

    pack
        State -> vector of what the next step reads.
    unpack
        Vector, state -> state like the given one with these values.
    """

    pack: Callable[[S], FloatArray]
    unpack: Callable[[FloatArray, S], S]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult[S]:
    """The best restart.

    state
        Its last state.
    elbo
        Bound after each iteration, (n_iter,).
    terms
        The same by factor name.
    converged
        Whether the gain of a round fell below the tolerance.
    interrupted
        Whether the user stopped the fit; the state is the best one until then.
    restarts
        Final bound of every restart that was begun.
    """

    state: S
    elbo: FloatArray
    terms: Mapping[str, FloatArray]
    converged: bool
    interrupted: bool
    restarts: tuple[float, ...]


@dataclass(slots=True)
class _Climb[S]:
    """One restart under way."""

    step: Step[S]
    max_iter: int
    callbacks: Sequence[Callback[S]]
    trace: list[BoundInfo] = field(default_factory=list)
    state: S | None = None
    stopped: bool = False

    @property
    def left(self) -> int:
        return 0 if self.stopped else self.max_iter - len(self.trace)

    @property
    def elbo(self) -> float:
        return self.trace[-1].elbo if self.trace else -np.inf

    def accept(self, state: S, info: BoundInfo) -> bool:
        """Take a state; True when a callback asks to stop."""
        self.state = state
        self.trace.append(info)
        for callback in self.callbacks:
            self.stopped |= bool(callback(len(self.trace), state, info))
        return self.stopped

    def sweep(self) -> None:
        """One plain step, which must not lower the bound."""
        assert self.state is not None
        state, info = self.step(self.state)
        if not np.isfinite(info.elbo):
            bad = [name for name, value in info.terms.items() if not np.isfinite(value)]
            raise FloatingPointError(f"the bound is not finite: {', '.join(bad)}")
        if info.elbo < self.elbo - FALL_TOL * (1.0 + abs(self.elbo)):
            before = self.trace[-1].terms
            fell = {k: v - before[k] for k, v in info.terms.items() if v < before[k]}
            raise FallingBoundError(
                f"the bound fell by {self.elbo - info.elbo:.3g} nats; falling terms: "
                + ", ".join(f"{name} {change:.3g}" for name, change in fell.items())
            )
        self.accept(state, info)

    def squarem(self, how: Extrapolation[S]) -> None:
        """Two sweeps, an extrapolation along them, and a sweep from there if it pays."""
        assert self.state is not None
        start = how.pack(self.state)
        self.sweep()
        first = how.pack(self.state)
        if self.left <= 0:
            return
        self.sweep()
        second = how.pack(self.state)
        change = first - start
        curvature = second - first - change
        size = float(np.linalg.norm(curvature))
        if self.left <= 0 or size == 0.0:
            return
        alpha = max(float(np.linalg.norm(change)) / size, 1.0)
        proposal = start + 2.0 * alpha * change + alpha**2 * curvature
        with np.errstate(all="ignore"):
            try:
                state, info = self.step(how.unpack(proposal, self.state))
            except (np.linalg.LinAlgError, FloatingPointError, ValueError):
                return
        if info.elbo > self.elbo:
            self.accept(state, info)

    def leap(self, leap: Leap[S]) -> None:
        """Let an optimiser run from here; keep where it ends if that is higher."""
        assert self.state is not None
        start, before, length = self.state, self.elbo, len(self.trace)

        def on_step(state: S, info: BoundInfo) -> bool:
            return info.elbo > self.elbo and self.accept(state, info)

        state, info = leap(start, min(self.left, LEAP_EVALUATIONS), on_step)
        if info.elbo > before and len(self.trace) > length:
            self.state, self.trace[-1] = state, info
        else:
            self.state = start
            del self.trace[length:]


def run_coordinate_ascent[S](
    init: Callable[[np.random.Generator, int], S],
    step: Step[S],
    *,
    rng: np.random.Generator,
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    extrapolation: Extrapolation[S] | None = None,
    leap: Leap[S] | None = None,
    callbacks: Sequence[Callback[S]] = (),
) -> FitResult[S]:
    """Climb from one or several starts and keep the highest bound.

    A restart is a sequence of rounds: a leap, if there is one, then three sweeps, the third
    from an extrapolated point, if there is an extrapolation. It has converged when a round
    gains less than ``tol`` nats: a log evidence, of any size of data, is not known better.

    Parameters
    ----------
    init : callable
        ``init(rng, restart)`` makes a state; each restart has its own stream.
    step : callable
        ``step(state)`` -> state and info; must not lower the bound.
    rng : numpy.random.Generator
    n_restarts : int
    max_iter : int
        Limit of recorded iterations (sweeps and steps of a leap) per restart.
    tol : float
        Gain of a round, in nats, below which a restart ends.
    extrapolation : Extrapolation, optional
    leap : callable, optional
        ``leap(state, budget, on_step)`` -> state and its exact bound; makes at most ``budget``
        evaluations and calls ``on_step(state, info)`` as it climbs.
    callbacks : sequence of callables
        Each is called with (iteration, state, info); a true value ends the restart.

    Returns
    -------
    FitResult

    Raises
    ------
    FallingBoundError
        If a plain step lowers the bound beyond rounding.
    FloatingPointError
        If the bound is not finite.
    ValueError
        If a count is not positive.

    Notes
    -----
    An interrupt (Ctrl-C) ends the fit and keeps what was reached, once one step was made.
    """
    if n_restarts < 1 or max_iter < 1:
        raise ValueError(
            f"n_restarts and max_iter must be positive, got {n_restarts=}, {max_iter=}"
        )
    best: _Climb[S] | None = None
    best_converged = interrupted = False
    finals: list[float] = []
    for index, stream in enumerate(rng.spawn(n_restarts)):
        climb = _Climb(step=step, max_iter=max_iter, callbacks=callbacks)
        converged = False
        try:
            climb.state = init(stream, index)
            converged = _climb(climb, tol=tol, extrapolation=extrapolation, leap=leap)
        except KeyboardInterrupt:
            if best is None and not climb.trace:
                raise
            interrupted = True
        if climb.trace:
            finals.append(climb.elbo)
            if best is None or climb.elbo > best.elbo:
                best, best_converged = climb, converged
        if interrupted:
            break
    assert best is not None
    assert best.state is not None
    return FitResult(
        state=best.state,
        elbo=np.array([info.elbo for info in best.trace]),
        terms={
            name: np.array([info.terms[name] for info in best.trace])
            for name in best.trace[-1].terms
        },
        converged=best_converged,
        interrupted=interrupted,
        restarts=tuple(finals),
    )


def _climb[S](
    climb: _Climb[S],
    *,
    tol: float,
    extrapolation: Extrapolation[S] | None,
    leap: Leap[S] | None,
) -> bool:
    """Run rounds until convergence (True) or the limit (False)."""
    climb.sweep()
    while climb.left > 0:
        before = climb.elbo
        if leap is not None:
            climb.leap(leap)
        if extrapolation is not None and climb.left > 0:
            climb.squarem(extrapolation)
        elif climb.left > 0:
            climb.sweep()
        if not climb.stopped and climb.elbo - before < tol:
            return True
    return False
