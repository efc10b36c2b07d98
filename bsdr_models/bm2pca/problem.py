"""Input of a fit: samples, and targets as signs, 0 for a missing label."""

from dataclasses import dataclass, replace
from typing import TypedDict

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.validation import column_or_1d

from bsdr_models.arrays import BoolArray, FloatArray, IntArray, TargetLike
from bsdr_models.bm2pca.priors import PAPER, Priors
from bsdr_models.bm2pca.settings import Strategy
from bsdr_models.dims import LABEL, SCORE
from bsdr_models.numerics.row_space import Rows
from bsdr_models.validation import encode_known, known_entries, label_names


class Candidate(TypedDict, total=False):
    """Settings of a classifier."""

    C: float
    n_sweeps: int | None  # None to convergence


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Samples, targets and fixed settings of a fit."""

    X: Rows  # (N, P), scaled, NaN for a missing value; or sparse
    Y: FloatArray  # Signs, (N, K), 0 without a label; or real targets, NaN if missing
    epsilon: float | None = None  # Half width of the epsilon-insensitive interval; None for signs
    # Features of each view; None for one view of all.
    columns: tuple[IntArray | None, ...] = (None,)
    n_components: int  # R, of each problem
    strategy: Strategy  # One subspace for all outcomes, or one for each
    # Whether the columns of Y are classes that exclude each other, one column for two classes;
    # False for several labels, and for real targets.
    exclusive: bool = False
    # Whether the loss of the common subspace is the hinge of all classes.
    multiclass: bool = False
    # Units of the features, (P,), and weights of the candidates of the metric, from all samples and
    # without each fold, (1 + F, J), of `bsdr_models.metric`; None for the Euclidean metric.
    units: FloatArray | None = None
    metric_weights: FloatArray | None = None
    share: float = 1.0  # Effective number of samples, if they are dependent, over their number
    priors: Priors = PAPER

    @property
    def observed(self) -> BoolArray:
        """Mask of the observed targets, (N, K)."""
        return self.Y != 0.0 if self.epsilon is None else ~np.isnan(self.Y)

    @property
    def n_shared(self) -> int | None:
        """Dimension of the common subspace; None for one classifier for each outcome."""
        return self.n_components if self.strategy == "shared" else None

    @property
    def score_axis(self) -> str:
        """The axis of Y in models and trees: two classes have one score, not one each."""
        return SCORE if self.exclusive and self.Y.shape[1] == 1 else LABEL

    @property
    def complete(self) -> bool:
        """Whether no value is missing."""
        return issparse(self.X) or not np.isnan(self.X).any()

    def subset(self, index: IntArray) -> "Problem":
        """The same problem for some of the samples."""
        return replace(self, X=self.X[index], Y=self.Y[index])


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
    """Encoded targets of a classifier."""

    given: np.ndarray  # Targets as an array, (N,) or (N, K)
    classes: np.ndarray  # Sorted classes, or the names or numbers of the labels, (K,)
    signs: FloatArray  # (N, K), one column for two classes
    exclusive: bool  # Whether classes exclude each other; False for several labels
    # Class of each sample, (N,), -1 without; for several labels 0 if any is known, else -1.
    groups: IntArray


def compares_classes(n_samples: int, n_features: int, n_components: int, n_scores: int) -> bool:
    """Whether the loss of a common subspace is the hinge of all classes.

    With few components no line need separate a class from all others, and with more samples than
    features the classes are seldom separable.
    """
    few = n_components < n_scores - 1
    return n_scores > 2 and (few or n_samples > n_features)


def class_signs(index: IntArray, n_classes: int) -> FloatArray:
    """Signs (N, K) of classes (N,), 0 of those that are -1; one column for two classes."""
    first = 1 if n_classes == 2 else 0
    signs = np.where(index[:, None] == np.arange(first, n_classes), 1.0, -1.0)
    signs[index < 0] = 0.0
    return signs


def encode(y: TargetLike, unlabeled: object) -> Labels:
    """Encode classes (N,), or zeros and ones of several labels (N, K).

    NaN as the marker ``unlabeled`` stands for every kind of missing value. Raise a ValueError if y
    has an unmarked missing value, fewer than two classes, a constant label, or no labels.
    """
    given, known = known_entries(y, unlabeled)
    if given.ndim == 2 and given.shape[1] > 1:
        return _encode_labels(given, known, label_names(y, given.shape[1]))
    y = column_or_1d(given, warn=True)
    classes, groups = encode_known(y, known.ravel())
    signs = class_signs(groups, len(classes))
    return Labels(given=y, classes=classes, signs=signs, exclusive=True, groups=groups)


def _encode_labels(y: np.ndarray, known: BoolArray, names: np.ndarray) -> Labels:
    """Zeros and ones of several labels (N, K), of which some are known (N, K)."""
    if y.dtype.kind in "mMSU" or not np.isin(on := np.where(known, y, 0), (0, 1)).all():
        raise ValueError(
            "Unknown label type: several columns of y must hold 0 and 1, one for each label; to "
            "predict several targets of other classes, fit a model to each"
        )
    signs = label_signs(np.where(known, on, -1))
    return Labels(
        given=y,
        classes=names,
        signs=signs,
        exclusive=False,
        groups=np.where((signs != 0.0).any(axis=1), 0, -1),
    )


def label_signs(labels: np.ndarray) -> FloatArray:
    """Signs (N, K) of zeros and ones, 0 of those that are -1; ValueError if a label is constant."""
    signs = np.where(labels < 0, 0.0, 2.0 * labels.astype(np.float64) - 1.0)
    for label, column in enumerate(signs.T):
        if not {-1.0, 1.0} <= set(column.tolist()):
            raise ValueError(f"label {label} of y is the same in every sample that has it")
    return signs


def class_index(signs: FloatArray, exclusive: bool) -> IntArray:
    """Class of each sample, (M, 1), or 0 and 1 for each label, (M, K); -1 if unknown."""
    known = signs != 0.0
    if exclusive and signs.shape[1] > 1:
        return np.where(known.any(axis=1), signs.argmax(axis=1), -1)[:, None]
    return np.where(known, signs > 0.0, -1)
