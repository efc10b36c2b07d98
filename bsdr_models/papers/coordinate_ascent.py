"""Coordinate ascent on a variational bound: restarts, acceleration, convergence.

For any model with a ``step`` that never lowers the bound. With an extrapolation (SQUAREM [1]_)
every third step starts from an extrapolated point, and is kept only if it raises the exact bound.

References
----------
.. [1] R. Varadhan, C. Roland (2008). Simple and globally convergent methods for accelerating
       the convergence of any EM algorithm. Scandinavian Journal of Statistics 35(2).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from bsdr_models.inference.callbacks import ProgressBar, run_restarts
from bsdr_models.inference.result import Result
from bsdr_models.numerics.arrays import FloatArray

# A relative decrease of the bound by more than this is an error in the model; less can be rounding,
# where a small latent scale makes the row covariance ill-conditioned.
FALL_TOL = 1e-6


@dataclass(frozen=True, slots=True)
class Bound:
    """Terms of the lower bound in nats after a step, by factor name."""

    terms: Mapping[str, float]

    @property
    def elbo(self) -> float:
        """Sum of the terms."""
        return sum(self.terms.values())


class FallingBoundError(RuntimeError):
    """A step lowered the bound."""


type Step[S] = Callable[[S], tuple[S, Bound]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Extrapolation[S]:
    """Conversion of a state to a vector of the values that the next step reads, and back."""

    pack: Callable[[S], FloatArray]
    unpack: Callable[[FloatArray, S], S]


@dataclass(slots=True)
class _Ascent[S]:
    """Progress of one restart."""

    step: Step[S]
    state: S
    max_iter: int
    bar: ProgressBar
    trace: list[Bound] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the limit of iterations is reached."""
        return len(self.trace) >= self.max_iter

    @property
    def elbo(self) -> float:
        return self.trace[-1].elbo if self.trace else -np.inf

    def run(self, tol: float, extrapolation: Extrapolation[S] | None) -> bool:
        """Rounds until convergence (True) or the limit (False)."""
        self.sweep()
        while not self.ended:
            before = self.elbo
            if extrapolation is None:
                self.sweep()
            else:
                self.squarem(extrapolation)
            if not self.ended and self.elbo - before < tol:
                return True
        return False

    def accept(self, state: S, info: Bound) -> None:
        self.state = state
        self.trace.append(info)
        self.bar.update(bound=info.elbo)

    def sweep(self) -> None:
        """One step, which must not lower the bound."""
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
        points = [how.pack(self.state)]
        for _ in range(2):
            self.sweep()
            if self.ended:
                return
            points.append(how.pack(self.state))
        change, second_change = np.diff(points, axis=0)
        curvature = second_change - change
        size = float(np.linalg.norm(curvature))
        if size == 0.0:
            return
        alpha = max(float(np.linalg.norm(change)) / size, 1.0)
        with np.errstate(all="ignore"):
            proposal = points[0] + 2.0 * alpha * change + alpha**2 * curvature
            try:
                state, info = self.step(how.unpack(proposal, self.state))
            except (np.linalg.LinAlgError, FloatingPointError, ValueError):
                return
            better = info.elbo > self.elbo  # terms may be infinite
        if better:
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
    title: str = "",
    progressbar: bool = False,
) -> Result[S]:
    """Maximise the bound from one or several initial states, and keep the best.

    ``init(rng, restart)`` gives an initial state, with a random stream for each restart. A restart
    has converged when a round, of one step or of three with an extrapolation, gains less than
    ``tol`` nats. The ``posterior`` of the result is the last state of the best restart, also after
    an interrupt. FallingBoundError if a step lowers the bound beyond rounding, FloatingPointError
    if it is not finite.
    """
    advice = (
        f"mean field stopped after max_iter={max_iter} iterations before the bound rose by less "
        f"than tol={tol:g} nats; the result is usable, a larger max_iter is more exact"
    )

    def restart(bar: ProgressBar, numbered: tuple[int, np.random.Generator]) -> Result[S]:
        index, stream = numbered
        ascent = _Ascent(step=step, state=init(stream, index), max_iter=max_iter, bar=bar)
        converged = interrupted = False
        try:
            converged = ascent.run(tol, extrapolation)
        except KeyboardInterrupt:
            if not ascent.trace:
                raise
            interrupted = True
        trace = ascent.trace
        return Result(
            posterior=ascent.state,
            trace=np.array([info.elbo for info in trace]),
            terms={name: np.array([i.terms[name] for i in trace]) for name in trace[-1].terms},
            converged=converged,
            interrupted=interrupted,
            advice="" if converged or interrupted else advice,
            restarts=(ascent.elbo,),
        )

    best, results = run_restarts(
        restart,
        list(enumerate(rng.spawn(n_restarts))),
        value=lambda result: result.restarts[0],
        title=title,
        max_iter=max_iter,
        progressbar=progressbar,
    )
    return replace(best, restarts=tuple(result.restarts[0] for result in results))
