"""Log loss and calibration error; evidence of a signal.

References
----------
.. [1] C. Nadeau, Y. Bengio (2003). Inference for the generalization error. Machine Learning 52.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bsdr_models.numerics.arrays import FloatArray, IntArray

# There is little evidence of a signal if the gain in held-out log score, in nats per sample, less
# so many standard errors is at most the second. A larger number would call weak signals none: the
# class frequencies have a part in predictions, which shrinks gains without a signal to nearly zero.
N_STANDARD_ERRORS = 0.85
MIN_GAIN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOutScore:
    """Log score of held-out labels, in nats; NaN if none was held out.

    The gain is the score less that of the class frequencies of the training samples, which ignore
    the features; ``gain_se`` is its standard error over samples, or groups of them.
    """

    score: float = np.nan
    gain: float = np.nan
    gain_se: float = np.nan

    @classmethod
    def of(
        cls,
        log_p: FloatArray,
        y: np.ndarray,
        frequency: FloatArray | None = None,
        *,
        groups: IntArray | None = None,
        n_folds: int | None = None,
        weights: FloatArray | None = None,
    ) -> "HeldOutScore":
        """Score of the log probabilities of held-out labels y, (M,) or (M, K), NaN where unknown.

        ``frequency`` is that of each label among the training samples, by default that in y, of
        which a cross-validation holds out every one. With fewer than two samples, or ``groups``
        (M,) of them, which are independent where samples of one are not, all is NaN. Means are
        weighted, by weights (M,).

        Fits without one of ``n_folds`` F share most of their training samples. The variance of the
        gain is then larger than that of independent samples by 1 + F / (F - 1) [1]_.
        """
        known = ~np.isnan(log_p)
        m = len(log_p)
        weights = np.ones(m) if weights is None else weights
        n_units = m if groups is None else len(np.unique(groups))
        if n_units < 2 or not known.any():
            return cls()
        known, log_p, y = (values.reshape(m, -1) for values in (known, log_p, y))
        total = np.sum(weights[:, None] * known)
        if frequency is None:
            frequency = np.ones_like(log_p)
            for column, labels, some in zip(frequency.T, y.T, known.T, strict=True):
                index = np.unique(labels[some], return_inverse=True)[1]
                counts = np.bincount(index, weights[some])
                column[some] = (counts / counts.sum())[index]
        gains = np.where(known, log_p - np.log(frequency.reshape(m, -1)), 0.0)
        mean = np.sum(weights[:, None] * gains) / total
        residual = weights * (gains.sum(axis=1) - mean * known.sum(axis=1))
        return cls(
            score=float(np.nansum(weights[:, None] * log_p) / total),
            gain=float(mean),
            gain_se=error_of_folds(n_folds) * error_of_sum(residual, groups) / total,
        )

    @property
    def signal(self) -> bool:
        """Whether the gain exceeds what few samples have by chance."""
        return self.gain - N_STANDARD_ERRORS * self.gain_se > MIN_GAIN

    def named(self) -> dict[str, float]:
        """Values by the names that estimators and trees give them."""
        names = ("score", "gain", "gain_se")
        return {f"held_out_{name}": float(getattr(self, name)) for name in names}

    def attrs(self) -> dict[str, float]:
        """Attributes of a tree; none without held-out labels."""
        return self.named() if np.isfinite(self.score) else {}


def error_of_sum(residual: FloatArray, groups: IntArray | None = None) -> float:
    """Standard error of a sum of N terms, given their residuals.

    Terms are independent or, if their ``groups`` (N,) are given, sums of different groups are.
    """
    if groups is not None:
        residual = np.bincount(np.unique(groups, return_inverse=True)[1], residual)
    n = len(residual)
    if n < 2:
        return np.inf
    return float(np.sqrt(n / (n - 1) * np.sum(residual**2)))


def error_of_folds(n_folds: float | None, ratio: float | None = None) -> float:
    """Factor of the standard error of a score over samples, with dependent training sets [1]_.

    Of folds that hold out every sample once, or with a ``ratio`` of held-out to training samples.
    """
    if n_folds is None or n_folds < 2:
        return 1.0
    ratio = 1.0 / (n_folds - 1) if ratio is None else ratio
    return float(np.sqrt(1.0 + n_folds * ratio))


def lack_of_signal(attrs: Mapping[Any, Any]) -> str | None:
    """Say in words why targets may not depend on the features; None if they seem to.

    The held-out log score decides: the prior of the effects knows the labels of the training
    samples, so that a Bayes factor would have no meaning. A gain that is positive, but not by more
    than its standard error allows, means that there are too few samples to tell.

    Parameters
    ----------
    attrs : mapping
        ``held_out_gain`` and ``held_out_gain_se``, absent or NaN if unknown, and ``target``.

    See Also
    --------
    compare_models : held-out scores beside those of no features.

    Examples
    --------
    >>> from bsdr_models.metrics import lack_of_signal
    >>> lack_of_signal({"held_out_gain": 0.0, "held_out_gain_se": 0.02})
    'the held-out log score gains 0.00 ± 0.02 nats over the class frequencies'
    >>> lack_of_signal({"held_out_gain": 0.5, "held_out_gain_se": 0.1}) is None
    True
    """
    gain = attrs.get("held_out_gain", np.nan)
    se = attrs.get("held_out_gain_se", np.nan)
    if np.isnan(gain) or HeldOutScore(gain=gain, gain_se=se).signal:
        return None
    few = "too few samples to tell, " if gain > MIN_GAIN else ""
    gain = round(gain, 2) + 0.0  # no -0.00
    base = baseline(attrs.get("target"))
    return f"{few}the held-out log score gains {gain:.2f} ± {se:.2f} nats over {base}"


def baseline(target: object) -> str:
    """What predicts without the features, in words."""
    return "a model without features" if target == "regression" else "the class frequencies"


def no_signal(reason: str) -> str:
    """Warning of a fit, given :func:`lack_of_signal`."""
    return f"no evidence that the targets depend on X: {reason}"


def expected_calibration_error(
    probability: ArrayLike, y_index: ArrayLike, *, n_bins: int = 10
) -> float:
    """Mean absolute difference between confidence and accuracy over bins.

    Samples are put into bins of equal width by the probability of their most probable class.

    Parameters
    ----------
    probability : array-like of shape (n_samples, n_classes)
        Class probabilities of the samples.
    y_index : array-like of shape (n_samples,)
        Column of the true class.
    n_bins : int
        Number of bins.

    Returns
    -------
    float
        Calibration error, between 0 and 1.

    See Also
    --------
    log_losses : scores of single samples.
    sklearn.calibration.CalibrationDisplay : the plot.

    Examples
    --------
    >>> from bsdr_models.metrics import expected_calibration_error
    >>> round(expected_calibration_error([[0.8, 0.2], [0.6, 0.4]], [0, 1]), 2)
    0.4
    """
    stated = np.asarray(probability)
    confidence = stated.max(axis=1)
    right = stated.argmax(axis=1) == np.asarray(y_index)
    bins = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    gap = np.bincount(bins, weights=confidence - right)
    return float(np.abs(gap).sum() / len(confidence))


def log_losses(probability: FloatArray, y_index: IntArray) -> FloatArray:
    """Log loss of each sample, (N,), in nats.

    As in scikit-learn's ``log_loss``, their mean, zero probabilities become the machine epsilon.

    See Also
    --------
    expected_calibration_error : of the probability of the most probable class.

    Examples
    --------
    >>> import numpy as np
    >>> from bsdr_models.metrics import log_losses
    >>> log_losses(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 0])).round(2).tolist()
    [0.69, -0.0]
    """
    given = probability[np.arange(len(y_index)), y_index]
    return -np.log(np.maximum(given, np.finfo(np.float64).eps))
