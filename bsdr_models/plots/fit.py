"""How a fit by a bound has ended, and what it uses: components, views."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, PercentFormatter

from bsdr_models.dims import CHAIN, COMPONENT, DRAW, ITERATION, TERM, VIEW
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._read import check_prob, read
from bsdr_models.plots._style import (
    GREY,
    INK,
    PALE,
    POSITIVE,
    add_legend,
    axes_or_new,
    color,
    set_title,
    styled,
)

STROKES = ("-", "--")  # the second for terms six to ten, whose colours are too similar
NEGLIGIBLE = 0.1  # nats
DASHED = (0, (4, 2))


@styled
def plot_bound(tree: xr.DataTree, *, by_term: bool = False, ax: Axes | None = None) -> Axes:
    """Plot the distance of the evidence lower bound to its last value over the iterations.

    The distance is on a logarithmic scale, since the bound rises most in the first iterations. The
    title says whether the ascent converged, and the last value.

    Parameters
    ----------
    tree
        Needs `fit/elbo` (iteration,), or `fit/elbo_terms` (iteration, term).
    by_term
        Show each term minus its last value; these add up to the same for the bound. Single terms
        may fall, the bound may not.
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
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = PaperBSDRClassifier(random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_bound(model.idata_)
    """
    if "fit" in tree.children and "elbo" not in tree["fit"]:
        engine = tree.attrs.get("inference_method", "unknown")
        raise ValueError(
            f"group 'fit' has no variable 'elbo' (inference method: {engine}): samplers and "
            "Laplace's method maximise no bound; see bsdr_models.diagnose for their convergence"
        )
    if by_term:
        return _plot_terms(read(tree, "fit", "elbo_terms")["elbo_terms"], ax)
    elbo = read(tree, "fit", "elbo")["elbo"]
    iteration, bound = elbo[ITERATION].values, elbo.values
    below = bound[-1] - bound[:-1]
    ax = axes_or_new(ax, height=4.2)
    if np.any(below > 0.0):
        ax.plot(iteration[:-1], np.where(below > 0.0, below, np.nan), color=POSITIVE, linewidth=1.8)
        ax.set_yscale("log")
        ax.axhline(NEGLIGIBLE, color=GREY, linewidth=0.9, linestyle=DASHED, zorder=1)
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


def _plot_terms(terms: xr.DataArray, ax: Axes | None) -> Axes:
    """Each term of the bound, and their sum, less the last value."""
    iteration = terms[ITERATION].values
    values = terms.transpose(ITERATION, TERM).values
    difference = values - values[-1]
    ax = axes_or_new(ax, width=7.6, height=4.4)
    for i, name in enumerate(terms[TERM].values):
        text = f"{name}  {values[-1, i]:,.1f}"
        ax.plot(iteration, difference[:, i], STROKES[i // 5 % 2], color=color(i), label=text)
    whole = f"bound  {values[-1].sum():,.1f}"
    ax.plot(iteration, difference.sum(axis=1), color=INK, linewidth=2.2, zorder=1.5, label=whole)
    ax.set_yscale("asinh", linear_width=1.0)
    decades = 10.0 ** np.arange(1.0 + np.floor(np.log10(1.0 + np.abs(difference).max())))
    decades = decades[:: 1 + len(decades) // 6]
    ax.set_yticks([*-decades[::-1], 0.0, *decades])
    ax.set_yticks([], minor=True)
    ax.yaxis.set_major_formatter("{x:,.0f}")
    ax.axhline(0.0, color=INK, linewidth=0.6, zorder=1)
    ax.set(xlabel="iteration", ylabel="difference from the last value (nats)")
    add_legend(ax, title="term, last value")
    set_title(ax, "Terms of the lower bound", "Linear up to 1 nat, logarithmic beyond.")
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
    plot_views : shares of views and kernels.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True, as_frame=True)
    >>> model = BSDRClassifier(random_state=0).fit(X[::2], y[::2])
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
    ax.axhline(ALIVE, color=INK, linewidth=0.9, linestyle=DASHED)
    ax.set_xticks(range(len(order)), [str(name) for name in fit[COMPONENT].values[order]])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="component", ylabel="share of the variance")
    note = f"Variance of latent × weights between samples; below {ALIVE:.0%} (dashed) switched off."
    set_title(ax, f"{alive.sum()} of {len(order)} components in use", note)
    return ax


@styled
def plot_views(tree: xr.DataTree, *, prob: float = 0.9, ax: Axes | None = None) -> Axes:
    """Plot the share of each view, or kernel, in the variance of the class scores.

    A line is the central interval with probability `prob`, its thick part that with 50 %, the point
    the median over the posterior draws.

    Parameters
    ----------
    tree
        Needs `posterior/view_share` (chain, draw, view), of a fit of BSDR with several views or
        kernels.
    prob
        Probability of the longer interval.
    ax
        Axes to draw on; a new figure by default.

    Raises
    ------
    ValueError
        If the tree has no shares of views, or `prob` is not between 0 and 1.

    See Also
    --------
    plot_relevance : shares of components.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from bsdr_models import BSDRClassifier, plots
    >>> X, y = load_wine(return_X_y=True)
    >>> views = {"acids": range(5), "phenols": range(5, 9), "colour": range(9, 13)}
    >>> model = BSDRClassifier(views=views, random_state=0).fit(X[::2], y[::2])
    >>> ax = plots.plot_views(model.idata_)
    """
    check_prob(prob)
    share = read(tree, "posterior", "view_share")["view_share"].stack(sample=(CHAIN, DRAW))
    share = share.transpose("sample", VIEW)
    order = np.argsort(np.median(share.values, axis=0), kind="stable")
    tail = 0.5 - prob / 2.0
    low, q25, middle, q75, high = np.quantile(
        share.values[:, order], [tail, 0.25, 0.5, 0.75, 1.0 - tail], axis=0
    )
    ax = axes_or_new(ax, width=5.4, height=1.5 + 0.36 * len(order))
    place = np.arange(len(order))
    ax.hlines(place, low, high, color=POSITIVE, linewidth=1.2)
    ax.hlines(place, q25, q75, color=POSITIVE, linewidth=4.0)
    ax.plot(middle, place, "o", color="white", markeredgecolor=POSITIVE, markersize=6)
    ax.set_yticks(place, [str(name) for name in share[VIEW].values[order]])
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.6, len(order) - 0.4), xlabel="share of the variance")
    ax.xaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(axis="y", visible=False)
    note = f"Median, 50 % and {prob:.0%} intervals of the share in the variances of class scores."
    set_title(ax, "Views", note)
    return ax
