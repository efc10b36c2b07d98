r"""The climb of :mod:`bsdr_models.bm2pca.one_vs_rest`: sweeps, leaps and extrapolation.

A sweep takes a factorisation for each label, and plain sweeps are slow where few rows are near
their margin. Between two sweeps the means therefore go to their optimum for fixed covariances,
together with q(weight_precision) and q(slack_scale) (a leap, of products with the rows only),
and every third sweep starts from a point extrapolated along the last two (SQUAREM [1]_). All of
it raises the one bound, label by label.

References
----------
.. [1] R. Varadhan, C. Roland (2008). Simple and globally convergent methods for accelerating
       the convergence of any EM algorithm. Scandinavian Journal of Statistics 35(2).
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.optimize import minimize

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.one_vs_rest import (
    Data,
    Info,
    State,
    Weights,
    info,
    init,
    step,
    update_slack,
    update_weight_precision,
)
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.factors import Gamma

# Iterations of a leap at most, the share of the objective whose gain ends it, and the pairs of
# gradients it remembers. The next sweep moves its target, so that more would be wasted.
_JOINT_ITER, _JOINT_TOL, _JOINT_MEMORY = 100, 1e-7, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Where the climb ended.

    state
        The last state.
    elbo
        Bound after each sweep, (n_sweeps,).
    terms
        The last bound by factor name.
    converged
        Whether the bound of every label settled.
    interrupted
        Whether the user stopped the climb; the state is that after the last whole round.
    """

    state: State
    elbo: FloatArray
    terms: Mapping[str, float]
    converged: bool
    interrupted: bool = False


def fit(data: Data, priors: Priors, *, cost: float, tol: float = 1e-5, max_iter: int = 300) -> Fit:
    """Climb until a round of three sweeps gains no label more than ``tol`` of its bound.

    Parameters
    ----------
    data : Data
    priors : Priors
        Only its ``weight_shape`` and ``weight_rate`` are used.
    cost : float
        C.
    tol : float
        Relative gain below which a label is left alone; what then remains to be gained is about
        as much.
    max_iter : int
        Limit of sweeps.
    """
    labels = np.arange(data.Y.shape[1])
    state, now = step(init(data, cost), data, priors, cost)
    trace, interrupted = [now], False
    while len(labels) and len(trace) < max_iter:
        try:
            state, found = _round(state, data, priors, cost, labels, max_iter - len(trace))
        except KeyboardInterrupt:
            interrupted = True
            break
        gain, now = found[-1].by_label - now.by_label, found[-1]
        trace += found
        labels = labels[(gain > tol * np.abs(now.by_label))[labels]]
    return Fit(
        state=state,
        elbo=np.array([each.elbo for each in trace]),
        terms=trace[-1].terms,
        converged=not len(labels),
        interrupted=interrupted,
    )


def _round(
    state: State, data: Data, priors: Priors, cost: float, labels: IntArray, left: int
) -> tuple[State, list[Info]]:
    """Two leaps, each with a sweep, and a sweep from an extrapolated point; at most ``left``."""
    path, trace = [state], []
    for _ in range(min(2, left)):
        state = joint_search(state, data, priors, cost, labels=labels)
        state, now = step(state, data, priors, cost, labels=labels)
        path.append(state)
        trace.append(now)
    if len(trace) < left:
        far, there = step(_extrapolate(*path), data, priors, cost, labels=labels)
        state = _choose(there.by_label > now.by_label, far, state)
        trace.append(info(state, data, priors, cost))
    return state, trace


def joint_search(
    state: State, data: Data, priors: Priors, cost: float, *, labels: IntArray
) -> State:
    r"""Best means for fixed covariances of q(g~), with q(nu) and q(lambda) at their optima.

    With :math:`u = 1 - y \mu^\top \tilde a` and :math:`v = \tilde a^\top S \tilde a` the bound is,
    up to a constant,

    .. math::
        -C \sum_n \{ u_n + \sqrt{u_n^2 + v_n} \}
        - (a_\nu + \tfrac{R + 1}{2}) \log \{ b_\nu + \tfrac12 (|\mu|^2 + \operatorname{tr} S) \},

    a smooth function of the mean, which L-BFGS climbs for all labels at once.
    """
    weights, rows = state.weights, data.ridge.rows
    Y, labelled = data.Y[:, labels], data.labelled[:, labels]
    variance, trace = weights.fitted_variance[:, labels], weights.trace[labels]
    shape = (rows.shape[1], len(labels))
    gamma_shape = priors.weight_shape + 0.5 * rows.shape[1]

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        mean = point.reshape(shape)
        gap = 1.0 - Y * (rows @ mean)
        width = np.sqrt(gap**2 + variance)
        rate = priors.weight_rate + 0.5 * (np.sum(mean**2, axis=0) + trace)
        value = cost * np.sum(gap + width, where=labelled) + gamma_shape * np.log(rate).sum()
        pull = rows.T @ (cost * Y * (1.0 + gap / width))
        return float(value), (gamma_shape / rate * mean - pull).ravel()

    found = minimize(
        loss,
        weights.mean[:, labels].ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _JOINT_ITER, "ftol": _JOINT_TOL, "maxcor": _JOINT_MEMORY},
    )
    mean, fitted = weights.mean.copy(), weights.fitted.copy()
    mean[:, labels] = found.x.reshape(shape)
    fitted[:, labels] = rows @ mean[:, labels]
    state = replace(state, weights=replace(weights, mean=mean, fitted=fitted))
    state = replace(state, weight_precision=update_weight_precision(state, priors))
    return replace(state, slack=update_slack(state, data, cost))


def _extrapolate(start: State, first: State, second: State) -> State:
    """Precisions and slacks, which are all that a sweep reads, further along the last two steps."""
    points = [
        np.log(np.vstack([state.weight_precision.mean, state.slack]))
        for state in (start, first, second)
    ]
    change = points[1] - points[0]
    curvature = points[2] - points[1] - change
    size, length = np.linalg.norm(curvature, axis=0), np.linalg.norm(change, axis=0)
    alpha = np.maximum(np.divide(length, size, out=np.ones_like(size), where=size > 0.0), 1.0)
    # Factors beyond e**20 are no use, and would overflow where a direction hardly curves.
    end = points[0] + np.clip(2.0 * alpha * change + alpha**2 * curvature, -20.0, 20.0)
    shape = second.weight_precision.shape
    return replace(
        second,
        weight_precision=Gamma(shape=shape, rate=shape * np.exp(-end[0])),
        slack=np.exp(end[1:]),
    )


def _choose(better: BoolArray, new: State, old: State) -> State:
    """The labels of one state where they are better, of the other elsewhere."""

    def mix[T: (Weights, Gamma)](a: T, b: T) -> T:
        names = [field.name for field in fields(a)]
        return replace(b, **{n: np.where(better, getattr(a, n), getattr(b, n)) for n in names})

    return State(
        weights=mix(new.weights, old.weights),
        weight_precision=mix(new.weight_precision, old.weight_precision),
        slack=np.where(better, new.slack, old.slack),
    )
