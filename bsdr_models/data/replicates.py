r"""Samples that are not independent: their effective number, and a warning of replicates.

With groups, weights of samples follow from intraclass correlations [1]_. Without, a fit warns if
predictions rest on near neighbours, as those of repeated measures do.

Each sample is left out of a ridge regression of the targets, linear or of radial basis functions,
together with its k nearest neighbours, and with k random samples of the same classes instead. For
independent samples these differ little. Replicates of one subject, copies and synthetic samples
tell each other's class, and without them the gain over the class frequencies is lost. Leaving a set
S out of N samples is closed form: with

.. math::
    A = (K + c\, 1 1^\top + \lambda I)^{-1},

K the kernel of the samples and Y the targets less their means, the residuals of S are
:math:`(A_{SS})^{-1} [A Y]_S`. The intercept, of variance c, is there since centring all samples
first would leak the targets of S.

References
----------
.. [1] B. R. Moulton (1986). Random group effects and the precision of regression estimates.
       Journal of Econometrics 32(3).
"""

import numpy as np
from scipy.sparse import csr_array, issparse

from bsdr_models.numerics.arrays import FloatArray, IntArray, Rows
from bsdr_models.numerics.folds import evenly_spaced, find_copies, find_strata
from bsdr_models.numerics.process_state import one_thread, warn
from bsdr_models.numerics.scaling import CONSTANT_TOL

# Numbers of neighbours that are left out, of a subject with up to so many more measures.
LEFT_OUT = (1, 4, 9, 14)
# A class must have so many times as many samples, or all samples, whose real outputs may be those
# of clusters.
OF_CLASS = 4
OF_ALL = 10
# Lambda and c, in units of the mean variance of a sample in the kernel.
RIDGE = 0.3
INTERCEPT = 30.0
# Sets of random samples.
N_RANDOM = 3
# A gain rests on neighbours if without them predictions are worse by so many nats of a normal
# density with the mean squared error,
LEAST_LOSS = 0.1
# so many standard errors,
N_STANDARD_ERRORS = 4.0
# and this share of the gain, if there is one.
SHARE = 0.7
# Most samples looked at, at cubic cost.
MOST_SAMPLES = 600


def warn_of_replicates(X: Rows, classes: IntArray | None, outputs: FloatArray) -> None:
    """Warn if what scaled samples (N, D) tell of their targets rests on near neighbours.

    Classes are (N,), or 0 and 1 of each label, (N, T), -1 if unknown; None of real outputs (N, K).
    """
    known = np.arange(X.shape[0])
    if classes is not None:
        known = known[(classes >= 0).reshape(len(known), -1).all(axis=1)]
    copies = find_copies(X[known]) if len(known) else None
    if copies is not None:  # which are held out together
        known = known[np.sort(np.unique(copies, return_index=True)[1])]
    some = known[evenly_spaced(len(known), MOST_SAMPLES)] if len(known) else known
    if len(some) < 2 * OF_CLASS:
        return
    strata = None
    if classes is None:
        targets = outputs[some]
        targets = targets[:, ~np.isnan(targets).any(axis=0)]
    else:
        strata = find_strata(classes[some])
        targets = classes[some].astype(np.float64)
        if classes.ndim == 1:
            targets = np.eye(int(strata.max()) + 1)[strata]
    with one_thread():
        found = targets.shape[1] > 0 and rests_on_neighbours(X[some], targets, strata)
    if found:
        warn(
            "what the features tell of y rests on samples that resemble each other: without its "
            "nearest neighbours a sample is predicted much worse, as with repeated measures of "
            "one subject, or samples made by oversampling. Give fit(groups=...), the subject of "
            "each sample, and do not oversample, or probabilities and held-out scores are too sure"
        )


def rests_on_neighbours(X: Rows, targets: FloatArray, strata: IntArray | None = None) -> bool:
    """Whether predictions of targets (N, K) do so; random samples are of the same strata, (N,)."""
    gram, distance = _compare(X)
    n = len(gram)
    size = float(np.trace(gram)) / n
    if size == 0.0 or not targets.var(axis=0).any():
        return False
    order = np.argsort(distance, axis=1)
    np.fill_diagonal(distance, 0.0)
    typical = float(np.median(distance[~np.eye(n, dtype=np.bool_)]))
    kernels = [gram / size]
    if typical > 0.0:
        kernels.append(np.exp(-0.5 * distance / typical))
    most = n // OF_ALL
    if strata is None:
        strata = np.zeros(n, dtype=np.int64)
    else:
        count = np.bincount(strata)
        most = int(count[count > 1].min(initial=n)) // OF_CLASS
    inverses = [np.linalg.inv(kernel + INTERCEPT + RIDGE * np.eye(n)) for kernel in kernels]
    solved = [A @ (targets - targets.mean(axis=0)) for A in inverses]
    rng = np.random.default_rng(0)
    for k in LEFT_OUT:
        if k > max(most, 1):
            break
        near = order[:, :k]
        sets = [near, *(_random_sets(strata, near, rng) for _ in range(N_RANDOM))]
        for A, own in zip(inverses, solved, strict=True):
            left_out = [targets - _residuals(A, own, left) for left in sets]
            if _rests(left_out[0], left_out[1:], targets):
                return True
    return False


def _compare(X: Rows) -> tuple[FloatArray, FloatArray]:
    """Inner products and squared distances (N, N) of samples, over the values that both have.

    The largest value counts as one, so that no square is zero or infinite.
    """
    if issparse(X):
        X = X / (np.abs(X.data).max(initial=0.0) or 1.0)
        gram = (X @ X.T).toarray()
        known = np.ones((len(gram), 1))
        squares = np.diagonal(gram)[:, None]
    else:
        missing = np.isnan(X)
        Z = np.where(missing, 0.0, X)
        Z /= np.abs(Z).max() or 1.0
        gram = Z @ Z.T
        known = (~missing).astype(np.float64)
        squares = Z**2
    share = known @ known.T / known.shape[1]
    distance = (squares @ known.T + known @ squares.T - 2.0 * gram) / np.maximum(share, 0.05)
    np.fill_diagonal(distance, np.inf)
    return gram, distance


def _random_sets(classes: IntArray, near: IntArray, rng: np.random.Generator) -> IntArray:
    """Other samples (N, k) of the classes of the neighbours of each sample, at random."""
    found = np.empty_like(near)
    for label in np.unique(classes):
        members = rng.permutation(np.flatnonzero(classes == label))
        begin = rng.integers(len(members), size=len(classes))
        begin[members] = np.arange(len(members)) + 1  # those behind the sample itself
        wanted = classes[near] == label  # (N, k)
        place = begin[:, None] + np.cumsum(wanted, axis=1) - 1
        found[wanted] = members[place % len(members)][wanted]
    return found


def _residuals(A: FloatArray, solved: FloatArray, sets: IntArray) -> FloatArray:
    """Residuals (N, K) of each sample, left out with a set of others (N, k)."""
    every = np.column_stack([np.arange(len(sets)), sets])
    blocks = A[every[:, :, None], every[:, None, :]]
    return np.linalg.solve(blocks, solved[every])[:, 0]


def _rests(near: FloatArray, others: list[FloatArray], targets: FloatArray) -> bool:
    """Whether predictions without neighbours are so much worse than without random samples."""
    variance = float(targets.var(axis=0).mean())
    rounding = 1e-9 * variance  # predictions may be exact
    error = np.mean((targets - near) ** 2, axis=1) + rounding
    usual = np.mean([np.mean((targets - own) ** 2, axis=1) for own in others], axis=0) + rounding
    standard_error = np.std(error - usual) / np.sqrt(len(targets)) + rounding
    worse = 0.5 * np.log(float(error.mean() / usual.mean()))
    gain = 0.5 * np.log(variance / float(usual.mean()))
    z = float(np.mean(error - usual)) / standard_error
    return worse > max(LEAST_LOSS, SHARE * gain) and z > N_STANDARD_ERRORS and gain > 0.0


def weigh_samples(X: FloatArray, y: FloatArray, groups: IntArray) -> FloatArray:
    r"""Weights (N,) of samples (N, B) with outputs (N, K) in a likelihood of independent ones.

    They are :math:`1 / (1 + (m - 1) r_x r_y)` with the size m of a group and the intraclass
    correlations of features and outputs: the variance of regression coefficients is as many times
    larger than that from independent samples [1]_. Replicates together count as one sample.
    """
    size = np.bincount(groups)[groups]
    return np.asarray(1.0 / (1.0 + (size - 1.0) * intraclass(X, groups) * intraclass(y, groups)))


def effective_share(X: FloatArray, classes: IntArray, groups: IntArray | None) -> float:
    """Effective number of samples (N, D) of classes (N,) or labels (N, T), over their number.

    It is the mean of the weights of :func:`weigh_samples`, and one without groups.
    """
    if groups is None:
        return 1.0
    columns = classes.reshape(len(classes), -1).T
    indicators = [np.equal.outer(own, np.unique(own[own >= 0])) for own in columns]
    y = np.concatenate(indicators, axis=1).astype(np.float64)
    return float(weigh_samples(X, y, groups).mean())


def intraclass(values: FloatArray, groups: IntArray) -> float:
    """Intraclass correlation of all columns of values (N, C) together, at least 0."""
    index = np.unique(groups, return_inverse=True)[1]
    if index.max() + 1 in {1, len(index)}:
        return 0.0
    between, within, size = mean_squares(values, index)
    variance = max(between.sum() - within.sum(), 0.0) / size[0]
    return float(variance / (variance + within.sum())) if variance > 0.0 else 0.0


def group_means(X: FloatArray, index: IntArray) -> tuple[FloatArray, FloatArray]:
    """Numbers of samples of each group and feature, (G, D), and means, 0 if there is none."""
    samples = np.arange(len(X))
    members = csr_array((np.ones(len(X)), (index, samples)), shape=(index.max() + 1, len(X)))
    known = ~np.isnan(X)
    n = members @ known.astype(np.float64)
    return n, members @ np.where(known, X, 0.0) / np.maximum(n, 1.0)


def mean_squares(
    X: FloatArray, index: IntArray, n_classes: int = 1
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Mean squares between groups and within, (D,), and the size of a group, (D,).

    X are residuals of so many classes.
    """
    n, means = group_means(X, index)
    total = np.maximum(n.sum(axis=0), 1.0)
    center = (n * means).sum(axis=0) / total
    df = np.maximum((n > 0).sum(axis=0) - 1.0, 1.0)
    df_within = np.maximum(total - df - n_classes, 1.0)
    between = (n * (means - center) ** 2).sum(axis=0) / df
    within = np.nansum((X - means[index]) ** 2, axis=0) / df_within
    rounding = (CONSTANT_TOL * np.abs(center)) ** 2
    size = (total - (n**2).sum(axis=0) / total) / df
    return (
        np.where(between > rounding, between, 0.0),
        np.where(within > rounding, within, 0.0),
        size,
    )
