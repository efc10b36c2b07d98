r"""The multinomial probit with a lapse rate: log likelihood, gradient, class probabilities.

With latent utilities :math:`t \sim N(\eta, I)`, class k has the largest with probability

.. math::
    P_k = \int \phi(t - \eta_k) \prod_{j \ne k} \Phi(t - \eta_j) \, dt, \qquad
    \frac{\partial P_k}{\partial \eta_j}
        = - \int \phi(t - \eta_k) \phi(t - \eta_j) \prod_{i \ne j, k} \Phi(t - \eta_i) \, dt,

and a label has probability :math:`p_k = (1 - \epsilon) P_k + \epsilon / K`, which allows for label
noise. As :math:`p_k \ge \epsilon / K`, only the absolute error of P matters, and the integral can
be a trapezoidal sum over *fixed* nodes around :math:`\eta_k`, which converges exponentially for
entire integrands and needs no mode.

The nodes are equispaced, and so are the pieces of the polynomial that approximates :math:`\Phi`
(and, by its derivative, :math:`\phi`). For one difference of utilities all nodes then lie at the
same relative position of adjacent pieces, so that the evaluation needs no table look-ups,
exponentials or divisions. Products without one factor are those of the factors before and after it.

The compiler vectorises a loop over nodes only if addresses differ by constants: tables and working
memory are flat, and a class has three rows of nodes in the latter, the product before it, Phi and
phi. A short loop must not have a constant number of nodes either, or it is unrolled before.
"""

import math
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.utils import gen_batches

from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.numerics.compiled import njit

# Nodes -4.7 to 5.65. Outside lie 1.3e-6 of the normal density on the left, where the product of
# the other factors is mostly small as well, and 1e-8 on the right.
STEP = 0.45
FIRST = -4.7
N_NODES = 24
# Pieces of the polynomial per step. With this degree errors are 5e-11 in Phi and 1e-8 in phi.
N_PARTS = 8
_DEGREE = 4
# Classes whose utility is smaller by more than this are skipped: their probability is below 1e-8,
_DECIDED = 8.0
# or, if utilities have single precision, as inside trajectories only, about 2e-5.
_DECIDED_SINGLE = 5.8
# Pieces of all steps, coefficients of a part of them, and working memory of a class.
_N_PIECES = N_NODES + math.ceil(2.0 * _DECIDED / STEP)
_N_COEFFICIENTS = (_DEGREE + 1) * _N_PIECES
_BELOW = N_NODES
_DENSITY = 2 * N_NODES
ROW = 3 * N_NODES
# Values of Phi that are in memory at once.
_BLOCK = 1 << 18
OPTIONS: dict[str, Any] = {
    "cache": True,
    "fastmath": {"contract", "nnan", "ninf", "nsz", "arcp", "reassoc"},
    "error_model": "numpy",
    "nogil": True,
    "no_cfunc_wrapper": True,  # only Python and compiled functions call them
}


def log_likelihood(eta: FloatArray, y: IntArray, lapse: float) -> tuple[FloatArray, FloatArray]:
    """Log probability (S, N) of labels y (N,), and its gradient in finite eta (S, N, K).

    The lapse rate is above 0. Largest observed absolute errors of a probability p, and of p times
    the slope: for 20 or more classes if many are tied for the maximum, for fewer if one is far
    ahead. The error of log p is that of p divided by p >= lapse / K.

    ========  ======  ======  ======  ======
    K         2-10    26      50      100
    ========  ======  ======  ======  ======
    p         4e-7    6e-7    4e-6    2e-5
    p slope   3e-7    7e-6    5e-5    3e-4
    ========  ======  ======  ======  ======
    """
    if not 0 <= y.min(initial=0) <= y.max(initial=0) < eta.shape[2]:
        raise ValueError("a label is none of the classes")  # and would be read beyond the array
    value = np.empty(eta.shape[:2], eta.dtype)
    slope = np.empty(eta.shape, eta.dtype)
    fill_log_likelihood(np.ascontiguousarray(eta), y, lapse, nodes(eta.dtype), value, slope)
    return value, slope


def curvature(eta: FloatArray, y: IntArray, lapse: float) -> tuple[FloatArray, FloatArray]:
    """Gradient (N, K) and Hessian of the log probability of labels y (N,) in finite eta (N, K)."""
    slope, second = log_likelihood(eta[None], y, lapse)[1][0], np.empty((*eta.shape, eta.shape[1]))
    for part in gen_batches(len(eta), max(1, _BLOCK // (eta.shape[1] * N_NODES))):
        second[part] = _hessian(eta[part], y[part], lapse, slope[part])
    return slope, second


def _hessian(eta: FloatArray, y: IntArray, lapse: float, slope: FloatArray) -> FloatArray:
    """Second derivatives (N, K, K), given the first (N, K)."""
    weight, table, _ = nodes(eta.dtype)
    own = np.arange(len(y)), y
    gap = eta[own][:, None] - eta
    near = (gap < _DECIDED) & (gap > -_DECIDED).all(axis=1, keepdims=True)
    near[own] = False
    product, hazard = np.tile(weight, (len(y), 1)), np.zeros((*gap.shape, N_NODES))
    _factors(gap, near, table, product, hazard)
    weighted = hazard * product[:, None]
    second = weighted @ hazard.mT
    first = weighted.sum(axis=2)
    node = FIRST + STEP * np.arange(N_NODES)
    np.einsum("nkk->nk", second)[...] = -(weighted @ node + np.where(near, gap, 0.0) * first)
    share = (1.0 - lapse) / ((1.0 - lapse) * product.sum(axis=1) + lapse / eta.shape[1])
    others = np.where(near, slope, 0.0)
    second = share[:, None, None] * second - others[:, :, None] * others[:, None]
    row = second.sum(axis=2)  # a common shift of all utilities changes nothing
    second[own] = second.mT[own] = -row
    second[(*own, y)] = row.sum(axis=1)
    return second


def mean_probabilities(eta: ArrayLike, lapse: float = 0.0) -> FloatArray:
    """Means over draws of the probabilities of all classes, (M, K), from finite eta (M, S, K).

    In single precision, normalised, by the nodes of the largest utility. Largest observed absolute
    errors: 2e-7 for up to 10 classes, 2e-6 for 26, 6e-5 for 100.
    """
    eta = np.ascontiguousarray(eta, dtype=np.float64)
    out = np.empty((len(eta), eta.shape[2]))
    weight, table, _ = nodes(np.dtype(np.float32))
    below = STEP * ndtr(FIRST + STEP * np.arange(N_NODES)).astype(np.float32)
    _mean_probabilities(eta, lapse, below, weight / below, table, out)
    return out


class Nodes(NamedTuple):
    """Nodes of the integral, and the polynomials of Phi there."""

    weight: FloatArray  # normal density, (Q,)
    table: FloatArray  # coefficients of the pieces, (J, P, I), flat
    far: float  # classes are skipped whose utility is smaller by more than this


@cache
def nodes(dtype: np.dtype) -> Nodes:
    """Nodes for utilities of a precision.

    The piece (j, i) is of x = FIRST - _DECIDED + STEP (i + (j + g + 1/2) / J), |g| <= 1/2.
    """
    node = FIRST + STEP * np.arange(N_NODES)
    weight = np.exp(-0.5 * node**2)
    place = 0.5 * np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    middle = (np.arange(N_PARTS) + 0.5) / N_PARTS + np.arange(_N_PIECES)[:, None]  # (I, J)
    x = FIRST - _DECIDED + STEP * (middle.ravel() + place[:, None] / N_PARTS)
    power = polynomial.polyfit(2.0 * place, ndtr(x), _DEGREE)
    power *= 2.0 ** np.arange(_DEGREE + 1)[:, None]
    by_part = power.reshape(_DEGREE + 1, _N_PIECES, N_PARTS).transpose(2, 0, 1)
    return Nodes(
        weight=(weight / weight.sum()).astype(dtype),
        table=by_part.ravel().astype(dtype),
        far=dtype.type(_DECIDED_SINGLE if dtype == np.float32 else _DECIDED),
    )


@njit(inline="always", **OPTIONS)
def _multiply(gap: float, table: FloatArray, work: FloatArray) -> None:
    """Fill Phi and phi at all nodes shifted by ``gap``, and the product before the next class."""
    at = (gap + _DECIDED) / STEP
    first = int(at)
    at = (at - first) * N_PARTS
    part = int(at)
    g = work.dtype.type(at - part - 0.5)
    density = work.dtype.type(N_PARTS / STEP)
    begin = part * _N_COEFFICIENTS + first
    c = table[begin : begin + _N_COEFFICIENTS]
    for q in range(N_NODES):
        slope = c[4 * _N_PIECES + q]
        value = slope * g + c[3 * _N_PIECES + q]
        slope = slope * g + value
        value = value * g + c[2 * _N_PIECES + q]
        slope = slope * g + value
        value = value * g + c[_N_PIECES + q]
        slope = slope * g + value
        value = value * g + c[q]
        work[_BELOW + q] = value
        work[_DENSITY + q] = slope * density
        work[ROW + q] = work[q] * value


@njit(inline="always", **OPTIONS)
def _divide(work: FloatArray, n_nodes: int) -> float:
    """Integral with phi in place of Phi; Phi becomes the product from this class on."""
    total = work.dtype.type(0.0)
    for q in range(n_nodes):
        after = work[ROW + _BELOW + q]
        total += work[q] * after * work[_DENSITY + q]
        work[_BELOW + q] *= after
    return total


@njit(**OPTIONS)
def fill_log_likelihood(
    eta: FloatArray,
    y: IntArray,
    lapse: float,
    nodes: Nodes,
    value: FloatArray,
    slope: FloatArray,
) -> None:
    """Fill ``value`` (S, N) and ``slope`` (S, N, K)."""
    n_particles, n_samples, k = eta.shape
    work = np.empty((k + 1) * ROW, eta.dtype)
    near = np.empty(k, np.int64)
    for q in range(N_NODES):  # an assignment of slices would take three times as long to compile
        work[q] = nodes.weight[q]
    impossible = math.log(lapse / k)
    certain = math.log(1.0 - lapse + lapse / k)
    for s in range(n_particles):
        for n in range(n_samples):
            own = y[n]
            n_near = 0
            hopeless = False
            least = eta[s, n, own] - nodes.far
            most = eta[s, n, own] + _DECIDED
            # Without branches, which would be mispredicted.
            for j in range(k):
                slope[s, n, j] = 0.0
                near[n_near] = j
                n_near += (eta[s, n, j] > least) & (j != own)
                hopeless |= eta[s, n, j] > most
            if hopeless or n_near == 0:
                value[s, n] = impossible if hopeless else certain
                continue
            for i in range(n_near):
                gap = eta[s, n, own] - eta[s, n, near[i]]
                _multiply(gap, nodes.table, work[i * ROW : (i + 2) * ROW])
            total = work.dtype.type(0.0)
            last = work[n_near * ROW : (n_near + 1) * ROW]
            for q in range(len(nodes.weight)):
                total += last[q]
                last[_BELOW + q] = 1.0
            # The polynomials may be slightly negative far out.
            mixed = (1.0 - lapse) * max(total, 0.0) + lapse / k
            value[s, n] = math.log(mixed)
            for i in range(n_near - 1, -1, -1):
                part = _divide(work[i * ROW : (i + 2) * ROW], len(nodes.weight))
                part *= (1.0 - lapse) / mixed
                slope[s, n, near[i]] = -part
                slope[s, n, own] += part


@njit(**OPTIONS)
def _factors(
    gap: FloatArray, near: BoolArray, table: FloatArray, product: FloatArray, hazard: FloatArray
) -> None:
    """Multiply ``product`` (N, Q) by Phi of near classes, and fill their phi / Phi (N, K, Q)."""
    work = np.empty(2 * ROW, table.dtype)
    for n in range(len(gap)):
        for j in range(gap.shape[1]):
            if near[n, j]:
                _multiply(gap[n, j], table, work)
                for q in range(N_NODES):
                    below = work[_BELOW + q]
                    product[n, q] *= below
                    hazard[n, j, q] = work[_DENSITY + q] / below if below != 0.0 else 0.0


@njit(**OPTIONS)
def _mean_probabilities(
    eta: FloatArray,
    lapse: float,
    below: FloatArray,
    hazard: FloatArray,
    table: FloatArray,
    out: FloatArray,
) -> None:
    """Fill ``out`` (M, K) with means over the draws of eta (M, S, K).

    At the nodes of the largest utility its Phi (Q,) and phi / Phi (Q,) are always the same.
    """
    n_samples, n_draws, k = eta.shape
    work = np.empty((k + 1) * ROW, table.dtype)
    near = np.empty(k, np.int64)
    part = np.empty(k)
    for q in range(N_NODES):
        work[q] = below[q]
    for n in range(n_samples):
        for j in range(k):
            out[n, j] = 0.0
        for s in range(n_draws):
            best = 0
            for j in range(1, k):
                if eta[n, s, j] > eta[n, s, best]:
                    best = j
            n_near = 0
            for j in range(k):
                near[n_near] = j
                n_near += (eta[n, s, best] - eta[n, s, j] < _DECIDED) & (j != best)
            for i in range(n_near):
                gap = eta[n, s, best] - eta[n, s, near[i]]
                _multiply(gap, table, work[i * ROW : (i + 2) * ROW])
            total = work.dtype.type(0.0)
            last = work[n_near * ROW : (n_near + 1) * ROW]
            for q in range(len(below)):
                total += last[q] * hazard[q]
                last[_BELOW + q] = 1.0
            part[n_near] = total
            near[n_near] = best
            for i in range(n_near - 1, -1, -1):
                part[i] = max(_divide(work[i * ROW : (i + 2) * ROW], len(below)), 0.0)
                total += part[i]
            for i in range(n_near + 1):
                out[n, near[i]] += part[i] / total
        for j in range(k):
            out[n, j] = (1.0 - lapse) * out[n, j] / n_draws + lapse / k
