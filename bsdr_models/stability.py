"""How often refits to other samples select the same features.

The posterior of one fit is conditional on its samples. Correlated features replace one another when
the samples change: a feature can be among the largest in all draws of one fit and of no other.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace as with_changes
from typing import Any

import numpy as np
import xarray as xr
from sklearn.base import is_classifier
from sklearn.utils import _safe_indexing

from bsdr_models.arrays import IntArray
from bsdr_models.cross_validation import fitted_clone, last_step, read_folds, select_samples
from bsdr_models.dims import FEATURE, LABEL
from bsdr_models.groups import read_groups
from bsdr_models.inference.parallel import run_tasks
from bsdr_models.members import is_frozen
from bsdr_models.options import COUNT, N_JOBS, check_parameters
from bsdr_models.rng import RandomState, as_generator
from bsdr_models.trees import Effects, read_effects
from bsdr_models.validation import (
    check_samples,
    constant_features_ignored,
    read_targets,
)


def feature_stability(
    model: Any,
    X: Any,
    y: Any,
    *,
    n_resamples: int = 20,
    n_selected: int | None = None,
    groups: Any = None,
    random_state: RandomState = None,
    n_jobs: int | None = None,
    progressbar: bool = False,
) -> xr.Dataset:
    """Refit a model to halves of the samples, and count how often each feature is selected.

    A refit selects the ``n_selected`` features of largest importance, the root mean square of the
    posterior mean coefficients over centred class scores, by which
    :func:`bsdr_models.plots.plot_features` orders features. Refits come in pairs, to complementary
    halves [1]_ of the samples of each class.

    Parameters
    ----------
    model : estimator
        Of this package, or a ``Pipeline`` that ends in one and whose other steps give the same
        features in every refit. It is cloned, not fitted itself.
    X : array-like or data frame of shape (n_samples, n_features)
        Features of all samples.
    y : array-like of shape (n_samples,) or (n_samples, n_outputs)
        Classes, or outputs, of the samples.
    n_resamples : int, default=20
        Number of refits.
    n_selected : int, optional
        Number of features selected by a refit; by default 10, or a third of the features if less.
    groups : array-like of shape (n_samples,), optional
        Samples of one group, such as repeated measures of a patient, are in the same half, and
        held out together by a model that takes ``groups``.
    random_state : int, RandomState, Generator or None
        Of the samples drawn; that of the model is its own.
    n_jobs : int, optional
        Refits in parallel; None is 1 unless a ``joblib.parallel_config`` says otherwise.
    progressbar : bool, default=False
        Whether to show how far a long fit has come.

    Returns
    -------
    xarray.Dataset
        ``frequency`` (feature,), the share of refits that select the feature; ``selected``
        (refit, rank), the names of the features selected by each refit, the most important first;
        and for linear models ``positive`` (feature, outcome), the share of refits whose posterior
        mean coefficient is positive. Attributes: ``n_selected``, ``chance`` (the frequency of a
        feature if selections were random) and ``interrupted``. After a keyboard interrupt it holds
        the refits completed until then.

    Raises
    ------
    KeyboardInterrupt
        If interrupted before the end of the first refit.
    TypeError
        If the estimator has no posterior tree ``idata_``.
    ValueError
        If an argument is out of range, a class has too few samples or groups to be in both halves,
        the model has neither coefficients nor slopes, or refits have other features.

    See Also
    --------
    bsdr_models.plots.plot_features : shows effects and stability.

    References
    ----------
    .. [1] R. D. Shah, R. J. Samworth (2013). Variable selection with error control: another look at
           stability selection. Journal of the Royal Statistical Society B 75(1), 55-80.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import feature_stability
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = PaperBSDRClassifier(random_state=0)
    >>> stability = feature_stability(model, X, y, n_resamples=4, random_state=0)
    >>> stability["selected"].sizes["refit"], stability.attrs["n_selected"]
    (4, 4)
    """
    check_parameters(
        {
            "n_resamples": [COUNT],
            "n_selected": [COUNT, None],
            "n_jobs": N_JOBS,
            "progressbar": ["boolean"],
        },
        locals(),
        "feature_stability",
    )
    check_samples(X, y, groups)
    n_features = np.shape(X)[1] if len(np.shape(X)) == 2 else 1
    if n_selected is None:
        n_selected = max(1, min(10, n_features // 3))
    if n_selected > n_features:
        raise ValueError(f"n_selected={n_selected} exceeds the number of features, {n_features}")
    if is_frozen(model):
        raise ValueError("a FrozenEstimator is not fitted again: give the estimator inside")
    groups = read_groups(groups, X)
    halves = list(_halves(model, y, groups, n_resamples, as_generator(random_state)))[:n_resamples]

    def refit(rows: IntArray) -> Effects:
        part = select_samples(model, X, rows, rows), _safe_indexing(y, rows)
        with constant_features_ignored():
            last = last_step(fitted_clone(model, *part, None if groups is None else groups[rows]))
        if not hasattr(last, "idata_"):
            raise TypeError(f"{type(last).__name__} has no posterior tree idata_")
        return with_changes(read_effects(last.idata_), draws=None)

    outcome = run_tasks(refit, halves, n_jobs=n_jobs, what="Refits", progressbar=progressbar)
    refits = list(outcome.results.values())
    if outcome.interrupted:
        warnings.warn(
            f"interrupted after {len(refits)} of {n_resamples} refits: only these are counted",
            UserWarning,
            stacklevel=2,
        )
    features = refits[0].features
    if not all(np.array_equal(features, refit.features) for refit in refits):
        raise ValueError("refits have other features: leave out the steps before the model")
    ranks = np.stack([np.argsort(-r.importance, kind="stable")[:n_selected] for r in refits])
    counts = np.bincount(ranks.ravel(), minlength=len(features))
    table = xr.Dataset(
        {
            "frequency": (FEATURE, counts / len(refits)),
            "selected": (("refit", "rank"), features[ranks]),
        },
        coords={FEATURE: features},
        attrs={
            "n_selected": n_selected,
            "chance": min(n_selected / len(features), 1.0),
            "interrupted": int(outcome.interrupted),
        },
    )
    if refits[0].dim == LABEL:
        table = table.assign_coords({LABEL: refits[0].outcomes})
        positive = np.mean([refit.mean > 0.0 for refit in refits], axis=0)
        table["positive"] = ((FEATURE, LABEL), positive)
    return table


def _halves(
    model: Any, y: Any, groups: Any, n_halves: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Yield the samples of each refit: a half of each class, then the other half."""
    labels = read_targets(y)
    if is_classifier(model) and labels.size == len(labels):
        labels = labels.ravel().astype(str)
    else:
        labels = np.zeros(len(labels))
    for _ in range(0, n_halves, 2):
        folds = read_folds(labels, labels, 2, rng, groups=groups, once=True)
        yield from (test for _, test in folds)
