"""Coordinate ascent on a variational bound: restarts, acceleration, convergence.

For any model with a ``step`` that never lowers the bound. With an extrapolation (SQUAREM)
every third step starts from an extrapolated point, and is kept only if it raises the exact bound.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bsdr_models.inference.result import Result
from bsdr_models.inference.tasks import ProgressBar, run_restarts
from bsdr_models.numerics.arrays import FloatArray

# A relative decrease of the bound by more than this is an error in the model; less can be rounding,
# where a small latent scale makes the row covariance ill-conditioned.
FALL_TOL = 1e-6
# Rounds whose gain tells convergence: fits to Iris and Wine by the papers' priors then end within
# .01 nats of a long run. A single round may gain nothing on a saddle, or while its extrapolations
# are rejected.
N_ROUNDS = 50
# Rejected extrapolations in a row after which shorter ones are tried, each by this factor.
PATIENCE = 5
SHORTER = 4.0


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
    """Progress from one initial state."""

    step: Step[S]
    state: S
    max_iter: int
    bar: ProgressBar
    trace: list[Bound] = field(default_factory=list)
    # Rejected extrapolations in a row, and the longest that is tried after them.
    n_rejected: int = 0
    longest: float = np.inf

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
        ends = deque([self.elbo], maxlen=1 + N_ROUNDS)
        while not self.ended:
            if extrapolation is None:
                self.sweep()
            else:
                self.squarem(extrapolation)
            ends.append(self.elbo)
            if not self.ended and len(ends) > N_ROUNDS and ends[-1] - ends[0] < tol:
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
        alpha = min(max(float(np.linalg.norm(change)) / size, 1.0), self.longest)
        proposal = points[0] + 2.0 * alpha * change + alpha**2 * curvature
        if self.try_from(how.unpack, proposal):
            self.n_rejected = 0
            self.longest = np.inf
        else:
            self.n_rejected += 1
            if self.n_rejected >= PATIENCE:
                self.longest = max(alpha / SHORTER, 1.0)

    def try_from(self, unpack: Callable[[FloatArray, S], S], proposal: FloatArray) -> bool:
        """Whether a sweep from a proposal raises the bound, which then is accepted."""
        with np.errstate(all="ignore"):
            try:
                state, info = self.step(unpack(proposal, self.state))
            except (np.linalg.LinAlgError, FloatingPointError, ValueError):
                return False
            better = info.elbo > self.elbo  # terms may be infinite
        if better:
            self.accept(state, info)
        return better


def maximise[S](
    init: Callable[..., S] | Sequence[Callable[..., S]],
    step: Step[S],
    *,
    rng: np.random.Generator,
    extrapolation: Extrapolation[S] | None = None,
    max_iter: int = 5000,
    tol: float = 3e-3,
    progressbar: bool = False,
) -> Result[S]:
    """Maximise the bound of mean field by coordinate ascent.

    Parameters
    ----------
    init : callable, or sequence of callables
        ``init(rng=rng)`` returns an initial state. Of several, the best result is kept.
    step : callable
        ``step(state)`` returns the next state and its bound, with ``elbo`` in nats and ``terms`` by
        name, such as a :class:`Bound`.
    rng : numpy.random.Generator
        Source of a random stream for each initial state.
    extrapolation : Extrapolation, optional
        State as a vector and back, for the acceleration of [1]_.
    max_iter : int, default=5000
        Most steps from an initial state.
    tol : float, default=3e-3
        A round is one step, or two or three with an extrapolation. It ends when the last 50 rounds
        gained less than this many nats.
    progressbar : bool, default=False
        Whether to show progress.

    Returns
    -------
    Result
        ``posterior`` is the last state of the best start, also after an interrupt, ``trace`` the
        bound after each step, ``terms`` its terms, ``converged`` whether it ended by ``tol``, and
        ``restarts`` the bound of each start.

    Raises
    ------
    FallingBoundError
        If a step lowers the bound by more than rounding.
    FloatingPointError
        If the bound is not finite.

    See Also
    --------
    sample : the driver of Gibbs sampling.

    References
    ----------
    .. [1] R. Varadhan, C. Roland (2008). Simple and globally convergent methods for accelerating
           the convergence of any EM algorithm. Scandinavian Journal of Statistics 35(2).

    Examples
    --------
    >>> from functools import partial
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from bsdr_models import papers
    >>> from bsdr_models.papers.bsdr import PAPER, mean_field
    >>> X, y = load_iris(return_X_y=True)
    >>> data = mean_field.make_data(scale(X), y)
    >>> found = papers.maximise(
    ...     partial(mean_field.init, data, PAPER, n_components=2),
    ...     partial(mean_field.step, data=data, priors=PAPER),
    ...     extrapolation=mean_field.extrapolation(data),
    ...     rng=np.random.default_rng(0),
    ... )
    >>> bool(found.converged and found.trace[-1] > -86)
    True
    """
    starts = [init] if callable(init) else list(init)
    advice = (
        f"mean field stopped after max_iter={max_iter} iterations before {N_ROUNDS} rounds raised "
        f"the bound by less than tol={tol:g} nats; the result is usable, a larger max_iter is more "
        "exact"
    )

    def restart(bar: ProgressBar, start: tuple[Callable[..., S], np.random.Generator]) -> Result[S]:
        make, stream = start
        ascent = _Ascent(step=step, state=make(rng=stream), max_iter=max_iter, bar=bar)
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
        list(zip(starts, rng.spawn(len(starts)), strict=True)),
        value=lambda result: result.restarts[0],
        title="mean field",
        max_iter=max_iter,
        progressbar=progressbar,
    )
    return replace(best, restarts=tuple(result.restarts[0] for result in results))
