r"""One max-margin classifier for each label in the within-class metric, by mean field.

The latent coordinates of a sample are its metric coordinates a_n
(`within_class_metric`), all R of them. With :math:`\tilde a = [1; a]` and
:math:`\tilde g_c = [e_c; g_c]`,

.. math::
    \tilde g_c \sim N(0, I/\nu_c), \qquad \nu_c \sim Ga(a_\nu, b_\nu), \qquad
    \phi_{nc} = e^{-2C \max(0,\, 1 - y_{nc} f_{nc})}, \qquad f_{nc} = \tilde g_c^\top \tilde a_n,

and given the paper's slack scales lambda every factor of
q(weights) q(weight_precision) q(slack_scale) is conjugate. Labels are independent problems. Every
``update_*`` returns the optimal factor with the others held fixed; ``elbo_terms`` is the exact
bound given the metric, by label. No (1 + R) x (1 + R) covariance of q(weights) is stored.

References
----------
.. [1] C. Du, S. Zhe, F. Zhuang, Y. Qi, Q. He, Z. Shi (2015). Bayesian maximum margin principal
       component analysis. AAAI.
.. [2] N. G. Polson, S. L. Scott (2011). Data augmentation for support vector machines. Bayesian
       Analysis 6(1).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import digamma, gammaln

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.label_free.weighted_ridge import WeightedRidge
from bsdr_models.bm2pca.priors import Priors
from bsdr_models.numerics.factors import LOG_2PI, Gamma


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """Ridge problems of a~ = [1; a], (N, 1 + R), and signs Y (N, K), 0 without a label."""

    ridge: WeightedRidge
    Y: FloatArray

    @property
    def labelled(self) -> BoolArray:
        """Mask of the labels, (N, K)."""
        return self.Y != 0.0


def make_label_data(A: FloatArray, Y: FloatArray) -> Data:
    """Data of metric coordinates (N, R) and signs (N, K).

    Raise a ValueError if A is an operator, because a classifier needs R x R matrices.
    """
    if not isinstance(A, np.ndarray):
        raise ValueError(
            f"one classifier for each label cannot be learned from {A.shape[0]} samples in "
            f"{A.shape[1]} coordinates; a shared subspace can"
        )
    return Data(ridge=WeightedRidge(rows=with_one(A)), Y=Y)


def with_one(A: FloatArray) -> FloatArray:
    """a~ = [1; a], (N, 1 + R)."""
    return np.column_stack([np.ones(len(A)), A])


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """q(g~_c) = N(mu_c, S_c) with S_c = (p_c I + A~' diag(h_c) A~)^-1.

    mean
        mu, (1 + R, K). Row 0 is the bias.
    prior_precision
        p, (K,): E[nu] of the last update.
    row_precision
        h, (N, K): C**2 E[1/lambda] of the last update.
    trace
        tr S_c, (K,).
    log_det
        log |S_c|, (K,).
    fitted
        a~'mu, (N, K).
    fitted_variance
        a~'S a~, (N, K).
    """

    mean: FloatArray
    prior_precision: FloatArray
    row_precision: FloatArray
    trace: FloatArray
    log_det: FloatArray
    fitted: FloatArray
    fitted_variance: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class OneVsRestState:
    """All factors of q. N samples, R coordinates, K labels.

    weights
        g~ = [e; g].
    weight_precision
        nu, Gammas (K,).
    slack
        sqrt(chi), (N, K), of q(lambda) = GIG(1/2, 1, chi): E[1/lambda] = 1 / sqrt(chi). One
        without a label.
    """

    weights: Weights
    weight_precision: Gamma
    slack: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Lower bound in nats after the step, its terms by factor name, and by label, (K,)."""

    elbo: float
    terms: Mapping[str, float]
    by_label: FloatArray


def initial_factors(data: Data, cost: float) -> OneVsRestState:
    """Initial state with zero class scores."""
    (n, p), k = data.ridge.rows.shape, data.Y.shape[1]
    weights = Weights(
        mean=np.zeros((p, k)),
        prior_precision=np.ones(k),
        row_precision=np.zeros((n, k)),
        trace=np.full(k, float(p)),
        log_det=np.zeros(k),
        fitted=np.zeros((n, k)),
        fitted_variance=np.zeros((n, k)),
    )
    return OneVsRestState(
        weights=weights,
        weight_precision=Gamma(shape=np.ones(k), rate=np.ones(k)),
        slack=np.where(data.labelled, cost, 1.0),
    )


def update_classifier_weights(
    state: OneVsRestState, data: Data, cost: float, *, labels: IntArray | None = None
) -> Weights:
    r"""Optimal q(g~) of the given ``labels`` (J,), or of all.

    .. math::
        S_c = (E[\nu_c] I + C^2 \sum_n w_{nc} \tilde a_n \tilde a_n^\top)^{-1}, \qquad
        \mu_c = S_c \sum_n C (1 + C w_{nc}) y_{nc} \tilde a_n, \qquad w = E[1/\lambda]
    """
    old = state.weights
    labels = np.arange(data.Y.shape[1]) if labels is None else labels
    precision = old.prior_precision.copy()
    precision[labels] = state.weight_precision.mean[labels]
    h = old.row_precision.copy()
    h[:, labels] = np.where(data.labelled, cost**2 / state.slack, 0.0)[:, labels]
    linear = cost * (1.0 + cost / state.slack) * data.Y
    mean, variance = old.mean.copy(), old.fitted_variance.copy()
    trace, log_det = old.trace.copy(), old.log_det.copy()
    fitted = old.fitted.copy()
    for alike in _same_covariance(precision, h, labels):
        c = alike[0]
        ridge = data.ridge.solve(precision[c], h[:, c], linear[:, alike])
        mean[:, alike], variance[:, alike] = ridge.mean, ridge.row_variance[:, None]
        trace[alike], log_det[alike] = ridge.trace, ridge.log_det
    fitted[:, labels] = data.ridge.rows @ mean[:, labels]
    return Weights(
        mean=mean,
        prior_precision=precision,
        row_precision=h,
        trace=trace,
        log_det=log_det,
        fitted=fitted,
        fitted_variance=variance,
    )


def _same_covariance(precision: FloatArray, h: FloatArray, labels: IntArray) -> list[IntArray]:
    """The labels in groups of equal covariance, such as all of them in the first sweep."""
    groups: dict[bytes, list[int]] = {}
    for c in labels:
        groups.setdefault(np.append(h[:, c], precision[c]).tobytes(), []).append(int(c))
    return [np.array(group) for group in groups.values()]


def update_classifier_precision(state: OneVsRestState, priors: Priors) -> Gamma:
    """Optimal q(nu): Ga(a_nu + (R + 1)/2, b_nu + E|g~|**2 / 2)."""
    square = _mean_square(state.weights)
    shape = np.full_like(square, priors.weight_shape + 0.5 * len(state.weights.mean))
    return Gamma(shape=shape, rate=priors.weight_rate + 0.5 * square)


def _mean_square(weights: Weights) -> FloatArray:
    """E|g~_c|**2, (K,)."""
    return np.sum(weights.mean**2, axis=0) + weights.trace


def update_slack(state: OneVsRestState, data: Data, cost: float) -> FloatArray:
    """Optimal q(lambda): chi = C**2 E[(1 - y f)**2]; its square root, one without a label."""
    return np.where(data.labelled, cost * np.sqrt(_expected_square(state.weights, data)), 1.0)


def _expected_square(weights: Weights, data: Data) -> FloatArray:
    """E[(1 - y f)**2], (N, K)."""
    return (1.0 - data.Y * weights.fitted) ** 2 + weights.fitted_variance


def sweep(
    state: OneVsRestState,
    data: Data,
    priors: Priors,
    cost: float,
    *,
    labels: IntArray | None = None,
) -> tuple[OneVsRestState, Info]:
    """One sweep of coordinate ascent, which lowers no label's bound; the input is unchanged."""
    state = replace(state, weights=update_classifier_weights(state, data, cost, labels=labels))
    state = replace(state, weight_precision=update_classifier_precision(state, priors))
    state = replace(state, slack=update_slack(state, data, cost))
    return state, info(state, data, priors, cost)


def info(state: OneVsRestState, data: Data, priors: Priors, cost: float) -> Info:
    """The exact bound at any state."""
    terms = elbo_terms(state, data, priors, cost)
    by_label = sum(terms.values(), np.zeros(data.Y.shape[1]))
    return Info(
        elbo=float(by_label.sum()),
        terms={name: float(term.sum()) for name, term in terms.items()},
        by_label=by_label,
    )


def elbo_terms(
    state: OneVsRestState, data: Data, priors: Priors, cost: float
) -> dict[str, FloatArray]:
    r"""Terms of the bound given the metric, by factor name and label, each (K,).

    The labels and q(lambda) share a term, in which E[log lambda] cancels: with s = sqrt(chi),

    .. math::
        \sum_n \{ -C (1 - y_n E[f_n]) - \tfrac12 (C^2 E[(1 - y_n f_n)^2] / s_n + s_n) \} .
    """
    weights, nu = state.weights, state.weight_precision
    size = len(weights.mean)
    margin = -cost * (1.0 - data.Y * weights.fitted)
    margin = margin - 0.5 * (cost**2 * _expected_square(weights, data) / state.slack + state.slack)
    prior = 0.5 * (size * (nu.mean_log - LOG_2PI) - nu.mean * _mean_square(weights))
    entropy = 0.5 * (size * (LOG_2PI + 1.0) + weights.log_det)
    return {
        "labels": np.where(data.labelled, margin, 0.0).sum(axis=0),
        "weights": prior + entropy,
        "weight_precision": _gamma_term(nu, priors.weight_shape, priors.weight_rate),
    }


def _gamma_term(q: Gamma, shape: float, rate: float) -> FloatArray:
    """E[log Gamma(x; shape, rate)] plus the entropy of q(x), elementwise."""
    prior = (shape - 1.0) * q.mean_log - rate * q.mean + shape * np.log(rate) - gammaln(shape)
    a = q.shape
    return prior + a - np.log(q.rate) + gammaln(a) + (1.0 - a) * digamma(a)


def predict(
    state: OneVsRestState, data: Data, A: FloatArray, outside: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Mean and variance of the class scores of new samples under q, each (M, K).

    .. math::
        E[f] = \mu_c^\top \tilde a, \qquad
        \operatorname{var} f = \tilde a^\top S_c \tilde a + |a_\perp|^2 / E[\nu_c]

    A is (M, R); ``outside`` (M,) is the squared metric length orthogonal to the row space of the
    training samples, where weights keep their prior.
    """
    weights, rows = state.weights, with_one(A)
    variance = np.multiply.outer(outside, 1.0 / weights.prior_precision)
    for c, precision in enumerate(weights.prior_precision):
        variance[:, c] += data.ridge.variance(rows, precision, weights.row_precision[:, c])
    return rows @ weights.mean, variance
