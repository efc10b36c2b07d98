"""Relevance of components."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.arrays import FloatArray, IntArray
from bsdr_models.dims import COMPONENT
from bsdr_models.numerics.relevance import ALIVE
from bsdr_models.plots._read import read
from bsdr_models.plots._style import INK, PALE, POSITIVE, axes_or_new, set_title, styled


@styled
def plot_relevance(tree: xr.DataTree, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance of each component, or the evidence by number of components.

    Relevance is the component's share of the between-sample variance of latent coordinates times
    weights. Components below one per cent count as switched off by the prior. A fit with
    ``n_components="auto"`` shows the log evidence of every number of components that it compared.

    Parameters
    ----------
    tree
        Needs `fit/relevance` (component,), or the root attributes `components_compared` and
        `components_log_evidence`.
    ax
        Axes to draw on; a new figure by default.
    """
    fit = read(tree, "fit", "relevance")
    relevance = fit["relevance"].values
    if "components_compared" in tree.attrs:
        return _plot_evidence(tree, relevance, ax)
    order = _largest(relevance, len(relevance))
    alive = relevance[order] >= ALIVE
    ax = axes_or_new(ax, width=max(4.6, 1.8 + 0.32 * len(order)), height=3.6)
    shades = np.where(alive, POSITIVE, PALE)
    bars = ax.bar(range(len(order)), relevance[order], color=shades, width=0.6)
    if len(order) <= 15:
        text = [f"{share:.0%}" if share >= ALIVE else f"<{ALIVE:.0%}" for share in relevance[order]]
        ax.bar_label(bars, text, padding=4, fontsize=8.5)
    ax.margins(y=0.12)
    ax.axhline(ALIVE, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
    ax.set_xticks(range(len(order)), [str(name) for name in fit[COMPONENT].values[order]])
    ax.grid(axis="x", visible=False)
    ax.set(xlabel="component", ylabel="share of the variance")
    note = f"Variance of latent × weights between samples; below {ALIVE:.0%} (dashed) switched off."
    set_title(ax, f"{alive.sum()} of {len(order)} components in use", note)
    return ax


def _plot_evidence(tree: xr.DataTree, relevance: FloatArray, ax: Axes | None) -> Axes:
    """Log evidence of every number of components compared, relative to the largest."""
    number = np.atleast_1d(tree.attrs["components_compared"])
    evidence = np.atleast_1d(tree.attrs["components_log_evidence"])
    number, evidence = number[np.argsort(number)], evidence[np.argsort(number)]
    below = evidence - evidence.max()
    ax = axes_or_new(ax, width=5.4, height=3.8)
    ax.plot(number, below, "o-", color=POSITIVE, linewidth=1.6, markersize=6)
    error = float(tree.attrs.get("components_error", 0.0))
    best = [int(np.argmax(below >= -error))]
    ax.scatter(number[best], below[best], s=130, facecolors="none", edgecolors=INK, zorder=4)
    ax.set_xticks(number)
    ax.margins(y=0.12)
    ax.set(xlabel="number of components", ylabel="log evidence below the largest (nats)")
    shares = ", ".join(f"{share:.0%}" for share in sorted(relevance, reverse=True))
    note = f"Ring: fewest within {error:.1f} nats, one standard error. Shares of the variance: "
    title = f"{number[best][0]} of up to {number[-1]} components by their evidence"
    set_title(ax, title, f"{note}{shares}.")
    return ax


def _largest(size: FloatArray, limit: int) -> IntArray:
    """Indices of the largest entries, in descending order; ties keep their order."""
    return np.argsort(-size, kind="stable")[:limit]
