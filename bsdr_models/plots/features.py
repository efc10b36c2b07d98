"""Effects of the features on the class scores: given the other features, and alone."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from scipy.signal import find_peaks

from bsdr_models.inference.datatree import read
from bsdr_models.inference.dims import CHAIN, COMPONENT, DRAW, FEATURE, LABEL
from bsdr_models.numerics.arrays import FloatArray
from bsdr_models.numerics.association import FOUND
from bsdr_models.numerics.latent import feature_relevance, rescale_to_median_size
from bsdr_models.options import COUNT, check_number
from bsdr_models.plots._read import APPROXIMATE, caveats
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
    literal,
    name_features,
    set_title,
    styled,
    width_in_points,
    wrap,
)

# Probability of the longer interval.
PROB = 0.9
# Probability of a sign from which an effect is coloured.
CERTAIN = 0.95
# Probability of a sign from which it is written beside the effect.
WRITTEN = 0.9
# Effects below this share of the widest interval, as a sparse prior gives, are those of no feature.
NEGLIGIBLE = 1e-6
MAX_PANELS = 4
MAX_PEAKS = 5
PROMINENT = 0.1  # height of a peak above its surroundings, relative to the highest
LEAST_CHANNELS = 30  # of a spectrum
SMOOTH = 0.9  # correlation of what neighbours explain, in a spectrum
SHARES = 0.55  # width of the panel of selections, relative to the others
GAP = 0.03  # between panels, relative to the Axes
DARK = "#717581"
UNCERTAIN = "#b0b0b0"


def features_table(tree: xr.DataTree, *, stability: xr.Dataset | None = None) -> xr.Dataset:
    r"""Table of what each feature tells alone, and of its effects given the others.

    Parameters
    ----------
    tree
        Needs `coef` (chain, draw, feature, outcome) in group "posterior". For a nonlinear model,
        the mean slopes `projection_mean` and `feature_relevance` of group "fit" take its place.
        What a feature tells alone is in group "fit".
    stability
        What :func:`bsdr_models.feature_stability` returns, for the same features.

    Returns
    -------
    Dataset
        Of each feature alone, by differences between means and without the model: `explained`
        (feature,), the share of its variance that classes, labels or outputs explain;
        `false_discovery_rate` (feature,), the smallest rate at which it is found, by permutations
        of the samples (:mod:`bsdr_models.numerics.association`); and `alone` (feature, outcome),
        its correlation with each class, label or output. The features are in the order of
        `explained`; constant features are last, with a rate of one.

        Of each feature given the others, from the draws of `coef` (feature, outcome): `mean`,
        `median`, the ends `low` and `high` of the central interval of 90 % and `low_50` and
        `high_50` of that of 50 %, and `sign_probability`, the share of draws with the more frequent
        sign. An effect is on a class score, per unit of the feature that the model sees: a standard
        deviation, unless samples are sparse or ``metric="identity"``. Except for real outputs,
        draws are first scaled to their median root mean square, since the data hardly bound the
        common size of all effects if classes separate. Of a posterior mode, such as that of
        BM2PCA, there is `mean` alone: its draws are of the classifiers in a subspace that is taken
        as known, so they do not show how sure an effect is. `importance` (feature,) is
        ``feature_importances_``, the share in the squared effects; correlated features share it.

        With `stability` also `selected` (feature,), the share of halves of the samples that select
        the feature. For a nonlinear model `mean` (feature, component) are mean slopes of the latent
        coordinates over the training samples, without intervals.

    Raises
    ------
    ValueError
        If the tree has neither coefficients nor slopes, or `stability` is of other features.

    See Also
    --------
    plot_features : the plot.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> table = plots.features_table(model.idata_)
    >>> table["sign_probability"].sizes
    Frozen({'feature': 13, 'outcome': 3})
    """
    fit = read(tree, "fit")
    importance = np.empty(0)
    if "posterior" in tree.children and "coef" in tree["posterior"]:
        coef = read(tree, "posterior")["coef"].transpose(CHAIN, DRAW, FEATURE, LABEL)
        draws = coef.values.reshape(-1, *coef.shape[2:])
        classes = "y_index" in fit
        if tree.attrs.get("target") != "regression":
            draws = rescale_to_median_size(draws, centred=classes)
        mean = draws.mean(axis=0)
        importance = feature_relevance(mean, np.eye(mean.shape[1]) - classes / mean.shape[1])
        columns = {} if tree.attrs.get("inference_method") == "map" else _intervals(draws)
    elif missing := {"projection_mean", "feature_relevance"} - set(fit):
        raise ValueError(
            "the tree has neither coefficients nor mean slopes: no variable 'coef' in group "
            f"'posterior', and no variable {', '.join(map(repr, sorted(missing)))} in group 'fit'"
        )
    else:
        coef = fit["projection_mean"].transpose(FEATURE, COMPONENT)
        mean = coef.values
        columns = {}
    axis = str(coef.dims[-1])
    features = coef[FEATURE].values
    table = xr.Dataset(
        {name: ((FEATURE, axis), values) for name, values in {"mean": mean, **columns}.items()},
        coords={FEATURE: features, axis: coef[axis].values},
    )
    if "feature_relevance" in fit:
        importance = fit["feature_relevance"].values
    table["importance"] = FEATURE, importance
    if "explained" in fit:
        table["alone"] = fit["correlation"].transpose(FEATURE, LABEL)
        table["explained"] = fit["explained"]
        table["false_discovery_rate"] = fit["false_discovery_rate"].where(fit["explained"] > 0, 1.0)
    if stability is not None:
        if not isinstance(stability, xr.Dataset) or "frequency" not in stability:
            raise ValueError("stability must be a Dataset of feature_stability, with 'frequency'")
        frequency = stability["frequency"].to_series()
        if set(frequency.index) != set(features.tolist()):
            raise ValueError("stability is of other features than the tree")
        table["selected"] = FEATURE, np.asarray(frequency.loc[features], dtype=np.float64)
    strength = fit["explained"].values if "explained" in fit else importance
    return table.isel({FEATURE: np.argsort(-strength, kind="stable")})


@styled
def plot_features(
    tree: xr.DataTree,
    *,
    n_features: int = 15,
    stability: xr.Dataset | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the effects of the features on the class scores, given the other features and alone.

    Features are in the order of :func:`features_table`, those that tell most alone first, and names
    are dark if a feature is found at a false discovery rate of 5 %. The caption names peaks of a
    spectrum, whose features have numbers as names. One panel for each of the four class scores
    whose classes go best with the features, and one for two classes, whose scores are opposite. A
    line is the central interval with probability .9, its thick part that with .5, the point the
    median; filled and coloured if the sign has a probability of at least .95, which is written on
    the right. Approximations overstate that probability, so that their points are never filled, and
    a posterior mode has no intervals. A diamond is the correlation with the class, on the upper
    scale. Nonlinear models have a panel per latent coordinate, with mean slopes and no intervals.

    Parameters
    ----------
    tree
        As for :func:`features_table`.
    n_features
        Number of features to show at most, the first of :func:`features_table`.
    stability
        Of :func:`bsdr_models.feature_stability`; adds the share of halves of the samples that
        select a feature.
    ax
        Axes to draw in, divided into panels; a new figure by default.

    Returns
    -------
    Axes
        Its ``child_axes`` are the panels.

    Raises
    ------
    ValueError
        As :func:`features_table`, or if `n_features` is not positive.

    See Also
    --------
    features_table : the numbers.
    bsdr_models.feature_stability : halves of the samples.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> ax = plots.plot_features(model.idata_, n_features=8)
    """
    check_number("n_features", n_features, COUNT)
    table = features_table(tree, stability=stability)
    top = table.isel({FEATURE: slice(n_features)})
    n = top.sizes[FEATURE]
    axis = str(table["mean"].dims[1])
    linear = axis == LABEL
    classes = "y_index" in tree["fit"]
    opposite = classes and axis == LABEL and table.sizes[LABEL] == 2
    size = top["alone" if linear and "alone" in top else "mean"]
    shown = [1] if opposite else _panels(size)
    score = ("class score" if classes else "output") if linear else "latent coordinate"
    widths = np.array([1.0] * len(shown) + [SHARES] * (stability is not None))
    ax = axes_or_new(ax, width=2.2 + 2.4 * max(widths.sum(), 2.0), height=2.1 + 0.24 * n)
    name_features(ax, top[FEATURE].values)
    if "false_discovery_rate" in top:
        for text, rate in zip(ax.get_yticklabels(), top["false_discovery_rate"], strict=True):
            text.set_color(INK if rate <= FOUND else GREY)
    ax.hlines(range(n), 0.0, 1.0, color=PALER, linewidth=0.8, zorder=0)
    ax.set(xlim=(0.0, 1.0), xticks=[], xlabel="mean slope of the latent coordinate")
    if linear:
        ax.set_xlabel(f"effect on the {score} per {_unit(tree)} of the feature")
    ax.xaxis.labelpad = 22.0  # below the numbers of the panels
    ax.spines[:].set_visible(False)
    width = widths / widths.sum() * (1.0 - GAP * (len(widths) - 1))
    left = np.cumsum(width) - width + GAP * np.arange(len(widths))
    room = 0.85 * width[0] * width_in_points(ax)
    names = [literal(name) for name in table[axis].values]
    titles = [wrap(_title(names, k, classes, axis), room) for k in shown]
    header = 1.3 + 0.7 * max(map(len, titles))
    ax.set_ylim(n - 0.4, -header)
    scores = top.isel({axis: shown})
    ends = [scores[name] for name in ("low", "high", "mean") if name in scores]
    reach = max(float(np.abs(values).max()) for values in ends[:2]) or 1.0
    signs = tree.attrs.get("inference_method") not in APPROXIMATE
    for i, (k, lines) in enumerate(zip(shown, titles, strict=True)):
        panel = _panel(ax, left[i], width[i], "\n".join(lines), x=-1.06 * reach, y=0.2 - header)
        panel.set_xlim(-1.06 * reach, (1.7 if signs else 1.2) * reach)
        shades = (
            (color(1 - k if opposite else k), color(k)) if classes and linear else (POSITIVE,) * 2
        )
        _draw_effects(panel, top.isel({axis: k}), reach, shades, signs=signs)
    if stability is not None:
        panel = _panel(ax, left[-1], width[-1], "Selected", x=0.0, y=0.2 - header)
        _draw_selected(panel, top["selected"].values, float(stability.attrs["chance"]))
    note = _caption(tree, table, n, score, signs)
    if stability is not None:
        note += (
            f" Selected: among the first {stability.attrs['n_selected']} in that share of"
            f" {stability.sizes['half']} halves of the samples; dotted: chance."
        )
    if len(shown) < len(names) and not opposite:
        note += f" {len(shown)} of {len(names)} {score}s."
    intervals = "intervals are approximate, usually too narrow"
    note += caveats(tree, intervals if "low" in table else None)
    set_title(ax, f"{'Effects' if linear else 'Mean slopes'} of the features", note)
    return ax


def _intervals(draws: FloatArray) -> dict[str, FloatArray]:
    """Medians, ends of central intervals and probabilities of signs of draws (S, D, K)."""
    tail = 0.5 - PROB / 2.0
    ends = np.quantile(draws, [tail, 0.25, 0.5, 0.75, 1.0 - tail], axis=0)
    positive = (draws > 0).mean(axis=0)
    negative = (draws < 0).mean(axis=0)
    columns = dict(zip(("low", "low_50", "median", "high_50", "high"), ends, strict=True))
    return columns | {"sign_probability": np.maximum(positive, negative)}


def _panels(values: xr.DataArray) -> list[int]:
    """Positions of the scores to show: those with the largest values of features (D, K)."""
    size = (values**2).sum(FEATURE).values
    return np.sort(np.argsort(-size, kind="stable")[:MAX_PANELS]).tolist()


def _title(names: Sequence[str], k: int, classes: bool, axis: str) -> str:
    """Title of the panel of one score."""
    if axis == COMPONENT:
        return f"component {k + 1}"
    if not classes:
        return names[k]
    two = len(names) == 2
    return f"{names[k]} (right) v. {names[1 - k]} (left)" if two else f"{names[k]} v. the others"


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
        probability = one["sign_probability"].values
        middle = one["median"].values
        known = np.abs(middle) > NEGLIGIBLE * reach
        certain = (probability >= CERTAIN) & signs & known
        shade = np.where(certain, np.where(middle > 0.0, shades[1], shades[0]), UNCERTAIN).tolist()
        panel.hlines(place, one["low"], one["high"], colors=shade, linewidth=1.2, zorder=3)
        panel.hlines(place, one["low_50"], one["high_50"], colors=shade, linewidth=3.4, zorder=3)
        fill = np.where(certain, shade, "white").tolist()
        edge = np.where(certain, INK, GREY).tolist()
        panel.scatter(middle, place, s=26, c=fill, edgecolors=edge, linewidths=0.9, zorder=4)
        right = {**small, "ha": "right"}
        for i in np.flatnonzero((probability >= WRITTEN) & signs & known):
            below = np.floor(100.0 * probability[i] + 1e-9) / 100.0  # 0.949 is no 0.95
            text = f"{below:.2f}" if probability[i] < 0.995 else ">0.99"
            written = panel.text(1.68 * reach, float(i), text, path_effects=HALO, **right)
            written.set(fontsize=7.5, color=INK if certain[i] else GREY)
        if signs:
            panel.text(1.68 * reach, -0.75, "P(sign)", **right)
    else:
        panel.scatter(one["mean"], place, s=26, c="white", edgecolors=GREY, zorder=4)
    if "alone" in one and one["alone"].dims == (FEATURE,):
        panel.scatter(reach * one["alone"].values, place, s=24, marker="d", facecolors="none",
                      edgecolors=INK, linewidths=0.9, zorder=5)  # fmt: skip
        for r, text in ((-1, "\N{MINUS SIGN}1"), (0, "r = 0"), (1, "1")):
            panel.text(r * reach, -0.75, text, **small)


def _draw_selected(panel: Axes, share: FloatArray, chance: float) -> None:
    """Shares of halves that select the features."""
    shade = np.where(share >= 0.5, DARK, PALE).tolist()
    bars = panel.barh(np.arange(len(share)), share, height=0.6, color=shade)
    panel.bar_label(bars, fmt="{:.0%}", padding=2.0, fontsize=7.5, path_effects=HALO)
    panel.vlines(chance, -0.6, len(share) - 0.4, color=INK, linewidth=0.9, linestyle=":")
    panel.set_xlim(0.0, 1.35)
    panel.set_xticks([0.0, 0.5, 1.0], ["0", "50", "100%"])


def _unit(tree: xr.DataTree) -> str:
    """Unit of the features that the model sees."""
    config = json.loads(tree.attrs.get("config", "{}"))
    if "metric" in config:  # BM2PCA never scales sparse samples, which no tree holds
        scaled = tree.attrs["model"] != "bm2pca" or "constant_data" in tree.children
        return "SD" if scaled else "scaled unit"
    standardize = config.get("standardize")
    if standardize is True:
        return "SD"
    # BSDR leaves the unit of each feature; BM2PCA gives all features one scale.
    return "unit" if standardize is False and tree.attrs["model"] == "bsdr" else "scaled unit"


def _peaks(table: xr.Dataset) -> str:
    """Where the features of a spectrum tell most: maxima along names that are numbers."""
    try:
        spectrum = table.sortby(table[FEATURE].astype(np.float64))
    except ValueError:
        return ""
    height = spectrum["explained"].values
    # Columns without names are numbers, too, and their neighbours differ.
    if len(height) < LEAST_CHANNELS or np.corrcoef(height[1:], height[:-1])[0, 1] < SMOOTH:
        return ""
    at = find_peaks(height, prominence=PROMINENT * height.max())[0]
    first = at[np.argsort(-height[at])][:MAX_PEAKS]
    return f" Peaks: {', '.join(map(str, spectrum[FEATURE].values[first]))}." if len(at) else ""


def _caption(tree: xr.DataTree, table: xr.Dataset, n: int, score: str, signs: bool) -> str:
    """What the plot of the first n features shows of the scores."""
    d = table.sizes[FEATURE]
    linear = LABEL in table["mean"].dims
    kinds = {"regression": ("output", "outputs"), "multilabel": ("label", "labels")}
    target, targets = kinds.get(tree.attrs.get("target", ""), ("class", "classes"))
    note = f"{'All' if n == d else f'{n} of {d}'} features."
    if "explained" in table:
        note += _peaks(table)
        note += f" First are those that the {targets} explain best, each alone."
        found = int((table["false_discovery_rate"] <= FOUND).sum())
        note += f" {found} of {d} (dark names)" if found else " None"
        verb = "are" if found > 1 else "is"
        note += f" {verb} found at a false discovery rate of {FOUND:.0%}."
    else:
        note += " Those of the largest effects are first."
    if linear:
        mean = "mean effect over the training samples," if tree.attrs.get("nonlinear") else "effect"
        note += f" Points: {mean} given the other features"
        if "low" in table:
            filled = f", filled if P(sign) ≥ {CERTAIN:g}" if signs else ""
            note += f", with intervals of 50% and {PROB:.0%}{filled}."
        else:
            note += " at the posterior mode, which does not show how sure an effect is."
    else:
        note += " Circles: mean slope over the training samples of a nonlinear map; no intervals."
    if linear and "alone" in table:
        note += f" Diamonds: correlation r with the {target}."
    return note
