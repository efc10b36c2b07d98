"""What rows without a label add to the label-free variant: those whose class is all but certain.

Their likely classes are those of the mixture in :mod:`bsdr_models.bm2pca.mixture`, at the
temperature at which the labelled rows, each taken out of the sums, have the highest likelihood.
Rows whose class is all but certain enter the metric and the hinge as if they were labelled.

Whether any do is decided by labelled rows held out, fold by fold: the other labelled rows and the
unlabelled ones together must foretell them better than the other labelled rows alone, by more
than the standard error of the difference. Metric and classifier themselves do not change: they
are given ``shares`` and ``signs``.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.mixture import capped_softmax, decompose, predictive, substitute
from bsdr_models.bm2pca.within_class_metric import Spectrum
from bsdr_models.numerics.row_space import Rows

# Above this probability a class is all but certain.
CERTAIN = 0.95
# Folds of the labelled rows, and substitutions in each.
N_FOLDS, FOLD_ITER = 5, 10
# Rows of each class that stand for even shares where the shares of the classes are not given.
EVEN_SAMPLES = 5.0
# Smallest temperature is exp of this.
_LOG_COLDEST = -9.0


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
    temperature
        beta, at most 1: what log probabilities were multiplied by to suit the labelled rows.
    gain, gain_error
        How much better labelled rows are foretold with the unlabelled rows than without, when
        held out: mean log likelihood, in nats, and its standard error. 0 where none could be.
    n_iter, converged
        Number of substitutions, and whether they had settled.
    """

    responsibilities: FloatArray
    given: FloatArray
    labelled: BoolArray
    temperature: float
    gain: float
    gain_error: float
    n_iter: int
    converged: bool

    @property
    def certain(self) -> BoolArray:
        """Rows that take part: labelled ones, and others if their class is all but certain, (N,).

        None of the others do if they do not help with labelled rows held out.
        """
        if self.gain <= self.gain_error:
            return self.labelled
        return self.labelled | (self.responsibilities.max(axis=1) > CERTAIN)

    @property
    def shares(self) -> FloatArray | None:
        """Responsibilities of the rows that take part, for :meth:`Spectrum.fit`, (N, J).

        Zero for other rows. None, which leaves the metric to Y, if only labelled rows take part.
        """
        if np.array_equal(self.certain, self.labelled):
            return None
        return np.where(self.certain[:, None], self.responsibilities, 0.0)

    @property
    def signs(self) -> FloatArray:
        """Y, with the signs of the other rows that take part filled in, (N, K)."""
        winner = self.responsibilities.argmax(axis=1)[:, None]
        classes = np.arange(self.responsibilities.shape[1])[-self.given.shape[1] :]
        found = np.where(winner == classes, 1.0, -1.0)
        return np.where((self.certain & ~self.labelled)[:, None], found, self.given)


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
    class_shares : (J,), optional
        Expected shares of the classes among the rows without label (of -1 and +1, for one column
        of signs). By default those of the labelled rows, drawn towards even ones as by
        `EVEN_SAMPLES` more rows of each class.
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
    result = Transduction(
        responsibilities=classes,
        given=Y,
        labelled=labelled,
        temperature=1.0,
        gain=0.0,
        gain_error=0.0,
        n_iter=0,
        converged=True,
    )
    if labelled.all() or np.count_nonzero(seen) < 2:
        return result
    known, shares = classes[:, seen], shares[seen] / shares[seen].sum()
    total = decompose(decompose(X).rows)  # in coordinates of the rows themselves
    part, n_iter, converged = substitute(total, known, shares, tol=tol, max_iter=max_iter)
    logits = predictive(total, part)
    beta = temperature(logits[labelled], known[labelled])
    found = classes.copy()
    found[np.ix_(~labelled, seen)] = capped_softmax(beta * logits[~labelled], shares)
    gains = _held_out(total, known, shares)
    return replace(
        result,
        responsibilities=found,
        temperature=beta,
        gain=float(np.mean(gains)) if len(gains) else 0.0,
        gain_error=float(np.std(gains) / np.sqrt(len(gains))) if len(gains) else 0.0,
        n_iter=n_iter,
        converged=converged,
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
        return classes.sum(axis=0) + EVEN_SAMPLES
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != classes.shape[1:] or not np.all(shares > 0.0):
        raise ValueError(f"class_shares must be {classes.shape[1]} positive numbers")
    return shares


def temperature(logits: FloatArray, classes: FloatArray) -> float:
    """beta in (0, 1] for which the classes are likeliest under softmax(beta logits)."""

    def loss(log_beta: float) -> float:
        return -float(np.sum(classes * log_softmax(np.exp(log_beta) * logits, axis=1)))

    found = minimize_scalar(loss, bounds=(_LOG_COLDEST, 0.0), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def _held_out(total: Spectrum, classes: FloatArray, shares: FloatArray) -> FloatArray:
    """Log likelihood of labelled rows held out that is owed to the rows of no label, (M,).

    With and without them each at its own temperature. It would not do to take a labelled row out
    of the sums afterwards: others have been given to its class on its account.
    """
    fold = deal_folds(classes)
    scores = np.zeros((2, *classes.shape))
    for number in range(fold.max() + 1):
        own = fold == number
        visible = np.where(own[:, None], 0.0, classes)
        part, *_ = substitute(total, visible, shares, tol=0.0, max_iter=FOLD_ITER)
        for logits, sums in zip(scores, (visible, part), strict=True):
            logits[own] = predictive(total, sums)[own]
    right = classes[fold >= 0]
    alone, pooled = (
        np.sum(right * log_softmax(temperature(logits, right) * logits, axis=1), axis=1)
        for logits in scores[:, fold >= 0]
    )
    return np.asarray(pooled - alone)


def deal_folds(classes: FloatArray) -> IntArray:
    """Fold of each row, (N,); -1 for rows without class, and for the only one of a class.

    Rows of a class go to folds in turn, so that every fold leaves it one at least.
    """
    fold = np.full(len(classes), -1)
    dealt = 0
    for column in classes.T:
        rows = np.flatnonzero(column)
        if len(rows) > 1:
            fold[rows] = (dealt + np.arange(len(rows))) % N_FOLDS
            dealt += len(rows)
    return fold
