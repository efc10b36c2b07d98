r"""Criteria of class separation in the latent space: the discriminative prior.

With scatter matrices of the :math:`N_l` labelled samples within classes, between their means, and
in total, :math:`S_t = S_b + S_w`, the criteria J are

=============== ============================================ ==================
name            J                                            in the paper
=============== ============================================ ==================
trace_ratio     :math:`tr(S_b^{-1} S_w)`                     eq. (13)
inverse_trace   :math:`1 / tr(S_w^{-1} S_b)`                 eq. (12)
total           :math:`tr(S_t^{-1} S_w)`                     -
mcml            :math:`\min_s` KL divergence [1]_            -
=============== ============================================ ==================

All but mcml are invariant under :math:`X \to XQ + 1b^\top` for every invertible Q.

References
----------
.. [1] A. Globerson, S. Roweis (2005). Metric learning by collapsing classes. Advances in Neural
       Information Processing Systems 18.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from bsdr_models.numerics.arrays import FloatArray, IntArray
from bsdr_models.numerics.kernels import squared_distances

# A matrix is singular if an eigenvalue is below this share of the largest.
_SINGULAR = 1e-12
# Bounds of log s, beyond which the softmax is uniform or selects the nearest sample.
_LOG_SCALE = (float(np.log(1e-3)), float(np.log(1e4)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Criterion:
    """A criterion by its name, for given labels: latent (N, R) -> (J, dJ/dlatent).

    ``order`` (N_l,) are the labelled samples, sorted by class, and ``counts`` (C,) the numbers of
    samples of the classes that are present.
    """

    name: str
    order: IntArray
    counts: IntArray

    def __call__(self, latent: FloatArray) -> tuple[float, FloatArray]:
        """J >= 0 and its gradient (N, R), which is 0 for unlabelled samples.

        A LinAlgError says that J is not defined for these latent coordinates.
        """
        X = latent[self.order]
        X = X - X.mean(axis=0)
        gradient = np.zeros(latent.shape)
        if self.name == "mcml":
            value, gradient[self.order] = _mcml(X, self.counts)
        else:
            value, gradient[self.order] = _of_scatter(self.name, X, self.counts)
        return value, gradient


def _of_scatter(name: str, X: FloatArray, counts: IntArray) -> tuple[float, FloatArray]:
    r"""A criterion of scatter matrices and its gradient, at centred coordinates (N_l, R).

    With :math:`V^\top S_b V = diag(l)`, :math:`V^\top S_t V = I` and J a function of l with
    derivatives f',

    .. math::
        \frac{dJ}{dX} = \frac{2}{N_l} \big[ (BX)\, V diag(f'(1 - l)) V^\top
            - (WX)\, V diag(f'\, l) V^\top \big] .
    """
    starts = np.cumsum(counts) - counts
    means = np.add.reduceat(X, starts, axis=0) / counts[:, None]
    BX = np.repeat(means, counts, axis=0)
    WX = X - BX
    V, w, b = _axes(X, WX, BX)  # (R, R), (R,), (R,), with w + b = 1
    if name == "trace_ratio" and b[0] < _SINGULAR:
        raise np.linalg.LinAlgError("between-class scatter of the latent coordinates is singular")
    value, by_b = _combine(name, w, b)
    turned = (BX @ V) * (by_b * w) - (WX @ V) * (by_b * b)
    return value, (2.0 / len(X)) * turned @ V.T


def _axes(
    X: FloatArray, WX: FloatArray, BX: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Axes V (R, R) that diagonalise S_w and S_b, and the diagonals of both.

    WX and BX (N_l, R) are such that N_l S_w = X' W X and N_l S_b = X' B X.
    """
    n = len(X)
    S_w = X.T @ WX / n
    S_b = X.T @ BX / n
    S_t = S_w + S_b
    sd = np.sqrt(np.diagonal(S_t))
    if not (np.isfinite(sd).all() and (sd > 0.0).all()):
        raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
    scale = np.outer(sd, sd)  # makes the test for singularity independent of units
    size, axes = np.linalg.eigh(S_t / scale)
    if size[0] < _SINGULAR:
        raise np.linalg.LinAlgError("total scatter of the latent coordinates is singular")
    white = axes / np.sqrt(size)
    b, V = np.linalg.eigh(white.T @ (S_b / scale) @ white)
    V = (white @ V) / sd[:, None]
    # 1 - b would lose precision for a class that has nearly collapsed to a point.
    within = WX @ V
    w = np.einsum("nr,nr->r", within, within) / n
    return V, w, b


def _combine(name: str, w: FloatArray, b: FloatArray) -> tuple[float, FloatArray]:
    """J of eigenvalues w of S_t^-1 S_w and b of S_t^-1 S_b, and its derivatives in b = 1 - w."""
    if name == "total":
        return float(w.sum()), -np.ones(len(b))
    if name != "inverse_trace":
        return float((w / b).sum()), -1.0 / b**2
    smallest = w.min()  # J = w_min / sum(b w_min / w), also valid for w_min = 0
    share = np.divide(smallest, w, out=np.ones(len(w)), where=w > smallest)
    total = float(b @ share)
    return float(smallest) / total, -((share / total) ** 2)


def _mcml(X: FloatArray, counts: IntArray) -> tuple[float, FloatArray]:
    r"""Criterion of maximally collapsing metric learning [1]_ and its gradient, at (N_l, R).

    With :math:`d_{ij} = |x_i - x_j|^2 / m`, m the mean of :math:`|x_i|^2`, it compares pairs,

    .. math::
        p_s(j | i) \propto e^{-s d_{ij}}, \quad j \ne i, \qquad
        p_0(j | i) = \frac{[y_i = y_j]}{N_{y_i} - 1}, \qquad
        J = \min_s \tfrac{1}{n} \sum_i KL(p_0(\cdot | i) \,\|\, p_s(\cdot | i)),

    over the n samples whose class has another one. The gradient is that at a fixed s,
    :math:`dJ / dd_{ij} = s (p_0 - p_s)(j | i) / n`.
    """
    peak = float(np.abs(X).max())
    if not (np.isfinite(peak) and peak > 0.0):
        raise np.linalg.LinAlgError("the latent coordinates are all equal or not finite")
    size = peak * float(np.sqrt(np.mean(np.square(X / peak).sum(axis=1))))  # sqrt(m)
    label = np.repeat(np.arange(len(counts)), counts)
    others = counts[label] - 1.0
    rows = others > 0.0
    Z = X / size
    n = int(rows.sum())
    if n == 0:
        return 0.0, np.zeros(X.shape)
    own = np.eye(len(Z), dtype=np.bool_)[rows]
    target = np.equal.outer(label[rows], label) / others[rows, None]  # (n, N_l)
    target[own] = 0.0
    distance = squared_distances(Z)[rows]
    # The divergence does not change if a number is subtracted from a row.
    distance -= np.where(own, np.inf, distance).min(axis=1, keepdims=True)
    distance[own] = 0.0
    within = float(np.vdot(target, distance))

    def softmax(log_scale: float) -> tuple[FloatArray, FloatArray]:
        p = np.exp(-np.exp(log_scale) * distance)
        p[own] = 0.0
        total = p.sum(axis=1, keepdims=True)
        return p / total, np.log(total)

    def derivative(log_scale: float) -> float:
        """Derivative of n J in s, which increases."""
        return within - float(np.vdot(softmax(log_scale)[0], distance))

    low, high = _LOG_SCALE
    if derivative(low) >= 0.0:
        log_scale = low
    elif derivative(high) <= 0.0:
        log_scale = high
    else:
        log_scale = brentq(derivative, low, high, xtol=1e-12)
    p, log_total = softmax(log_scale)
    scale = float(np.exp(log_scale))
    value = (scale * within + float(log_total.sum() - np.log(others[rows]).sum())) / n
    W = np.zeros((len(Z), len(Z)))
    W[rows] = target - p
    W += W.T
    gradient = (2.0 * scale / n) * (W.sum(axis=1)[:, None] * Z - W @ Z)
    gradient -= Z * (np.vdot(Z, gradient) / len(Z))  # of a function that has no scale
    return max(value, 0.0), gradient / size


def make_criterion(name: str, y_index: IntArray) -> Criterion:
    """The named criterion for the classes (N,) that have samples, -1 without a label."""
    labelled = np.flatnonzero(y_index >= 0)
    order = labelled[np.argsort(y_index[labelled], kind="stable")]
    present, counts = np.unique(y_index[order], return_counts=True)
    if len(present) < 2:
        raise ValueError(f"a criterion needs samples of at least two classes, got {len(present)}")
    return Criterion(name=name, order=order, counts=counts)


def class_centroids(values: FloatArray, y_index: IntArray) -> FloatArray:
    """Means (C, D) of the samples of every class (N,) that has some; -1 is none."""
    labels = np.unique(y_index[y_index >= 0])
    return np.stack([values[y_index == label].mean(axis=0) for label in labels])


def choose_criterion(name: str, n_components: int, n_classes: int, n_labelled: int) -> str:
    """The paper's criterion for fewer components than classes, else ``"total"``, if "auto".

    A ValueError says that there are too many components, for the labelled samples or the given
    criterion.
    """
    if n_components >= n_labelled:
        raise ValueError(
            f"n_components={n_components} is too large for {n_labelled} labelled samples: "
            f"{n_labelled - 1} at most"
        )
    few = n_components <= n_classes - 1
    if name == "auto":
        return "trace_ratio" if few else "total"
    if name in ("trace_ratio", "inverse_trace") and not few:
        raise ValueError(
            f"criterion={name!r} needs n_components <= {n_classes - 1}, one less than the number "
            f"of classes, got {n_components}; criterion='total' has no such limit"
        )
    return name
