"""How often halves of the training samples select the same features."""

import numpy as np
import xarray as xr
from sklearn.utils.validation import check_is_fitted

from bsdr_models.compare.cross_validation import read_folds
from bsdr_models.estimators.base import Estimator
from bsdr_models.inference.dims import FEATURE
from bsdr_models.numerics.arrays import FloatArray, IntArray, Rows
from bsdr_models.numerics.association import basis_of, independent
from bsdr_models.numerics.scaling import pad
from bsdr_models.options import COUNT, RandomState, as_generator, check_parameters


def feature_stability(
    model: Estimator,
    *,
    n_resamples: int = 100,
    n_selected: int | None = None,
    random_state: RandomState = None,
) -> xr.Dataset:
    """Count how often halves of the training samples select each feature.

    A half selects the first ``n_selected`` features in the order of
    :func:`bsdr_models.plots.plot_features`: those that the targets explain best, each alone. Halves
    are complementary pairs [1]_ of the samples of each class, or of the groups of the fit.

    Parameters
    ----------
    model : estimator
        A fitted estimator of this package.
    n_resamples : int, default=100
        Number of halves.
    n_selected : int, optional
        Number of features selected by a half; by default 10, or a third of the features if less.
    random_state : int, RandomState, Generator or None
        Seed of the halves.

    Returns
    -------
    xarray.Dataset
        ``frequency`` (feature,), the share of halves that select the feature; ``selected``
        (half, rank), the names of the features selected by each half, the first ones first.
        Attributes: ``n_selected`` and ``chance``, the frequency of a feature if selections were
        random.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        Before a fit.
    TypeError
        If the model is not of this package.
    ValueError
        If an argument is out of range, or a class has too few samples or groups to be in both
        halves.

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
    >>> from bsdr_models import BM2PCAClassifier, feature_stability
    >>> model = BM2PCAClassifier().fit(*load_wine(return_X_y=True, as_frame=True))
    >>> stability = feature_stability(model, random_state=0)
    >>> float(stability["frequency"].sel(feature="flavanoids"))
    1.0
    """
    constraints: dict[str, list[object]] = {"n_resamples": [COUNT], "n_selected": [COUNT, None]}
    check_parameters(constraints, locals(), "feature_stability")
    if not isinstance(model, Estimator):
        raise TypeError(
            f"model must be a fitted estimator of bsdr_models, got {type(model).__name__}; of a "
            "Pipeline give its last step"
        )
    check_is_fitted(model)
    context = model._context
    X, targets, groups = model._known()
    names = np.array(context.modelled_names)
    if n_selected is None:
        n_selected = max(1, min(10, len(names) // 3))
    if n_selected > len(names):
        raise ValueError(
            f"n_selected={n_selected} exceeds the number of features that vary, {len(names)}"
        )
    strata = np.zeros(len(targets), dtype=np.int64)
    if context.targets.kind == "multiclass":
        strata = targets.argmax(axis=1)
    rng = as_generator(random_state)
    ranks: list[np.ndarray] = []
    while len(ranks) < n_resamples:
        for _, half in read_folds(strata, strata, 2, rng, groups=groups, once=True):
            own = None if groups is None else groups[half]
            share = explained_share(X[half], targets[half], own)
            ranks.append(np.argsort(-share, kind="stable")[:n_selected])
    chosen = np.stack(ranks[:n_resamples])
    counts = np.bincount(chosen.ravel(), minlength=len(names))
    return xr.Dataset(
        {
            "frequency": (FEATURE, pad(counts / n_resamples, context.constant, axis=0)),
            "selected": (("half", "rank"), names[chosen]),
        },
        coords={FEATURE: np.array(context.feature_names)},
        attrs={"n_selected": n_selected, "chance": n_selected / len(names)},
    )


def explained_share(X: Rows, targets: FloatArray, groups: IntArray | None) -> FloatArray:
    """``explained`` of `associate` alone, (P,)."""
    X, targets, square = independent(X, targets, groups)
    return np.asarray(np.sum((basis_of(targets) @ X) ** 2, axis=0) / square)
