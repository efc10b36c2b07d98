r"""Classes of unlabelled samples under the collapsed mixture behind the within-class metric.

The model of the metric (`within_class_metric`),

.. math::
    x_n = t + b_{y_n} + e_n, \qquad e_n \sim N(0, \Psi), \qquad \Psi \sim IW(D + 1, \kappa I_D),

is a mixture if labels are missing. With b and Psi integrated out the class of a sample, given
those of all others, has in closed form, up to terms common to all classes,

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
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax

from bsdr_models.arrays import FloatArray
from bsdr_models.bm2pca.within_class_metric import Spectrum
from bsdr_models.numerics.row_space import Rows

# Lower limit of class counts.
_NO_COUNT = 1e-6
# Numbers per block of (samples, K, K) arrays.
_BLOCK = 2**22


def decompose(X: Rows) -> Spectrum:
    """Decompose the scatter of all samples around their mean."""
    everything = np.ones((X.shape[0], 1))
    return Spectrum.fit(X, everything, responsibilities=everything)


def substitute(
    total: Spectrum, classes: FloatArray, shares: FloatArray, *, tol: float, max_iter: int
) -> tuple[FloatArray, int, bool]:
    """Responsibilities (N, K) by damped fixed-point iteration, their number, and convergence.

    The first iteration uses the labelled samples alone; later ones take half a step.

    Parameters
    ----------
    total : Spectrum
        See `predictive`.
    classes : (N, K)
        Ones and zeros; all zeros without a class.
    shares : (K,)
        Expected shares of the classes among samples without a class.
    tol, max_iter
        Mean total variation of a change at which to stop, and most iterations.
    """
    free = ~classes.any(axis=1)
    part, change, n_iter = classes.copy(), np.inf, 0
    while change >= tol and n_iter < max_iter:
        step = capped_softmax(predictive(total, part)[free], shares) - part[free]
        change = 0.5 * float(np.abs(step).sum()) / len(step)
        part[free] += step if n_iter == 0 else 0.5 * step
        n_iter += 1
    return part, n_iter, change < tol


def predictive(total: Spectrum, part: FloatArray) -> FloatArray:
    r"""Log probability of each sample under each class given the other samples, (N, K).

    It holds up to a term common to the classes of a sample. Without sample n, of responsibilities
    :math:`p_{nc}`, means and scatter are

    .. math::
        x_n - m_c^{-n} = \frac{N_c}{N_c - p_{nc}} \delta_c, \qquad
        S^{-n} = S - \sum_c h_c \delta_c \delta_c^\top, \qquad
        h_c = \frac{p_{nc} N_c}{N_c - p_{nc}}, \qquad \delta_c = x_n - m_c,

    so with K x K matrices :math:`G = \Delta (\kappa I + S)^{-1} \Delta^\top` the quadratic forms
    are the diagonal of :math:`G + G H^{1/2} (I - H^{1/2} G H^{1/2})^{-1} H^{1/2} G`.

    Parameters
    ----------
    total : Spectrum
        All samples in D coordinates. Its scatter replaces S if classes have no variation.
    part : (N, K)
        Responsibilities; no class is empty.
    """
    size = total.rows.shape[1]
    spectrum = Spectrum.fit(total.rows, part, responsibilities=part, n_features=size)
    metric = (spectrum if spectrum.varies else total).metric(1.0)
    unit = 1.0 / (metric.outside_gain**2 * metric.kappa)
    rest = unit * metric.outside(total.rows)
    count, weight = part.sum(axis=0), part.sum(axis=1)
    means = (part.T @ metric.A) / count[:, None]
    dof = size + 1.0 + count.sum() - len(count)
    logits = np.empty(part.shape)
    step = max(1, _BLOCK // len(count) ** 2)
    for block in (slice(start, start + step) for start in range(0, len(part), step)):
        p, a = part[block], metric.A[block]
        others = np.maximum(count - p, _NO_COUNT)
        inflation = count / others
        cross = a @ means.T
        G = np.sum(a**2, axis=1)[:, None, None] - cross[:, :, None] - cross[:, None, :]
        G = unit * (G + means @ means.T)
        root = np.sqrt(p * inflation)
        rooted = root[:, :, None] * G
        B = np.eye(len(count)) - rooted * root[:, None, :]
        square = np.einsum("ncc->nc", G) + np.sum(rooted * np.linalg.solve(B, rooted), axis=1)
        square = inflation**2 * square + rest[block, None]
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
