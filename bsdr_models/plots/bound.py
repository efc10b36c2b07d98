"""Convergence of the evidence lower bound."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes

from bsdr_models.dims import ITERATION, TERM
from bsdr_models.plots._read import read
from bsdr_models.plots._style import (
    INK,
    NOTE_SIZE,
    POSITIVE,
    add_legend,
    axes_or_new,
    color,
    set_title,
    styled,
)

STROKES = ("-", "--")  # the second for terms six to ten, whose colours are too similar


@styled
def plot_bound(tree: xr.DataTree, *, by_term: bool = False, ax: Axes | None = None) -> Axes:
    """Plot the evidence lower bound over the iterations.

    The bound rises most in the first iterations and then looks flat; the inset shows its difference
    to the last value on a logarithmic scale.

    Parameters
    ----------
    tree
        Needs `fit/elbo` (iteration,), or `fit/elbo_terms` (iteration, term).
    by_term
        Show each term minus its last value; these add up to the same for the bound. Single terms
        may fall, the bound may not.
    ax
        Axes to draw on; a new figure by default.
    """
    if by_term:
        return _plot_terms(read(tree, "fit", "elbo_terms")["elbo_terms"], ax)
    elbo = read(tree, "fit", "elbo")["elbo"]
    iteration, bound = elbo[ITERATION].values, elbo.values
    ax = axes_or_new(ax, height=4.2)
    ax.plot(iteration, bound, color=POSITIVE, linewidth=1.8)
    name = tree.attrs.get("objective", "evidence lower bound")
    ax.set(xlabel="iteration", ylabel=f"{name} (nats)")
    ax.yaxis.set_major_formatter("{x:,.9g}")  # as many digits as the ticks have
    set_title(ax, name.capitalize(), f"{bound[-1]:,.2f} nats after {len(bound)} iterations.")
    gap = bound[-1] - bound[:-1]
    if np.any(gap > 0.0):
        inset = ax.inset_axes((0.4, 0.2, 0.56, 0.5))
        inset.plot(iteration[:-1], np.where(gap > 0.0, gap, np.nan), color=INK, linewidth=1.2)
        inset.set_yscale("log")
        inset.set_title("difference to the last value (nats)", fontsize=NOTE_SIZE, weight="normal")
        inset.tick_params(labelsize=NOTE_SIZE - 1.0)
    return ax


def _plot_terms(terms: xr.DataArray, ax: Axes | None) -> Axes:
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
    note = "Linear up to 1 nat, logarithmic beyond."
    set_title(ax, "Terms of the lower bound", note)
    return ax
