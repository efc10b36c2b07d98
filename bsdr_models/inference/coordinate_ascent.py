"""Coordinate ascent on a variational bound: restarts, acceleration, convergence.

For any model with a ``step`` that never lowers the bound. With an extrapolation (SQUAREM [1]_)
every third step starts from an extrapolated point, and is kept only if it raises the exact bound.

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

# A relative decrease of the bound by more than this is an error in the model; less can be rounding,
# where a small latent scale makes the row covariance ill-conditioned.
FALL_TOL = 1e-6


class BoundInfo(Protocol):
    """Bound after a step."""

    @property
    def elbo(self) -> float:
        """Lower bound in nats."""

    @property
    def terms(self) -> Mapping[str, float]:
        """Terms of the bound by factor name."""


class FallingBoundError(RuntimeError):
    """A step lowered the bound."""


type Step[S] = Callable[[S], tuple[S, BoundInfo]]
type Callback[S] = Callable[[int, S, BoundInfo], bool | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation[S]:
    """Conversion of a state to a vector and back, for SQUAREM.

    pack
        State -> vector of the values that the next step reads.
    unpack
        Vector, state -> the state with these values.
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
        Its terms by factor name.
    converged
        Whether the gain of a round fell below the tolerance.
    interrupted
        Whether the user interrupted the fit; the state is the best one until then.
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
    """Progress of one restart."""

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

    def run(self, tol: float, extrapolation: Extrapolation[S] | None) -> bool:
        """Rounds until convergence (True) or the limit (False)."""
        self.sweep()
        while self.left > 0:
            before = self.elbo
            if extrapolation is None:
                self.sweep()
            else:
                self.squarem(extrapolation)
            if self.left > 0 and self.elbo - before < tol:
                return True
        return False

    def accept(self, state: S, info: BoundInfo) -> None:
        """Accept a state; a callback may ask to stop."""
        self.state = state
        self.trace.append(info)
        for callback in self.callbacks:
            self.stopped |= bool(callback(len(self.trace), state, info))

    def sweep(self) -> None:
        """One step, which must not lower the bound."""
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
        """Two sweeps, and a third from an extrapolated point, accepted if it raises the bound."""
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
                # Free memory for the step: each vector is as large as the state.
                del start, first, second, change, curvature, proposal
                state, info = self.step(proposed)
            except (np.linalg.LinAlgError, FloatingPointError, ValueError):
                return
        if info.elbo > self.elbo:
            self.accept(state, info)


def run_coordinate_ascent[S](
    init: Callable[[np.random.Generator, int], S],
    step: Step[S],
    *,
    rng: np.random.Generator,
    n_restarts: int = 1,
    max_iter: int = 500,
    tol: float = 1e-3,
    extrapolation: Extrapolation[S] | None = None,
    callbacks: Sequence[Callback[S]] = (),
    n_jobs: int | None = 1,
    on_restart: Callable[[FitResult[S]], object] = lambda result: None,
) -> FitResult[S]:
    """Maximise the bound from one or several initial states, and keep the best.

    A round is one step, or with an extrapolation three, the third from an extrapolated point. A
    restart has converged when a round gains less than ``tol`` nats.

    Parameters
    ----------
    init : callable
        ``init(rng, restart)`` -> initial state; each restart has its own random stream.
    step : callable
        ``step(state)`` -> state and info; must not lower the bound.
    rng : numpy.random.Generator
    n_restarts : int
    max_iter : int
        Limit of steps that are kept, per restart.
    tol : float
        Gain of a round, in nats, below which a restart ends.
    extrapolation : Extrapolation, optional
    callbacks : sequence of callables
        Called with (iteration, state, info) in the process of the restart; a true value ends it.
    n_jobs : int, optional
        Number of parallel restarts, see :func:`~bsdr_models.inference.parallel.run_tasks`. The
        result does not depend on it.
    on_restart : callable
        Called in this process with the result of each restart.

    Returns
    -------
    FitResult

    Raises
    ------
    FallingBoundError
        If a step lowers the bound beyond rounding.
    FloatingPointError
        If the bound is not finite.
    KeyboardInterrupt
        If interrupted before the first step.
    ValueError
        If a count is not positive.

    Notes
    -----
    A later interrupt (Ctrl-C) ends the fit and keeps the best state; of restarts in worker
    processes, those that had ended.
    """
    if n_restarts < 1 or max_iter < 1:
        raise ValueError(
            f"n_restarts and max_iter must be positive, got {n_restarts=}, {max_iter=}"
        )

    def restart(numbered: tuple[int, np.random.Generator]) -> FitResult[S]:
        index, stream = numbered
        ascent = _Ascent(step=step, max_iter=max_iter, callbacks=callbacks)
        converged = interrupted = False
        try:
            ascent.state = init(stream, index)
            converged = ascent.run(tol, extrapolation)
        except KeyboardInterrupt:
            if not ascent.trace:
                raise
            interrupted = True
        return _result(ascent, converged=converged, interrupted=interrupted)

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


def _result[S](ascent: _Ascent[S], *, converged: bool, interrupted: bool) -> FitResult[S]:
    assert ascent.state is not None
    return FitResult(
        state=ascent.state,
        elbo=np.array([info.elbo for info in ascent.trace]),
        terms={
            name: np.array([info.terms[name] for info in ascent.trace])
            for name in ascent.trace[-1].terms
        },
        converged=converged,
        interrupted=interrupted,
        restarts=(ascent.elbo,),
    )
