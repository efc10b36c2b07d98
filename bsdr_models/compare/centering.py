"""Whether to centre within groups, by held-out groups of the size that new ones have."""

import time
from functools import partial

import numpy as np
from scipy.special import ndtri, stdtrit
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.metaestimators import _safe_split

from bsdr_models.compare.comparison import (
    BASE_RATE,
    PROB,
    TIE,
    Comparison,
    Estimate,
    HeldOut,
    ModelScores,
    make_table,
    mean_difference,
)
from bsdr_models.compare.cross_validation import (
    Fold,
    check_models,
    class_probabilities,
    fitted_clone,
    read_classes,
    read_folds,
)
from bsdr_models.data.targets import read_groups
from bsdr_models.data.validation import check_samples, encode_labels
from bsdr_models.estimators.calibration import error_of_folds
from bsdr_models.numerics.arrays import IntArray, SamplesLike, TargetLike
from bsdr_models.numerics.process_state import one_thread, recorded_warnings
from bsdr_models.options import COUNT, RandomState, as_generator, check_parameters
from bsdr_models.transformers.centering import GroupCentering

AS_GIVEN = "as given"
CENTRED = "centred"
# How often a held-out group is divided at random into groups of the size of new ones.
N_DIVISIONS = 10


def compare_centering(
    model: BaseEstimator,
    X: SamplesLike,
    y: TargetLike,
    *,
    groups: TargetLike,
    group_size: int | None = None,
    cv: int = 5,
    random_state: RandomState = None,
) -> Comparison:
    """Compare a classifier with and without centring within groups, on held-out groups.

    Groups are held out, and divided at random into groups of ``group_size`` samples, which are
    centred and predicted as new ones. The mean of a few samples holds little of the offset of their
    group and much of the samples themselves, so that centring helps less, or harms.

    Parameters
    ----------
    model : classifier
        A classifier of this package, one of scikit-learn with ``predict_proba``, or a ``Pipeline``
        that ends with either.
    X : array-like or data frame of shape (n_samples, n_features)
        Features of all samples.
    y : array-like of shape (n_samples,)
        Classes.
    groups : array-like of shape (n_samples,)
        Group of each sample, such as a subject, batch or study.
    group_size : int, optional
        Samples of a new group that are predicted together. By default held-out groups are as large
        as they are in the data.
    cv : int, default=5
        Number of folds; of fewer groups each one is held out alone.
    random_state : int, RandomState, Generator or None
        Seed of folds and divisions; the model has its own.

    Returns
    -------
    Comparison
        ``recommended`` is "centred", with :class:`GroupCentering` before the model, or "as given".
        ``models`` has both, and "none", the class frequencies.

    Raises
    ------
    TypeError
        If the model has no ``predict_proba``.
    ValueError
        If y does not hold two classes or more, there is one group only, or none has ``group_size``
        samples.

    See Also
    --------
    compare_models : held-out scores of several models.

    Notes
    -----
    Centring by :class:`GroupCentering` is the linear discriminant if groups differ by offsets. So
    it is recommended, unless held-out groups speak against it: the interval of their gain in log
    loss lies below 0.01 nats. Intervals are those of :func:`compare_models`, wider by the quantile
    of Student's t with as many degrees of freedom as groups, less one: two groups tell little.

    Held-out groups have the classes in the proportions of the training groups. If those of new
    groups are others, such as patients only where the training groups have patients and controls,
    centring subtracts the class, and no held-out score tells. Nor can a few groups tell a small
    gain from a small loss, if the offsets are small or each group has mostly one class: fits of a
    model with another seed may then differ as much.

    Examples
    --------
    >>> import numpy as np
    >>> from bsdr_models import BM2PCAClassifier, compare_centering
    >>> rng = np.random.default_rng(0)
    >>> subject, y = np.repeat(np.arange(12), 4), np.tile([0, 0, 1, 1], 12)
    >>> X = 3.0 * rng.standard_normal((12, 8))[subject] + rng.standard_normal((48, 8))
    >>> X[:, :2] += 2.0 * y[:, None]
    >>> model = BM2PCAClassifier(random_state=0)
    >>> compare_centering(model, X, y, groups=subject, random_state=0).recommended
    'centred'
    """
    check_parameters({"group_size": [COUNT, None], "cv": [COUNT]}, locals(), "compare_centering")
    check_models({AS_GIVEN: model}, "model")
    check_samples(X, y, groups)
    labels = read_classes(y)
    classes, index = encode_labels(labels)
    group = read_groups(groups, X)
    if group is None:
        raise ValueError("compare_centering needs groups")
    sizes = np.bincount(group)
    if group_size is not None and group_size > sizes.max():
        raise ValueError(
            f"group_size={group_size} is more than the {sizes.max()} samples of the largest group"
        )
    rng = as_generator(random_state)
    folds = read_folds(X, labels, min(cv, len(sizes)), rng, groups=group)
    models = {
        BASE_RATE: DummyClassifier(strategy="prior"),
        AS_GIVEN: model,
        CENTRED: make_pipeline(GroupCentering(), model),
    }
    fits: dict[str, list[HeldOut]] = {name: [] for name in models}
    for fold in folds:
        parts = _divide(fold[1], group, group_size, rng)
        for name in models:
            estimator = model if name == CENTRED else models[name]
            fit = _hold_out(estimator, X, labels, fold, group, parts, centred=name == CENTRED)
            fits[name].append(fit)
    scored = {
        name: ModelScores.of(own, index, np.arange(len(index)))
        for name, own in fits.items()
        if not any(fit.failed for fit in own)
    }
    level = 0.5 + 0.5 * PROB
    difference = partial(
        mean_difference,
        groups=group,
        seed=int(rng.integers(2**31)),
        factor=error_of_folds(len(folds)) * float(stdtrit(len(sizes) - 1, level) / ndtri(level)),
    )
    ranked = sorted(scored, key=lambda name: scored[name].log_loss)
    behind = {name: difference(scored[name], scored[ranked[0]]) for name in ranked}
    if CENTRED in scored:
        gain = difference(scored[AS_GIVEN], scored[CENTRED])
        chosen, sentence = _verdict(gain)
    else:
        chosen = AS_GIVEN
        sentence = next(fit.message for fit in fits[CENTRED] if fit.failed)
        sentence = f"Do not centre: {sentence}."
    if scored[BASE_RATE].log_loss - scored[chosen].log_loss < TIE:
        sentence += " Neither is better than the class frequencies."
    return Comparison(
        table=make_table(fits, scored, behind),
        recommended=chosen,
        recommendation=sentence,
        models=models,
    )


def _verdict(gain: Estimate) -> tuple[str, str]:
    """Which is recommended, and why, from the log loss as given less that of centred samples."""
    if gain.high < TIE:
        said = f"held-out groups gain less than {TIE} nats of log loss"
        return AS_GIVEN, f"Do not centre: {said}, {gain}."
    if gain.low > 0.0:
        return CENTRED, f"Centre: held-out groups gain {gain} nats of log loss."
    said = "the held-out groups are too few to tell a gain from a loss"
    return CENTRED, f"Centre if groups differ by offsets: {said}, {gain} nats of log loss."


def _divide(
    test: IntArray, group: IntArray, size: int | None, rng: np.random.Generator
) -> list[IntArray]:
    """Positions of held-out samples in groups of the size of new ones, or of as many as there are.

    Each group is divided several times, so that a sample is in several parts.
    """
    parts: list[IntArray] = []
    for each in np.unique(group[test]):
        own = test[group[test] == each]
        if size is None or size >= len(own):
            parts.append(own)
            continue
        for _ in range(N_DIVISIONS):
            shuffled = rng.permutation(own)[: len(own) // size * size]
            parts.extend(shuffled.reshape(-1, size))
    return parts


def _hold_out(
    model: BaseEstimator,
    X: SamplesLike,
    y: np.ndarray,
    fold: Fold,
    group: IntArray,
    parts: list[IntArray],
    *,
    centred: bool,
) -> HeldOut:
    """Predictions of the parts of held-out groups, as of new groups."""
    train = fold[0]
    test = np.concatenate(parts)
    new = group.max() + 1 + np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    begin = time.perf_counter()
    with recorded_warnings() as caught, one_thread():
        X_train, y_train = _safe_split(model, X, y, train)
        X_test, _ = _safe_split(model, X, None, test, train)
        if centred:
            centering = GroupCentering()
            try:
                X_train = centering.fit_transform(X_train, y_train, groups=group[train])
            except ValueError as error:  # the design has nothing to centre
                return HeldOut(test, str(error))
            with recorded_warnings():  # of small groups, which are what is judged
                X_test = centering.transform(X_test, groups=new)
        fitted = fitted_clone(model, X_train, y_train, group[train])
        p = class_probabilities(fitted, X_test, np.unique(y))
    message = "".join(str(each.message) for each in caught[:1])
    return HeldOut(test, message, p, time.perf_counter() - begin)
