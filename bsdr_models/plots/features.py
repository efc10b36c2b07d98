"""Effects of the features on the class scores: given the other features, and alone."""

import json
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.arrays import FloatArray
from bsdr_models.dims import CHAIN, COMPONENT, DRAW, FEATURE, LABEL, OBS
from bsdr_models.plots._read import (
    APPROXIMATE,
    caveats,
    check_label,
    check_prob,
    correlations,
    read,
)
from bsdr_models.plots._style import (
    GREY,
    HALO,
    INK,
    NOTE_SIZE,
    PALE,
    PALER,
    POSITIVE,
    axes_or_new,
    color,
    name_features,
    set_title,
    styled,
    width_in_points,
    wrap,
)
from bsdr_models.trees import read_effects

CERTAIN, WRITTEN = 0.95, 0.9  # probability of a sign from which it is coloured, and written
RELATED = 0.5  # absolute correlation from which a feature goes with a class score
MAX_PANELS = 4
SHARES = 0.55  # width of the panel of selections, relative to the others
GAP = 0.03  # between panels, relative to the Axes
DARK, UNCERTAIN = "#717581", "#b0b0b0"


def features_table(
    tree: xr.DataTree, *, prob: float = 0.9, stability: xr.Dataset | None = None
) -> xr.Dataset:
    r"""Table of the effect of every feature on every class score, the most important feature first.

    Parameters
    ----------
    tree
        Needs `coef` (chain, draw, feature, outcome) in group "posterior". For a nonlinear model,
        the mean slopes `projection_mean` and `feature_relevance` of group "fit" take its place.
    prob
        Probability of the interval from `low` to `high`.
    stability
        Of :func:`bsdr_models.feature_stability`, for the same features.

    Returns
    -------
    Dataset
        Over (feature, outcome), from the draws of `coef`: `mean`, `median`, the ends `low` and
        `high` of the central interval and `low_50` and `high_50` of that of 50 %, and
        `sign_probability`, the share of draws with the more frequent sign. `coef` is the effect on
        a class score per unit of the feature that the model sees, a standard deviation unless
        ``standardize=False``, given the other features. Except for real outputs, draws are first
        scaled to their median root mean square, since the common size of all coefficients, hardly
        bounded if classes separate, says nothing of a feature.

        `alone` (feature, outcome), if the tree holds X, is the structure coefficient: the
        correlation of the feature with the posterior mean of the class score over the training
        samples, 0 for a constant feature. `importance` (feature,) is the root mean square of
        `mean`, centred over classes; correlated features share it. With `stability` also `selected`
        (feature,), the share of refits that select the feature.

        For a nonlinear model: `mean` and `alone` (feature, component), the mean slopes of the
        latent coordinates over the training samples and the correlations with them, and
        `importance`, root mean squared slopes relative to those of all features.

    Raises
    ------
    ValueError
        If the tree has neither coefficients nor slopes, `prob` is not between 0 and 1, or
        `stability` is of other features.

    See Also
    --------
    plot_features : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> tree = BSDRClassifier(random_state=0).fit(X, y).idata_
    >>> table = plots.features_table(tree)
    >>> table["sign_probability"].sizes
    Frozen({'feature': 13, 'outcome': 3})
    """
    check_prob("prob", prob)
    fit, X = read(tree, "fit"), _samples(tree)
    effects = read_effects(tree)
    draws, columns, scores = effects.draws, {"mean": effects.mean}, None
    if draws is not None:
        tail = 0.5 - prob / 2.0
        ends = np.quantile(draws, [tail, 0.25, 0.5, 0.75, 1.0 - tail], axis=0)
        columns |= zip(("low", "low_50", "median", "high_50", "high"), ends, strict=True)
        columns["sign_probability"] = np.maximum((draws > 0).mean(axis=0), (draws < 0).mean(axis=0))
        if tree.attrs.get("nonlinear"):
            weights = read(tree, "posterior")["weights"].mean((CHAIN, DRAW))
            scores = fit["latent_mean"].dot(weights, COMPONENT).transpose(OBS, LABEL).values
        elif X is not None:
            scores = np.nan_to_num(X) @ effects.mean
    elif "latent_mean" in fit:
        scores = fit["latent_mean"].transpose(OBS, COMPONENT).values
    if X is not None and scores is not None:
        columns["alone"] = correlations(X, scores)
    table = xr.Dataset(
        {name: ((FEATURE, effects.dim), values) for name, values in columns.items()},
        coords={FEATURE: effects.features, effects.dim: effects.outcomes},
    )
    table["importance"] = FEATURE, effects.importance
    if stability is not None:
        table["selected"] = FEATURE, _frequencies(stability, effects.features)
    order = np.argsort(-effects.importance, kind="stable")
    return table.isel({FEATURE: order}).assign_attrs(prob=prob)


@styled
def plot_features(
    tree: xr.DataTree,
    *,
    n_features: int = 15,
    labels: Sequence[Hashable] | None = None,
    stability: xr.Dataset | None = None,
    prob: float = 0.9,
    ax: Axes | None = None,
) -> Axes:
    """Plot the effects of the features on the class scores, given the other features and alone.

    One panel per class score, and one for two classes, whose scores are opposite. A line is the
    central interval with probability `prob`, its thick part that with 50 %, the point the median;
    filled and coloured if the sign has a probability of at least .95, which is written on the
    right. Approximations that overstate this probability do not show it, and fill all points. A
    diamond is the correlation of the feature with the score, on the upper scale.

    Nonlinear models have a panel per latent coordinate, with mean slopes and no intervals.

    Parameters
    ----------
    tree
        As for :func:`features_table`.
    n_features
        Number of features to show at most: those of largest importance over all class scores.
    labels
        Class scores to show (components of a nonlinear model); by default the four with the most
        variance between classes.
    stability
        Of :func:`bsdr_models.feature_stability`; adds the share of refits that select a feature.
    prob
        Probability of the longer interval.
    ax
        Axes to draw in, divided into panels; a new figure by default.

    Returns
    -------
    Axes
        Its ``child_axes`` are the panels.

    Raises
    ------
    ValueError
        As :func:`features_table`, or if `n_features` is not positive or a label is unknown.

    See Also
    --------
    features_table : the numbers.
    bsdr_models.feature_stability : refits to parts of the samples.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> tree = BSDRClassifier(random_state=0).fit(X, y).idata_
    >>> ax = plots.plot_features(tree, n_features=8)
    """
    if n_features < 1:
        raise ValueError(f"n_features must be positive, got {n_features}")
    table = features_table(tree, prob=prob, stability=stability)
    shown = _panels(tree, table, labels)
    top = table.isel({FEATURE: slice(n_features)})
    n = top.sizes[FEATURE]
    widths = np.array([1.0] * len(shown) + [SHARES] * (stability is not None))
    ax = axes_or_new(ax, width=2.2 + 2.4 * max(widths.sum(), 2.0), height=2.1 + 0.24 * n)
    name_features(ax, top[FEATURE].values)
    ax.hlines(range(n), 0.0, 1.0, color=PALER, linewidth=0.8, zorder=0)
    ax.set(xlim=(0.0, 1.0), xticks=[])
    ax.spines[:].set_visible(False)
    note = _caption(tree, table, n, len(shown), stability)
    if "sign_probability" in table:
        score = "class score" if _has_classes(tree) else "output"
        ax.set_xlabel(f"effect on the {score} per {_unit(tree)} of the feature")
    else:
        ax.set_xlabel("mean slope of the latent coordinate")
    ax.xaxis.labelpad = 22.0  # below the numbers of the panels
    width = widths / widths.sum() * (1.0 - GAP * (len(widths) - 1))
    left = np.cumsum(width) - width + GAP * np.arange(len(widths))
    room = 0.85 * width[0] * width_in_points(ax)
    named = [_title_and_shades(tree, table, k) for k in shown]
    titles = [wrap(panel_title, room) for panel_title, _ in named]
    header = 1.3 + 0.7 * max(map(len, titles))
    ax.set_ylim(n - 0.4, -header)
    scores = top.isel({_axis(table): shown})
    ends = [scores[name] for name in ("low", "high", "mean") if name in scores]
    reach = max(float(np.abs(values).max()) for values in ends[:2]) or 1.0
    for i, (k, lines) in enumerate(zip(shown, titles, strict=True)):
        panel = _panel(ax, left[i], width[i], "\n".join(lines), x=-1.06 * reach, y=0.2 - header)
        panel.set_xlim(-1.06 * reach, (1.2 if _approximate(tree) else 1.7) * reach)
        one = top.isel({_axis(table): k})
        _draw_effects(panel, one, reach, named[i][1], signs=not _approximate(tree))
    if stability is not None:
        panel = _panel(ax, left[-1], width[-1], "Selected", x=0.0, y=0.2 - header)
        _draw_selected(panel, top["selected"].values, float(stability.attrs["chance"]))
    what = "Effects" if "sign_probability" in table else "Mean slopes"
    set_title(ax, f"{what} of the features", note)
    return ax


def _samples(tree: xr.DataTree) -> FloatArray | None:
    """Features of the training samples as the model sees them, (N, D), if the tree holds them."""
    if "constant_data" not in tree.children or "X" not in tree["constant_data"]:
        return None
    return np.asarray(tree["constant_data"]["X"].transpose(OBS, FEATURE).values, dtype=np.float64)


def _frequencies(stability: xr.Dataset, features: np.ndarray) -> FloatArray:
    """Share of refits that select each of the features (D,)."""
    if not isinstance(stability, xr.Dataset) or "frequency" not in stability:
        raise ValueError("stability must be a Dataset of feature_stability, with 'frequency'")
    frequency = stability["frequency"].to_series()
    if set(frequency.index) != set(features.tolist()):
        raise ValueError("stability is of other features than the tree")
    return np.asarray(frequency.loc[features.tolist()], dtype=np.float64)


# Panels


def _axis(table: xr.Dataset) -> str:
    return LABEL if LABEL in table.dims else COMPONENT


def _has_classes(tree: xr.DataTree) -> bool:
    return "y_index" in tree["fit"]


def _opposite(tree: xr.DataTree, table: xr.Dataset) -> bool:
    """Whether there are two classes, whose scores are opposite."""
    return table.sizes.get(LABEL) == 2 and _has_classes(tree)


def _panels(tree: xr.DataTree, table: xr.Dataset, labels: Sequence[Hashable] | None) -> list[int]:
    """Positions of the scores to show."""
    known: list[Hashable] = table.coords[_axis(table)].values.tolist()
    if labels is not None:
        if isinstance(labels, str) or len(labels) == 0:
            raise ValueError(f"labels must be a list of some of {known}, got {labels!r}")
        return [check_label(label, known) for label in labels]
    if _opposite(tree, table):
        return [1]
    if len(known) <= MAX_PANELS:
        return list(range(len(known)))
    return np.sort(np.argsort(-_spread(tree, table), kind="stable")[:MAX_PANELS]).tolist()


def _spread(tree: xr.DataTree, table: xr.Dataset) -> FloatArray:
    """Variance of each mean score between classes, or between samples; without X its effects."""
    X = _samples(tree)
    if X is None or _axis(table) == COMPONENT:
        return np.asarray((table["mean"] ** 2).sum(FEATURE).values)
    names = tree["posterior"].to_dataset()[FEATURE].values
    scores = np.nan_to_num(X) @ table["mean"].sel({FEATURE: names}).values
    if _has_classes(tree):
        index = tree["fit"].to_dataset()["y_index"].values
        scores = np.stack([scores[index == c].mean(axis=0) for c in np.unique(index[index >= 0])])
    return np.asarray(scores.var(axis=0))


def _title_and_shades(tree: xr.DataTree, table: xr.Dataset, k: int) -> tuple[str, tuple[str, str]]:
    """Title of a panel, and the colours of a negative and of a positive effect."""
    names = [str(name) for name in table.coords[_axis(table)].values]
    if _axis(table) == COMPONENT:
        return f"component {names[k]}", (POSITIVE, POSITIVE)
    if _opposite(tree, table):
        return f"{names[k]} (right) v. {names[1 - k]} (left)", (color(1 - k), color(k))
    if _has_classes(tree):
        return f"{names[k]} v. the others", (color(k), color(k))
    return names[k], (POSITIVE, POSITIVE)


def _panel(ax: Axes, left: float, width: float, title: str, *, x: float, y: float) -> Axes:
    """Axes beside the others, with a title at (x, y)."""
    panel = ax.inset_axes((left, 0.0, width, 1.0))
    panel.set(ylim=ax.get_ylim(), yticks=[])
    panel.patch.set_visible(False)
    panel.grid(visible=False)
    panel.spines["left"].set_visible(False)
    panel.tick_params(axis="x", labelsize=NOTE_SIZE)
    panel.locator_params(axis="x", nbins=5)
    panel.text(x, y, title, fontsize=NOTE_SIZE + 0.5, weight="bold", va="top")
    return panel


def _draw_effects(
    panel: Axes, one: xr.Dataset, reach: float, shades: tuple[str, str], *, signs: bool
) -> None:
    """Effects of the features on one score, and the probabilities of their signs if ``signs``."""
    n = one.sizes[FEATURE]
    place = np.arange(n)
    small: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 7.0, "color": GREY}
    panel.vlines(0.0, -0.6, n - 0.4, color=GREY, linewidth=0.9, zorder=1)
    if "sign_probability" in one:
        probability, middle = one["sign_probability"].values, one["median"].values
        certain = (probability >= CERTAIN) | (not signs)
        shade = np.where(certain, np.where(middle > 0.0, shades[1], shades[0]), UNCERTAIN).tolist()
        panel.hlines(place, one["low"], one["high"], colors=shade, linewidth=1.2, zorder=3)
        panel.hlines(place, one["low_50"], one["high_50"], colors=shade, linewidth=3.4, zorder=3)
        fill = np.where(certain, shade, "white").tolist()
        edge = np.where(certain, INK, GREY).tolist()
        panel.scatter(middle, place, s=26, c=fill, edgecolors=edge, linewidths=0.9, zorder=4)
        right = {**small, "ha": "right"}
        for i in np.flatnonzero((probability >= WRITTEN) & signs):
            below = np.floor(100.0 * probability[i] + 1e-9) / 100.0  # 0.949 is no 0.95
            text = f"{below:.2f}" if probability[i] < 0.995 else ">0.99"
            written = panel.text(1.68 * reach, float(i), text, path_effects=HALO, **right)
            written.set(fontsize=7.5, color=INK if certain[i] else GREY)
        if signs:
            panel.text(1.68 * reach, -0.75, "P(sign)", **right)
    else:
        panel.scatter(one["mean"], place, s=26, c="white", edgecolors=GREY, zorder=4)
    if "alone" in one:
        panel.scatter(reach * one["alone"].values, place, s=24, marker="d", facecolors="none",
                      edgecolors=INK, linewidths=0.9, zorder=5)  # fmt: skip
        for r, text in ((-1, "\N{MINUS SIGN}1"), (0, "r = 0"), (1, "1")):
            panel.text(r * reach, -0.75, text, **small)


def _draw_selected(panel: Axes, share: FloatArray, chance: float) -> None:
    """Shares of refits that select the features."""
    shade = np.where(share >= 0.5, DARK, PALE).tolist()
    panel.barh(np.arange(len(share)), share, height=0.6, color=shade)
    panel.vlines(chance, -0.6, len(share) - 0.4, color=INK, linewidth=0.9, linestyle=":")
    for i, part in enumerate(share):
        panel.text(part + 0.04, i, f"{part:.0%}", va="center", fontsize=7.5, path_effects=HALO)
    panel.set_xlim(0.0, 1.35)
    panel.set_xticks([0.0, 0.5, 1.0], ["0", "50", "100%"])


# What is said


def _certain(table: xr.Dataset) -> FloatArray:
    """Probability of the most probable sign of each feature whose sign is certain."""
    best = table["sign_probability"].max(LABEL).values
    return np.asarray(best[best >= CERTAIN])


def _approximate(tree: xr.DataTree) -> bool:
    return tree.attrs.get("inference_method") in APPROXIMATE


def _unit(tree: xr.DataTree) -> str:
    """Unit of the features that the model sees."""
    standardize = json.loads(tree.attrs.get("config", "{}")).get("standardize")
    if standardize is True:
        return "SD"
    # BSDR leaves the unit of each feature; BM2PCA gives all features one scale.
    return "unit" if standardize is False and tree.attrs["model"] == "bsdr" else "scaled unit"


def _caption(
    tree: xr.DataTree, table: xr.Dataset, n: int, n_panels: int, stability: xr.Dataset | None
) -> str:
    """What the plot of the first n features shows."""
    d, n_scores = table.sizes[FEATURE], table.sizes[_axis(table)]
    linear = "sign_probability" in table
    score = ("class score" if _has_classes(tree) else "output") if linear else "latent coordinate"
    shown = "All" if n == d else f"{n} of {d}"
    note = f"{shown} features, the largest effects first."
    if "alone" in table:
        related = int((abs(table["alone"]) >= RELATED).any(_axis(table)).sum())
        a = "an" if score == "output" else "a"
        note += f" Alone, {related} of {d} go with {a} {score} (|r| ≥ {RELATED:g})."
    if linear and not _approximate(tree):
        sure = _certain(table)
        wrong = f" ({np.sum(1.0 - sure):.1f} expected wrong)" if len(sure) else ""
        note += f" Given the others, the sign of {len(sure)} is certain{wrong}."
    if linear:
        mean = "mean effect over the training samples," if tree.attrs.get("nonlinear") else "effect"
        note += (
            f" Points and lines: {mean} given the other features, with intervals of 50% and"
            f" {table.attrs['prob']:.0%}"
        )
        note += "." if _approximate(tree) else f", filled if P(sign) ≥ {CERTAIN:g}."
    else:
        note += " Circles: mean slope over the training samples of a nonlinear map; no intervals."
    if "alone" in table:
        note += f" Diamonds: correlation r with the {score}."
    if stability is not None:
        note += (
            f" Selected: among the first {stability.attrs['n_selected']} in that share of"
            f" {stability.sizes['refit']} refits to 50% of the samples; dotted: chance."
        )
    if n_panels < n_scores and not _opposite(tree, table):
        note += f" {n_panels} of {n_scores} {score}s."
    return note + caveats(tree, "intervals are approximate, usually too narrow" if linear else None)
