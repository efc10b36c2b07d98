"""Importance of features over all components and classes, with credible intervals."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import CHAIN, DRAW, FEATURE, LABEL
from bsdr_models.plots._read import TOO_NARROW, caveats, check_prob, read
from bsdr_models.plots._style import (
    GREY,
    INK,
    PALE,
    POSITIVE,
    axes_or_new,
    name_features,
    set_title,
    styled,
)


def importance_table(tree: xr.DataTree, *, top: int = 10, prob: float = 0.9) -> xr.Dataset:
    r"""Table of the importance of every feature, the most important first.

    .. math::
        I_f = \sqrt{D \sum_c \beta_{fc}^2 \Big/ \sum_{g, c} \beta_{gc}^2}

    for each posterior draw of the coefficients :math:`\beta` (projection times weights) of D scaled
    features in the class scores, centred over the classes since only differences of class scores
    matter. The squares have mean one over the features, as for the VIP of partial least squares
    [1]_, whose rule of thumb "above one" therefore applies. With one component the formula is that
    of the VIP; with several it needs no component-wise shares, which would depend on rotations.

    Correlated features share their importance, so their intervals are wide.

    Parameters
    ----------
    tree
        Needs `coef` (chain, draw, feature, outcome) in group "posterior". For a nonlinear model,
        `fit/feature_relevance` takes its place: squared slopes of the latent coordinates, averaged
        over the training samples, without intervals.
    top
        m, of the probability of being among the m most important features.
    prob
        Probability of an interval.

    Returns
    -------
    Dataset
        Over features in descending order of `mean`; with draws also `sd`, the ends `low` and `high`
        of the central interval, and `p_top`. Intervals of mean field are too narrow.

    Raises
    ------
    ValueError
        If the tree has neither coefficients nor slopes, or `top` is not between 1 and D.

    References
    ----------
    .. [1] S. Wold, M. Sjöström, L. Eriksson (2001). PLS-regression: a basic tool of chemometrics.
           Chemometrics and Intelligent Laboratory Systems 58(2), 109-130.
    """
    check_prob(prob)
    posterior = tree.children.get("posterior") if isinstance(tree, xr.DataTree) else None
    if posterior is None or "coef" not in posterior:
        share = read(tree, "fit", "feature_relevance")["feature_relevance"]
        return _sorted(xr.Dataset({"mean": np.sqrt(share.size * share)}))
    draws = _importance(tree)
    n_features = draws.shape[1]
    if not 1 <= top <= n_features:
        raise ValueError(f"top must be between 1 and {n_features} (features), got {top}")
    low, high = np.quantile(draws, [0.5 - prob / 2.0, 0.5 + prob / 2.0], axis=0)
    largest = np.argpartition(-draws, top - 1, axis=1)[:, :top]
    columns = {
        "mean": draws.mean(axis=0),
        "sd": draws.std(axis=0),
        "low": low,
        "high": high,
        "p_top": np.bincount(largest.ravel(), minlength=n_features) / len(draws),
    }
    table = xr.Dataset({name: (FEATURE, values) for name, values in columns.items()})
    names = posterior["coef"][FEATURE].values
    return _sorted(table.assign_coords({FEATURE: names}).assign_attrs(top=top, prob=prob))


@styled
def plot_variable_importance(
    tree: xr.DataTree,
    *,
    n_features: int = 20,
    top: int = 10,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot the most important features over all components and classes, with intervals.

    The right axis gives the posterior probability of being among the `top` most important features;
    pale if below a half. For the formula see :func:`importance_table`.

    Parameters
    ----------
    tree
        As for :func:`importance_table`.
    n_features
        Number of features to show at most.
    top
        m, of the probability on the right; at most the number of features.
    prob
        Probability of an interval.
    ax
        Axes to draw on; a new figure by default.
    """
    n_all = read(tree, "fit", "feature_relevance").sizes[FEATURE]
    table = importance_table(tree, top=min(top, n_all), prob=prob)
    shown = table.isel({FEATURE: slice(n_features)})
    mean, place = shown["mean"].values, np.arange(shown.sizes[FEATURE])
    drawn = "p_top" in table
    ax = axes_or_new(ax, width=6.4, height=1.5 + 0.22 * len(place))
    shades = np.full(len(place), POSITIVE)
    if drawn:
        shades = np.where(shown["p_top"] >= 0.5, POSITIVE, PALE)
        ax.hlines(place, shown["low"], shown["high"], colors=shades.tolist(), linewidth=2.2)
    else:
        ax.hlines(place, 0.0, mean, colors=PALE, linewidth=2.0)
    ax.scatter(mean, place, c=shades, s=40, edgecolors="white", linewidths=0.8, zorder=3)
    ax.axvline(1.0, color=INK, linewidth=0.9, linestyle=(0, (4, 2)), zorder=1)
    ax.axvline(0.0, color=GREY, linewidth=1.0, zorder=1)
    name_features(ax, shown[FEATURE].values)
    ax.set_xlabel("importance")
    note = f"The {len(place)} largest of {n_all} features. " * (len(place) < n_all)
    note += "Dashed: root mean square of all features, 1 as for VIP."
    if drawn:
        beside = ax.secondary_yaxis("right")
        beside.set_yticks(place, [f"{p:.2f}" for p in shown["p_top"].values])
        beside.tick_params(length=0)
        beside.spines["right"].set_visible(False)
        beside.set_ylabel(f"P(top {table.attrs['top']})")
        note += f" Bars: {prob:.0%} credible intervals."
        note += caveats(tree, TOO_NARROW.format("intervals"))
    else:
        note += " Root mean squared slopes over the training samples; no intervals."
    set_title(ax, "Importance of the features", note)
    return ax


def _importance(tree: xr.DataTree) -> FloatArray:
    """Importance of each feature in every draw, (S, D)."""
    fit, posterior = read(tree, "fit"), read(tree, "posterior", "coef")
    coef = posterior["coef"].transpose(CHAIN, DRAW, FEATURE, LABEL).values
    coef = coef.reshape(-1, *coef.shape[2:])
    if "y_index" in fit:
        coef = coef - coef.mean(axis=-1, keepdims=True)
    square = np.sum(coef**2, axis=-1)
    total = square.sum(axis=1, keepdims=True)
    flat = np.full_like(square, 1.0 / square.shape[1])  # for draws with all coefficients zero
    share = np.divide(square, total, out=flat, where=total > 0.0)
    return np.sqrt(square.shape[1] * share)


def _sorted(table: xr.Dataset) -> xr.Dataset:
    return table.isel({FEATURE: np.argsort(-table["mean"].values, kind="stable")})
