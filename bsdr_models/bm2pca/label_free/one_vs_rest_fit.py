r"""Optimisation of `one_vs_rest`: sweeps, joint searches, extrapolation.

A sweep factorises a matrix for each label, and plain sweeps converge slowly if few samples are near
their margin. So before every sweep a joint search finds the best means for fixed covariances,
together with q(weight_precision) and q(slack_scale), from products with X alone. Every third sweep
starts from an extrapolation of the last two (SQUAREM [1]_). All steps raise the bound, by label.

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
from bsdr_models.bm2pca.label_free.one_vs_rest import (
    Data,
    Info,
    OneVsRestState,
    Weights,
    info,
    initial_factors,
    sweep,
    update_classifier_precision,
    update_slack,
)
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.factors import Gamma

# Iterations, relative tolerance and memory of L-BFGS in a joint search. The next sweep changes its
# objective, so higher accuracy is not needed.
_JOINT_ITER, _JOINT_TOL, _JOINT_MEMORY = 100, 1e-7, 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Result of the optimisation.

    elbo
        Bound after each sweep, (n_sweeps,).
    terms
        The last bound by factor name.
    converged
        Whether the bound of every label converged.
    interrupted
        Whether the user stopped the fit; the state is that after the last complete round.
    """

    state: OneVsRestState
    elbo: FloatArray
    terms: Mapping[str, float]
    converged: bool
    interrupted: bool = False


def fit_one_vs_rest(
    data: Data, priors: Priors, *, cost: float, tol: float = 1e-4, max_iter: int = 300
) -> Fit:
    """Fit by rounds of three sweeps, at most ``max_iter`` of them.

    A label has converged when a round gains less than ``tol`` relative to its bound.
    """
    labels = np.arange(data.Y.shape[1])
    state, current = sweep(initial_factors(data, cost), data, priors, cost)
    trace, interrupted = [current], False
    while len(labels) and len(trace) < max_iter:
        try:
            state, found = _round(state, data, priors, cost, labels, max_iter - len(trace))
        except KeyboardInterrupt:
            interrupted = True
            break
        gain, current = found[-1].by_label - current.by_label, found[-1]
        trace += found
        labels = labels[(gain > tol * np.abs(current.by_label))[labels]]
    return Fit(
        state=state,
        elbo=np.array([each.elbo for each in trace]),
        terms=trace[-1].terms,
        converged=not len(labels),
        interrupted=interrupted,
    )


def fit_means(data: Data, priors: Priors, *, cost: float) -> FloatArray:
    """Means of g~ from one joint search, for the covariances of the first sweep, (1 + R, K).

    Labels without missing values share these, so one matrix is factorised for all of them.
    """
    state, _ = sweep(initial_factors(data, cost), data, priors, cost)
    labels = np.arange(data.Y.shape[1])
    return joint_search(state, data, priors, cost, labels=labels).weights.mean


def _round(
    state: OneVsRestState, data: Data, priors: Priors, cost: float, labels: IntArray, left: int
) -> tuple[OneVsRestState, list[Info]]:
    """Two joint searches with a sweep each, and an extrapolated sweep; at most ``left`` sweeps."""
    path, trace = [state], []
    for _ in range(min(2, left)):
        state = joint_search(state, data, priors, cost, labels=labels)
        state, current = sweep(state, data, priors, cost, labels=labels)
        path.append(state)
        trace.append(current)
    if len(trace) < left:
        extrapolated, reached = sweep(_extrapolate(*path), data, priors, cost, labels=labels)
        state = _select_labels(reached.by_label > current.by_label, extrapolated, state)
        trace.append(info(state, data, priors, cost))
    return state, trace


def joint_search(
    state: OneVsRestState, data: Data, priors: Priors, cost: float, *, labels: IntArray
) -> OneVsRestState:
    r"""Optimal means given the covariances of q(g~), with q(nu) and q(lambda) profiled out.

    With :math:`u = 1 - y \mu^\top \tilde a` and :math:`v = \tilde a^\top S \tilde a` the bound is,
    up to a constant,

    .. math::
        -C \sum_n \{ u_n + \sqrt{u_n^2 + v_n} \}
        - (a_\nu + \tfrac{R + 1}{2}) \log \{ b_\nu + \tfrac12 (|\mu|^2 + \operatorname{tr} S) \},

    a smooth function of the mean, maximised by L-BFGS for all labels at once.
    """
    weights, A = state.weights, data.ridge.rows
    Y, labelled = data.Y[:, labels], data.labelled[:, labels]
    variance, trace = weights.fitted_variance[:, labels], weights.trace[labels]
    shape = (A.shape[1], len(labels))
    gamma_shape = priors.weight_shape + 0.5 * A.shape[1]

    def loss(point: FloatArray) -> tuple[float, FloatArray]:
        mean = point.reshape(shape)
        slack = 1.0 - Y * (A @ mean)
        root = np.sqrt(slack**2 + variance)
        rate = priors.weight_rate + 0.5 * (np.sum(mean**2, axis=0) + trace)
        value = cost * np.sum(slack + root, where=labelled) + gamma_shape * np.log(rate).sum()
        gradient = A.T @ (cost * Y * (1.0 + slack / root))
        return float(value), (gamma_shape / rate * mean - gradient).ravel()

    found = minimize(
        loss,
        weights.mean[:, labels].ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": _JOINT_ITER, "ftol": _JOINT_TOL, "maxcor": _JOINT_MEMORY},
    )
    mean, fitted = weights.mean.copy(), weights.fitted.copy()
    mean[:, labels] = found.x.reshape(shape)
    fitted[:, labels] = A @ mean[:, labels]
    state = replace(state, weights=replace(weights, mean=mean, fitted=fitted))
    state = replace(state, weight_precision=update_classifier_precision(state, priors))
    return replace(state, slack=update_slack(state, data, cost))


def _extrapolate(
    initial: OneVsRestState, first: OneVsRestState, second: OneVsRestState
) -> OneVsRestState:
    """SQUAREM extrapolation of precisions and slacks, the only input of a sweep."""
    logs = [
        np.log(np.vstack([state.weight_precision.mean, state.slack]))
        for state in (initial, first, second)
    ]
    change = logs[1] - logs[0]
    curvature = logs[2] - logs[1] - change
    size, length = np.linalg.norm(curvature, axis=0), np.linalg.norm(change, axis=0)
    alpha = np.maximum(np.divide(length, size, out=np.ones_like(size), where=size > 0.0), 1.0)
    # Clipped against overflow for nearly zero curvature.
    end = logs[0] + np.clip(2.0 * alpha * change + alpha**2 * curvature, -20.0, 20.0)
    shape = second.weight_precision.shape
    return replace(
        second,
        weight_precision=Gamma(shape=shape, rate=shape * np.exp(-end[0])),
        slack=np.exp(end[1:]),
    )


def _select_labels(better: BoolArray, new: OneVsRestState, old: OneVsRestState) -> OneVsRestState:
    """Take labels from the new state where it is better, else from the old."""

    def mix[T: (Weights, Gamma)](a: T, b: T) -> T:
        names = [field.name for field in fields(a)]
        return replace(b, **{n: np.where(better, getattr(a, n), getattr(b, n)) for n in names})

    return OneVsRestState(
        weights=mix(new.weights, old.weights),
        weight_precision=mix(new.weight_precision, old.weight_precision),
        slack=np.where(better, new.slack, old.slack),
    )
