"""Diagnostics: outliers, comparisons of models, how a fit has ended, and components in use."""

from typing import Any, Literal

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from bsdr_models.dims import COMPONENT, ITERATION, OBS
from bsdr_models.numerics.outliers import q_limit, t2_limit
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._layers import draw_points
from bsdr_models.plots._names import Names
from bsdr_models.plots._read import check_prob, read, read_target
from bsdr_models.plots._style import (
    GREY,
    INK,
    NOTE_SIZE,
    PALE,
    POSITIVE,
    axes_or_new,
    name_features,
    set_title,
    styled,
)

# Multiple of a limit beyond which an axis of outliers becomes logarithmic.
FAR = 8.0
MAX_NAMED = 8  # outliers named
LIMITS = ("reference_rows", "t2_rank", "q_scale", "q_dof")  # attributes on which limits depend
# Models whose interval ends beyond this multiple of the median are drawn at the edge.
WIDE = 4.0
NEGLIGIBLE = 0.1  # nats
DASHED: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2))}


@styled
def plot_outliers(
    tree: xr.DataTree,
    *,
    group: Literal["fit", "predictions"] = "fit",
    prob: float = 0.95,
    ax: Axes | None = None,
) -> Axes:
    """Plot Hotelling's T2 of the samples against their Q residual, with limits.

    T2 is the squared distance from the mean within the latent space, Q the squared residual of the
    features (:mod:`bsdr_models.numerics.outliers`). Each training sample is compared with the
    others. The limits hold `prob` of normal samples: an F quantile for T2, and a quantile of the
    chi-square with the two moments of Q. Samples beyond a limit are named.

    Parameters
    ----------
    tree
        Needs `t2` and `q_residual` (obs,) in `group`, which linear models have, and the root
        attributes `reference_rows`, `t2_rank`, `q_scale` and `q_dof`.
    group
        "fit" for the training samples, "predictions" for new ones.
    prob
        Probability of each limit.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    map_table : T2, Q and tail probability of each sample.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> tree = model.predict_idata(X[1::2], y[1::2])
    >>> ax = plots.plot_outliers(tree, group="predictions")
    """
    check_prob("prob", prob)
    dataset = read(tree, group, "t2", "q_residual")
    if missing := [name for name in LIMITS if name not in tree.attrs]:
        raise ValueError(f"the tree has no root attribute {', '.join(map(repr, missing))}")
    n_samples = int(tree.attrs["reference_rows"]) - (group == "fit")
    t2, q = dataset["t2"].values, dataset["q_residual"].values
    limit = t2_limit(prob, n_samples, int(tree.attrs["t2_rank"]))
    scale = float(tree.attrs["q_scale"])
    q_end = q_limit(prob, scale, float(tree.attrs["q_dof"])) if scale > 0.0 else np.inf
    out = np.flatnonzero((t2 > limit) | (q > q_end))
    points = np.column_stack([t2, q])
    ax = draw_points(ax, points, read_target(tree, group), width=7.2, height=5.2)
    ax.axvline(limit, gid="t2-limit", color=INK, zorder=1, **DASHED)
    if np.isfinite(q_end):
        ax.axhline(q_end, gid="q-limit", color=INK, zorder=1, **DASHED)
    # Far outliers would compress all others into a corner.
    if t2.max() > FAR * limit:
        ax.set_xscale("asinh", linear_width=limit)
        ax.set_xticks(*_decades(limit, t2.max()))
    if q.max() > FAR * q_end:
        ax.set_yscale("asinh", linear_width=q_end)
        ax.set_yticks(*_decades(q_end, q.max()))
    ax.set_xlim(0.0, 1.06 * max(t2.max(), limit))
    ax.set_ylim(0.0, 1.08 * max(q.max(), q_end) if np.isfinite(q_end) else 1.0)
    ax.set(xlabel="T², within the latent space", ylabel="Q residual, outside the latent space")
    of_q = f", Q {q_end:.3g}" if np.isfinite(q_end) else "; no residual"
    note = f"Dashed: {prob:.0%} limits, T² {limit:.3g}{of_q}."
    set_title(ax, f"{len(out)} of {len(t2)} samples beyond the limits", note)
    excess = np.maximum(t2 / limit, q / q_end)[out]
    named = out[np.argsort(-excess, kind="stable")][:MAX_NAMED]
    names = [str(name) for name in dataset[OBS].values[named]]
    Names(ax, points[named], names, centre=np.zeros(2), avoid=points)
    return ax


def _decades(begin: float, end: float) -> tuple[list[float], list[str]]:
    """Ticks at zero, `begin` and at most six powers of ten up to `end`, and their labels."""
    powers = np.arange(np.ceil(np.log10(2.0 * begin)), np.floor(np.log10(end)) + 1.0)
    powers = powers[:: 1 + max(len(powers) - 1, 0) // 6]
    names = [f"{10.0**p:g}" if -3 <= p < 5 else f"$10^{{{p:.0f}}}$" for p in powers]
    return [0.0, begin, *(10.0**powers)], ["0", f"{begin:.3g}", *names]


@styled
def plot_comparison(comparison: Any, *, ax: Axes | None = None) -> Axes:
    """Plot differences of log loss from the lowest with their intervals, accuracy beside.

    The recommended model is in colour and bold. An arrow stands for a model beyond the edge.

    Parameters
    ----------
    comparison : bsdr_models.comparison.Comparison
        What :func:`bsdr_models.compare_models` returns.
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    bsdr_models.compare_models : makes the comparison.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import compare_models, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> found = compare_models(X[::3], y[::3], cv=3, random_state=0, progressbar=False)
    >>> ax = plots.plot_comparison(found)
    """
    table = comparison.table
    names, best = table.index.to_numpy().astype(str), comparison.recommended
    difference, low, high = table[["difference", "low", "high"]].to_numpy(dtype=float).T
    known = np.isfinite(difference)
    limit = 1.06 * float(high[known & (high <= WIDE * np.nanmedian(high))].max()) or 1.0
    ax = axes_or_new(ax, width=7.8, height=1.9 + 0.36 * len(names))
    ax.axvline(0.0, color=INK, zorder=1, **DASHED)
    rows, shades = np.arange(len(names)), np.where(names == best, POSITIVE, GREY)
    near, far = known & (difference <= limit), known & (difference > limit)
    ends = low[near], np.minimum(high[near], limit)
    ax.hlines(rows[near], *ends, colors=shades[near].tolist(), linewidth=2.2)
    ax.scatter(difference[near], rows[near], s=49.0, c=shades[near], edgecolors="w", zorder=3)
    style: dict[str, Any] = {"s": 49.0, "marker": ">", "clip_on": False, "zorder": 3}
    ax.scatter(np.full(far.sum(), limit), rows[far], c=shades[far], **style)
    ax.set_xlim(min(0.0, float(np.nanmin(low))) - 0.04 * limit, limit)
    name_features(ax, names)
    ax.set_xlabel("log loss above the lowest, nats per sample")
    ax.set_ylim(top=-1.3)
    style = {"ha": "right", "va": "center", "fontsize": NOTE_SIZE, "annotation_clip": False}
    style |= {"xycoords": ax.get_yaxis_transform(), "textcoords": "offset points"}
    for name, place, form in (("log_loss", 50.0, ".3f"), ("accuracy", 106.0, ".1%")):
        ax.annotate(name.replace("_", " "), (1.0, -0.9), (place, 0.0), color=GREY, **style)
        for line, value in enumerate(table[name]):
            ax.annotate(
                f"{value:{form}}" if known[line] else "failed", (1.0, line), (place, 0.0), **style
            )
    ax.get_yticklabels()[names.tolist().index(best)].set_fontweight("bold")
    note = f"Lines: {comparison.prob:.0%} intervals over held-out samples. Blue: recommended."
    set_title(ax, f"Held-out log loss, difference from {names[0]}", note)
    return ax


@styled
def plot_bound(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the distance of the evidence lower bound to its last value over the iterations.

    The distance is on a logarithmic scale, since the bound rises most in the first iterations. The
    title says whether the ascent converged, and the last value.

    Parameters
    ----------
    tree
        Needs `fit/elbo` (iteration,).
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    ValueError
        If the fit has no bound, as those by sampling and by Laplace's method.

    See Also
    --------
    bsdr_models.diagnose : convergence of samplers.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import plots
    >>> from bsdr_models.papers import PaperBSDRClassifier
    >>> model = PaperBSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> ax = plots.plot_bound(model.idata_)
    """
    elbo = read(tree, "fit", "elbo")["elbo"]
    iteration, bound = elbo[ITERATION].values, elbo.values
    below = bound[-1] - bound[:-1]
    ax = axes_or_new(ax, height=4.2)
    if np.any(below > 0.0):
        ax.plot(iteration[:-1], np.where(below > 0.0, below, np.nan), color=POSITIVE, linewidth=1.8)
        ax.set_yscale("log")
        ax.axhline(NEGLIGIBLE, color=GREY, zorder=1, **DASHED)
    else:  # a single iteration
        ax.plot(iteration, 0.0 * bound, "o", color=POSITIVE)
    name = tree.attrs.get("objective", "evidence lower bound")
    ax.set(xlabel="iteration", ylabel="nats below the last value")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    note = f"{name.capitalize()} {bound[-1]:,.2f} nats after {len(bound)} iterations. "
    note += f"Dashed: {NEGLIGIBLE:g} nats, a difference that hardly matters."
    state = f"{len(bound)} iterations"
    if tree.attrs.get("interrupted", 0):
        state = "interrupted"
    elif "converged" in tree.attrs:
        state = "converged" if tree.attrs["converged"] else "stopped at max_iter"
    set_title(ax, f"Bound: {state}", note)
    return ax


@styled
def plot_relevance(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance of each component.

    Relevance is the component's share of the between-sample variance of latent coordinates times
    weights. Components below one per cent count as switched off by the prior.

    Parameters
    ----------
    tree
        Needs `fit/relevance` (component,).
    ax
        Axes to draw on; a new figure by default.

    See Also
    --------
    map_table : latent coordinates.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> model = BSDRClassifier(random_state=0).fit(*load_wine(return_X_y=True, as_frame=True))
    >>> ax = plots.plot_relevance(model.idata_)
    """
    fit = read(tree, "fit", "relevance")
    relevance = fit["relevance"].values
    order = np.argsort(-relevance, kind="stable")
    alive = relevance[order] >= ALIVE
    ax = axes_or_new(ax, width=max(4.6, 1.8 + 0.32 * len(order)), height=3.6)
    shades = np.where(alive, POSITIVE, PALE)
    bars = ax.bar(range(len(order)), relevance[order], color=shades, width=0.6)
    if len(order) <= 15:
        text = [f"{share:.0%}" if share >= ALIVE else f"<{ALIVE:.0%}" for share in relevance[order]]
        ax.bar_label(bars, text, padding=4, fontsize=8.5)
    ax.margins(y=0.12)
    ax.axhline(ALIVE, color=INK, **DASHED)
    ax.set_xticks(range(len(order)), [str(name) for name in fit[COMPONENT].values[order]])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="component", ylabel="share of the variance")
    note = f"Variance of latent × weights between samples; below {ALIVE:.0%} (dashed) switched off."
    set_title(ax, f"{alive.sum()} of {len(order)} components in use", note)
    return ax
