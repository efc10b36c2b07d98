"""Comparison of classifiers by cross-validation: which to take, and whether any is of use.

Intervals of averages over samples are those of the Bayesian bootstrap [1]_: random weights that are
independent exponentials divided by their sum.

References
----------
.. [1] D. B. Rubin (1981). The Bayesian bootstrap. Annals of Statistics 9(1).
"""

import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator

from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.compare.baselines import (
    N_INNER_FOLDS,
    Folds,
    logistic_regression,
    pls_da,
    shrinkage_lda,
)
from bsdr_models.compare.cross_validation import (
    Fold,
    Splits,
    check_models,
    fitted_clone,
    predict_fold,
    read_classes,
    read_folds,
)
from bsdr_models.compare.stacking import StackedClassifier
from bsdr_models.data.replicates import warn_of_replicates
from bsdr_models.data.targets import read_groups
from bsdr_models.data.training import shared_training
from bsdr_models.data.validation import check_samples, encode_labels, validate_samples
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.estimators.calibration import error_of_folds
from bsdr_models.estimators.classifier import ProbabilisticClassifier
from bsdr_models.inference.tasks import run_tasks
from bsdr_models.metrics import expected_calibration_error, log_losses
from bsdr_models.numerics.arrays import FloatArray, IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import one_thread, recorded_warnings, warn
from bsdr_models.numerics.scaling import Scaler
from bsdr_models.options import N_JOBS, RandomState, Sampling, as_generator, check_parameters

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BASE_RATE = "none"
# Probability of the intervals.
PROB = 0.9
# Difference of log loss, in nats, below which two models tie.
TIE = 0.01
STACK = "stack"
# Folds by which models are cross-validated.
N_FOLDS = 5
# Beyond so many samples the models of this package hold out some of them only, and not the same.
MOST_SAMPLES = 2000
# Draws of each chain of BSDR in a comparison. Effective sample sizes of predictions are then 80 to
# 250, which change a log loss by less than another seed does.
SAMPLING = Sampling(draws=200)
NOT_MIXED = "the chains have not mixed"  # what so few draws may seem to show
# Bootstrap replicates.
N_RESAMPLES = 1000
# How far intervals are widened: the lowest of several log losses is partly luck, and models may
# hold out by divisions of their own,
WIDER = 1.3
# and so many nats over the number of samples are added in quadrature to half their width: a fit
# that finds a signal, or none, in a few samples by luck has the same loss for all of them.
LEAST = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """An estimate with an interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ({self.low:.3f} to {self.high:.3f})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Scores of classifiers on held-out samples.

    Attributes
    ----------
    table : pandas.DataFrame
        A line for each model, the lowest log loss first: ``accuracy``; ``log_loss`` in nats per
        sample; ``calibration_error``, the expected one; ``seconds`` of a fit, the median over the
        folds; ``difference`` of log loss from the lowest, with the ends ``low`` and ``high`` of its
        interval; ``note``, the first error or warning of its fits. NaN if a fit failed.
    recommended : str
        Name of the recommended model, "none" if none is better than the class frequencies by 0.01
        nats.
    recommendation : str
        The recommendation in a sentence, and whether the model is clearly better than none.
    models : dict of str to classifier
        The models compared, not fitted: ``found.models[found.recommended].fit(X, y)``.
    prob : float
        Probability of the intervals.

    See Also
    --------
    compare_models : returns such an object.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from bsdr_models import compare_models
    >>> X, y = load_iris(return_X_y=True)
    >>> found = compare_models(X[::3], y[::3], cv=2, random_state=0, progressbar=False)
    >>> found.recommended in found.models
    True
    """

    table: pd.DataFrame
    recommended: str
    recommendation: str
    models: Mapping[str, BaseEstimator]
    prob: float = PROB

    def plot(self, *, ax: "Axes | None" = None) -> "Axes":
        """Plot the table, see :func:`bsdr_models.plots.plot_comparison`."""
        from bsdr_models import plots

        return plots.plot_comparison(self, ax=ax)

    def __repr__(self) -> str:
        shown = self.table.drop(columns="note").to_string(float_format="{:.3f}".format, na_rep="-")
        notes = [f"{name}: {note}" for name, note in self.table["note"].items() if note]
        lines = [textwrap.fill(note, 100) for note in (*notes, self.recommendation)]
        return "\n".join([shown, *lines])


def compare_models(
    X: SamplesLike,
    y: TargetLike,
    *,
    models: Mapping[str, BaseEstimator] | None = None,
    cv: Splits | None = None,
    groups: TargetLike | None = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
    progressbar: bool = True,
) -> Comparison:
    """Compare the classifiers of this package and common ones by held-out samples.

    The models, from the simplest, are "none", the class frequencies of the training samples;
    "shrinkage LDA"; "logistic regression"; "PLS-DA", logistic regression on PLS scores;
    "BM2PCA", "BSDR" and "D-GPLVM" with their defaults; and "stack", these three as one
    (:class:`StackedClassifier`). Features are standardised. Within each training set penalties, and
    the number of PLS scores, are chosen by the log loss of an inner cross-validation.

    The stack is recommended, unless the interval of its difference from the lowest log loss lies
    above 0.01 nats: the lowest of many log losses on few samples is often luck, and the stack was
    better on new samples. Then the model of the lowest log loss is recommended. A simpler model
    than that of the lowest log loss is recommended if the interval of its difference lies below
    0.01 nats. If no model is better than the class frequencies by 0.01 nats, "none" is
    recommended. ``recommendation`` says so if the interval of the gain over the class frequencies
    includes zero.

    A fit of this package holds samples out by itself, and calibrates the predictions of each by the
    others. By default one fit of each of these models is scored by them, and the other models are
    cross-validated. In a comparison BSDR has 200 draws of each chain.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
        Features of all samples.
    y : array-like of shape (n_samples,)
        Classes.
    models : mapping of str to classifier, optional
        Further classifiers of scikit-learn with ``predict_proba``, which rank as the least simple
        in the order given; or others in place of those above, by name.
    cv : int, splitter or iterable of (train, test), optional
        Number of stratified, shuffled folds, or a splitter, which may be repeated or random, by
        which all models are cross-validated. None is five folds for the models that have no
        held-out predictions of their own, and for all models beyond 2000 samples.
    groups : array-like of shape (n_samples,), optional
        Samples of one group, such as a patient, are held out together, also inside of fits whose
        ``fit`` takes ``groups``, and count together in the intervals.
    n_jobs : int, optional
        Folds in parallel; None is 1 unless a ``joblib.parallel_config`` says otherwise. Does not
        change results other than ``seconds``.
    random_state : int, RandomState, Generator or None
        Seed of folds and fits; classifiers in ``models`` have their own.
    progressbar : bool, default=True
        Whether to show how far a long fit has come.

    Returns
    -------
    Comparison
        With ``table``, ``recommended``, ``recommendation`` and ``plot()``.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the end of the first fold.
    RuntimeError
        If every model failed.
    TypeError
        If an entry of ``models`` has no ``predict_proba``, or X is not a dense table.
    ValueError
        If y does not hold two classes or more, no class has as many samples as folds, one has fewer
        than two in a training set, X is not finite, or an argument is out of range.

    Warns
    -----
    UserWarning
        If a model fails; the others are compared. After a keyboard interrupt: the scores are then
        those of the folds that were complete.

    See Also
    --------
    bsdr_models.plots.plot_comparison : the plot of a comparison.
    cross_validated_map : the map of one model.

    Notes
    -----
    Intervals are those of the Bayesian bootstrap of the held-out samples, widened for training sets
    that share most of their samples [1]_: by 1.5 for five folds. Those that are given are widened
    further, by 1.3 and by 2.5 nats over the number of samples, in quadrature, since the lowest log
    loss is partly luck.

    References
    ----------
    .. [1] C. Nadeau, Y. Bengio (2003). Inference for the generalization error. Machine Learning 52.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import compare_models
    >>> X, y = load_wine(return_X_y=True)
    >>> found = compare_models(X[::3], y[::3], cv=3, random_state=0, progressbar=False)
    >>> bool(found.table["accuracy"].max() > 0.9)
    True
    """
    check_parameters({"n_jobs": N_JOBS, "progressbar": ["boolean"]}, locals(), "compare_models")
    if models is not None and not isinstance(models, Mapping):
        raise TypeError(f"models must map names to classifiers, got {type(models).__name__}")
    check_models(models or {}, "models")
    if BASE_RATE in (models or {}):
        raise ValueError(f"{BASE_RATE!r} is the name of the class frequencies: choose another")
    check_samples(X, y, groups)
    labels = read_classes(y)
    classes, index = encode_labels(labels)
    samples = validate_samples(BSDRClassifier(), X, reset=True, missing=True)
    if np.isnan(samples).any():
        raise ValueError(
            "X contains NaN, and most models of the comparison need complete samples: impute its "
            "values first, as by X = BM2PCAClassifier().fit(X, y).impute(X)"
        )
    group_index = read_groups(groups, X)
    if group_index is None:
        warn_of_replicates(Scaler.fit(samples).transform(samples), index, np.empty((0, 0)))
    rng = as_generator(random_state)
    folds = read_folds(X, labels, N_FOLDS if cv is None else cv, rng, groups=group_index, least=2)
    seeds = rng.integers(2**31, size=7).tolist()
    compared, returned = (
        _models(folds, index, seeds, sampling) | dict(models or {}) for sampling in (SAMPLING, None)
    )
    seed = int(rng.integers(2**31))
    once = []
    if cv is None and len(labels) <= MOST_SAMPLES:
        once = [name for name in compared if isinstance(compared[name], ProbabilisticClassifier)]

    def fit(fold: Fold | None) -> dict[str, list[HeldOut]]:
        own = {name: compared[name] for name in compared if (name in once) == (fold is None)}
        with shared_training(seed):
            return _fit_models(own, X, labels, classes, group_index, folds, fold)

    tasks = [None, *folds] if once else folds  # the longest first
    run = run_tasks(fit, tasks, n_jobs=n_jobs, what="Comparison", progressbar=progressbar)
    if run.interrupted:
        n_done = len(run.results) - bool(once)
        if n_done == 0:
            raise KeyboardInterrupt
        warn(f"interrupted: the scores are those of {n_done} of {len(folds)} folds")
    fits = {
        name: [fit for found in run.results for fit in found.get(name, ())] for name in compared
    }
    failed = {name: note for name, own in fits.items() if (note := note_of(own, "failed"))}
    if not set(fits) - {BASE_RATE, *failed}:
        raise RuntimeError(f"every model failed; the last of them: {[*failed.values()][-1]}")
    for name, note in failed.items():
        warn(f"{name} has no scores: {note}")
    whole = {name: own for name, own in fits.items() if name not in failed}
    held_out = [np.concatenate([fit.test for fit in own]) for own in whole.values()]
    common = reduce(np.intersect1d, held_out)
    scored = {name: ModelScores.of(own, index, common) for name, own in whole.items()}
    tested = np.concatenate([fit.test for fit in fits[BASE_RATE]])
    per_repeat = len(fits[BASE_RATE]) * len(np.unique(tested)) / len(tested)
    ratio = float(np.mean([len(test) / len(train) for train, test in folds]))
    factor = error_of_folds(per_repeat, ratio)
    of_fits = partial(mean_difference, groups=group_index, seed=seed, factor=factor)
    n_independent = len(labels) if group_index is None else len(np.unique(group_index))
    difference = partial(of_fits, factor=WIDER * factor, least=LEAST / n_independent)

    ranked = sorted(scored, key=lambda name: scored[name].log_loss)
    lowest = ranked[0]
    behind = {name: difference(scored[name], scored[lowest]) for name in ranked}
    clear = {name: of_fits(scored[name], scored[lowest]) for name in ranked}
    chosen = next(name for name in scored if name == lowest or clear[name].high < TIE)
    if behind[BASE_RATE].value < TIE:
        chosen = BASE_RATE
    elif chosen == lowest and STACK in scored and clear[STACK].low <= TIE:
        chosen = STACK
    best = next(name for name in ranked if name != BASE_RATE)
    gain = difference(scored[BASE_RATE], scored[best if chosen == BASE_RATE else chosen])
    return Comparison(
        table=make_table(fits, scored, behind),
        recommended=chosen,
        recommendation=_sentence(chosen, best, scored[chosen].log_loss, gain),
        models=returned,
    )


def _models(
    folds: Sequence[Fold],
    index: IntArray,
    seeds: Sequence[int],
    sampling: Sampling | None,
) -> dict[str, BaseEstimator]:
    """All models by name, the simplest first, with as many draws of BSDR."""
    fewest = min(int(np.bincount(index[train]).min()) for train, _ in folds)
    inner = min(N_INNER_FOLDS, fewest)
    *seeds, lda, logistic, pls, stack = seeds
    ours = {
        "BM2PCA": BM2PCAClassifier(random_state=seeds[0]),
        "BSDR": BSDRClassifier(sampling=sampling, random_state=seeds[1]),
        "D-GPLVM": DGPLVMClassifier(random_state=seeds[2]),
    }
    return {
        BASE_RATE: DummyClassifier(strategy="prior"),
        "shrinkage LDA": shrinkage_lda(Folds(inner, lda)),
        "logistic regression": logistic_regression(Folds(inner, logistic)),
        "PLS-DA": pls_da(Folds(inner, pls)),
        **ours,
        STACK: StackedClassifier(list(ours.items()), random_state=stack),
    }


# Fits and scores


class HeldOut(NamedTuple):
    """Class probabilities (M, K) of the held-out samples of a fold, empty if the fit failed."""

    test: IntArray  # positions of the held-out samples, (M,)
    message: str  # error, or the first warning
    probability: FloatArray = np.empty((0, 0))
    seconds: float = np.nan

    @property
    def failed(self) -> bool:
        """Whether the fit, or its predictions, raised an error."""
        return not self.probability.size


def _fit_models(
    models: Mapping[str, BaseEstimator],
    X: SamplesLike,
    y: np.ndarray,
    classes: np.ndarray,
    groups: IntArray | None,
    folds: Sequence[Fold],
    fold: Fold | None,
) -> dict[str, list[HeldOut]]:
    """Fit models to the training samples of a fold, or to all samples if it is None.

    Stacks are the last, and take the fits of their members.
    """
    found: dict[str, list[HeldOut]] = {}
    trained: dict[str, BaseEstimator] = {}
    for name in sorted(models, key=lambda name: isinstance(models[name], StackedClassifier)):
        estimator = models[name]
        stacked = estimator.estimators or () if isinstance(estimator, StackedClassifier) else ()
        shared = [n for n, each in stacked if n in trained and models[n] is each]
        if shared:
            members = [(n, trained[n] if n in shared else each) for n, each in stacked]
            estimator = clone(estimator).set_params(estimators=members)
        with recorded_warnings() as caught, one_thread():
            try:
                begin = time.perf_counter()
                if fold is None:
                    model, parts = _hold_out(estimator, X, y, classes, groups, folds)
                else:
                    model, probability = predict_fold(estimator, X, y, fold, classes, groups)
                    parts = [(fold[1], probability)]
                seconds = (time.perf_counter() - begin) / len(parts)
            except Exception as error:  # other models are still compared
                said = "; ".join([str(error), *getattr(error, "__notes__", [])])
                tested = np.empty(0, dtype=np.intp) if fold is None else fold[1]
                found[name] = [HeldOut(tested, f"{type(error).__name__}: {said}")]
                continue
        messages = [str(each.message) for each in caught]
        if getattr(models[name], "sampling", None) == SAMPLING:
            messages = [each for each in messages if NOT_MIXED not in each]
        seconds += sum(found[member][0].seconds for member in shared)
        found[name] = [HeldOut(test, "".join(messages[:1]), p, seconds) for test, p in parts]
        if getattr(model, "held_out_log_proba_", None) is not None:
            trained[name] = FrozenEstimator(model)
    return found


def _hold_out(
    estimator: BaseEstimator,
    X: SamplesLike,
    y: np.ndarray,
    classes: np.ndarray,
    groups: IntArray | None,
    folds: Sequence[Fold],
) -> tuple[BaseEstimator, list[tuple[IntArray, FloatArray]]]:
    """A fit to all samples, and probabilities (M, K) of those that it has held out.

    If it holds out none, as at a given temperature, they are those of a cross-validation.
    """
    model = fitted_clone(estimator, X, y, groups)
    log_p = model.held_out_log_proba_
    if log_p is None:
        return model, [(f[1], predict_fold(estimator, X, y, f, classes, groups)[1]) for f in folds]
    known = np.flatnonzero(~np.isnan(log_p).any(axis=1))
    return model, [(known, np.exp(log_p[known]))]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScores:
    """Losses (N,), NaN of samples that were not held out, and what the table says of a model."""

    loss: FloatArray
    line: dict[str, float]

    @classmethod
    def of(cls, fits: Sequence[HeldOut], index: IntArray, samples: IntArray) -> "ModelScores":
        """Scores of these samples; they count once, held out several times by means."""
        tested = np.concatenate([fit.test for fit in fits])
        counted = np.isin(tested, samples)
        tested = tested[counted]
        p = np.concatenate([fit.probability for fit in fits])[counted]
        truth = index[tested]
        times = np.bincount(tested, minlength=len(index)).astype(np.float64)
        times[times == 0.0] = np.nan
        right = p.argmax(axis=1) == truth
        loss = np.bincount(tested, log_losses(p, truth), len(index)) / times
        line = {
            "accuracy": float(np.nanmean(np.bincount(tested, right, len(index)) / times)),
            "log_loss": float(np.nanmean(loss)),
            "calibration_error": expected_calibration_error(p, truth),
            "seconds": float(np.median([fit.seconds for fit in fits])),
        }
        return cls(loss=loss, line=line)

    @property
    def log_loss(self) -> float:
        """Mean over the samples held out, in nats."""
        return self.line["log_loss"]


def mean_difference(
    a: ModelScores,
    b: ModelScores,
    *,
    groups: IntArray | None,
    seed: int,
    factor: float,
    least: float = 0.0,
) -> Estimate:
    """Mean difference of the log losses of two models, with bootstrap quantiles.

    Samples are independent or, if their ``groups`` (N,) are given, those of different groups are.
    The ends are so many times as far from the mean as the quantiles, and at least so far, where
    both distances are added in quadrature.
    """
    difference = a.loss - b.loss
    both = ~np.isnan(difference)
    values = difference[both]
    own = np.arange(len(values)) if groups is None else groups[both]
    index = np.unique(own, return_inverse=True)[1]
    sums = np.stack([np.bincount(index, each) for each in (values, np.ones(len(values)))], axis=1)
    rng = np.random.default_rng(seed)  # the same weights for every pair
    resampled = [rng.standard_exponential(len(sums)) @ sums for _ in range(N_RESAMPLES)]
    total, count = np.transpose(resampled)
    mean = float(values.mean())
    ends = np.quantile(total / count, [0.5 - 0.5 * PROB, 0.5 + 0.5 * PROB])
    low, high = (factor * (ends - mean)).tolist()
    if a is not b:
        low = -float(np.hypot(low, least))
        high = float(np.hypot(high, least))
    return Estimate(value=mean, low=mean + low, high=mean + high)


def note_of(fits: Sequence[HeldOut], happened: str) -> str:
    """How many fits of a model failed or warned, and why the first of them."""
    messages = [fit.message for fit in fits if fit.message and (fit.failed or happened == "warned")]
    return f"{len(messages)} of {len(fits)} fits {happened} ({messages[0]})" if messages else ""


def make_table(
    fits: Mapping[str, Sequence[HeldOut]],
    scored: Mapping[str, ModelScores],
    behind: Mapping[str, Estimate],
) -> pd.DataFrame:
    """Table of a comparison, in the order of differences from the lowest log loss."""
    lines = [
        {
            "model": name,
            **scored[name].line,
            "difference": difference.value,
            "low": difference.low,
            "high": difference.high,
            "note": note_of(fits[name], "warned"),
        }
        for name, difference in behind.items()
    ]
    lines += [
        {"model": name, "note": note_of(own, "failed")}
        for name, own in fits.items()
        if name not in behind
    ]
    return pd.DataFrame(lines).set_index("model")


def _sentence(chosen: str, best: str, log_loss: float, gain: Estimate) -> str:
    """Which model to take, and whether it is better than the class frequencies."""
    if chosen == BASE_RATE:
        return (
            f"Take none: the lowest log loss of the models, that of {best}, is {gain} nats below "
            f"that of the class frequencies, a gain of less than {TIE}."
        )
    lowest = f"clearly within {TIE} of the lowest, that of {best}, which is less simple"
    if chosen == STACK:
        lowest = f"not clearly more than {TIE} above the lowest, that of {best}"
    verdict = f"Take {chosen}" if gain.low > 0.0 else f"Take {chosen}, if any is better than none"
    return (
        f"{verdict}: its log loss, {log_loss:.3f}, is "
        f"{'the lowest' if chosen == best else lowest}; it is {gain} nats below that of the class "
        "frequencies."
    )
