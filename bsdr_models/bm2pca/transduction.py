"""Transductive learning for the label-free variant: pseudo-labels of unlabelled samples.

Class probabilities are those of the mixture in `mixture`, at the
temperature of maximal leave-one-out likelihood of the labelled samples. Unlabelled samples of
nearly certain class are used as labelled ones by the metric and the hinge, through ``shares`` and
``signs``, if they improve the cross-validated log likelihood of the labelled samples by more than
its standard error.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from bsdr_models.arrays import BoolArray, FloatArray, IntArray
from bsdr_models.bm2pca.mixture import capped_softmax, decompose, predictive, substitute
from bsdr_models.bm2pca.within_class_metric import Spectrum
from bsdr_models.numerics.row_space import Rows

# Smallest probability of a nearly certain class.
CERTAIN = 0.95
# Folds of the labelled samples, and fixed-point iterations in each.
N_FOLDS, FOLD_ITER = 5, 10
# Pseudo-count of each class for the default class shares.
EVEN_SAMPLES = 5.0
# Log of the smallest inverse temperature.
_MIN_LOG_BETA = -9.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Transduction:
    """Class probabilities of unlabelled samples. N samples, K columns of Y, J classes.

    responsibilities
        Calibrated class probabilities, (N, J), J = 2 if K = 1, else K; one-hot for a labelled
        sample.
    given
        Y, (N, K).
    labelled
        Mask of the labelled samples, (N,).
    temperature
        beta, at most 1: calibration factor of the log probabilities.
    gain, gain_error
        Gain of the mean held-out log likelihood by unlabelled samples, in nats, and its standard
        error; 0 if no sample could be held out.
    n_iter, converged
        Number of fixed-point iterations, and whether they converged.
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
        """Mask of the samples used, (N,): labelled, or nearly certain if ``gain`` is enough."""
        if self.gain <= self.gain_error:
            return self.labelled
        return self.labelled | (self.responsibilities.max(axis=1) > CERTAIN)

    @property
    def shares(self) -> FloatArray | None:
        """Responsibilities of the samples used, (N, J), else zero; None if all are labelled."""
        if np.array_equal(self.certain, self.labelled):
            return None
        return np.where(self.certain[:, None], self.responsibilities, 0.0)

    @property
    def signs(self) -> FloatArray:
        """Y with pseudo-labels of the unlabelled samples used, (N, K)."""
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
    """Class probabilities of unlabelled samples.

    Parameters
    ----------
    X : (N, d)
        Complete samples, dense or sparse.
    Y : (N, K)
        Signs of exclusive classes: one +1 for a labelled sample, or one column of signs for two
        classes; zeros without a label.
    class_shares : (J,), optional
        Expected shares of the classes among unlabelled samples (of -1 and +1, for one column of
        signs). By default those of the labelled samples with a pseudo-count of `EVEN_SAMPLES`.
    tol : float
        Mean total variation of a change of responsibilities at which to stop.
    max_iter : int

    Raises
    ------
    ValueError
        If no sample has a label, a labelled sample has not exactly one class, or shares are not
        one positive number per class.
    """
    classes, labelled = _classes(Y)
    shares = _expected_shares(classes, class_shares)
    present = classes.any(axis=0)
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
    if labelled.all() or np.count_nonzero(present) < 2:
        return result
    known, shares = classes[:, present], shares[present] / shares[present].sum()
    total = decompose(decompose(X).rows)  # in coordinates of the row space
    part, n_iter, converged = substitute(total, known, shares, tol=tol, max_iter=max_iter)
    logits = predictive(total, part)
    beta = temperature(logits[labelled], known[labelled])
    found = classes.copy()
    found[np.ix_(~labelled, present)] = capped_softmax(beta * logits[~labelled], shares)
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
    """Classes as zeros and ones, (N, J), and the mask of the labelled samples."""
    both = np.column_stack([-Y, Y]) if Y.shape[1] == 1 else Y
    classes = (both > 0.0).astype(np.float64)
    labelled = np.asarray((Y != 0.0).any(axis=1))
    if not labelled.any():
        raise ValueError("no sample has a label")
    if not np.all(classes[labelled].sum(axis=1) == 1.0):
        raise ValueError("classes must exclude each other: a labelled sample has exactly one")
    return classes, labelled


def _expected_shares(classes: FloatArray, given: FloatArray | None) -> FloatArray:
    """Class shares of the unlabelled samples, up to a factor, (J,)."""
    if given is None:
        return classes.sum(axis=0) + EVEN_SAMPLES
    shares = np.asarray(given, dtype=np.float64)
    if shares.shape != classes.shape[1:] or not np.all(shares > 0.0):
        raise ValueError(f"class_shares must be {classes.shape[1]} positive numbers")
    return shares


def temperature(logits: FloatArray, classes: FloatArray) -> float:
    """Maximum likelihood beta in (0, 1] of softmax(beta logits)."""

    def loss(log_beta: float) -> float:
        return -float(np.sum(classes * log_softmax(np.exp(log_beta) * logits, axis=1)))

    found = minimize_scalar(loss, bounds=(_MIN_LOG_BETA, 0.0), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def _held_out(total: Spectrum, classes: FloatArray, shares: FloatArray) -> FloatArray:
    """Gain of the held-out log likelihood by unlabelled samples, (M,).

    Both fits have their own temperature. Every fold is refitted, because responsibilities of
    unlabelled samples depend on the held-out labels.
    """
    fold = assign_folds(classes)
    scores = np.zeros((2, *classes.shape))
    for number in range(fold.max() + 1):
        own = fold == number
        visible = np.where(own[:, None], 0.0, classes)
        part, *_ = substitute(total, visible, shares, tol=0.0, max_iter=FOLD_ITER)
        for logits, sums in zip(scores, (visible, part), strict=True):
            logits[own] = predictive(total, sums)[own]
    right = classes[fold >= 0]
    supervised, transductive = (
        np.sum(right * log_softmax(temperature(logits, right) * logits, axis=1), axis=1)
        for logits in scores[:, fold >= 0]
    )
    return np.asarray(transductive - supervised)


def assign_folds(classes: FloatArray) -> IntArray:
    """Fold of each sample, (N,); -1 without a class, or for the only sample of a class.

    Samples of a class are assigned in turn, so every training set has one at least.
    """
    fold = np.full(len(classes), -1)
    count = 0
    for column in classes.T:
        rows = np.flatnonzero(column)
        if len(rows) > 1:
            fold[rows] = (count + np.arange(len(rows))) % N_FOLDS
            count += len(rows)
    return fold
