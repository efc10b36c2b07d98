"""Coordinate ascent on a variational bound: restarts, acceleration, convergence.

The driver knows nothing of any model. It sees a ``step`` that never lowers the bound, and may be
given an extrapolation (SQUAREM [1]_) and a ``leap`` (any optimiser of the same bound); whatever
these propose is kept only if the exact bound after one more step is higher.

References
----------
.. [1] R. Varadhan, C. Roland (2008). Simple and globally convergent methods for accelerating
       the convergence of any EM algorithm. Scandinavian Journal of Statistics 35(2).
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from bsdr_models.arrays import FloatArray
from bsdr_models.inference.parallel import run_tasks

logger = logging.getLogger(__name__)

# A plain step that lowers the bound by more than this share of it is a fault of the model; less
# can be rounding, where a small latent scale makes the row covariance ill-conditioned.
FALL_TOL = 1e-6
# Largest number of steps of a leap between two sweeps.
JOINT_EVALUATIONS = 150


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
type JointSearch[S] = Callable[[S, int, int, Callable[[S, BoundInfo], bool]], tuple[S, BoundInfo]]


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
        Final bound of every restart that was begun and not lost.
    """

    state: S
    elbo: FloatArray
    terms: Mapping[str, FloatArray]
    converged: bool
    interrupted: bool
    restarts: tuple[float, ...]


@dataclass(slots=True)
class _Ascent[S]:
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
                proposed = how.unpack(proposal, self.state)
                # Each holds as much as the state; a sweep needs that room for itself.
                del start, first, second, change, curvature, proposal
                state, info = self.step(proposed)
            except (np.linalg.LinAlgError, FloatingPointError, ValueError):
                return
        if info.elbo > self.elbo:
            self.accept(state, info)

    def joint_search(self, joint_search: JointSearch[S], number: int) -> None:
        """Let an optimiser run from here; keep where it ends if that is higher."""
        assert self.state is not None
        start, before, length = self.state, self.elbo, len(self.trace)

        def on_step(state: S, info: BoundInfo) -> bool:
            return info.elbo > self.elbo and self.accept(state, info)

        state, info = joint_search(start, number, min(self.left, JOINT_EVALUATIONS), on_step)
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
    joint_search: JointSearch[S] | None = None,
    callbacks: Sequence[Callback[S]] = (),
    n_jobs: int | None = 1,
    on_restart: Callable[[FitResult[S]], object] = lambda result: None,
) -> FitResult[S]:
    """Climb from one or several starts and keep the highest bound.

    A restart is a sequence of rounds: a leap, if there is one, then three sweeps, the third
    from an extrapolated point, if there is an extrapolation. It has converged when a whole round
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
        ``leap(state, number, budget, on_step)`` -> state and its exact bound; ``number`` counts
        the leaps of a restart from 0. Makes at most ``budget`` evaluations and calls
        ``on_step(state, info)`` as it climbs.
    callbacks : sequence of callables
        Each is called with (iteration, state, info); a true value ends the restart. They are
        called where the restart runs: in its worker process, if there are several.
    n_jobs : int, optional
        Restarts that run side by side, see :func:`~bsdr_models.inference.parallel.run_tasks`.
        The result does not depend on it.
    on_restart : callable
        Called in this process with each restart as it ends.

    Returns
    -------
    FitResult

    Raises
    ------
    FallingBoundError
        If a plain step lowers the bound beyond rounding.
    FloatingPointError
        If the bound is not finite.
    KeyboardInterrupt
        If the user stops the fit before a step was made.
    ValueError
        If a count is not positive.

    Notes
    -----
    An interrupt (Ctrl-C) ends the fit and keeps what was reached, once one step was made; of
    restarts in worker processes it keeps those that had ended.
    """
    if n_restarts < 1 or max_iter < 1:
        raise ValueError(
            f"n_restarts and max_iter must be positive, got {n_restarts=}, {max_iter=}"
        )

    def restart(start: tuple[int, np.random.Generator]) -> FitResult[S]:
        index, stream = start
        climb = _Ascent(step=step, max_iter=max_iter, callbacks=callbacks)
        converged = interrupted = False
        try:
            climb.state = init(stream, index)
            converged = _ascend(
                climb, tol=tol, extrapolation=extrapolation, joint_search=joint_search
            )
        except KeyboardInterrupt:
            if not climb.trace:
                raise
            interrupted = True
        return _result(climb, converged=converged, interrupted=interrupted)

    begin = time.perf_counter()
    outcome = run_tasks(
        restart,
        list(enumerate(rng.spawn(n_restarts))),
        n_jobs=n_jobs,
        stopped=lambda result: result.interrupted,
        on_done=on_restart,
    )
    found = list(outcome.results.values())
    best = max(found, key=lambda result: result.restarts[0])  # the first of equals
    logger.debug(
        "coordinate ascent: bound %.6g after %d iterations, %s; %d of %d restarts in %.2f s",
        best.restarts[0],
        len(best.elbo),
        "converged" if best.converged else "not converged",
        len(found),
        n_restarts,
        time.perf_counter() - begin,
    )
    return replace(
        best,
        interrupted=outcome.interrupted,
        restarts=tuple(result.restarts[0] for result in found),
    )


def _result[S](climb: _Ascent[S], *, converged: bool, interrupted: bool) -> FitResult[S]:
    """What is kept of one restart."""
    assert climb.state is not None
    return FitResult(
        state=climb.state,
        elbo=np.array([info.elbo for info in climb.trace]),
        terms={
            name: np.array([info.terms[name] for info in climb.trace])
            for name in climb.trace[-1].terms
        },
        converged=converged,
        interrupted=interrupted,
        restarts=(climb.elbo,),
    )


def _ascend[S](
    climb: _Ascent[S],
    *,
    tol: float,
    extrapolation: Extrapolation[S] | None,
    joint_search: JointSearch[S] | None,
) -> bool:
    """Run rounds until convergence (True) or the limit (False)."""
    climb.sweep()
    number = 0
    while climb.left > 0:
        before = climb.elbo
        if joint_search is not None:
            climb.joint_search(joint_search, number)
        if extrapolation is not None and climb.left > 0:
            climb.squarem(extrapolation)
        elif climb.left > 0:
            climb.sweep()
        if climb.left > 0 and climb.elbo - before < tol:
            return True
        number += 1
    return False
