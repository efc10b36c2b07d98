r"""Transductive learning: pseudo-labels of unlabelled samples for the recommended model.

Class probabilities are those of the mixture below, at the temperature that the labelled samples,
each given all others, have (:mod:`~bsdr_models.estimators.calibration`). Unlabelled samples of
nearly certain class are used as labelled ones by the metric and the hinge, through ``shares`` and
``signs``, if they improve the log score of held-out labelled samples by more than its standard
error.

The model is a mixture of normal classes with flat priors of their means and a common covariance
:math:`\Psi \sim IW(D + 1, \kappa I)`, where kappa has the largest evidence. With means and
covariance integrated out, the class of a sample given those of all others has in closed form, up to
terms common to all classes,

.. math::
    \log p(x_n \mid y_n = c, \text{rest}) = -\tfrac{D}{2} \log(1 + 1/N_c)
        - \tfrac{\nu + 1}{2} \log\Big(1 + \frac{(x_n - m_c)^\top (\kappa I + S)^{-1} (x_n - m_c)}
        {1 + 1/N_c}\Big),

where the counts N_c, class means m_c, within-class scatter S and its degrees of freedom nu are
those of the *other* samples: for D >> N a sample included in them is nearest to its own previous
class, and responsibilities never change. D is the rank of X, not the number of features.

Responsibilities are found by damped fixed-point iteration (zeroth-order mean field of the collapsed
mixture [1]_), which has no bound. The mixture alone favours few wide classes, so the expected size
of a class is capped at its share of the samples, rounded up; the dual variables of these
constraints minimise a convex function [2]_.

References
----------
.. [1] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for topic
       models. UAI.
.. [2] K. Ganchev, J. Graca, J. Gillenwater, B. Taskar (2010). Posterior regularization for
       structured latent variable models. JMLR 11.
"""

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq, minimize
from scipy.special import log_softmax, softmax

from bsdr_models.bm2pca.posterior import link_of
from bsdr_models.estimators.calibration import Calibration, Likelihoods, TemperaturePrior
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

# Axes with a smaller sum of squares, relative to the largest, are left out: they are below the
# precision of X X'.
RANK_TOL = 1e-12
# Smallest probability of a nearly certain class.
CERTAIN = 0.95
# Prior of log T of the mixture, whose classes are not normal.
LOG_T = TemperaturePrior(mean=0.5, sd=1.0)
LINK = link_of(exclusive=True, lapse=0.0)
# Fixed-point iterations in each fold.
FOLD_ITER = 10
# Mean total variation of a change of responsibilities at which to stop.
TOL = 1e-3
# Most fixed-point iterations.
MAX_ITER = 50
# Pseudo-count of each class in the expected class shares of unlabelled samples.
EVEN_SAMPLES = 5.0
# Lower limit of class counts.
_NO_COUNT = 1e-6
# Numbers per block of (samples, K, K) arrays.
_BLOCK = 2**22


def fit_responsibilities(
    X: FloatArray, Y: FloatArray, fold: IntArray
) -> tuple[FloatArray, FloatArray | None]:
    """Signs with those of unlabelled samples that are used, (N, K), and class probabilities.

    Y (N, K) holds the signs of exclusive classes of complete samples X (N, D): one +1 for a
    labelled sample, or one column of signs for two classes; zeros without a label. Folds (N,) are
    held out, -1 if never. Probabilities (N, J), J = 2 if K = 1, else K, are calibrated, one-hot for
    a labelled sample, and zero for a sample that is not used; None if no unlabelled one is.
    """
    classes = ((np.column_stack([-Y, Y]) if Y.shape[1] == 1 else Y) > 0.0).astype(np.float64)
    labelled = (Y != 0.0).any(axis=1)
    present = classes.any(axis=0)
    if labelled.all() or np.count_nonzero(present) < 2 or not (fold >= 0).any():
        return Y, None
    known = classes[:, present]
    expected = known.sum(axis=0) + EVEN_SAMPLES
    expected = expected / expected.sum()
    X = row_coordinates(X)
    y = np.where(labelled, known.argmax(axis=1), -1)
    gains = _held_out_gains(X, known, expected, fold, y)
    if np.mean(gains) <= np.std(gains) / np.sqrt(len(gains)):
        return Y, None
    part = substitute(X, known, expected, tol=TOL, max_iter=MAX_ITER)
    logits = predictive(X, part)
    logits /= _calibrate(logits, y, labelled).temperature
    shares = classes.copy()
    shares[np.ix_(~labelled, present)] = capped_softmax(logits[~labelled], expected)
    used = labelled | (shares.max(axis=1) > CERTAIN)
    if np.array_equal(used, labelled):
        return Y, None
    shares[~used] = 0.0
    own = np.arange(shares.shape[1])[-Y.shape[1] :]
    signs = np.where(shares.argmax(axis=1)[:, None] == own, 1.0, -1.0)
    return np.where((used & ~labelled)[:, None], signs, Y), shares


def _calibrate(logits: FloatArray, y: IntArray, used: BoolArray) -> Calibration:
    """Calibration of log probabilities (N, K) by some samples (N,) of classes y (N,)."""
    likelihoods = Likelihoods.of([logits], y, [np.where(used, 0, -1)], LINK, LOG_T)
    return likelihoods.calibrate(used, share=1.0)


def _held_out_gains(
    X: FloatArray, classes: FloatArray, shares: FloatArray, fold: IntArray, y: IntArray
) -> FloatArray:
    """Gain of the log score of each held-out sample by the unlabelled samples, (M,).

    Both fits have their own temperature. Every fold is refitted, because responsibilities of
    unlabelled samples depend on the held-out labels.
    """
    out = fold >= 0
    logits = np.zeros((2, *classes.shape))
    for number in np.unique(fold[out]):
        own = fold == number
        visible = np.where(own[:, None], 0.0, classes)
        part = substitute(X, visible, shares, tol=0.0, max_iter=FOLD_ITER)
        for found, sums in zip(logits, (visible, part), strict=True):
            found[own] = predictive(X, sums)[own]
    supervised, transductive = (
        _calibrate(found, y, out).apply(found, LINK)[out, y[out]] for found in logits
    )
    return np.asarray(transductive - supervised)


def row_coordinates(X: FloatArray) -> FloatArray:
    """Coordinates (N, D) of centred samples along the axes in which they vary."""
    X = X - X.mean(axis=0)
    wide = len(X) <= X.shape[1]
    square, axes = eigh(X @ X.T if wide else X.T @ X)
    kept = square > RANK_TOL * max(square[-1], 0.0)
    return axes[:, kept] * np.sqrt(square[kept]) if wide else X @ axes[:, kept]


def effective_sizes(n_samples: float, n_features: float, rank: int) -> tuple[float, float]:
    """n and D of a scatter of the given rank.

    In general position the rank is the smaller of the two. It is lower with repeated samples or
    dependent features, where the evidence is unbounded at kappa = 0; the smaller of n and D is
    therefore set to the rank.
    """
    if n_samples <= n_features:
        return (float(rank) if rank < np.floor(n_samples) else n_samples), float(n_features)
    return n_samples, float(rank)


def evidence_kappa(eigenvalues: FloatArray, n_samples: float, n_features: float) -> float:
    r"""Kappa of the largest evidence, from eigenvalues s of the scatter, (J,).

    With :math:`\nu_0 = D + 1` it is the root of :math:`\sum_j \kappa/(\kappa + s_j) = r - D n /
    (\nu_0 + n)`, r the rank, n and D of `effective_sizes`. The left side increases with kappa, so
    the root is unique; its bracket has a closed form. Infinite if no eigenvalue is positive.
    """
    eigenvalues = eigenvalues[eigenvalues > 0.0]
    rank = len(eigenvalues)
    if not rank:
        return np.inf
    n, d = effective_sizes(n_samples, n_features, rank)
    target = rank - d * n / (d + 1.0 + n)
    low = target * eigenvalues.min() / rank
    high = target * eigenvalues.max() / (rank - target)
    low, high = np.log(min(low, high)) - 1e-6, np.log(max(low, high)) + 1e-6
    root = brentq(
        lambda u: float(np.sum(1.0 / (1.0 + eigenvalues * np.exp(-u)))) - target,
        low,
        high,
        xtol=1e-12,
    )
    return float(np.exp(root))


def shrunk_scatter(X: FloatArray, part: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Eigenvalues (D,) and eigenvectors of the within-class scatter of X (N, D), and kappa."""
    count = part.sum(axis=0)
    between = X.T @ (part / np.sqrt(count))
    total = X.T @ (part.sum(axis=1)[:, None] * X)
    value, axes = eigh(total - between @ between.T)
    value = np.where(value > RANK_TOL * np.trace(total), value, 0.0)
    return value, axes, evidence_kappa(value, float(count.sum()) - len(count), X.shape[1])


def substitute(
    X: FloatArray, classes: FloatArray, shares: FloatArray, *, tol: float, max_iter: int
) -> FloatArray:
    """Responsibilities (N, K) by damped fixed-point iteration.

    The first iteration uses the labelled samples alone; later ones take half a step. ``classes``
    (N, K) are ones and zeros, all zeros without a class; ``shares`` (K,) are the expected shares of
    the classes among the latter; ``tol`` is the mean total variation of a change at which to stop.
    """
    free = ~classes.any(axis=1)
    part = classes.copy()
    for number in range(max_iter):
        step = capped_softmax(predictive(X, part)[free], shares) - part[free]
        part[free] += step if number == 0 else 0.5 * step
        if 0.5 * float(np.abs(step).sum()) / len(step) < tol:
            break
    return part


def predictive(X: FloatArray, part: FloatArray) -> FloatArray:
    r"""Log probability of each sample under each class given the other samples, (N, K).

    It holds up to a term common to the classes of a sample. Without sample n, of responsibilities
    :math:`p_{nc}`, means and scatter are

    .. math::
        x_n - m_c^{-n} = \frac{N_c}{N_c - p_{nc}} \delta_c, \qquad
        S^{-n} = S - \sum_c h_c \delta_c \delta_c^\top, \qquad
        h_c = \frac{p_{nc} N_c}{N_c - p_{nc}}, \qquad \delta_c = x_n - m_c,

    so with K x K matrices :math:`G = \Delta (\kappa I + S)^{-1} \Delta^\top` the quadratic forms
    are the diagonal of :math:`G + G H^{1/2} (I - H^{1/2} G H^{1/2})^{-1} H^{1/2} G`. X (N, D) are
    `row_coordinates`; the scatter of all samples replaces S if classes have no variation. ``part``
    (N, K) are responsibilities; no class is empty.
    """
    size = X.shape[1]
    value, axes, kappa = shrunk_scatter(X, part)
    if not np.isfinite(kappa):
        value, axes, kappa = shrunk_scatter(X, np.ones((len(X), 1)))
    A = (X @ axes) / np.sqrt(kappa + value)
    count = part.sum(axis=0)
    weight = part.sum(axis=1)
    means = (part.T @ A) / count[:, None]
    dof = size + 1.0 + count.sum() - len(count)
    logits = np.empty(part.shape)
    step = max(1, _BLOCK // len(count) ** 2)
    for block in (slice(start, start + step) for start in range(0, len(part), step)):
        p = part[block]
        a = A[block]
        others = np.maximum(count - p, _NO_COUNT)
        inflation = count / others
        cross = a @ means.T
        G = np.sum(a**2, axis=1)[:, None, None] - cross[:, :, None] - cross[:, None, :]
        G = G + means @ means.T
        root = np.sqrt(p * inflation)
        rooted = root[:, :, None] * G
        B = np.eye(len(count)) - rooted * root[:, None, :]
        square = np.einsum("ncc->nc", G) + np.sum(rooted * np.linalg.solve(B, rooted), axis=1)
        square = inflation**2 * square
        spread = 1.0 + 1.0 / others
        power = 0.5 * (dof + 1.0 - weight[block])[:, None]
        logits[block] = -power * np.log1p(square / spread) - 0.5 * size * np.log(spread)
    return logits


def capped_softmax(logits: FloatArray, shares: FloatArray) -> FloatArray:
    r"""Posterior probabilities (N, K) whose column sums are capped at N shares, rounded up.

    They are softmax(logits + log shares - u), and the dual variables :math:`u_c \ge 0` minimise
    the convex :math:`\sum_n \log \sum_c s_c e^{l_{nc} - u_c} + \sum_c u_c \lceil N s_c \rceil`.
    The shares s (K,) have sum one.
    """
    logits = logits + np.log(shares)
    most = np.ceil(len(logits) * shares - 1e-9)

    def dual(u: FloatArray) -> tuple[float, FloatArray]:
        log_p = log_softmax(logits - u, axis=1)
        log_sum = (logits - u - log_p)[:, 0]
        return float(log_sum.sum() + u @ most), most - np.exp(log_p).sum(axis=0)

    result = minimize(
        dual,
        np.zeros(len(most)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(most),
        options={"gtol": 1e-3, "ftol": 1e-13, "maxiter": 500, "maxcor": 30},
    )
    return np.asarray(softmax(logits - result.x, axis=1))
