r"""One judge of held-out predictions, for every model: temperature, evidence of a signal, score.

A model predicts by its own link, log probabilities at a temperature T. Held-out samples weigh
temperatures, with a prior of log T, and beside them the class frequencies :math:`\pi`, as if the
features told nothing:

.. math::
    w(T) \propto p(T) \, (1 - \pi_0) \, L(T)^\beta, \qquad w_0 \propto \pi_0 \, L_0^\beta,

with likelihoods L of the held-out samples. The calibrated probabilities are

.. math::
    p(k \mid x) = (1 - w_0) \, p_{\hat T}(k \mid x) + w_0 \, \pi_k,

:math:`\log \hat T` the mean of log T. A weak signal is thus shrunk towards the class frequencies
and not cut off. The score of a fold is that at the temperature and weight of the other folds.

References
----------
.. [1] C. Nadeau, Y. Bengio (2003). Inference for the generalization error. Machine Learning 52.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_softmax, logsumexp

from bsdr_models.data.targets import class_frequency
from bsdr_models.numerics.arrays import BoolArray, FloatArray, IntArray

# Log probabilities (..., K) of values (..., K') at a temperature.
type Link = Callable[[FloatArray, float], FloatArray]

# pi_0: prior probability that the features tell nothing of the classes.
NO_SIGNAL = 0.2
# beta. Held-out predictions of a few samples share their training samples, so that their
# likelihoods differ by luck more than those of independent samples.
POWER = 0.5
# Standard deviations of the prior that the nodes of log T reach, and their number.
REACH = 4.0
N_NODES = 33
# There is little evidence of a signal if the gain in held-out log score, in nats per sample, less
# so many standard errors is at most the second. A larger number would call weak signals none: the
# class frequencies have a part in predictions, which shrinks gains without a signal to nearly zero.
N_STANDARD_ERRORS = 0.85
MIN_GAIN = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TemperaturePrior:
    """Normal prior of log T."""

    mean: float
    sd: float

    def nodes(self) -> tuple[FloatArray, FloatArray]:
        """Equally spaced log T, and their log weights."""
        z = np.linspace(-REACH, REACH, N_NODES)
        log_weight = -0.5 * z**2
        return self.mean + self.sd * z, log_weight - logsumexp(log_weight)


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Temperature T, the weight ``signal`` of the model, and log class frequencies (K,).

    Of several labels frequencies are those of each value of a label, (T, 2). None are needed if the
    signal is one.
    """

    temperature: float = 1.0
    signal: float = 1.0
    log_frequency: FloatArray | None = None

    def attrs(self) -> dict[str, float]:
        """Attributes of a tree."""
        return {"temperature": self.temperature, "signal": self.signal}

    def apply(self, values: FloatArray, link: Link) -> FloatArray:
        """Calibrated log probabilities of values, as of the link."""
        log_p = link(values, self.temperature)
        if self.log_frequency is None or self.signal >= 1.0:
            return log_p
        log_signal = np.log(max(self.signal, np.finfo(np.float64).tiny))
        return np.logaddexp(log_signal + log_p, np.log1p(-self.signal) + self.log_frequency)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likelihoods:
    """Log likelihoods of held-out samples at nodes of log T, and by the class frequencies."""

    log_t: FloatArray  # (G,)
    log_prior: FloatArray  # of the nodes, (G,)
    each: FloatArray  # means over the divisions, sums over labels, weighted, (G, N)
    of_frequency: FloatArray  # (N,)
    log_frequency: FloatArray  # as of `Calibration`
    held_out: BoolArray  # (N,)

    @classmethod
    def of(
        cls,
        values: Sequence[FloatArray],
        y: IntArray,
        divisions: Sequence[IntArray],
        link: Link,
        prior: TemperaturePrior,
        weights: FloatArray | None = None,
    ) -> "Likelihoods":
        """From values, outcomes and weights as of :func:`judge`."""
        log_t, log_prior = prior.nodes()
        total = np.zeros((len(log_t), *y.shape))
        times = np.zeros(len(y))
        for own, fold in zip(values, divisions, strict=True):
            some = fold >= 0
            times += some
            for node, t in zip(total, np.exp(log_t), strict=True):
                node[some] += _of_truth(link(own[some], float(t)), y[some])
        known = y >= 0
        weights = np.ones(len(y)) if weights is None else weights
        log_frequency = _log_frequency(y, weights)
        of_frequency = np.where(known, _of_truth(log_frequency, y), 0.0)
        each = np.where(known, total, 0.0).reshape(len(log_t), len(y), -1).sum(axis=2)
        return cls(
            log_t=log_t,
            log_prior=log_prior,
            each=weights * each / np.maximum(times, 1.0),
            of_frequency=weights * of_frequency.reshape(len(y), -1).sum(axis=1),
            log_frequency=log_frequency,
            held_out=times > 0.0,
        )

    def log_evidence(self, used: BoolArray) -> float:
        """Log likelihood of some of the samples (N,), the temperature integrated out."""
        return float(logsumexp(self.log_prior + self.each[:, used].sum(axis=1)))

    def calibrate(self, used: BoolArray, share: float) -> Calibration:
        """By some of the samples, (N,), whose effective number is a share of their number."""
        power = POWER * share
        log_w = self.log_prior + np.log1p(-NO_SIGNAL) + power * self.each[:, used].sum(axis=1)
        evidence = logsumexp(log_w)
        none = np.log(NO_SIGNAL) + power * self.of_frequency[used].sum()
        return Calibration(
            temperature=float(np.exp(np.exp(log_w - evidence) @ self.log_t)),
            signal=float(np.exp(evidence - np.logaddexp(evidence, none))),
            log_frequency=self.log_frequency,
        )


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
        if groups is not None:  # whose sums are independent
            residual = np.bincount(np.unique(groups, return_inverse=True)[1], residual)
        error_of_sum = float(np.sqrt(n_units / (n_units - 1) * np.sum(residual**2)))
        return cls(
            score=float(np.nansum(weights[:, None] * log_p) / total),
            gain=float(mean),
            gain_se=error_of_folds(n_folds) * error_of_sum / total,
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


def error_of_folds(n_folds: float | None, ratio: float | None = None) -> float:
    """Factor of the standard error of a score over samples, with dependent training sets [1]_.

    Of folds that hold out every sample once, or with a ``ratio`` of held-out to training samples.
    """
    if n_folds is None or n_folds < 2:
        return 1.0
    ratio = 1.0 / (n_folds - 1) if ratio is None else ratio
    return float(np.sqrt(1.0 + n_folds * ratio))


def lack_of_signal(attrs: Mapping[Any, Any]) -> str | None:
    """Why targets may not depend on the features, in words; None if they seem to.

    The held-out log score decides: the prior of the effects knows the labels of the training
    samples, so that a Bayes factor would have no meaning. A gain that is positive, but not by more
    than its standard error allows, means that there are too few samples to tell. Of the attributes
    of a tree, ``held_out_gain`` and ``held_out_gain_se`` may be absent.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Calibration by all held-out samples, and predictions of each by that of the other folds."""

    calibration: Calibration
    score: HeldOutScore
    log_p: FloatArray  # of classes (N, K), or that labels are one (N, T); NaN if not held out

    def of_result(self, samples: IntArray | slice, n_samples: int) -> dict[str, Any]:
        """Fields of the result of a fit, of which these are some of the samples."""
        log_p = np.full((n_samples, self.log_p.shape[1]), np.nan)
        log_p[samples] = self.log_p
        return {"held_out": self.score, "held_out_log_proba": log_p}


def judge(
    values: Sequence[FloatArray],
    y: IntArray,
    divisions: Sequence[IntArray],
    link: Link,
    prior: TemperaturePrior,
    *,
    groups: IntArray | None = None,
    share: float = 1.0,
    weights: FloatArray | None = None,
) -> Judged:
    """Calibrate held-out predictions of one division of the samples into folds, or several.

    Values (N, K'), or (N, T) of several labels, and folds (N,), -1 of samples that were not held
    out, are given for each division. Outcomes y are classes (N,), or labels (N, T); -1 if unknown.
    ``groups`` and ``share`` are those of dependent samples; ``weights`` (N,) are powers of
    likelihoods.
    """
    likelihoods = Likelihoods.of(values, y, divisions, link, prior, weights)
    ever = likelihoods.held_out
    scores = []
    log_p = []
    for own, fold in zip(values, divisions, strict=True):
        of_division = np.full((len(y), *likelihoods.log_frequency.shape), np.nan)
        for number in np.unique(fold[fold >= 0]):
            out = fold == number
            others = ever & ~out
            found = likelihoods.calibrate(others if others.any() else ever, share)
            of_division[out] = found.apply(own[out], link)
        log_p.append(of_division)
        scores.append(np.where(y >= 0, _of_truth(of_division, y), np.nan))
    averaged = log_softmax(_mean_of_known(log_p), axis=-1)
    n_folds = len(np.unique(divisions[0][divisions[0] >= 0]))
    score = _mean_of_known(scores)
    return Judged(
        calibration=likelihoods.calibrate(ever, share),
        score=HeldOutScore.of(score, y, groups=groups, n_folds=n_folds, weights=weights),
        log_p=averaged if y.ndim == 1 else averaged[..., 1],
    )


def _mean_of_known(values: Sequence[FloatArray]) -> FloatArray:
    """Mean over the divisions of what is not NaN; NaN where all is."""
    known = np.sum([~np.isnan(own) for own in values], axis=0)
    total = np.nansum(values, axis=0)
    return np.divide(total, known, out=np.full(total.shape, np.nan), where=known > 0)


def _of_truth(log_p: FloatArray, y: IntArray) -> FloatArray:
    """Log probabilities (N, ...) of outcomes, of those that are unknown of the first value."""
    shaped = np.broadcast_to(log_p, (*y.shape, log_p.shape[-1]))
    return np.take_along_axis(shaped, np.maximum(y, 0)[..., None], axis=-1)[..., 0]


def _log_frequency(y: IntArray, weights: FloatArray) -> FloatArray:
    """Log frequencies of classes (K,), or of the values of each label, (T, 2)."""
    if y.ndim == 1:
        return np.log(class_frequency(y, int(y.max()) + 1, weights))
    return np.log(np.stack([class_frequency(own, 2, weights) for own in y.T]))
