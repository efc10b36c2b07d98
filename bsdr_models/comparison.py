"""Comparison of classifiers by cross-validation: which to take, and whether any is of use."""

import textwrap
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.baselines import (
    COMPONENTS,
    N_INNER_FOLDS,
    logistic_regression,
    pls_da,
    shrinkage_lda,
)
from bsdr_models.bm2pca.estimator import BM2PCAClassifier
from bsdr_models.bsdr.estimator import BSDRClassifier
from bsdr_models.cross_validation import (
    Fold,
    check_models,
    fitted_clone,
    read_classes,
    read_folds,
    select_samples,
)
from bsdr_models.dgplvm.estimator import DGPLVMClassifier
from bsdr_models.groups import read_groups
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.members import class_probabilities
from bsdr_models.metrics import Estimate, expected_calibration_error, log_losses, mean_of_samples
from bsdr_models.options import N_JOBS, Sampling, check_parameters
from bsdr_models.process_state import one_thread, recorded_warnings
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.stacking import StackedClassifier
from bsdr_models.validation import (
    check_samples,
    encode_labels,
    validate_samples,
)

BASE_RATE = "none"
# Probability of the intervals.
PROB = 0.9
# Difference of log loss, in nats, below which two models tie.
TIE = 0.01
SCORES = ("accuracy", "log_loss", "calibration_error", "seconds", "difference", "low", "high")
STACK = "stack"
# Draws of each chain of BSDR in a fold. Effective sample sizes of predictions are then 80 to 250,
# which change a log loss by less than another seed does.
SAMPLING = Sampling(draws=200)
NOT_MIXED = "the chains have not mixed"  # what so few draws may seem to show
# Folds after which a model that is clearly behind has no more fits.
RACE_FOLDS = 2
# Fewest samples, or groups, that these must hold out: intervals of fewer are too narrow.
RACE_SAMPLES = 20
# Probability of the interval that must lie above `TIE`.
RACE_PROB = 0.99


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Scores of classifiers on held-out samples.

    Attributes
    ----------
    table : pandas.DataFrame
        A line for each model, the lowest log loss first: ``accuracy``; ``log_loss`` in nats per
        sample; ``calibration_error``, the expected one; ``seconds`` of a fit, the median over the
        folds; ``difference`` of log loss from the lowest, with the ends ``low`` and ``high`` of its
        interval; ``note``, the first error or warning of its fits. NaN if a fit failed. At the end
        are models that were dropped after two folds, with the scores of these; their difference is
        that on the same samples.
    recommended : str
        Name of the model to take, "none" if no log loss is below that of the class frequencies.
    recommendation : str
        The same in a sentence, and whether the model is clearly better than none.
    models : dict of str to classifier
        The models compared, not fitted: ``found.models[found.recommended].fit(X, y)``.
    prob : float
        Probability of the intervals.

    See Also
    --------
    compare_models : makes one.

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
    models: Mapping[str, Any]
    prob: float = PROB

    def plot(self, *, ax: Any = None) -> Any:
        """Plot the table, see :func:`bsdr_models.plots.plot_comparison`."""
        from bsdr_models import plots

        return plots.plot_comparison(self, ax=ax)

    def __repr__(self) -> str:
        shown = self.table.drop(columns="note").to_string(float_format="{:.3f}".format, na_rep="-")
        notes = [f"{name}: {note}" for name, note in self.table["note"].items() if note]
        lines = [textwrap.fill(note, 100) for note in (*notes, self.recommendation)]
        return "\n".join([shown, *lines])


def compare_models(
    X: Any,
    y: Any,
    *,
    models: Mapping[str, Any] | None = None,
    cv: Any = 5,
    groups: Any = None,
    n_jobs: int | None = None,
    random_state: RandomState = None,
    progressbar: bool = True,
) -> Comparison:
    """Compare the classifiers of this package and common ones by cross-validation.

    The models are, from the simplest: "none", the class frequencies of the training samples;
    "shrinkage LDA"; "logistic regression"; "PLS-DA", logistic regression on PLS scores;
    "BM2PCA", "BSDR" and "D-GPLVM" with their defaults; and "stack", these three as one
    (:class:`StackedClassifier`). Features are standardised. Within each training set penalties, and
    the number of PLS scores, are chosen by the log loss of an inner cross-validation.

    Recommended is the model of lowest log loss or, of those within 0.01 nats of it, the simplest;
    but the stack, if it is further behind and the interval of its difference includes zero, unless
    no model is better than the class frequencies by 0.01 nats: the lowest of many log losses on few
    samples is lucky, and the stack was the better one on new samples.
    The sentence doubts it if the interval of its gain over the class frequencies includes zero.

    To save time, a model whose log loss in the first two folds is clearly above the lowest, by more
    than 0.01 nats at the lower end of a 99 % interval, is dropped, unless it is a member of a stack
    that is not; and BSDR has 200 draws of each chain in the folds, not those of its default.

    Parameters
    ----------
    X : array-like or data frame of shape (n_samples, n_features)
        Features of all samples.
    y : array-like of shape (n_samples,)
        Classes.
    models : mapping of str to classifier, optional
        Further classifiers of scikit-learn with ``predict_proba``, which rank as the least simple
        in the order given; or others in place of those above, by name.
    cv : int, splitter or iterable of (train, test), default=5
        Number of stratified, shuffled folds, or a splitter, which may be repeated or random.
    groups : array-like of shape (n_samples,), optional
        Samples of one group, such as a patient, are held out together, also inside of fits whose
        ``fit`` takes ``groups``, and count together in the intervals.
    n_jobs : int, optional
        Fits in parallel; None is 1 unless a ``joblib.parallel_config`` says otherwise. Does not
        change results other than ``seconds``.
    random_state : int, RandomState, Generator or None
        Of folds and fits; classifiers in ``models`` have their own.
    progressbar : bool, default=True
        Whether to show how far a long fit has come.

    Returns
    -------
    Comparison
        With ``table``, ``recommended``, ``recommendation`` and ``plot()``.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before any model has all its fits.
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
        If a model fails; the others are compared.

    See Also
    --------
    bsdr_models.plots.plot_comparison : the plot of a comparison.
    cross_validated_map : the map of one model.

    Notes
    -----
    Intervals are those of the Bayesian bootstrap of the held-out samples, for the given fits:
    variation between training sets is not in them.

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
    y = read_classes(y)
    classes, index = encode_labels(y)
    samples = validate_samples(BSDRClassifier(), X, reset=True, missing=True)
    if np.isnan(samples).any():
        raise ValueError(
            "X contains NaN, and most models of the comparison need complete samples: impute its "
            "values first, as by X = BM2PCAClassifier().fit(X, y).impute(X)"
        )
    n_features = samples.shape[1]
    groups = read_groups(groups, X)
    rng = as_generator(random_state)
    folds = read_folds(X, y, cv, rng, groups=groups, least=2)
    seeds = rng.integers(2**31, size=7).tolist()
    compared, returned = (
        _models(folds, index, n_features, seeds, sampling) | dict(models or {})
        for sampling in (SAMPLING, None)
    )
    stacks = [name for name, model in compared.items() if isinstance(model, StackedClassifier)]
    fits: dict[str, dict[int, _Fit]] = {name: {} for name in compared}

    def members_of(name: str) -> list[str]:
        """Members of a stack that are compared too."""
        members = (compared[name].estimators or ()) if name in stacks else ()
        return [other for other, model in members if compared.get(other) is model]

    def fit(task: tuple[str, int, dict[str, _Fit]]) -> tuple[str, int, _Fit]:
        name, number, members = task
        members = {other: one for other, one in members.items() if one.model is not None}
        return name, number, _fit(compared[name], members, X, y, classes, folds[number], groups)

    def keep(result: tuple[str, int, _Fit]) -> None:
        name, number, fits[name][number] = result

    def fit_all(names: Sequence[str], numbers: Sequence[int]) -> bool:
        """Fit models in some folds, the stacks last; whether the user has interrupted it."""
        options: Any = {"what": "Comparison", "progressbar": progressbar, "on_done": keep}
        for name in names:
            fits[name] |= dict.fromkeys(numbers, _Fit("interrupted"))
        alone = [name for name in names if name not in stacks]
        try:
            for some in filter(None, (alone, [name for name in names if name in stacks])):
                pairs = [(name, number) for name in some for number in numbers]
                tasks = [(n, i, {m: fits[m][i] for m in members_of(n)}) for n, i in pairs]
                if run_tasks(fit, tasks, n_jobs=n_jobs, **options).interrupted:
                    return True
        except KeyboardInterrupt:
            return True
        finally:
            for name in names:  # fitted models, which take much memory, have served the stacks
                fits[name] |= {i: fits[name][i]._replace(model=None) for i in numbers}
        return False

    def complete_scores() -> dict[str, _Scores]:
        """Scores of the models whose fits have all succeeded."""
        done = (n for n, of in fits.items() if all(f.probability is not None for f in of.values()))
        return {name: _Scores.of(fits[name], folds, index) for name in done}

    seed = int(rng.integers(2**31))  # the same weights for every pair

    def mean_difference(a: _Scores, b: _Scores, prob: float = PROB) -> Estimate:
        difference = a.loss - b.loss
        both = ~np.isnan(difference)
        own = None if groups is None else groups[both]
        rng = np.random.default_rng(seed)
        return mean_of_samples(difference[both], prob=prob, groups=own, rng=rng)

    def clearly_behind() -> dict[str, str]:
        """Names of the models to drop, and that of the leader."""
        units = np.concatenate([test for _, test in folds[:RACE_FOLDS]])
        if len(np.unique(units if groups is None else groups[units])) < RACE_SAMPLES:
            return {}
        of = complete_scores()
        leader = min(of, key=lambda name: of[name].log_loss)
        lows = {name: mean_difference(of[name], of[leader], RACE_PROB).low for name in of}
        out = [name for name, low in lows.items() if low > TIE and name != BASE_RATE]
        needed = {other for name in stacks if name not in out for other in members_of(name)}
        return {name: leader for name in out if name not in needed}

    interrupted = fit_all([*compared], range(len(folds))[:RACE_FOLDS])
    dropped: dict[str, str] = {}
    if len(folds) > RACE_FOLDS and not interrupted:
        dropped = clearly_behind()
        rest = [name for name in compared if name not in dropped]
        interrupted = fit_all(rest, range(RACE_FOLDS, len(folds)))
    scored = complete_scores()
    failed = {name: _note(of, "failed") for name, of in fits.items() if name not in scored}
    if failed and not set(scored) - {BASE_RATE, *dropped}:
        if interrupted:
            raise KeyboardInterrupt
        raise RuntimeError(f"every model failed; the last of them: {[*failed.values()][-1]}")
    for name, note in failed.items():
        warnings.warn(f"{name} has no scores: {note}", UserWarning, stacklevel=2)

    lines: dict[str, dict[str, Any]] = {}
    for name, of in scored.items():
        notes = [_note(fits[name], "warned")]
        if name in dropped:
            notes.append(f"dropped after {RACE_FOLDS} folds, clearly behind {dropped[name]}")
        lines[name] = {
            "accuracy": of.accuracy,
            "log_loss": of.log_loss,
            "calibration_error": of.calibration_error,
            "seconds": np.median([fit.seconds for fit in fits[name].values()]),
            "note": "; ".join(filter(None, notes)),
        }
    ranked = sorted(lines, key=lambda name: (name in dropped, lines[name]["log_loss"]))
    for name, line in lines.items():
        worse = mean_difference(scored[name], scored[ranked[0]])
        line |= {"difference": worse.value, "low": worse.low, "high": worse.high}
    table = pd.DataFrame(
        [*(lines[name] for name in ranked), *({"note": note} for note in failed.values())],
        index=pd.Index([*ranked, *failed], name="model"),
        columns=[*SCORES, "note"],
    )
    chosen = next(n for n in lines if n not in dropped and lines[n]["difference"] < TIE)
    if chosen != BASE_RATE and STACK in lines and STACK not in dropped:
        behind = lines[STACK]
        if behind["difference"] >= TIE and behind["low"] <= 0.0:
            chosen = STACK
    best = table.index.drop(BASE_RATE)[0]
    gain = mean_difference(scored[BASE_RATE], scored[best if chosen == BASE_RATE else chosen])
    return Comparison(
        table=table,
        recommended=chosen,
        recommendation=_sentence(chosen, best, lines[chosen], gain),
        models=returned,
    )


def _models(
    folds: Sequence[Fold],
    index: IntArray,
    n_features: int,
    seeds: Sequence[int],
    sampling: Sampling | None,
) -> dict[str, Any]:
    """All models by name, the simplest first, with as many draws of BSDR."""
    fewest = min(int(np.bincount(index[train]).min()) for train, _ in folds)
    inner = min(N_INNER_FOLDS, fewest)
    smallest = min(len(train) for train, _ in folds) * (inner - 1) // inner
    sizes = [size for size in COMPONENTS if size <= min(n_features, smallest - 1)]
    *seeds, lda, logistic, pls, stack = seeds
    ours = {
        "BM2PCA": BM2PCAClassifier(random_state=seeds[0]),
        "BSDR": BSDRClassifier(sampling=sampling, random_state=seeds[1]),
        "D-GPLVM": DGPLVMClassifier(random_state=seeds[2]),
    }
    return {
        BASE_RATE: DummyClassifier(strategy="prior"),
        "shrinkage LDA": shrinkage_lda(n_folds=inner, random_state=lda),
        "logistic regression": logistic_regression(n_folds=inner, random_state=logistic),
        "PLS-DA": pls_da(sizes, n_folds=inner, random_state=pls),
        **ours,
        STACK: StackedClassifier(list(ours.items()), random_state=stack),
    }


# Fits and scores


class _Fit(NamedTuple):
    """Class probabilities (M, K) of the held-out samples of a fold; None if the fit failed."""

    message: str  # error, or the first warning
    probability: Any = None
    seconds: float = np.nan
    model: Any = None  # fitted, for a stack, if it has held-out predictions


def _fit(
    model: Any,
    members: Mapping[str, _Fit],
    X: Any,
    y: np.ndarray,
    classes: np.ndarray,
    fold: Fold,
    groups: IntArray | None,
) -> _Fit:
    """Fit to the training samples of a fold, given the fits of some members of a stack."""
    train, test = fold
    estimator = model
    spent = sum(one.seconds for one in members.values())
    if members:
        given = [(n, members[n].model if n in members else each) for n, each in model.estimators]
        estimator = clone(model).set_params(estimators=given)
    with recorded_warnings() as caught, one_thread():
        try:
            begin = time.perf_counter()
            own = None if groups is None else groups[train]
            samples = select_samples(estimator, X, train, train)
            trained = fitted_clone(estimator, samples, y[train], own)
            seconds = time.perf_counter() - begin + spent
            held_out = getattr(trained, "held_out_log_proba_", None) is not None
            new = select_samples(estimator, X, test, train)
            probability = class_probabilities(trained, new, classes)
        except Exception as error:  # other models are still compared
            said = "; ".join([str(error), *getattr(error, "__notes__", [])])
            return _Fit(message=f"{type(error).__name__}: {said}")
    messages = [str(each.message) for each in caught]
    if getattr(model, "sampling", None) == SAMPLING:
        messages = [each for each in messages if NOT_MIXED not in each]
    message = messages[0] if messages else ""
    return _Fit(message, probability, seconds, FrozenEstimator(trained) if held_out else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """Scores of a model; losses (N,) are NaN of samples that were not held out."""

    loss: FloatArray
    accuracy: float
    calibration_error: float

    @classmethod
    def of(cls, fits: Mapping[int, _Fit], folds: Sequence[Fold], index: IntArray) -> "_Scores":
        """From fits by fold. Samples held out several times count once, by their mean."""
        rows = np.concatenate([folds[number][1] for number in fits])
        probability = np.concatenate([fit.probability for fit in fits.values()])
        values = log_losses(probability, index[rows]), probability.argmax(axis=1) == index[rows]
        times = np.bincount(rows, minlength=len(index)).astype(np.float64)
        times[times == 0.0] = np.nan
        loss, right = (np.bincount(rows, v, len(index)) / times for v in values)
        error = expected_calibration_error(probability, index[rows])
        return cls(loss=loss, accuracy=float(np.nanmean(right)), calibration_error=error)

    @property
    def log_loss(self) -> float:
        """Mean over the samples held out, in nats."""
        return float(np.nanmean(self.loss))


def _note(fits: Mapping[int, _Fit], happened: str) -> str:
    """How many fits of a model failed or warned, and why the first of them."""
    counted = (fit for fit in fits.values() if happened == "warned" or fit.probability is None)
    messages = [fit.message for fit in counted if fit.message]
    return f"{len(messages)} of {len(fits)} fits {happened} ({messages[0]})" if messages else ""


def _sentence(chosen: str, best: str, line: Mapping[str, Any], gain: Estimate) -> str:
    """Which model to take, and whether it is better than the class frequencies."""
    if chosen == BASE_RATE:
        return (
            f"Take none: the lowest log loss of the models, that of {best}, is {gain} nats below "
            f"that of the class frequencies, a gain of less than {TIE}."
        )
    lowest = f"within {TIE} of the lowest, that of {best}, which is less simple"
    if line["difference"] >= TIE:
        lowest = f"not clearly above the lowest, that of {best}: the interval includes zero"
    verdict = f"Take {chosen}" if gain.low > 0.0 else f"Take {chosen}, if any is better than none"
    return (
        f"{verdict}: its log loss, {line['log_loss']:.3f}, is "
        f"{'the lowest' if chosen == best else lowest}; it is {gain} nats below that of the class "
        "frequencies."
    )
