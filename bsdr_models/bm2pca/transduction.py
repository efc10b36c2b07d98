r"""What rows without a label add to the label-free variant: their likely classes.

The block that yields the metric (:mod:`bsdr_models.bm2pca.metric`),

.. math::
    x_n = t + b_{y_n} + e_n, \qquad e_n \sim N(0, \Psi), \qquad \Psi \sim IW(D + 1, \kappa I_D),

is a mixture where labels are missing. With b and Psi integrated out the class of one row, given
those of all others, has in closed form, up to terms common to all classes,

.. math::
    \log p(x_n \mid y_n = c, \text{rest}) = -\tfrac{D}{2} \log(1 + 1/N_c)
        - \tfrac{\nu + 1}{2} \log\Big(1 + \frac{(x_n - m_c)^\top (\kappa I + S)^{-1} (x_n - m_c)}
        {1 + 1/N_c}\Big),

where the counts N_c, class means m_c, within-class scatter S and its degrees of freedom nu are
those of the *other* rows: with D >> N a row that takes part in them is nearest to whatever it was
given to before, and nothing moves. D is the rank of the rows, not the number of features: where
no row varies, no row is evidence.

Responsibilities stand for the classes and are found by repeated substitution (mean field of the
collapsed mixture to zeroth order [1]_), with half a step each time. It has no bound. The mixture
alone tends to a few wide classes, so that a class takes at most its expected number of
rows, rounded up; the multipliers of these constraints are the maximum of a concave dual [2]_.

Labelled rows, seen in the same way without themselves, say how far to trust the result: they give
the temperature of the responsibilities, and if too few of them are recognised the unlabelled
rows are left alone. Only rows of which the class is all but certain enter the metric, and only
all but certain signs the hinge.

References
----------
.. [1] A. Asuncion, M. Welling, P. Smyth, Y. W. Teh (2009). On smoothing and inference for topic
       models. UAI.
.. [2] K. Ganchev, J. Graca, J. Gillenwater, B. Taskar (2010). Posterior regularization for
       structured latent variable models. JMLR 11.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from bsdr_models.bm2pca.metric import Spectrum
from bsdr_models.numerics.row_space import Rows
from bsdr_models.typing import BoolArray, FloatArray

# A class is certain from this probability on, and excluded from one minus this.
CERTAIN = 0.95
# Share of the labelled rows that must be recognised for the unlabelled ones to take part.
RECOGNISED = 0.8
# Rows of each class that stand for the even shares where class shares are not given.
EVEN_ROWS = 5.0
# Smallest temperature is exp of this; counts without a row are not smaller than the second.
_LOG_COLDEST = -9.0
_NO_COUNT = 1e-6
# Entries of the (rows, K, K) arrays that are held at a time.
_BLOCK = 2**22


@dataclass(frozen=True, slots=True, kw_only=True)
class Transduction:
    """Likely classes of the rows without label. N rows, K columns of Y, J classes.

    responsibilities
        Calibrated probabilities of the classes, (N, J), J = 2 where K = 1, else K; one and zeros
        for a labelled row.
    given
        Y, (N, K).
    labelled
        Rows with a label, (N,).
    recognised
        Share of the labelled rows whose class the model finds from the other rows.
    temperature
        beta, at most 1: what log probabilities were multiplied by to suit the labelled rows.
    n_iter, converged
        Of the substitution.
    """

    responsibilities: FloatArray
    given: FloatArray
    labelled: BoolArray
    recognised: float
    temperature: float
    n_iter: int
    converged: bool

    @property
    def accepted(self) -> bool:
        """Whether rows without label take part at all."""
        return not self.labelled.all() and self.recognised >= RECOGNISED

    @property
    def shares(self) -> FloatArray | None:
        """Responsibilities for :meth:`Spectrum.fit`, zero for uncertain rows; None if not needed.

        None, that is labelled rows alone, where no row without label is certain.
        """
        certain = self.labelled | (self.responsibilities.max(axis=1) > CERTAIN)
        if not self.accepted or np.array_equal(certain, self.labelled):
            return None
        return np.where(certain[:, None], self.responsibilities, 0.0)

    @property
    def signs(self) -> FloatArray:
        """Y with the signs that are all but certain filled in, (N, K)."""
        if not self.accepted:
            return self.given
        positive = self.responsibilities[:, -self.given.shape[1] :]
        signs = np.where(positive > CERTAIN, 1.0, np.where(positive < 1.0 - CERTAIN, -1.0, 0.0))
        return np.where(self.labelled[:, None], self.given, signs)


def fit_responsibilities(
    X: Rows,
    Y: FloatArray,
    *,
    class_shares: FloatArray | None = None,
    tol: float = 1e-3,
    max_iter: int = 50,
) -> Transduction:
    """Likely classes of the rows without label.

    Parameters
    ----------
    X : (N, d)
        Rows, dense or sparse, none with a missing entry.
    Y : (N, K)
        Signs of exclusive classes: one +1 in a labelled row, or one column of signs for two
        classes; rows of zeros have no label.
    class_shares : (K,), optional
        Expected shares of the classes among the rows without label; (2,), of the class -1 and the
        class +1, for one column. By default those of the labelled rows, drawn towards even ones
        as by `EVEN_ROWS` more rows of each class.
    tol : float
        Mean change of a row's responsibilities (total variation) at which to stop.
    max_iter : int

    Returns
    -------
    Transduction

    Raises
    ------
    ValueError
        If no row has a label, a labelled row does not have exactly one class, or shares are not
        positive, one for each class.
    """
    classes, labelled = _classes(Y)
    shares = _expected_shares(classes, class_shares)
    seen = classes.any(axis=0)
    n_free = int(np.count_nonzero(~labelled))
    if n_free == 0 or np.count_nonzero(seen) < 2:
        return Transduction(
            responsibilities=classes,
            given=Y,
            labelled=labelled,
            recognised=0.0,
            temperature=1.0,
            n_iter=0,
            converged=True,
        )
    part = classes[:, seen]
    total = _total(_total(X).rows)  # in coordinates of the rows themselves
    log_shares = np.log(shares[seen] / shares[seen].sum())
    most = np.ceil(n_free * np.exp(log_shares) - 1e-9)
    price, change, n_iter = np.zeros(len(most)), np.inf, 0
    while change >= tol and n_iter < max_iter:
        logits = predictive(total, part)[~labelled] + log_shares
        found, price = capped_softmax(logits, most, price)
        step = found - part[~labelled]
        change = 0.5 * float(np.abs(step).sum()) / n_free
        part = part.copy()
        part[~labelled] += step if n_iter == 0 else 0.5 * step
        n_iter += 1
    logits = predictive(total, part)
    right = classes[labelled][:, seen]
    beta = temperature(logits[labelled], right)
    hits = np.argmax(logits[labelled], axis=1) == np.argmax(right, axis=1)
    found, _ = capped_softmax(beta * logits[~labelled] + log_shares, most, price)
    responsibilities = classes.copy()
    responsibilities[np.ix_(~labelled, seen)] = found
    return Transduction(
        responsibilities=responsibilities,
        given=Y,
        labelled=labelled,
        recognised=float(np.mean(hits)),
        temperature=beta,
        n_iter=n_iter,
        converged=change < tol,
    )


def _classes(Y: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Classes of the rows, (N, J) of zeros and ones, and which have one."""
    both = np.column_stack([-Y, Y]) if Y.shape[1] == 1 else Y
    classes = (both > 0.0).astype(np.float64)
    labelled = np.asarray((Y != 0.0).any(axis=1))
    if not labelled.any():
        raise ValueError("no row has a label")
    if not np.all(classes[labelled].sum(axis=1) == 1.0):
        raise ValueError("classes must exclude each other: a labelled row has exactly one")
    return classes, labelled


def _expected_shares(classes: FloatArray, given: FloatArray | None) -> FloatArray:
    """Shares of the classes among the rows without label, up to a factor, (J,)."""
    if given is None:
        return classes.sum(axis=0) + EVEN_ROWS
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != classes.shape[1:] or not np.all(shares > 0.0):
        raise ValueError(f"class_shares must be {classes.shape[1]} positive numbers")
    return shares


def _total(X: Rows) -> Spectrum:
    """Decomposition of all rows around their mean."""
    everything = np.ones((X.shape[0], 1))
    return Spectrum.fit(X, everything, responsibilities=everything)


def predictive(total: Spectrum, shares: FloatArray) -> FloatArray:
    r"""Log probability of each row under each class given the other rows, (N, K).

    Up to a term common to the classes of a row. Without row n, which takes the parts
    :math:`p_{nc}` in the classes, means and scatter are

    .. math::
        x_n - m_c^{-n} = \frac{N_c}{N_c - p_{nc}} \delta_c, \qquad
        S^{-n} = S - \sum_c h_c \delta_c \delta_c^\top, \qquad
        h_c = \frac{p_{nc} N_c}{N_c - p_{nc}}, \qquad \delta_c = x_n - m_c,

    so that K x K matrices :math:`G = \Delta (\kappa I + S)^{-1} \Delta^\top` are all that is
    needed: the quadratic forms are those of
    :math:`G + G H^{1/2} (I - H^{1/2} G H^{1/2})^{-1} H^{1/2} G`.

    Parameters
    ----------
    total : Spectrum
        Rows in D coordinates of their own. Its scatter serves where rows of a class do not differ.
    shares : (N, K)
        Parts of the rows in the classes; none is empty.
    """
    rows = total.rows
    size = rows.shape[1]
    spectrum = Spectrum.fit(rows, shares, responsibilities=shares, n_features=size)
    metric = (spectrum if spectrum.varies else total).metric(1.0)
    unit = 1.0 / (metric.outside_gain**2 * metric.kappa)
    count, weight = shares.sum(axis=0), shares.sum(axis=1)
    means = (shares.T @ metric.A) / count[:, None]
    dof = size + 1.0 + count.sum() - len(count)
    logits = np.empty(shares.shape)
    for block in _blocks(*shares.shape):
        p, a = shares[block], metric.A[block]
        others = np.maximum(count - p, _NO_COUNT)
        inflation = count / others
        cross = a @ means.T
        G = np.sum(a**2, axis=1)[:, None, None] - cross[:, :, None] - cross[:, None, :]
        G = unit * (G + means @ means.T)
        root = np.sqrt(p * inflation)
        rooted = root[:, :, None] * G
        B = np.eye(len(count)) - rooted * root[:, None, :]
        square = np.einsum("ncc->nc", G) + np.sum(rooted * np.linalg.solve(B, rooted), axis=1)
        square = inflation**2 * square + unit * metric.outside(rows[block])[:, None]
        spread = 1.0 + 1.0 / others
        power = 0.5 * (dof + 1.0 - weight[block])[:, None]
        logits[block] = -power * np.log1p(square / spread) - 0.5 * size * np.log(spread)
    return logits


def _blocks(n_rows: int, n_classes: int) -> Iterator[slice]:
    """Rows in blocks of which the K x K matrices are small enough to be held."""
    step = max(1, _BLOCK // n_classes**2)
    return (slice(start, start + step) for start in range(0, n_rows, step))


def capped_softmax(
    logits: FloatArray, most: FloatArray, price: FloatArray
) -> tuple[FloatArray, FloatArray]:
    r"""Probabilities of greatest entropy plus mean logit, a column summing to ``most`` at most.

    They are softmax(logits - u) for the prices u >= 0 that minimise
    :math:`\sum_n \log \sum_c e^{l_{nc} - u_c} + \sum_c u_c \, most_c`, which is convex.

    Parameters
    ----------
    logits : (N, K)
    most : (K,)
        Their sum is N at least.
    price : (K,)
        u to start from.

    Returns
    -------
    probabilities : (N, K)
    price : (K,)
    """

    def dual(u: FloatArray) -> tuple[float, FloatArray]:
        log_p = log_softmax(logits - u, axis=1)
        log_sum = (logits - u - log_p)[:, 0]
        return float(log_sum.sum() + u @ most), most - np.exp(log_p).sum(axis=0)

    result = minimize(
        dual,
        price,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(price),
        options={"gtol": 1e-3, "ftol": 1e-13, "maxiter": 500, "maxcor": 30},
    )
    price = np.asarray(result.x)
    return np.asarray(softmax(logits - price, axis=1)), price


def temperature(logits: FloatArray, classes: FloatArray) -> float:
    """beta in (0, 1] for which softmax(beta logits) gives the classes the highest likelihood."""

    def loss(log_beta: float) -> float:
        return -float(np.sum(classes * log_softmax(np.exp(log_beta) * logits, axis=1)))

    found = minimize_scalar(loss, bounds=(_LOG_COLDEST, 0.0), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0
